"""The unknowns of a paper, as its folder's unknowns.yaml states them, and settings of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.claims import claim
from experiments.claims.claim import Claim
from experiments.studies.points import Point
from experiments.studies.reading import check, known, listed, load
from experiments.studies.study import read_all
from simlora.core.errors import InputError
from simlora.latency.calibration import LEAVES

Setting = Mapping[str, float | str]
"""A value of every unknown, by name."""
SCALES = ("linear", "log")
COEFFICIENTS = [f"{section}.{leaf}" for section, leaves in LEAVES.items() for leaf in leaves]


@dataclass(frozen=True)
class Changes:
    """What a value changes in a run.

    `sets`: configuration keys, with `{x}` for the value, or `{base, per_x, per_ln_x}`: base + per_x x + per_ln_x ln x,
    with `whole` rounded to a whole number.
    `times`: coefficients of the run's calibration, multiplied by (x / default) to this power. `plus`: coefficients to
    which this much is added for each unit of x above the default.
    """

    sets: Mapping[str, Any]
    times: Mapping[str, float]
    plus: Mapping[str, float]

    def settings(self, x: float | str) -> dict[str, Any]:
        """Return the configuration keys and what they are set to."""
        return {key: _written(value, x) for key, value in self.sets.items()}

    def coefficients(self, x: float, default: float) -> dict[str, tuple[float, float]]:
        """Return the calibration's coefficients that change: what each is multiplied by, and what is added."""
        found = {path: ((x / default) ** power, 0.0) for path, power in self.times.items()}
        return found | {path: (1.0, per_unit * (x - default)) for path, per_unit in self.plus.items()}


@dataclass(frozen=True)
class Unknown:
    """A condition that the paper does not print: a range of numbers, or a choice among readings.

    `default` is what every other study of this project has. `says` is the sentence that bounds it, with its place.
    `choices` are readings by name, in place of `least`, `most` and `changes`. `where`: the studies, panels and series
    that it concerns, one after the other; none: all. What one of them does not name it does not limit.
    """

    name: str
    title: str
    unit: str
    says: str
    default: float | str
    scale: str
    whole: bool
    least: float
    most: float
    changes: Changes
    choices: Mapping[str, Changes]
    where: Sequence[Mapping[str, Sequence[str]]]

    def concerns(self, point: Point) -> bool:
        """Whether a run hangs on it."""
        return not self.where or any(
            all(getattr(point, name) in values for name, values in one.items()) for one in self.where
        )

    def at(self, share: float) -> float | str:
        """Return the value at a share of the range, 0 to 1."""
        if self.choices:
            return list(self.choices)[min(int(share * len(self.choices)), len(self.choices) - 1)]
        if self.scale == "log":
            value = math.exp(math.log(self.least) + share * math.log(self.most / self.least))
        else:
            value = self.least + share * (self.most - self.least)
        return float(round(value)) if self.whole else value

    def rounded(self, value: float | str) -> float | str:
        """Return a value with the digits that it is printed with, so that --at finds what was simulated."""
        if isinstance(value, str):
            return value
        return min(max(float(f"{value:.3g}"), self.least), self.most)

    def named(self, text: str) -> float | str:
        """Return the value that is written so."""
        return text if self.choices else float(text)

    def share(self, value: float | str) -> float:
        """Return where in the range a value lies, 0 to 1; of a choice the middle of its part."""
        if isinstance(value, str):
            return (list(self.choices).index(value) + 0.5) / len(self.choices)
        if self.scale == "log":
            return math.log(value / self.least) / math.log(self.most / self.least)
        return (value - self.least) / (self.most - self.least)


@dataclass(frozen=True)
class Budget:
    """How many settings are simulated: in an even design, by the optimiser, and drawn from what is left in the end.

    Of the design so many have the claims held back simulated, too, which cost more where they are of large clusters.
    Claims that no setting has brought out are looked for `rounds` times, each time at a setting of their own. Each
    setting is simulated with `seeds` seeds, where one run varies as much as the unknowns change it.
    """

    design: int = 64
    judged: int = 64
    search: int = 64
    draws: int = 16
    rounds: int = 4
    seeds: int = 1


@dataclass(frozen=True)
class Unknowns:
    """A question to a paper: the unknowns, the claims that are fitted, and those that are held back to be judged.

    `beside`: numbers that are simulated wherever the fitted claims are. The table has them; they are neither fitted nor
    judged. `question`: the name of the question, if it is not the paper's main one. `own`: claims that unknowns.yaml
    states itself, such as measurements of an artifact; the others are on the board of claims. `parts`: of which claims
    of the board such a claim is a part, which takes less to simulate.
    """

    paper: str
    folder: Path
    unknowns: Sequence[Unknown]
    fitted: Sequence[Claim]
    judged: Sequence[Claim]
    budget: Budget
    beside: Sequence[Claim] = ()
    question: str = ""
    own: Sequence[Claim] = ()
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def claims(self) -> list[Claim]:
        """The claims that are fitted or judged."""
        return [*self.fitted, *self.judged]

    @property
    def defaults(self) -> dict[str, float | str]:
        """The setting that every other study has."""
        return {unknown.name: unknown.default for unknown in self.unknowns}

    def setting(self, shares: Sequence[float]) -> dict[str, float | str]:
        """Return the setting at these shares `[unknowns]` of the ranges."""
        return {
            each.name: each.rounded(each.at(share)) for each, share in zip(self.unknowns, shares, strict=True)
        }

    def parsed(self, text: str) -> dict[str, float | str]:
        """Return the setting of a text such as `load_ms=12 cores=2`; what it leaves out has its default.

        Raises InputError for an unknown name and for a value out of range.
        """
        found = self.defaults
        names = {each.name: each for each in self.unknowns}
        for part in text.replace(",", " ").split():
            name, _, value = part.partition("=")
            unknown = names[known(name, names, "--at")]
            if unknown.choices:
                found[name] = known(value, unknown.choices, f"--at: {name}")
                continue
            try:
                found[name] = float(value)
            except ValueError:
                raise InputError(f"--at: {name} is {value!r}, must be a number") from None
            if not unknown.least <= float(value) <= unknown.most:
                raise InputError(
                    f"--at: {name} is {value}, must be from {unknown.least:g} to {unknown.most:g}"
                )
        return found


