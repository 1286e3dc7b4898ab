"""Least recently used as vLLM counts it: a step touches its adapters one after the other."""

from __future__ import annotations

from collections.abc import Collection, Set

from simlora.policies.eviction.lru import Lru

SCRAMBLE = 2654435761
"""Knuth's multiplier: vLLM goes through a set hashed by the adapters' names, an order that means nothing."""


class LruInTurn(Lru):
    """Adapters in use can be thrown out, and are loaded again in the same step.

    A step goes through its adapters in turn, always the same: one that is there becomes the most recent, one that
    is missing takes the place of the least recent. While adapters wait in HBM that nobody uses any more, it is
    one of those. But where all slots were used by the step before, the least recent is one that this step has not
    come to yet. It takes the place of the next one when its turn comes, and so on, until the turn is that of an
    adapter that has left. With all slots in use a single load so becomes a sixth of the slots on average, and up to
    all of them. Source: vLLM 0.8.5, LRUCacheWorkerLoRAManager._apply_adapters and
    LRUCacheLoRAModelManager.activate_adapter; in the runs of arXiv 2508.08343 the 99th percentile of inter-token
    latency is the number of slots times a load where the slots are too few.
    It differs in two small things: adapters that nobody uses any more leave in the order in which their last
    requests did, and the order of a step stays the same however many adapters it has.
    """

    evicts_in_use = True

    def reloads(
        self, in_use: Collection[int], missing: Set[int], just_left: Collection[int]
    ) -> Collection[int]:
        """Return them as the class says; O(n + m log m) for n adapters in use and m that come or have left."""
        events = [(turn(id), True) for id in missing] + [(turn(id), False) for id in just_left]
        # Slots to be had without harm: free ones, those left longer ago, those left whose turn is over.
        spare = len(missing) - len(just_left)
        searching = 0  # adapters that took a slot from one whose turn is still to come
        disturbed: list[
            tuple[int, int]
        ] = []  # turns in which each finds its slot taken, and takes the next one's
        begin = 0
        for when, comes in sorted(events):
            if searching > 0:
                disturbed.append((begin, when))
            begin = when
            if comes and spare > 0:
                spare -= 1
            elif comes:
                searching += 1
            elif searching > 0:
                searching -= 1
            else:
                spare += 1
        return [id for begin, end in disturbed for id in in_use if begin < turn(id) < end]


def turn(id: int) -> int:
    """Where an adapter stands in the order of a step."""
    return (id + 1) * SCRAMBLE % 2**32
