"""An inference as people read it: lines on the terminal, a page of Markdown, and JSON for the board of claims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.claims.verdicts import shown
from experiments.infer.conditions import factor
from experiments.infer.emulating import TELLS_BITS
from experiments.infer.inference import BEST, DECIDED, FEWEST, SEEDS, Inference, Predicted, decided
from experiments.infer.unknowns import Setting, Unknown, Unknowns
from experiments.studies.markdown import lines, page, table

COLUMNS = (
    "claim",
    "published",
    "defaults",
    "predicted, median (90 %)",
    "published lies within",
    "true under",
)
AS_IT_IS = "as it is"
NOT_FOUND = "no setting found"


def true_under(unknowns: Unknowns, one: Predicted) -> str:
    """Return the conditions under which a claim comes out, the fewest changes from the defaults."""
    if one.conditions is None:
        at = changed(unknowns, one.nearest) or "the defaults"
        unsure = f", and {one.unsure} of the others may be one" if one.unsure else ""
        return (
            f"{NOT_FOUND} of the {one.judged} with three seeds (of {one.looked_at}); the nearest, at {at}, is off by a "
            f"factor of {factor(np.asarray(one.worst)):.2f}{unsure}"
        )
    return changed(unknowns, one.conditions) or AS_IT_IS


def changed(unknowns: Unknowns, setting: Setting) -> str:
    """Return what a setting has other than the defaults, as --at takes it."""
    parts = []
    for unknown in unknowns.unknowns:
        value = setting[unknown.name]
        if value != unknown.default:
            parts.append(f"{unknown.name}={value if isinstance(value, str) else f'{value:g}'}")
    return " ".join(parts)


def ranged(unknown: Unknown) -> str:
    """Return a range, or the choices."""
    if unknown.choices:
        return ", ".join(unknown.choices)
    return f"{unknown.least:g} to {unknown.most:g} {unknown.unit}".strip()


def rest(found: Inference, unknown: Unknown) -> str:
    """Return what the claims leave of an unknown."""
    if unknown.choices:
        return ", ".join(f"{choice} {share:.0%}" for choice, share in found.left.shares(unknown).items())
    low, high = found.left.interval(unknown)
    return f"{shown(low)} to {shown(high)} {unknown.unit}".strip()


def summary(found: Inference) -> list[str]:
    """Return sentences: what was simulated, and whether the settings that are left predict better than the defaults."""
    numbers = [inside for one in held_back(found) for inside in one.within()]
    said = [
        f"{found.settings} settings, {len(found.simulated.all)} with their seeds, {found.runs:,} runs, which took "
        f"{found.seconds / 60:.0f} minutes of one core.",
        "Each claim fitted is taken to have the error (s) that the setting which fits best leaves of it: "
        + ", ".join(f"{name} {100 * math.expm1(s):.0f} %" for name, s in found.left.assumed.items())
        + ".",
        "Gaussian processes stand for the simulator between the settings that were simulated. Of one that is left out "
        "they predict the number within a median factor of "
        + ", ".join(
            f"{one.factor:.2f} ({name}; the mean of all: {one.spread:.2f}; {one.inside:.0%} within 90 % intervals)"
            for name, one in found.emulated.items()
        )
        + ".",
    ]
    for name, chosen in groups(found).items():
        default, left = float(found.factors(chosen, default=True)[0]), found.factors(chosen, default=False)
        low, middle, high = np.quantile(left, (0.05, 0.5, 0.95))
        said.append(
            f"{name}: the median error factor is {default:.2f} with the defaults and {middle:.2f} "
            f"({low:.2f} to {high:.2f}) with {found.draws} settings that are left; {np.mean(left < default):.0%} of "
            "these are better than the defaults."
        )
    said.append(f"{sum(numbers)} of the {len(numbers)} numbers held back lie in their predicted intervals.")
    return [*said, *verdict(found)]


def held_back(found: Inference) -> list[Predicted]:
    """Return the claims that are not fitted."""
    return [one for one in found.predicted if not one.fitted]


def groups(found: Inference) -> dict[str, list[Predicted]]:
    """Return the claims that are fitted, those held back, and of these those of the board and of unknowns.yaml."""
    judged = held_back(found)
    chosen = {
        "Claims fitted": [one for one in found.predicted if one.fitted],
        "Claims held back": judged,
    }
    own = [one for one in judged if one.claim in found.unknowns.own]
    if 0 < len(own) < len(judged):
        chosen["Of these, the claims of the board"] = [one for one in judged if one not in own]
        chosen["Of these, the claims that unknowns.yaml states"] = own
    return chosen


def outcome(found: Inference) -> tuple[float, str]:
    """Return the error factor of the defaults for claims held back, and whether what is left predicts them better."""
    judged = held_back(found)
    default = float(found.factors(judged, default=True)[0])
    return default, decided(found.factors(judged, default=False), default)


def verdict(found: Inference) -> Iterator[str]:
    """Yield whether the fitted claims help to predict those held back, by the rule that the page states."""
    default, against = outcome(found)
    yield f"Against the defaults: **{against}**."
    correlation, low, high = found.agreement.correlation
    best = found.agreement.best
    yield (
        f"Of the {len(found.agreement.fitted)} settings with all claims, the errors of claims fitted and held back "
        f"have a rank correlation of {correlation:.2f} ({low:.2f} to {high:.2f})."
    )
    if len(best):
        least, middle, most = np.quantile(best, (0.05, 0.5, 0.95))
        yield (
            f"The settings that fit best are {len(found.best)}. The {len(best)} of them with claims held back have an "
            f"error factor of {middle:.2f} ({least:.2f} to {most:.2f}) for these; {np.mean(best < default):.0%} of "
            "them predict better than the defaults."
        )


def fit_best(found: Inference, unknown: Unknown) -> str:
    """Return the least and the greatest value of an unknown in the settings that fit best, or its choices there."""
    values = [dict(each)[unknown.name] for each in found.best]
    if unknown.choices:
        return ", ".join(f"{choice} {values.count(choice) / len(values):.0%}" for choice in unknown.choices)
    low, high = min(map(float, values)), max(map(float, values))
    return f"{shown(low)} to {shown(high)} {unknown.unit}".strip()


def terminal(found: Inference) -> Iterator[str]:
    """Yield the lines that are printed."""
    wide = max(len(unknown.name) for unknown in found.unknowns.unknowns)
    for unknown in found.unknowns.unknowns:
        bits = found.left.bits(unknown)
        tells = f"{bits:.2f} bits" + ("" if bits >= TELLS_BITS else ": the claims tell nothing about it")
        yield f"{unknown.name:<{wide}}  {ranged(unknown)} -> {rest(found, unknown)}  ({tells})"
        yield f"{'':<{wide}}  in the settings that fit best {fit_best(found, unknown)}"
    for one in found.predicted:
        yield f"{'fitted' if one.fitted else 'judged'}  {one.claim.id}: published {shown(one.numbers)}"
        yield f"    defaults {shown(one.as_they_are())}; predicted {_intervals(one)}; within: {_inside(one)}"
        yield f"    true under: {true_under(found.unknowns, one)}"
    yield from summary(found)


def markdown(found: Inference, picture: str, command: str) -> str:
    """Return the page, which says what command wrote it."""
    unknowns = found.unknowns
    fitted, judged = (
        table(COLUMNS, (_claim(unknowns, one) for one in found.predicted if one.fitted == fitted))
        for fitted in (True, False)
    )
    return page(
        Path(__file__).with_name("page.md"),
        paper=unknowns.paper,
        command=command,
        sources=found.simulated.sources,
        decided=f"{DECIDED:.0%}",
        undecided=f"{1 - DECIDED:.0%}",
        fewest=FEWEST,
        best=f"{BEST:.0%}",
        summary="\n".join(f"* {sentence}" for sentence in summary(found)),
        picture=picture,
        unknowns=lines(_unknown(found, unknown) for unknown in unknowns.unknowns),
        fitted=fitted,
        judged=judged,
    )


def as_json(found: Inference) -> dict[str, Any]:
    """Return what the board of claims reads, and what other tools may."""
    unknowns = found.unknowns
    return {
        "paper": unknowns.paper,
        "budget": vars(unknowns.budget),
        "settings": found.settings,
        "runs": found.runs,
        "sources": found.simulated.sources,
        "held_back": {
            "against_defaults": outcome(found)[1],
            "rank_correlation": _rounded(found.agreement.correlation),
            "best_fitting": _rounded(np.quantile(found.agreement.best, (0.5, 0.05, 0.95)))
            if len(found.agreement.best)
            else [],
        },
        "kernels": found.kernels,
        "seeds": list(SEEDS),
        "unknowns": {
            unknown.name: {
                "range": ranged(unknown),
                "default": unknown.default,
                "left": {choice: round(share, 4) for choice, share in found.left.shares(unknown).items()}
                if unknown.choices
                else _rounded(found.left.interval(unknown)),
                "fit_best": fit_best(found, unknown),
                "bits": round(found.left.bits(unknown), 3),
            }
            for unknown in unknowns.unknowns
        },
        "claims": {
            one.claim.id: {
                "fitted": one.fitted,
                "part_of": [*unknowns.parts.get(one.claim.id, ())],
                "published": one.numbers,
                "defaults": _rounded(one.as_they_are()),
                "predicted": [_rounded(interval) for interval in one.interval()],
                "within": one.within(),
                "true_under": true_under(unknowns, one),
            }
            for one in found.predicted
        },
    }


def _unknown(found: Inference, unknown: Unknown) -> tuple[str, ...]:
    bits = found.left.bits(unknown)
    return (
        f"`{unknown.name}`: {unknown.title}",
        ranged(unknown),
        shown(unknown.default),
        rest(found, unknown),
        fit_best(found, unknown),
        f"{bits:.2f}" if bits >= TELLS_BITS else f"{bits:.2f} (nothing)",
        unknown.says,
    )


def _claim(unknowns: Unknowns, one: Predicted) -> tuple[str, ...]:
    under = true_under(unknowns, one)
    return (
        f"`{one.claim.id}` {one.claim.where}: {one.claim.metric}",
        shown(one.numbers),
        shown(one.as_they_are()),
        _intervals(one),
        _inside(one),
        f"**{under}**" if under.startswith(NOT_FOUND) else under if under == AS_IT_IS else f"`{under}`",
    )


def _intervals(one: Predicted) -> str:
    return "; ".join(
        f"{shown(middle)} ({shown(low)} to {shown(high)})" for middle, low, high in one.interval()
    )


def _inside(one: Predicted) -> str:
    return "; ".join("yes" if inside else "no" for inside in one.within())


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
