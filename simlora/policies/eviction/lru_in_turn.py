"""LRU as in vLLM: a step touches its adapters one after another, and may evict one that it still needs."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from simlora.policies.eviction.lru import Lru

SCRAMBLE: Final = 2654435761
"""Knuth's multiplier: vLLM iterates over a set hashed by the adapters' names, an arbitrary order."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LruInTurn(Lru):
    """Adapters in use can be evicted, and are loaded again in the same step.

    Every step visits its adapters in the same order. A resident adapter becomes the most recent; a missing one takes
    the slot of the least recent. While HBM has adapters without requests, the least recent is one of those. If the
    previous step used all slots, the least recent is an adapter that this step has still to visit. At its visit that
    adapter is loaded again into the slot of the next one, and so on, until the order reaches an adapter that no
    request uses any more. With all slots in use, a single load therefore becomes loads of a sixth of the slots on
    average, and of up to all of them.
    Source: vLLM 0.8.5, LRUCacheWorkerLoRAManager._apply_adapters and LRUCacheLoRAModelManager.activate_adapter. In the
    runs of arXiv 2508.08343 the 99th percentile of inter-token latency is the number of slots times a load where the
    slots are too few.
    Differs: adapters without requests are evicted in the order in which their last requests left, and the order of a
    step does not depend on how many adapters it has.
    """

    evicts_in_use: ClassVar[bool] = True

    def reloads(
        self, in_use: Collection[int], missing: Set[int], just_left: Collection[int]
    ) -> Collection[int]:
        """Return the ids loaded again, as the class describes; O(n + m log m), n adapters in use, m missing or left."""
        # By turn; within a turn an adapter leaves before another one is loaded.
        events = [2 * turn(id) + 1 for id in missing] + [2 * turn(id) for id in just_left]
        events.sort()
        # Slots that evict no adapter in use: free ones, those left earlier, and just left ones already visited.
        spare = len(missing) - len(just_left)
        searching = 0  # adapters that took the slot of one still to be visited
        # Spans of the order in which each adapter has lost its slot and takes the next one's.
        disturbed: list[tuple[int, int]] = []
        begin = 0
        for event in events:
            when = event >> 1
            if searching > 0:
                disturbed.append((begin, when))
            begin = when
            if event & 1:
                if spare > 0:
                    spare -= 1
                else:
                    searching += 1
            elif searching > 0:
                searching -= 1
            else:
                spare += 1
        return [id for begin, end in disturbed for id in in_use if begin < turn(id) < end]


def turn(id: i64) -> i64:
    """Return an adapter's position in the order of a step."""
    return (id + 1) * SCRAMBLE % 2**32
