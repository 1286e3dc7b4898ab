"""More copies of adapters in demand, where a plan leaves memory for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.policies.migration.base import Copy, Plan
from simlora.policies.views import ClusterView


class Refill:
    """Which adapters the manager has given to which replicas, and what it gives them after a plan.

    A replica has as many places for adapters as it had adapters at first. The replicas of a plan keep those of the
    requests that they have then, and their other places are filled. The first copy is of the adapter with the fewest
    copies, of these the most requested so far. All others are of the most requested one, but an adapter without a copy
    comes before. A copy goes to the replica with the most free places, and is made only if the lowest burst tolerance
    does not decrease: the free memory of an adapter's replicas over its requests so far. With no such replica, no more
    copies are made.

    Source: dLoRA's released code (`find_best_lora_weight_schedule`). Differs: an adapter that a plan leaves without a
    place stays in memory until others need it, and dispatch still finds it there. Where the code would try an adapter
    without a copy for ever, filling ends.
    """

    def __init__(self) -> None:
        self.given: NDArray[np.bool_] = np.zeros((0, 0), dtype=np.bool_)  # [replicas, adapters]
        self.places: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # [replicas]

    def begin(self, view: ClusterView) -> None:
        """Note what lies in HBM, the first time."""
        if not len(self.places):
            self.given = np.array([view.resident(adapter) for adapter in view.adapters], dtype=np.bool_).T
            self.places = self.given.sum(axis=1)

    def copies(self, replicas: Sequence[int], plan: Plan, view: ClusterView) -> tuple[Copy, ...]:
        """Return the copies to make after a plan for these replicas."""
        moved = {move.request: move.target for move in plan.moves}
        self.given[list(replicas)] = False
        for replica in replicas:
            for request in view.requests_of(replica):
                if request.adapter is not None:
                    self.given[moved.get(request, replica), request.adapter.id] = True
        free = self.places - self.given.sum(axis=1)
        tokens = np.array([adapter.kv_tokens for adapter in view.adapters], dtype=np.int64)
        room = view.kv_token_budgets - self.given @ tokens
        asked = view.asked_requests + 1 / len(tokens)
        lowest, found = 0.0, list[Copy]()
        while True:
            copies = self.given.sum(axis=0)
            adapter = int((copies / (len(found) + 1e-7) - asked).argmin())
            if copies[adapter] and not copies.all():
                adapter = int(copies.argmin())
            for replica in np.argsort(-free, kind="stable").tolist():
                if free[replica] < 1 or self.given[replica, adapter]:
                    continue
                self.given[replica, adapter] = True
                room[replica] -= tokens[adapter]
                tolerance = float((room @ self.given / asked).min())
                if tolerance >= lowest:
                    break
                self.given[replica, adapter] = False
                room[replica] += tokens[adapter]
            else:
                return tuple(found)
            lowest = tolerance
            free[replica] -= 1
            found.append(Copy(view.adapters[adapter], replica))
