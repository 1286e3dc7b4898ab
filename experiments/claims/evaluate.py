"""From the outcomes of runs to the verdict on a claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.claims import verdicts
from experiments.claims.checks import Comparison, compare
from experiments.claims.claim import Claim
from experiments.claims.formulas import compare_formula
from experiments.claims.spots import Spot
from experiments.studies.points import Overrides
from experiments.studies.running import DOES_NOT_FIT, Outcome
from experiments.studies.study import OOM

Outcomes = Mapping[Overrides, Outcome]


class NoNumberError(Exception):
    """A spot has no simulated number: it was not simulated, or what was simulated does not fit the memory."""

    def __init__(self, spot: Spot, outcome: Outcome) -> None:
        super().__init__(f"{spot.point.series} ({spot.point.panel}) at {spot.point.x}: {outcome.reason}")
        self.does_not_fit = outcome.status == DOES_NOT_FIT


@dataclass(frozen=True)
class Row:
    """One row of the board. `simulated` and `published` have as many values as the claim; `seconds` simulating took."""

    id: str
    paper: str
    where: str
    metric: str
    kind: str
    published: Any
    simulated: Any
    verdict: str
    reason: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """What the JSON holds for this row."""
        return asdict(self)


def evaluate(paper: str, claim: Claim, outcomes: Outcomes) -> Row:
    """Return the row of one claim."""
    try:
        simulated, verdict, why = _HOW[claim.kind](claim, outcomes)
    except NoNumberError as missing:
        verdict = verdicts.OFF if missing.does_not_fit else verdicts.NOT_SIMULATED
        simulated, why = OOM if missing.does_not_fit else None, str(missing)
    if verdict in (verdicts.HOLDS, verdicts.NOT_SIMULATED):
        reason = "" if verdict == verdicts.HOLDS else why
    else:
        reason = " ".join(part for part in (claim.reason, why) if part)
    used = {point.overrides for point in claim.points()}
    seconds = sum(outcomes[overrides].seconds for overrides in used)
    published = claim.published[0] if len(claim.published) == 1 else list(claim.published)
    return Row(
        id=claim.id,
        paper=paper,
        where=claim.where,
        metric=claim.metric,
        kind=claim.kind,
        published=published,
        simulated=simulated,
        verdict=verdict,
        reason=reason,
        seconds=round(seconds, 3),
    )


def _number(spot: Spot, outcomes: Outcomes) -> float:
    outcome = outcomes[spot.point.overrides]
    found = outcome.figure(spot.metric)
    if found is None:
        raise NoNumberError(
            spot, outcome if outcome.reason else Outcome(outcome.status, reason="no request finished")
        )
    return found


def _value(claim: Claim, outcomes: Outcomes) -> tuple[Any, str, str]:
    simulated = [_number(spot, outcomes) for spot in claim.spots]
    pairs = zip(claim.published, simulated, strict=True)
    verdict = verdicts.worst(verdicts.of_value(published, found) for published, found in pairs)
    why = _errors(claim.published, simulated)
    if claim.disagreement:
        verdict, why = _disagreement(claim, simulated[0], verdict, why)
    return _one_or_all(simulated), verdict, why


def _disagreement(claim: Claim, simulated: float, verdict: str, why: str) -> tuple[str, str]:
    assert claim.disagreement is not None
    published, other = claim.published[0], claim.disagreement["value"]
    agree = verdicts.of_value(published, other) == verdicts.HOLDS
    against_other = verdicts.of_value(other, simulated)
    source = claim.disagreement["source"]
    said = f"{claim.where} says {published:g}, {source} says {other:g}; we simulate {simulated:.3g}."
    return verdicts.with_disagreement(verdict, against_other, agree), why if agree else said


def _oom(claim: Claim, outcomes: Outcomes) -> tuple[Any, str, str]:
    spot = claim.spots[0]
    try:
        found = _number(spot, outcomes)
    except NoNumberError as missing:
        if not missing.does_not_fit:
            raise
        return OOM, verdicts.HOLDS, ""
    return found, verdicts.OFF, "It fits in the simulation."


def _ratio(claim: Claim, outcomes: Outcomes) -> tuple[Any, str, str]:
    ratios = [_number(above, outcomes) / _number(below, outcomes) for above, below in claim.ratios]
    published = float(claim.published[0])
    why = f"Ratios: {', '.join(f'{ratio:.3g}' for ratio in ratios)}."
    return _one_or_all(ratios), verdicts.of_ratios(published, ratios, claim.sense), why


def _checks(claim: Claim, outcomes: Outcomes) -> tuple[Any, str, str]:
    found = [
        comparison
        for name, arguments in claim.checks
        for comparison in compare(name, arguments, lambda spot: _number(spot, outcomes))
    ]
    return _passed(found), _verdict(found), _failed(found)


def _formula(claim: Claim, outcomes: Outcomes) -> tuple[Any, str, str]:
    found = compare_formula(claim.formula)
    if found is None:
        return None, verdicts.NOT_SIMULATED, f"simlora does not have the function of {claim.formula} yet"
    return _passed(found), _verdict(found), _failed(found)


def _verdict(found: Sequence[Comparison]) -> str:
    return verdicts.of_comparisons([comparison.passed for comparison in found])


def _passed(found: Sequence[Comparison]) -> str:
    return f"{sum(comparison.passed for comparison in found)} of {len(found)} comparisons"


def _failed(found: Sequence[Comparison]) -> str:
    failed = [comparison.says for comparison in found if not comparison.passed]
    return f"Not so: {'; '.join(failed)}." if failed else ""


def _errors(published: Sequence[float], simulated: Sequence[float]) -> str:
    errors = [
        f"{found / value - 1:+.0%}" if value else f"{found:+.3f} absolute"
        for value, found in zip(published, simulated, strict=True)
    ]
    return f"Off by {', '.join(errors)}."


def _one_or_all(values: list[float]) -> Any:
    return values[0] if len(values) == 1 else values


_HOW: dict[str, Callable[[Claim, Outcomes], tuple[Any, str, str]]] = {
    "value": _value,
    "oom": _oom,
    "ratio": _ratio,
    "order": _checks,
    "trend": _checks,
    "formula": _formula,
}
"""Each returns what was simulated, the verdict, and what there is to say if it does not hold."""
