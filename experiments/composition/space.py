"""The space of compositions: of every slot one choice, with what it sets and what of it is tuned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from optuna.trial import BaseTrial

from experiments.cross_table.slots import POLICIES
from experiments.studies.reading import check, known, listed, load
from simlora.core.errors import InputError

SPACE = Path(__file__).with_name("space.yaml")
DIGITS = 3
"""Significant digits of a number that is tuned: more say nothing, and are written in commands."""


@dataclass(frozen=True)
class Range:
    """Numbers that a key may be tuned to: those listed, or all between two."""

    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def middle(self) -> Any:
        """The value in the middle: what a key is tuned to where nothing is known of it."""
        if self.values:
            return self.values[len(self.values) // 2]
        found = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2.0
        return round(found) if self.whole else float(f"{found:.{DIGITS}g}")

    def near(self, value: Any) -> list[Any]:
        """Return the values beside one: those listed before and after it, or half way to both ends."""
        if self.values:
            place = self.values.index(value)
            return [*self.values[max(place - 1, 0) : place], *self.values[place + 1 : place + 2]]
        halves = (replace(self, high=value), replace(self, low=value))
        return [one.middle for one in halves if one.middle != value]

    def suggested(self, trial: BaseTrial, key: str) -> Any:
        """Return what a trial tunes the key to."""
        if self.values:
            return trial.suggest_categorical(key, list(self.values))
        if self.whole:
            return trial.suggest_int(key, int(self.low), int(self.high), log=self.log)
        return float(f"{trial.suggest_float(key, self.low, self.high, log=self.log):.{DIGITS}g}")


@dataclass(frozen=True)
class Choice:
    """What a slot may hold: what it sets, what of it is tuned, and what it needs: of another slot any of these."""

    settings: Mapping[str, Any]
    tuned: Mapping[str, Range]
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Composition:
    """One choice for every slot, and what they set together, on top of S-LoRA."""

    choices: Mapping[str, str]
    of_slots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """Overrides as on the command line."""
        return {
            "system": "slora",
            **{key: value for own in self.of_slots.values() for key, value in own.items()},
        }

    def __str__(self) -> str:
        return ", ".join(f"{slot} {choice}" for slot, choice in self.choices.items())


@dataclass(frozen=True)
class Space:
    """All slots by name, each with its choices, the first of which is S-LoRA's; and compositions to begin with.

    `own`: by slot the policies that are of no paper, and the published ones nearest to them.
    """

    slots: Mapping[str, Mapping[str, Choice]]
    published: Mapping[str, Mapping[str, Any]]
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def variations(self, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a composition's values with every slot at each of its other choices, one at a time.

        What another slot has to hold for a choice comes with it; what is tuned of it has the value in the middle.
        """
        found = []
        for slot, held in self.slots.items():
            for name, choice in held.items():
                if name != values[slot]:
                    beside = {
                        other: names[0] for other, names in choice.needs.items() if values[other] not in names
                    }
                    tuned = {key: span.middle for key, span in choice.tuned.items()}
                    found.append({**tuned, **values, **beside, slot: name})
        return found

    def steps(self, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a composition's values with what is tuned of its choices up and down a step, one at a time."""
        return [
            {**values, key: beside}
            for slot, held in self.slots.items()
            for key, span in held[values[slot]].tuned.items()
            for beside in span.near(values[key])
        ]

    def suggested(self, trial: BaseTrial) -> Composition:
        """Return the composition that a trial asks for. What is tuned goes by its key.

        A choice that needs what other slots do not hold gives way to the first of its slot that does not.
        """
        choices = {slot: trial.suggest_categorical(slot, list(held)) for slot, held in self.slots.items()}
        of_slots = {}
        for slot, held in self.slots.items():
            if not self._can(choices, slot, choices[slot]):
                choices[slot] = next(name for name in held if self._can(choices, slot, name))
            name = choices[slot]
            tuned = {key: one.suggested(trial, key) for key, one in held[name].tuned.items()}
            own = {slot: name} if slot in POLICIES else {}
            of_slots[slot] = {**own, **held[name].settings, **tuned}
        return Composition(choices, of_slots)

    def _can(self, choices: Mapping[str, str], slot: str, name: str) -> bool:
        return all(choices[other] in names for other, names in self.slots[slot][name].needs.items())


def read(path: Path = SPACE) -> Space:
    """Read a space. Raises InputError, naming file and key, for what is not said right."""
    tree = check(load(path), str(path), ("slots", "published"), ("own",))
    slots = {
        slot: {name: _choice(entry, f"{path}: {slot} {name}") for name, entry in held.items()}
        for slot, held in tree["slots"].items()
    }

    def there(slot: str, names: Iterable[str], place: str) -> None:
        for name in names:
            known(name, slots[known(slot, slots, place)], place)

    for slot, held in slots.items():
        for name, choice in held.items():
            for other, names in choice.needs.items():
                there(other, names, f"{path}: {slot} {name}.needs")
    published = {}
    for name, begun in tree["published"].items():
        keys = {key for held in slots.values() for choice in held.values() for key in choice.tuned}
        for key, value in begun.items():
            known(key, [*slots, *keys], f"{path}: published {name}")
            if key in slots:
                known(value, slots[key], f"{path}: published {name}.{key}")
        published[name] = {slot: next(iter(held)) for slot, held in slots.items()} | begun
    own = tree.get("own", {})
    for slot, nearest in own.items():
        there(slot, (*nearest, *nearest.values()), f"{path}: own {slot}")
    return Space(slots, published, own)


def _choice(tree: Any, place: str) -> Choice:
    entry = check(tree, place, (), ("set", "tune", "needs"))
    tuned = {key: _range(span, f"{place}.tune.{key}") for key, span in entry.get("tune", {}).items()}
    needs = {slot: tuple(listed(names)) for slot, names in entry.get("needs", {}).items()}
    return Choice(entry.get("set", {}), tuned, needs)


def _range(tree: Any, place: str) -> Range:
    if isinstance(tree, list):
        if not tree:
            raise InputError(f"{place} has no values")
        return Range(values=tuple(listed(tree)))
    entry = check(tree, place, ("low", "high"), ("log", "whole"))
    if not entry["low"] < entry["high"]:
        raise InputError(f"{place} goes from {entry['low']} to {entry['high']}, must go up")
    return Range(**{name: entry[name] for name in ("low", "high", "log", "whole") if name in entry})
