"""What a report says about the run as a whole.

None is unknown or not measured, never 0.
"""

from __future__ import annotations

from typing import Final, Literal

from harness.outcome import Cause
from harness.records import MachineFacts, Protocol, Record, Sampling, Target

REPORT_SCHEMA_VERSION: Final = 1

Unit = Literal["share", "ratio"]
MetricName = Literal[
    "compiles", "correct", "deployed", "speedup_both_correct", "pass_at_1", "pass_at_k", "pass_hat_k"
]


class NamedDigest(Record):
    """A skill or task, and the digest that pins it."""

    name: str
    digest: str


class Leak(Record):
    """A task whose reference a skill repeats: no comparison, rate or decision counts it."""

    task: str
    where: str
    """Where in the skill."""


class Gap(Record):
    """Why a metric was not measured in this run."""

    cause: Cause
    reason: str
    """In a few words, such as `no CUDA device`."""
    message: str
    """First line of the first such trial's message."""
    trials: int
    """How many trials stopped there."""


class Quartiles(Record):
    """A distribution of durations."""

    n: int
    total_s: float
    median_s: float
    q1_s: float
    q3_s: float


class Usages(Record):
    """Tokens and dollars; None is unknown, which one unknown reply is enough for."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None

    @property
    def tokens(self) -> int | None:
        """Input and output together; cached and reasoning tokens are parts of them."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class Head(Record):
    """What was measured, where, and with what."""

    run_id: str
    created: str
    target: Target
    protocol: Protocol
    metric: Literal["deployed", "correct", "compiles"]
    """The primary metric, fixed before the run."""
    sandbox: str
    sandbox_facts: dict[str, str]
    sandbox_weak: bool
    """The run used `local`, which isolates little."""
    machine: MachineFacts
    device: str
    """What the kernels were built for and ran on, in words."""
    grader_version: str
    image: str | None
    models: tuple[str, ...]
    skills: tuple[NamedDigest, ...]
    tasks: tuple[NamedDigest, ...]
    families: tuple[str, ...]
    repeats: int
    turns: int
    sampling: Sampling
    seed: int
    alpha: float = 0.05
    """Level of the decision; intervals of lifts hold 1 - alpha."""
    leaked: tuple[Leak, ...] = ()


class Progress(Record):
    """How much of the plan (tasks x arms x models x repeats) is there."""

    planned: int
    finished: int
    scored: int
    """Finished and not lost to infra."""
    owed: int
    """Planned and absent: not measured yet."""
    infra_trials: int
    """Every attempt failed for a reason of ours: not scored."""
    infra_failures: int
    """Failed attempts, of all trials."""
    unplanned: int
    """Records whose task, model or arm is not in the plan: left out."""


class Replies(Record):
    """Where the students' replies came from."""

    recorded: int
    live: int
    model_labels: tuple[str, ...]
    """As the providers or recordings name them."""
    first: str | None
    last: str | None
    """Dates (UTC, ISO 8601) of the first and last reply."""


class Timings(Record):
    """What the run's time went into; None where nothing was timed."""

    reply: Quartiles | None
    build: Quartiles | None
    """Wall time of builds that were not in the cache."""
    compiler: Quartiles | None
    """Sum of compile and link commands, per build that ran them."""
    grade: Quartiles | None
    cache_hits: int
    builds: int


class Detectable(Record):
    """What a study can detect: from its plan alone, or after the fact from the spread it found."""

    n_families: int
    sd: float
    """Between families, assumed or observed: of the log ratio for deployed, of the share otherwise."""
    effect: float | None
    """A ratio for deployed, else a fraction; None with too few families for any decision."""
    statement: str
