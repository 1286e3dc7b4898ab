"""Policies of no paper in a composition, and the same with the published ones that are nearest to them."""

from __future__ import annotations

from experiments.composition.space import Space
from experiments.cross_table.slots import Exchange, ordinary
from experiments.cross_table.world import System


def as_published(space: Space, system: System) -> list[Exchange]:
    """Return a system once for each of its policies that is of no paper, with the published one instead.

    What is set of the policy stays as far as the other one knows it.
    """
    found = []
    for slot, nearest in space.own.items():
        had = system.settings.get(slot)
        if had in nearest:
            has = nearest[had]
            known = {f"{slot}.{key}" for key in ordinary(slot, has)}
            kept = {
                key: value
                for key, value in system.settings.items()
                if not key.startswith(f"{slot}.") or key in known
            }
            changed = System(f"{system.name} with {has}", system.title, {**kept, slot: has})
            found.append(Exchange(f"{slot}, as published", had, has, changed))
    return found
