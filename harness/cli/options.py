"""Options that several commands share, and what is made of them: models, sandbox, grader."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import platformdirs
import typer
from pydantic import ValidationError

from harness.errors import UsageError
from harness.grading.setup import BuildSetup, GradingSetup, open_build_setup
from harness.models.meter import Limits, Meter
from harness.models.providers import PROVIDERS
from harness.models.recording import read_manifest
from harness.records import Briefing, Delivery, Metric, ModelSpec, Protocol, Target
from harness.records.reasons import reason_of
from harness.skills.spec import LoadedSkill, load_skill
from sandboxes.gpu import find_gpus

if TYPE_CHECKING:  # torch
    from harness.grading.opening import LocalGradingSetup

DEFAULT_RUNS: Final = Path("runs")

TargetOption = Annotated[Target, typer.Option(help="cuda: sm_90, an H100 or H200. cpu: any machine.")]
ProtocolOption = Annotated[Protocol, typer.Option(help="quick, or full for leaderboards.")]
SandboxOption = Annotated[str, typer.Option(help="auto, docker, bubblewrap, landlock or local.")]
SanitizeOption = Annotated[bool, typer.Option("--sanitize", help="CUDA only: run compute-sanitizer too.")]
TimedOption = Annotated[bool, typer.Option("--time/--no-time", help="Whether correct projects are timed.")]
EmulateOption = Annotated[
    bool,
    typer.Option(
        "--emulate/--no-emulate", help="cuda without a GPU: check projects on the emulated GPU, untimed."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
TasksRootOption = Annotated[Path | None, typer.Option(help="Folder of tasks (default: the shipped ones).")]
CacheOption = Annotated[Path | None, typer.Option("--cache", help="Folder for builds (default: ~/.cache).")]
RunsDirOption = Annotated[Path, typer.Option("--runs-dir", help="Folder that holds the runs.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's folder, its name or the end of it, or `last`.")
]
SkillArgument = Annotated[
    str, typer.Argument(metavar="SKILL", help="A skill's folder, or the name of a shipped or fetched one.")
]
ModelsOption = Annotated[list[str], typer.Option("-m", "--model", help="provider/model; repeatable.")]
PatternsOption = Annotated[list[str] | None, typer.Option(help="Globs, such as 'l1/*'; repeatable.")]
RepeatsOption = Annotated[int, typer.Option("--runs", min=1, help="Replies per task, model and arm.")]
BaseUrlOption = Annotated[str | None, typer.Option(help="An OpenAI-compatible server, with /v1.")]


@dataclass(frozen=True, kw_only=True)
class GradingOptions:
    """Where and how projects are graded."""

    target: TargetOption = "cuda"
    protocol: ProtocolOption = "quick"
    sandbox: SandboxOption = "auto"
    emulate: EmulateOption = True
    tasks_root: TasksRootOption = None
    cache: CacheOption = None


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """How models are asked, and within which limits."""

    delivery: Annotated[Delivery, typer.Option(help="disclosed: the skill is read file by file.")] = "body"
    briefing: Annotated[
        Briefing | None,
        typer.Option(
            help="contract: prompts name kernel-builder only; full: they describe its format too (default: "
            "contract, or a recording's own)."
        ),
    ] = None
    turns: Annotated[
        int, typer.Option(min=1, max=20, help="Maximum replies per trial; feedback is sent between them.")
    ] = 1
    metric: Annotated[
        Metric | None,
        typer.Option(
            metavar="METRIC",
            help="Primary metric: deployed, correct, compiles, correct_emulated (default: deployed; for "
            "cuda without a GPU, compiles).",
        ),
    ] = None
    max_tokens: Annotated[int, typer.Option(min=1, help="Output tokens per reply.")] = 16_000
    max_connections: Annotated[
        int, typer.Option(min=1, help="Trials under way at once; two or more per GPU.")
    ] = 4
    max_wall: Annotated[
        float | None, typer.Option(min=1, help="Limit of each run in seconds; the same command resumes.")
    ] = None
    max_cost: Annotated[float | None, typer.Option(min=0, help="Limit in dollars.")] = None
    max_calls: Annotated[int | None, typer.Option(min=1, help="Limit on calls of models.")] = None
    max_total_tokens: Annotated[int | None, typer.Option(min=1, help="Limit on tokens, in and out.")] = None
    runs_dir: RunsDirOption = DEFAULT_RUNS

    def meter(self) -> Meter:
        """Counts calls against the limits."""
        return Meter(
            Limits(max_tokens=self.max_total_tokens, max_cost_usd=self.max_cost, max_calls=self.max_calls)
        )


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """On how many graders projects are graded."""

    gpus: Annotated[
        str, typer.Option(metavar="all|N|UUID,...", help="cuda: GPUs of this machine, one grader for each.")
    ] = "all"
    fleet: Annotated[
        str | None, typer.Option(metavar="HOST:PORT|local", help="Grade on the nodes of this Ray cluster.")
    ] = None


def expand_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with one option for each field of its dataclass parameters."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        assert isinstance(group, type)
        groups[parameter.name] = group
        made = inspect.signature(group, eval_str=True).parameters.values()
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in made]

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def cache_folder(given: Path | None) -> Path:
    """Where builds are kept."""
    return Path(platformdirs.user_cache_dir("liftbench")) if given is None else given.resolve()


def primary_metric(given: Metric | None, target: Target) -> Metric:
    """The given one, or by default what this machine can measure."""
    if given is not None:
        return given
    return "compiles" if target == "cuda" and not find_gpus() else "deployed"


def briefing_for(given: Briefing | None, models: Sequence[ModelSpec]) -> Briefing:
    """The given one; by default that of the recordings among the models, or `contract`.

    Raises UsageError where a recording was made with another one.
    """
    recorded = {s.name: read_manifest(Path(s.model)).briefing for s in models if s.provider == "replay"}
    usual: Briefing = next(iter(recorded.values()), "contract")
    chosen = given or usual
    for name, briefing in recorded.items():
        if briefing != chosen:
            mixed = len(set(recorded.values())) > 1
            advice = "evaluate the recordings one by one" if mixed else "leave --briefing out"
            raise UsageError(
                f"--briefing {chosen}: {name} was recorded with --briefing {briefing}, and answers no other "
                f"prompts; {advice}"
            )
    return chosen


def model_specs(names: Sequence[str], base_url: str | None) -> tuple[ModelSpec, ...]:
    """Models by name. Raises UsageError for a malformed or repeated name or a useless base URL."""
    try:
        specs = [ModelSpec(name=name) for name in names]
    except ValidationError as error:
        raise UsageError(reason_of(error)) from None
    if len(set(names)) != len(names):
        raise UsageError("a model is named twice")
    if base_url is None:
        return tuple(specs)
    # Never send a provider's key to a server that was meant for another model.
    foreign = [s for s in specs if s.provider not in PROVIDERS]
    chosen = foreign or (specs if len(specs) == 1 else [])
    if not chosen:
        raise UsageError("--base-url fits none of the models; give it with one model at a time")
    return tuple(s.model_copy(update={"base_url": base_url}) if s in chosen else s for s in specs)


def parse_arms(given: Sequence[str]) -> tuple[bool, LoadedSkill | None]:
    """Whether there is a placebo, and the old version: from `placebo`, `old=DIR` or both with a comma."""
    with_placebo, old = False, None
    for word in (word.strip() for text in given for word in text.split(",")):
        if word == "placebo":
            with_placebo = True
        elif word.startswith("old=") and old is None:
            old = load_skill(word.removeprefix("old="))
        else:
            raise UsageError(
                f"--arms {word}: write placebo, old=DIR or both (the arms without and with are always there)"
            )
    return with_placebo, old


def say(line: str) -> None:
    """One line on stderr."""
    print(line, file=sys.stderr)


def make_build_setup(sandbox: str, cache: Path | None, target: Target | None = None) -> BuildSetup:
    """The sandbox of that name; stderr says which it is and why. Raises UsageError."""
    return open_build_setup(sandbox, cache_folder(cache), say, target)


def make_grading_setup(
    grading: GradingOptions, *, sanitize: bool = False, timed: bool = True
) -> LocalGradingSetup:
    """A grader for this machine. For CUDA the GPU is opened. Raises UsageError."""
    if sanitize and grading.target == "cpu":
        raise UsageError("--sanitize: compute-sanitizer is for CUDA; use --target cuda")
    # It imports torch.
    from harness.grading.opening import open_grading_setup

    return open_grading_setup(
        grading.sandbox,
        cache_folder(grading.cache),
        say,
        target=grading.target,
        protocol=grading.protocol,
        sanitize=sanitize,
        timed=timed,
        emulate=grading.emulate,
    )


def make_setup(grading: GradingOptions, several: FleetOptions, *, timed: bool = True) -> GradingSetup:
    """Graders on several GPUs or nodes, or one in this process. Raises UsageError, NoGraderLeft."""
    gpus = find_gpus() if grading.target == "cuda" else []
    if several.fleet is None and len(gpus) < 2:
        if several.gpus not in ("all", *(gpu.uuid for gpu in gpus), *(["1"] if gpus else [])):
            raise UsageError(f"--gpus {several.gpus}: --target {grading.target} has {len(gpus)} GPUs here")
        return make_grading_setup(grading, timed=timed)
    # They import torch.
    from harness.fleet.messages import HostSpec
    from harness.fleet.opening import chosen_gpus, open_fleet, open_pool, places_here

    spec = HostSpec(
        target=grading.target,
        protocol=grading.protocol,
        sandbox=grading.sandbox,
        cache=str(cache_folder(grading.cache)),
        emulate=grading.emulate,
        timed=timed,
    )
    if several.fleet is not None:
        return open_fleet(several.fleet, spec, say)
    uuids = [gpu.uuid for gpu in chosen_gpus(several.gpus, gpus)]
    return open_pool(spec, lambda one: places_here(uuids, one), say)