def read(folder: Path, fit: Sequence[str] = ()) -> Unknowns:
    """Return the unknowns of a paper's folder.

    `fit` names another question of unknowns.yaml, or claims of the paper or of unknowns.yaml. Claims are fitted in
    place of those that it says; the others that it says are judged. Raises InputError, naming file and key, for what
    does not say right.
    """
    path = folder / "unknowns.yaml"
    tree = check(load(path), str(path), ("unknowns", "fit", "judge"), ("claims", "budget", "questions"))
    studies = read_all(folder)
    claims = {one.id: one for one in claim.read(folder / "claims.yaml", studies)}
    parts, entries = {}, []
    for number, entry in enumerate(tree.get("claims", []), 1):
        place = f"{path}: claim {number}: part_of"
        whole = [known(name, claims, place) for name in listed(entry.pop("part_of", []))]
        parts[entry.get("id", "")] = whole
        entries.append(entry)
    own = claim.entries(entries, path, studies, [])
    claims |= {one.id: one for one in own}
    questions = tree.get("questions", {})

    def named(of: Mapping[str, Any], key: str) -> list[Claim]:
        return [claims[known(name, claims, f"{path}: {key}")] for name in listed(of.get(key, []))]

    question = fit[0] if len(fit) == 1 and fit[0] in questions else ""
    asked = tree
    if question:
        place = f"{path}: questions.{question}"
        asked = check(questions[question], place, ("fit", "judge"), ("beside", "budget"))
    fitted, judged = named(asked, "fit"), named(asked, "judge")
    if fit and not question:
        fitted, both = [claims[known(name, claims, "--fit")] for name in fit], [*fitted, *judged]
        judged = [one for one in both if one not in fitted]
    twice = {one.id for one in fitted} & {one.id for one in judged}
    if twice:
        raise InputError(f"{path}: {min(twice)} is fitted and judged; a claim is one or the other")
    return Unknowns(
        folder.name,
        folder,
        [
            _unknown(name, entry, f"{path}: {name}", studies)
            for name, entry in tree["unknowns"].items()
            if question in listed(entry.get("only", question))
        ],
        fitted,
        judged,
        Budget(**check(asked.get("budget", {}), f"{path}: budget", (), tuple(Budget.__dataclass_fields__))),
        named(asked, "beside"),
        question,
        own,
        parts,
    )


def _unknown(name: str, tree: Any, place: str, studies: Mapping[str, Any]) -> Unknown:
    changed = ("set", "times", "plus")
    entry = check(
        tree,
        place,
        ("title", "says", "default"),
        ("unit", "range", "scale", "whole", "choices", "where", "only", *changed),
    )
    where = [_where(one, f"{place}: where", studies) for one in listed(entry.get("where", []))]
    choices = {
        str(choice): _changes(check(changes or {}, f"{place}: {choice}", (), ("set",)), place)
        for choice, changes in entry.get("choices", {}).items()
    }
    if bool(choices) == ("range" in entry):
        raise InputError(f"{place} must have either a range or choices")
    if choices:
        known(entry["default"], choices, f"{place}: default")
        least = most = 0.0
    else:
        least, most = (float(bound) for bound in entry["range"])
        if not least <= float(entry["default"]) <= most:
            raise InputError(f"{place}: default is {entry['default']}, must lie within the range")
    scale = known(entry.get("scale", "linear"), SCALES, f"{place}: scale")
    return Unknown(
        name=name,
        title=entry["title"],
        unit=entry.get("unit", ""),
        says=" ".join(entry["says"].split()),
        default=str(entry["default"]) if choices else float(entry["default"]),
        scale=scale,
        whole=bool(entry.get("whole", False)),
        least=least,
        most=most,
        changes=_changes(entry, place),
        choices=choices,
        where=where,
    )


def _where(tree: Any, place: str, studies: Mapping[str, Any]) -> dict[str, list[str]]:
    found = {
        key: listed(value) for key, value in check(tree, place, (), ("study", "panel", "series")).items()
    }
    for study in found.get("study", ()):
        known(study, studies, f"{place}.study")
    return found


def _changes(entry: Mapping[str, Any], place: str) -> Changes:
    for name in (*entry.get("times", ()), *entry.get("plus", ())):
        known(name, COEFFICIENTS, place)
    return Changes(*(entry.get(name, {}) for name in ("set", "times", "plus")))


def _written(value: Any, x: float | str) -> Any:
    if isinstance(value, Mapping) and not isinstance(x, str):
        found = (
            value.get("base", 0.0) + value.get("per_x", 0.0) * x + value.get("per_ln_x", 0.0) * math.log(x)
        )
        return round(found) if value.get("whole") else float(f"{found:.6g}")
    return value.replace("{x}", x if isinstance(x, str) else f"{x:g}") if isinstance(value, str) else value
