"""Least recently used as vLLM counts it: a step touches its adapters one after the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from simlora.policies.eviction.lru import Lru

SCRAMBLE = 2654435761
"""Knuth's multiplier: vLLM goes through a set of adapters hashed by name, in an order that has nothing to do with them."""


class LruInTurn(Lru):
    """Adapters in use can be thrown out, and are loaded again in the same step.

    A step goes through its adapters in turn, always the same: one that is there becomes the most recent, one that
    is missing takes the place of the least recent. While adapters wait in HBM that nobody uses any more, it is
    one of those. But where all slots were used by the step before, the least recent is one that this step has not
    come to yet. It takes the place of the next one when its turn comes, and so on, until the turn is that of an
    adapter that has left. With all slots in use a single load so becomes a sixth of the slots on average, and up to
    all of them. Source: vLLM 0.8.5, LRUCacheWorkerLoRAManager._apply_adapters and LRUCacheLoRAModelManager.activate_adapter;
    in the runs of arXiv 2508.08343 the 99th percentile of inter-token latency is the number of slots times a load
    just where the slots are too few.
    """

    in_turn = True

    def reloads(self, in_use: Collection[int], missing: Set[int], just_left: Collection[int]) -> Sequence[int]:
        """Return them as the class says; O(n log n) for n adapters in use."""
        order = sorted(in_use, key=turn)
        gone = sorted(just_left, key=turn, reverse=True)
        # The first of the missing find a free slot, or one whose adapter left longer ago.
        free = len(missing) - len(gone)
        there = [id for id in order if id not in missing]
        thrown_out: list[int] = []
        untouched = 0  # where in `there` those begin whose turn has not come
        again: set[int] = set()
        for id in order:
            if untouched < len(there) and there[untouched] == id:
                untouched += 1
            if id not in missing and id not in again:
                continue
            if free > 0:
                free -= 1
            elif gone and (untouched == len(there) or turn(gone[-1]) < turn(there[untouched])):
                gone.pop()
            else:
                again.add(there[untouched])
                thrown_out.append(there[untouched])
                untouched += 1
        return thrown_out


def turn(id: int) -> int:
    """Where an adapter stands in the order of a step."""
    return (id + 1) * SCRAMBLE % 2**32
