"""A claim of a paper, as its folder's claims.yaml states it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.claims.formulas import FORMULAS, NUMBERS
from experiments.claims.spots import CHECKS, CURVES, Limit, Spot, read_curve, read_spot, spots_of
from experiments.studies.reading import check, known, listed, load
from experiments.studies.study import Study, read_seeds
from simlora.core.errors import InputError

KINDS = ("value", "oom", "ratio", "increase", "order", "trend", "formula", "absent")
SENSES = ("about", "up_to", "at_most", "more_than")
EVALUATED = {
    "value": ("simulated", "computed"),
    "oom": ("simulated",),
    "ratio": ("ratios", "computed"),
    "increase": ("ratios",),
    "order": ("checks",),
    "trend": ("checks",),
    "formula": ("formula",),
    "absent": ("reason",),
}
"""The keys, one of which says how a claim of each kind is evaluated; what is absent here is not, and says why."""
QUOTED = re.compile(r"\{([^}]*)\}")
"""What stands for a number in a reason."""
REQUIRED = ("id", "where", "metric", "kind", "published")
OPTIONAL = (
    "simulated",
    "computed",
    "ratios",
    "checks",
    "formula",
    "sense",
    "disagreement",
    "chosen",
    "reason",
)


@dataclass(frozen=True)
class Claim:
    """One claim. `spots` are those of values, `ratios` pairs of them, `checks` the checks as they are written.

    An increase is by how many per cent the first of a pair is above the second; values may come before it. A pair of
    curves is one pair for each x; several pairs may stand in one list. `groups` says which of several published ratios
    each pair is about. `computed` names what computes the numbers, where they are none of a study.

    `disagreement` is a number with its source that the paper or its artifact gives elsewhere for the same run.
    `chosen` is what of the configuration was chosen by this claim, which it thus does not confirm.
    `reason` says why the claim does not come out, and is shown only then. Where it has `{study panel series x metric}`
    the simulated number stands in the end; `evidence` are these spots.
    """

    id: str
    where: str
    metric: str
    kind: str
    published: Sequence[Any]
    spots: Sequence[Spot | Limit]
    computed: str
    ratios: Sequence[tuple[Spot | Limit, Spot | Limit]]
    groups: Sequence[int]
    sense: str
    checks: Sequence[tuple[str, Mapping[str, Any]]]
    formula: str
    disagreement: Mapping[str, Any] | None
    chosen: str
    reason: str
    evidence: Mapping[str, Spot | Limit]

    def spots_looked_at(self) -> Iterator[Spot | Limit]:
        """Yield all numbers that the claim is about, some perhaps twice."""
        yield from self.spots
        for pair in self.ratios:
            yield from pair
        for _, arguments in self.checks:
            yield from spots_of(arguments)


def read(path: Path, studies: Mapping[str, Study]) -> list[Claim]:
    """Return the claims of a paper. Raises InputError, naming file and claim, for what does not say right.

    Where the file has `seeds`, numbers are means over runs with these.
    """
    return entries(load(path)["claims"], path, studies, read_seeds(path.parent))


def entries(
    tree: Sequence[Any], path: Path, studies: Mapping[str, Study], seeds: Sequence[int]
) -> list[Claim]:
    """Return the claims in a list of them, which stands in the file at `path`. Raises InputError as `read` does."""
    claims = [_claim(entry, f"{path}: claim {index + 1}", studies, seeds) for index, entry in enumerate(tree)]
    ids = [claim.id for claim in claims]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice:
        raise InputError(f"{path} has the claim {twice} twice")
    return claims


def _claim(tree: Any, place: str, studies: Mapping[str, Study], seeds: Sequence[int]) -> Claim:
    entry = check(tree, place, REQUIRED, OPTIONAL)
    place = f"{place} ({entry['id']})"
    kind = known(entry["kind"], KINDS, f"{place}: kind")
    if not any(key in entry for key in EVALUATED[kind]):
        raise InputError(f"{place} is of kind {kind} and has no {' and no '.join(EVALUATED[kind])}")
    published = listed(entry["published"])
    pairs = [_pairs(pair, place, studies, seeds) for pair in entry.get("ratios", ())]
    if kind == "ratio" and len(published) not in (1, len(pairs)):
        raise InputError(f"{place} has {len(published)} published ratios and {len(pairs)} pairs")
    reason = " ".join(entry.get("reason", "").split())
    return Claim(
        id=entry["id"],
        where=entry["where"],
        metric=entry["metric"],
        kind=kind,
        published=published,
        spots=[read_spot(at, place, studies, seeds) for at in listed(entry.get("simulated", []))],
        computed=known(entry["computed"], NUMBERS, f"{place}: computed") if "computed" in entry else "",
        ratios=[pair for each in pairs for pair in each],
        groups=[index if len(published) > 1 else 0 for index, each in enumerate(pairs) for _ in each],
        sense=known(entry.get("sense", "about"), SENSES, f"{place}: sense"),
        checks=[_check(one, place, studies, seeds) for one in listed(entry.get("checks", []))],
        formula=known(entry["formula"], FORMULAS, f"{place}: formula") if "formula" in entry else "",
        disagreement=check(entry["disagreement"], f"{place}: disagreement", ("value", "source"))
        if "disagreement" in entry
        else None,
        chosen=entry.get("chosen", ""),
        reason=reason,
        evidence={
            text: read_spot(text, f"{place}: reason", studies, seeds) for text in QUOTED.findall(reason)
        },
    )


def _pairs(
    tree: Any, place: str, studies: Mapping[str, Study], seeds: Sequence[int]
) -> list[tuple[Spot | Limit, Spot | Limit]]:
    """Return a pair of spots, one for each x of the first of two curves, or those of several pairs in a list."""
    pair = listed(tree)
    if pair and isinstance(pair[0], list):
        return [one for each in pair for one in _pairs(each, place, studies, seeds)]
    if len(pair) != 2:
        raise InputError(
            f"{place}: each of ratios must be a pair, of which the first is divided by the second"
        )
    if all(len(str(each).split()) == 4 for each in pair):
        above, below = (read_curve(each, place, studies, seeds) for each in pair)
        return [(spot, below.at(spot.point.x)) for spot in above.spots()]
    first, second = (read_spot(each, place, studies, seeds) for each in pair)
    return [(first, second)]


def _check(
    tree: Any, place: str, studies: Mapping[str, Study], seeds: Sequence[int]
) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(tree, Mapping) or len(tree) != 1:
        raise InputError(f"{place}: a check is one name with its arguments, not {tree!r}")
    (name, arguments), *_ = tree.items()
    required = CHECKS[known(name, CHECKS, f"{place}: check")].arguments
    arguments = check(arguments, f"{place}: {name}", required, ("x",))
    return name, {
        key: read_curve(value, f"{place}: {name}", studies, seeds) if key in CURVES else value
        for key, value in arguments.items()
    }
