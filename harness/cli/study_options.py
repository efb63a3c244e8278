"""Options of a study, from text to records: shared by `eval` and `generate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.records import ModelSpec
    from harness.skills.spec import LoadedSkill
    from harness.study.arms import Delivery
    from harness.study.study import Metric


def parse_metric(name: str | None) -> Metric:
    """Raises UsageError for anything but deployed, correct and compiles."""
    from harness.errors import UsageError

    if name is None or name == "deployed":
        return "deployed"
    if name == "correct":
        return "correct"
    if name == "compiles":
        return "compiles"
    raise UsageError(f"--metric {name}: there are deployed, correct and compiles")


def model_specs(names: list[str], base_url: str | None) -> tuple[ModelSpec, ...]:
    """Raises UsageError for a name that is none, a repeat, or a base URL that fits no model."""
    from pydantic import ValidationError

    from harness.errors import UsageError
    from harness.models import PROVIDERS
    from harness.records import ModelSpec
    from harness.records.reasons import reason_of

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


def parse_delivery(name: str) -> Delivery:
    """Raises UsageError for anything but body and disclosed."""
    from harness.errors import UsageError

    if name == "body":
        return "body"
    if name == "disclosed":
        return "disclosed"
    raise UsageError(f"--delivery {name}: there are body and disclosed")


def parse_arms(given: Sequence[str]) -> tuple[bool, LoadedSkill | None]:
    """Whether there is a placebo, and the old version: from `placebo`, `old=DIR` or both with a comma."""
    from harness.errors import UsageError
    from harness.skills.spec import load_skill

    with_placebo, old = False, None
    for word in (word.strip() for text in given for word in text.split(",")):
        if word == "placebo":
            with_placebo = True
        elif word.startswith("old=") and old is None:
            old = load_skill(word.removeprefix("old="))
        else:
            raise UsageError(f"--arms {word}: write placebo, old=DIR or both (without and with are there)")
    return with_placebo, old
