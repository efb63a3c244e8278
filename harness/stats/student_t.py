"""Student's t distribution, without scipy.

Pure; bad input is a ValueError. Source: the regularised incomplete beta function by its continued fraction
(Abramowitz and Stegun 26.5.8, 26.7.1).
"""

import functools
import math


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function, DLMF 8.17.22, by modified Lentz."""
    numerator, denominator = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    result = denominator
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            denominator = 1.0 / (1.0 + term * denominator)
            numerator = 1.0 + term / numerator
            result *= numerator * denominator
        if abs(numerator * denominator - 1.0) < 3e-15:
            return result
    raise ArithmeticError(f"incomplete beta did not converge for a={a}, b={b}, x={x}")


def t_upper(t: float, df: float) -> float:
    """P(T > t) for t >= 0: half of I_x(df/2, 1/2), x = df / (df + t^2) (DLMF 8.17)."""
    if t == 0.0:
        return 0.5
    a, b, ratio = df / 2.0, 0.5, t / math.sqrt(df)
    # log1p keeps the digits for large df, hypot does not overflow for large t.
    log_x = -math.log1p(ratio * ratio) if ratio < 1.0 else -2.0 * math.log(math.hypot(1.0, ratio))
    log_y = 2.0 * math.log(ratio) + log_x
    x, y = math.exp(log_x), math.exp(log_y)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * log_x + b * log_y - log_beta)
    if x < (a + 1.0) / (a + b + 2.0):
        return 0.5 * front * _beta_fraction(a, b, x) / a
    return 0.5 * (1.0 - front * _beta_fraction(b, a, y) / b)


def t_cdf(t: float, df: float) -> float:
    """P(T <= t) of Student's t with df >= 1 degrees of freedom. ValueError: t not finite, df < 1."""
    _require(math.isfinite(t), f"t must be finite, got {t}")
    _require(1.0 <= df < math.inf, f"df must be finite and at least 1, got {df}")
    upper = t_upper(abs(t), df)
    return 1.0 - upper if t > 0 else upper


@functools.lru_cache(maxsize=256)
def t_ppf(p: float, df: float) -> float:
    """The t with P(T <= t) = p: bisection on the tail. ValueError: p outside (0, 1), df < 1."""
    _require(1e-300 <= p < 1.0, f"p must lie strictly between 0 and 1, got {p}")
    _require(1.0 <= df < math.inf, f"df must be finite and at least 1, got {df}")
    tail = min(p, 1.0 - p)
    if tail == 0.5:
        return 0.0
    low, high = 0.0, 1.0
    while t_upper(high, df) > tail:
        low, high = high, 2.0 * high
    while low < (middle := 0.5 * (low + high)) < high:  # ends at two neighbouring floats
        low, high = (middle, high) if t_upper(middle, df) > tail else (low, middle)
    return high if p > 0.5 else -high
