"""A claim of a paper, as its folder's claims.yaml states it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.claims.checks import CHECKS, spots_of
from experiments.claims.spots import Spot, read_curve, read_spot
from experiments.studies.points import Point
from experiments.studies.reading import check, known, listed, load
from experiments.studies.study import Study
from simlora.core.errors import InputError

KINDS = ("value", "oom", "ratio", "increase", "order", "trend", "formula", "absent")
SENSES = ("about", "up_to", "at_most", "more_than")
EVALUATED = {
    "value": "simulated",
    "oom": "simulated",
    "ratio": "ratios",
    "increase": "ratios",
    "order": "checks",
    "trend": "checks",
    "formula": "formula",
    "absent": "reason",
}
"""The key that says how a claim of each kind is evaluated; what is absent here is not, and says why."""
QUOTED = re.compile(r"\{([^}]*)\}")
"""What stands for a number in a reason."""
REQUIRED = ("id", "where", "metric", "kind", "published")
OPTIONAL = ("simulated", "ratios", "checks", "formula", "sense", "disagreement", "reason")


@dataclass(frozen=True)
class Claim:
    """One claim. `spots` are those of values, `ratios` pairs of them, `checks` the checks as they are written.

    An increase is by how many per cent the first of a pair is above the second; values may come before it.

    `disagreement` is a number with its source that the paper or its artifact gives elsewhere for the same run.
    `reason` says why the claim does not come out, and is shown only then. Where it has `{study panel series x metric}`
    the simulated number stands in the end; `evidence` are these spots.
    """

    id: str
    where: str
    metric: str
    kind: str
    published: Sequence[Any]
    spots: Sequence[Spot]
    ratios: Sequence[tuple[Spot, Spot]]
    sense: str
    checks: Sequence[tuple[str, Mapping[str, Any]]]
    formula: str
    disagreement: Mapping[str, Any] | None
    reason: str
    evidence: Mapping[str, Spot]

    def points(self) -> Iterator[Point]:
        """Yield the runs that the claim is about, some perhaps twice."""
        for spot in self.spots:
            yield spot.point
        for above, below in self.ratios:
            yield from (above.point, below.point)
        for name, arguments in self.checks:
            yield from (spot.point for spot in spots_of(name, arguments))


def read(path: Path, studies: Mapping[str, Study]) -> list[Claim]:
    """Return the claims of a paper. Raises InputError, naming file and claim, for what does not say right."""
    entries = check(load(path), str(path), ("claims",))["claims"]
    claims = [_claim(entry, f"{path}: claim {index + 1}", studies) for index, entry in enumerate(entries)]
    ids = [claim.id for claim in claims]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice:
        raise InputError(f"{path} has the claim {twice} twice")
    return claims


def _claim(tree: Any, place: str, studies: Mapping[str, Study]) -> Claim:
    entry = check(tree, place, REQUIRED, OPTIONAL)
    place = f"{place} ({entry['id']})"
    kind = known(entry["kind"], KINDS, f"{place}: kind")
    if EVALUATED[kind] not in entry:
        raise InputError(f"{place} is of kind {kind} and has no {EVALUATED[kind]}")
    pairs = [listed(pair) for pair in entry.get("ratios", ())]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(
            f"{place}: each of ratios must be a pair, of which the first is divided by the second"
        )
    reason = " ".join(entry.get("reason", "").split())
    return Claim(
        id=entry["id"],
        where=entry["where"],
        metric=entry["metric"],
        kind=kind,
        published=listed(entry["published"]),
        spots=[read_spot(at, place, studies) for at in listed(entry.get("simulated", []))],
        ratios=[
            (read_spot(above, place, studies), read_spot(below, place, studies)) for above, below in pairs
        ],
        sense=known(entry.get("sense", "about"), SENSES, f"{place}: sense"),
        checks=[_check(one, place, studies) for one in listed(entry.get("checks", []))],
        formula=entry.get("formula", ""),
        disagreement=_disagreement(entry.get("disagreement"), place),
        reason=reason,
        evidence={text: read_spot(text, f"{place}: reason", studies) for text in QUOTED.findall(reason)},
    )


def _check(tree: Any, place: str, studies: Mapping[str, Study]) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(tree, Mapping) or len(tree) != 1:
        raise InputError(f"{place}: a check is one name with its arguments, not {tree!r}")
    (name, arguments), *_ = tree.items()
    required = CHECKS[known(name, CHECKS, f"{place}: check")].arguments
    arguments = check(arguments, f"{place}: {name}", required, ("x",))
    curves = ("curve", "upper", "lower")
    return name, {
        key: read_curve(value, f"{place}: {name}", studies) if key in curves else value
        for key, value in arguments.items()
    }


def _disagreement(tree: Any, place: str) -> dict[str, Any] | None:
    return None if tree is None else check(tree, f"{place}: disagreement", ("value", "source"))
