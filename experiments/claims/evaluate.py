"""From the outcomes of runs to the verdict on a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.claims import verdicts
from experiments.claims.claim import Claim
from experiments.claims.formulas import FORMULAS, NUMBERS, printed_by
from experiments.claims.spots import CHECKS, Comparison, Figures, Limit, Spot
from experiments.claims.verdicts import shown
from experiments.studies.measured import was_fitted
from experiments.studies.points import Overrides, Point
from experiments.studies.running import NoNumberError, figure_of, run_all, watched
from experiments.studies.study import OOM
from simlora.sweeps.outcome import DOES_NOT_FIT, RAN, Outcome

Outcomes = Mapping[Overrides, Outcome]
UNEXPLAINED = "Not explained yet."


@dataclass(frozen=True)
class Row:
    """One row of the board. `simulated` and `published` have as many values as the claim.

    `errors` are relative to the published values (absolute where 0 was published), None where nothing is. `studies`
    are the figures and tables that have the claim's runs, of which there are `runs`; coefficients were fitted to
    `fitted` of them, and `chosen` was chosen by the claim itself. Simulating them took `seconds`. `command` prints the
    numbers of a claim that no study has.
    """

    id: str
    paper: str
    where: str
    metric: str
    kind: str
    published: Any
    simulated: Any
    errors: list[float] | None
    verdict: str
    reason: str
    studies: list[str]
    command: str
    runs: int
    fitted: int
    chosen: str
    seconds: float


@dataclass(frozen=True)
class Judged:
    """What became of a claim: the numbers, the verdict, and what there is to say if it does not hold."""

    simulated: Any
    verdict: str
    why: str = ""
    errors: list[float] | None = None


def evaluate(paper: str, claim: Claim, outcomes: Outcomes) -> Row:
    """Return the row of one claim. What computes its numbers runs what it needs."""
    with watched() as watch:
        judged = judge(claim, outcomes)
    points = [*looked_at(claim.spots_looked_at(), outcomes), *watch.points.values()]
    outcomes = {**outcomes, **watch.outcomes}
    used = {point.overrides: point for point in points}
    studies = list(dict.fromkeys(point.study for point in points if point.study))
    fitted = [was_fitted(point.settings, outcomes[key].summary) for key, point in used.items()]
    published = claim.published[0] if len(claim.published) == 1 else list(claim.published)
    return Row(
        id=claim.id,
        paper=paper,
        where=claim.where,
        metric=claim.metric,
        kind=claim.kind,
        published=published,
        simulated=judged.simulated,
        errors=judged.errors,
        verdict=judged.verdict,
        reason=_reason(claim, judged, outcomes),
        studies=studies,
        command="" if studies else printed_by(claim.formula, claim.computed),
        runs=len(used),
        fitted=sum(fitted),
        chosen=claim.chosen,
        seconds=round(sum(outcomes[key].seconds for key in used), 3),
    )


def simulated(spots: Sequence[Spot | Limit], outcomes: Outcomes) -> Outcomes:
    """Return the outcomes with those of the runs that the spots are of; searches look at their next points at once."""
    while new := [
        one for one in looked_at(spots, outcomes) if one.overrides not in outcomes and not one.skip
    ]:
        outcomes = {**outcomes, **run_all(new)}
    return outcomes


def judge(claim: Claim, outcomes: Outcomes) -> Judged:
    """Return what becomes of a claim. Its own runs are among the outcomes; those that its reason names need not be."""
    try:
        return _HOW[claim.kind](claim, outcomes)
    except NoNumberError as missing:
        verdict = verdicts.OFF if missing.status in (DOES_NOT_FIT, RAN) else verdicts.NOT_SIMULATED
        return Judged(OOM if missing.status == DOES_NOT_FIT else None, verdict, str(missing))


def looked_at(spots: Iterable[Spot | Limit], outcomes: Outcomes) -> list[Point]:
    """Return the runs that numbers are of; of one that is searched for the next to look at may not be there yet."""
    return [point for spot in spots for point in spot.looked_at(_figures(outcomes))]


def _reason(claim: Claim, judged: Judged, outcomes: Outcomes) -> str:
    """Return why a claim does not hold, with the simulated numbers of the runs that its reason names."""
    if judged.verdict == verdicts.HOLDS:
        return ""
    if judged.verdict == verdicts.NOT_SIMULATED:
        return judged.why
    reason = claim.reason
    for text, spot in claim.evidence.items():
        reason = reason.replace(f"{{{text}}}", shown(_number_or_none(spot, outcomes)))
    return " ".join(part for part in (reason, judged.why) if part) or UNEXPLAINED


def _number_or_none(spot: Spot | Limit, outcomes: Outcomes) -> float | None:
    try:
        return _number(spot, outcomes)
    except NoNumberError:
        return None


def _number(spot: Spot | Limit, outcomes: Outcomes) -> float:
    return spot.number(_figures(outcomes))


def _figures(outcomes: Outcomes) -> Figures:
    return lambda point, metric: figure_of(outcomes, point, metric)


def _value(claim: Claim, outcomes: Outcomes) -> Judged:
    """Judge values, and increases in per cent behind them."""
    simulated = (
        NUMBERS[claim.computed]() if claim.computed else [_number(spot, outcomes) for spot in claim.spots]
    )
    if claim.kind == "increase":
        simulated += [100.0 * (ratio - 1.0) for ratio in _ratios(claim, outcomes)]
    pairs = list(zip(claim.published, simulated, strict=True))
    verdict = verdicts.worst(verdicts.of_value(published, found) for published, found in pairs)
    errors = [found / published - 1 if published else found for published, found in pairs]
    if claim.disagreement:
        return _disagreement(claim, claim.disagreement, Judged(simulated[0], verdict, "", errors))
    return Judged(_one_or_all(simulated), verdict, "", errors)


def _ratios(claim: Claim, outcomes: Outcomes) -> list[float]:
    return [_number(above, outcomes) / _number(below, outcomes) for above, below in claim.ratios]


def _disagreement(claim: Claim, disagreement: Mapping[str, Any], judged: Judged) -> Judged:
    published, other = claim.published[0], disagreement["value"]
    if verdicts.of_value(published, other) == verdicts.HOLDS:
        return judged
    verdict = verdicts.with_disagreement(judged.verdict, verdicts.of_value(other, judged.simulated))
    said = f"{claim.where} says {published:g}, {disagreement['source']} says {other:g}."
    return Judged(judged.simulated, verdict, said, judged.errors)


def _oom(claim: Claim, outcomes: Outcomes) -> Judged:
    spot = claim.spots[0]
    try:
        found = _number(spot, outcomes)
    except NoNumberError as missing:
        if missing.status != DOES_NOT_FIT:
            raise
        return Judged(OOM, verdicts.HOLDS)
    return Judged(found, verdicts.OFF, "It fits in the simulation.")


def _ratio(claim: Claim, outcomes: Outcomes) -> Judged:
    ratios = NUMBERS[claim.computed]() if claim.computed else _ratios(claim, outcomes)
    groups = claim.groups or [0] * len(ratios)
    judged = [
        _one_ratio(published, [ratio for ratio, at in zip(ratios, groups, strict=True) if at == index], claim)
        for index, published in enumerate(map(float, claim.published))
    ]
    if len(judged) == 1:
        return judged[0]
    errors = [error for one in judged if one.errors is not None for error in one.errors]
    simulated = [max(one.simulated) if isinstance(one.simulated, list) else one.simulated for one in judged]
    return Judged(simulated, verdicts.worst(one.verdict for one in judged), "", errors or None)


def _one_ratio(published: float, ratios: list[float], claim: Claim) -> Judged:
    exact = ratios if claim.sense == "about" else [max(ratios)] if claim.sense == "up_to" else None
    errors = None if exact is None else [ratio / published - 1 for ratio in exact]
    return Judged(_one_or_all(ratios), verdicts.of_ratios(published, ratios, claim.sense), "", errors)


def _absent(claim: Claim, outcomes: Outcomes) -> Judged:
    return Judged(None, verdicts.NOT_SIMULATED, claim.reason)


def _checks(claim: Claim, outcomes: Outcomes) -> Judged:
    return _compared(
        [
            comparison
            for name, arguments in claim.checks
            for comparison in CHECKS[name].compare(arguments, lambda spot: _number(spot, outcomes))
        ]
    )


def _formula(claim: Claim, outcomes: Outcomes) -> Judged:
    return _compared(list(FORMULAS[claim.formula]()))


def _compared(found: Sequence[Comparison]) -> Judged:
    passed = [comparison.passed for comparison in found]
    failed = "; ".join(comparison.says for comparison in found if not comparison.passed)
    return Judged(
        f"{sum(passed)} of {len(found)} comparisons",
        verdicts.of_comparisons(passed),
        failed and f"Not so: {failed}.",
    )


def _one_or_all(values: list[float]) -> Any:
    return values[0] if len(values) == 1 else values


_HOW: dict[str, Callable[[Claim, Outcomes], Judged]] = {
    "value": _value,
    "oom": _oom,
    "ratio": _ratio,
    "increase": _value,
    "order": _checks,
    "trend": _checks,
    "formula": _formula,
    "absent": _absent,
}
"""How a claim of each kind is judged."""
