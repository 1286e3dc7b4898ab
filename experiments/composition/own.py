"""Policies of no paper in a composition: with published ones instead, and with a scheduler that is told wrong."""

from __future__ import annotations

from experiments.composition.space import Space
from experiments.cross_table.slots import Exchange, ordinary
from experiments.cross_table.world import System, World

MISTAKES = {"a tenth too long": 1 / 1.1, "a tenth too short": 1.1}
"""How far a pass may go, by what its scheduler is told of its time: as if the target were another one."""


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


def told_wrong(world: World, system: System) -> list[Exchange]:
    """Return a system whose scheduler is told that passes take longer than they do, or less, if it asks."""
    if system.settings.get("scheduler") != "chunked_slo":
        return []
    target_s = world.same["slo.tpot_s"]
    return [
        Exchange(
            f"what a pass takes, told {mistake}",
            "right",
            "wrong",
            System(
                f"{system.name}, told {mistake}",
                system.title,
                {**system.settings, "scheduler.pass_s": float(f"{target_s * factor:.4g}")},
            ),
        )
        for mistake, factor in MISTAKES.items()
    ]
