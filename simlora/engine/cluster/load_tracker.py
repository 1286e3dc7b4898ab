"""What every replica has been given and has not done, as routers see it: sums over requests, in arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.views import SUMS, amounts

Counts = NDArray[np.int64]
_REQUESTS, _LORA = SUMS.index("requests"), SUMS.index("lora_requests")


class Load:
    """Some of the requests of every replica, summed `[replicas]`; an update costs O(ranks of a replica).

    `sums` `[replicas, sums]` are all that add up, in the order of SUMS. `full_batches` are those of `batch_size`
    requests for one adapter, or for the base model, that they make up. Single numbers are written through memoryviews
    of the arrays, which takes a third less time than through numpy.
    """

    def __init__(self, replicas: int, batch_size: int) -> None:
        self.sums: Counts = np.zeros((replicas, len(SUMS)), dtype=np.int64)
        self.max_rank: Counts = np.zeros(replicas, dtype=np.int64)
        self.adapters: Counts = np.zeros(replicas, dtype=np.int64)
        self.full_batches: Counts = np.zeros(replicas, dtype=np.int64)
        self._sums, self._max_rank = self.sums.reshape(-1).data, self.max_rank.data
        self._adapters, self._full_batches = self.adapters.data, self.full_batches.data
        self.marks: list[object] = [object() for _ in range(replicas)]
        self._batch_size = batch_size
        self._ranks: list[dict[int, int]] = [{} for _ in range(replicas)]  # requests by rank
        self._users: dict[int, dict[int, int]] = {}  # requests by adapter and replica

    def copy(self) -> Load:
        """Return a snapshot, to be read."""
        found = Load(len(self.adapters), self._batch_size)
        found.sums, found.max_rank = self.sums.copy(), self.max_rank.copy()
        found.adapters, found.marks = self.adapters.copy(), self.marks.copy()
        found.full_batches = self.full_batches.copy()
        found._users = {id: dict(users) for id, users in self._users.items()}
        return found

    def uses(self, adapter_id: int) -> NDArray[np.bool_]:
        """Which replicas have requests for the adapter."""
        found = np.zeros(len(self.adapters), dtype=np.bool_)
        found[list(self._users.get(adapter_id, ()))] = True
        return found

    def requests_for(self, adapter: Adapter | None) -> Counts:
        """How many requests every replica has for the adapter, or for the base model."""
        if adapter is None:
            found: Counts = self.sums[:, _REQUESTS] - self.sums[:, _LORA]
            return found
        found = np.zeros(len(self.adapters), dtype=np.int64)
        users = self._users.get(adapter.id)
        if users:
            found[list(users)] = list(users.values())
        return found

    def add(self, replica: int, request: Request) -> None:
        """Count a request."""
        self.change(replica, request, 1)

    def take(self, replica: int, request: Request) -> None:
        """Count a request no longer."""
        self.change(replica, request, -1)

    def change(self, replica: int, request: Request, by: int) -> bool:
        """Count a request (`by` 1), or no longer (-1); return whether the replica's distinct adapters change."""
        self.marks[replica] = object()
        sums, first, adapter, left = self._sums, replica * len(SUMS), request.adapter, by < 0
        for place, amount in enumerate(amounts(request), first):
            sums[place] += by * amount
        if adapter is None:
            alike = sums[first + _REQUESTS] - sums[first + _LORA]
            changes = False
        else:
            users, ranks, rank = self._users.setdefault(adapter.id, {}), self._ranks[replica], adapter.rank
            alike = users[replica] = users.get(replica, 0) + by
            changes = alike + left == 1
            if changes:
                self._adapters[replica] += by
                if left:
                    del users[replica]
            same_rank = ranks[rank] = ranks.get(rank, 0) + by
            if same_rank + left == 1:
                if left:
                    del ranks[rank]
                self._max_rank[replica] = max(ranks, default=0)
        if (alike + left) % self._batch_size == 0:
            self._full_batches[replica] += by
        return changes


class LoadTracker:
    """Of every replica: the requests that have not left (`all`), and those of them that wait (`waiting`).

    `held_tokens` counts prompts and declared outputs of all, and the adapters in slots of the pool, each once.
    """

    def __init__(self, replicas: int, batch_size: int) -> None:
        self.all = Load(replicas, batch_size)
        self.waiting = Load(replicas, batch_size)
        self.held_tokens: Counts = np.zeros(replicas, dtype=np.int64)

    def copy(self) -> LoadTracker:
        """Return a snapshot, to be read."""
        found = LoadTracker(0, 1)
        found.all, found.waiting = self.all.copy(), self.waiting.copy()
        found.held_tokens = self.held_tokens.copy()
        return found

    def arrive(self, replica: int, request: Request) -> None:
        """A replica is given a request."""
        self._change(replica, request, 1)

    def leave(self, replica: int, request: Request) -> None:
        """A request has ended, or goes elsewhere."""
        self._change(replica, request, -1)

    def _change(self, replica: int, request: Request, by: int) -> None:
        tokens = request.declared_tokens
        if self.all.change(replica, request, by) and request.adapter is not None:
            tokens += request.adapter.kv_tokens
        self.held_tokens[replica] += by * tokens
