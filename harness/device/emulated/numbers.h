// Numbers: register bits as values of PTX types (5.2), small floating-point formats, conversions between
// them. A value of type f16, bf16, f16x2 and so on keeps its bits; a wider type computes and rounds once.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <xmmintrin.h>

namespace emulated {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using u128 = unsigned __int128;
using s128 = __int128;
using b8 = u8;
using b16 = u16;
using b32 = u32;
using b64 = u64;
using b128 = u128;
using pred = bool;
using f32 = float;
using f64 = double;

enum Rounding { r_, r_rn = r_, r_rz, r_rm, r_rp, r_rna };

// ---- small formats. `highest` is the code of the largest finite number, `nan` the canonical NaN.
struct Format {
    int mantissa, bias;
    u32 sign, highest, infinity, nan;
};
constexpr Format F16{10, 15, 0x8000, 0x7bff, 0x7c00, 0x7fff};
constexpr Format BF16{7, 127, 0x8000, 0x7f7f, 0x7f80, 0x7fff};
constexpr Format TF32{10, 127, 0x40000, 0x3fbff, 0x3fc00, 0x3ffff};  // the upper 19 bits of an f32
constexpr Format E4M3{3, 7, 0x80, 0x7e, 0x7f, 0x7f};                 // no infinity
constexpr Format E5M2{2, 15, 0x80, 0x7b, 0x7c, 0x7f};

// The code of the number nearest to `value` in the direction that `mode` says. Past the largest finite
// number: the largest finite one with `finite`, or where the mode rounds towards zero, else infinity.
inline u32 encode(const Format& f, double value, Rounding mode = r_rn, bool finite = false) {
    if (std::isnan(value)) return f.nan;
    bool negative = std::signbit(value);
    u32 sign = negative ? f.sign : 0;
    double size = std::fabs(value);
    bool up_only = mode == (negative ? r_rm : r_rp);
    bool down_only = mode == r_rz || mode == (negative ? r_rp : r_rm);
    if (std::isinf(size)) return sign | (finite ? f.highest : f.infinity);
    int exponent = size == 0 ? 1 - f.bias : std::max(std::ilogb(size), 1 - f.bias);
    double units = std::ldexp(size, f.mantissa - exponent), whole = std::floor(units), rest = units - whole;
    u64 digits = u64(whole);
    bool up = up_only ? rest > 0 : rest > 0.5 || (rest == 0.5 && (mode == r_rna || (digits & 1)));
    if (down_only) up = false;
    s64 code = (s64(exponent + f.bias - 1) << f.mantissa) + digits + up;  // a carry moves into the exponent
    if (code <= f.highest) return sign | u32(code);
    return sign | (finite || down_only ? f.highest : f.infinity);
}

inline float decode(const Format& f, u32 code) {
    u32 size = code & (f.sign - 1);
    int exponent = int(size >> f.mantissa), whole = 1 << f.mantissa, digits = int(size) & (whole - 1);
    float value =
        std::ldexp(float(exponent ? digits | whole : digits), std::max(exponent, 1) - f.bias - f.mantissa);
    if (size > f.highest) value = size == f.infinity && f.infinity != f.nan ? INFINITY : NAN;
    return code & f.sign ? -value : value;
}

// A double as a float whose last bit is odd where it is inexact: a further rounding is then the only one.
inline float rounded_to_odd(double value) {
    float near = float(value);
    if (double(near) == value || std::isnan(value)) return near;
    u32 bits = std::bit_cast<u32>(near);
    if (bits & 1) return near;
    bool away = std::fabs(double(near)) > std::fabs(value);
    return std::bit_cast<float>(away ? bits - 1 : bits + 1);
}

struct f16 {
    u16 bits;
    f16() = default;
    explicit f16(float value) : bits(std::isnan(value) ? F16.nan : std::bit_cast<u16>(_Float16(value))) {}
    explicit f16(double value) : f16(rounded_to_odd(value)) {}
    operator float() const { return float(std::bit_cast<_Float16>(bits)); }
};

struct bf16 {
    u16 bits;
    bf16() = default;
    explicit bf16(float value) {
        const u32 full = std::bit_cast<u32>(value);
        bits = std::isnan(value) ? BF16.nan : (full + 0x7fff + (full >> 16 & 1)) >> 16;
    }
    explicit bf16(double value) : bf16(rounded_to_odd(value)) {}
    operator float() const { return std::bit_cast<float>(u32(bits) << 16); }
};

template <class H> struct Pair { H low, high; };
using f16x2 = Pair<f16>;
using bf16x2 = Pair<bf16>;
using f32x2 = Pair<f32>;
template <class T> constexpr bool is_pair = false;
template <class H> constexpr bool is_pair<Pair<H>> = true;
template <class T> constexpr bool is_small = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <class T> constexpr bool is_float = std::is_floating_point_v<T> || is_small<T>;

// ---- registers hold bits: as<T> reads their lower part as a T, put<T> writes one and extends its sign.
template <int Bytes> using Bits = std::conditional_t<Bytes == 1, u8,
    std::conditional_t<Bytes == 2, u16, std::conditional_t<Bytes == 4, u32, u64>>>;

template <class T, class Register> inline T as(Register bits) {
    if constexpr (std::is_integral_v<T> || sizeof(T) == 16) return T(bits);
    else return std::bit_cast<T>(static_cast<Bits<sizeof(T)>>(bits));
}
template <class T, class Register> inline void put(Register& to, T value) {
    if constexpr (std::is_integral_v<T> || sizeof(T) == 16) to = static_cast<Register>(value);
    else to = std::bit_cast<Bits<sizeof(T)>>(value);
}

// ---- rounding modes of basic operations on f32 and f64
// The compiler may not move arithmetic on these values across a change of the rounding mode.
template <Rounding R, class T> inline T opaque(T value) {
    if constexpr (R != r_rn) asm volatile("" : "+m"(value) : : "memory");
    return value;
}
template <Rounding R, class F, class... T> inline auto rounding(F operation, T... values) {
    constexpr unsigned modes[] = {0, 0x6000, 0x2000, 0x4000}, field = 0x6000;
    const unsigned before = R == r_rn ? 0 : _mm_getcsr();
    if (R != r_rn) _mm_setcsr((before & ~field) | modes[R]);
    auto result = opaque<R>(operation(opaque<R>(values)...));
    if (R != r_rn) _mm_setcsr(before);
    return result;
}

// ---- subnormal numbers and ranges
template <bool Ftz, class T> inline T flush(T value) {
    if constexpr (Ftz && std::is_same_v<T, f32>)
        return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
    else if constexpr (Ftz && std::is_same_v<T, f16>)
        return std::bit_cast<f16>(u16(value.bits & 0x7c00 ? value.bits : value.bits & 0x8000));
    else return value;
}
template <bool On, class T> inline T saturated(T value) {  // NaN is 0
    return !On ? value : value > T(0.0f) ? value < T(1.0f) ? value : T(1.0f) : T(0.0f);
}
template <class T> inline T clamped(s128 value) {
    s128 low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    return T(value < low ? low : value > high ? high : value);
}

// ---- cvt between numbers (9.7.9.21)
enum class Integral { none, rni, rzi, rmi, rpi };

inline double integral(Integral mode, double value) {
    switch (mode) {
        case Integral::rni: return std::nearbyint(value);
        case Integral::rzi: return std::trunc(value);
        case Integral::rmi: return std::floor(value);
        case Integral::rpi: return std::ceil(value);
        default: return value;
    }
}

// Out of range: the nearest number. NaN: 0, or the lowest s64 for results of 64 bits.
template <class D> inline D to_integer(double value) {
    if (std::isnan(value)) return sizeof(D) == 8 ? D(1ull << 63) : 0;
    constexpr D low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
    return value <= double(low) ? low : value >= double(high) ? high : D(value);
}

// An integer as a double with at least 53 significant bits and an odd last bit where it is inexact.
template <class S> inline double odd_double(S value) {
    s128 wide = value, size = wide < 0 ? -wide : wide;
    if (size >> 53) size = ((size >> 11) | ((size & 2047) != 0)) << 11;
    double result = double(u64(size));
    return wide < 0 ? -result : result;
}

template <class D, Rounding R, bool Finite = false>
inline D narrowed(double value) {  // from a value that is exact or rounded to odd
    if constexpr (std::is_same_v<D, f64>) return value;
    else if constexpr (std::is_same_v<D, f32>) {
        const f32 result = rounding<R>([](double x) { return f32(x); }, value);
        return Finite && std::isinf(result) ? std::copysign(std::numeric_limits<f32>::max(), result) : result;
    } else if constexpr (R == r_rn && !Finite) return D(value);
    else return std::bit_cast<D>(u16(encode(std::is_same_v<D, f16> ? F16 : BF16, value, R, Finite)));
}

template <class P, Rounding R, bool Finite> inline P pair(f32 low, f32 high) {
    using H = decltype(P::low);
    return {narrowed<H, R, Finite>(low), narrowed<H, R, Finite>(high)};
}

template <class D, class S, Rounding R, Integral I, bool Ftz, bool Sat> inline D converted(S value) {
    if constexpr (is_float<S> && is_float<D>)
        return saturated<Sat>(flush<Ftz>(narrowed<D, R>(integral(I, flush<Ftz>(value)))));
    else if constexpr (is_float<S>) return to_integer<D>(integral(I, flush<Ftz>(value)));
    else if constexpr (std::is_floating_point_v<D>)
        return saturated<Sat>(rounding<R>([](S x) { return D(x); }, value));
    else if constexpr (is_float<D>) return saturated<Sat>(narrowed<D, R>(odd_double(value)));
    else return Sat ? clamped<D>(value) : D(value);
}

}  // namespace emulated
