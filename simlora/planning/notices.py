"""What a user should know of a plan: what was not measured, what runs cannot tell, what an engine would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simlora.config.engine_flags import HUB, OF_LORA, PREFIX_CACHING, TODAY, WINDOWS, WITHOUT_LORA, engine
from simlora.metrics.saturation import NEAR, UNKNOWN
from simlora.planning.candidate import Candidate
from simlora.planning.machines import key_of
from simlora.sweeps.outcome import Outcome

SLOTS_OF_ENGINE = ("scheduler", "loader", "eviction", "kernel", "replica")
"""Groups of keys that change the engine itself."""


def notices(candidate: Candidate, outcomes: Sequence[Outcome], longest_tokens: int, told: bool) -> list[str]:
    """Return sentences about a plan with these runs, whose longest request may have so many tokens.

    `told`: the runs with as much traffic as it carries tell whether a queue would grow.
    """
    return [
        *dict.fromkeys(said for one in outcomes for said in one.warnings),
        *_too_short(candidate, outcomes, told),
        *_refused(outcomes),
        *_of_model(str(candidate.machine.setting("model.name")), longest_tokens),
    ]


def _too_short(candidate: Candidate, outcomes: Sequence[Outcome], told: bool) -> Iterator[str]:
    loads = [one.summary["load"] for one in outcomes]
    unclear = (UNKNOWN,) if candidate.machine.lasts else (UNKNOWN, NEAR)  # a trace cannot be longer
    short = any(load["label"] in unclear for load in loads)
    if short or not told:
        arrivals_s = min(load["arrivals_s"] for load in loads)
        of = "the plan" if short else "as much traffic as it carries"
        yield (
            f"{arrivals_s:,.0f} s of arrivals are too short to tell whether the queue of {of} would go on growing: "
            "a longer trace may need more"
        )


def _refused(outcomes: Sequence[Outcome]) -> Iterator[str]:
    worst = max((one.summary for one in outcomes), key=lambda each: int(each["requests"]["rejected"]))
    rejected, submitted = (int(worst["requests"][name]) for name in ("rejected", "submitted"))
    if rejected:
        yield (
            f"{rejected:,} of {submitted:,} requests are refused and count as missed; the KV of a replica has room for "
            f"{min(kv_tokens(worst)):,} tokens"
        )


def _of_model(model: str, longest_tokens: int) -> Iterator[str]:
    if model not in HUB:
        yield f"no model on the hub is known as {model}: put the path or name of yours into the command"
    window = WINDOWS.get(model)
    if window is not None and longest_tokens > window:
        yield (
            f"requests have up to {longest_tokens:,} tokens, more than the {window:,} of {model}'s window: the engine "
            "refuses these, and here they are served"
        )


def kv_tokens(summary: Mapping[str, Any]) -> list[int]:
    """Return how many tokens of KV each kind of replica of a run has."""
    run = summary["run"]
    return [int(run["kv_token_budget"]), *(int(one["kv_token_budget"]) for one in run["others"])]


def without_flags(candidate: Candidate) -> list[str]:
    """Return the user's overrides that change the engine, and for which it has no flag."""
    flags = {*engine(candidate.machine.engine).flags, *OF_LORA, PREFIX_CACHING, key_of(TODAY)}
    return [
        own
        for own in candidate.machine.user
        if key_of(own).partition(".")[0].partition("/")[0] in SLOTS_OF_ENGINE
        and key_of(own) not in flags
        and own not in WITHOUT_LORA
    ]
