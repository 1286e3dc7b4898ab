"""What every replica has been given and has not done, as routers see it: sums over requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.arrays import Ints
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.policies.loads import SUMS, ReplicaLoad

_MAX_RANK, _ADAPTERS, _FULL_BATCHES, _HELD_TOKENS = range(len(SUMS), len(SUMS) + 4)


class Load:
    """Some of the requests of every replica, summed.

    `replicas` has each replica's sums. Their arrays are kept as of when one was last asked for, which then costs O(1)
    for each replica that has changed since.
    """

    def __init__(self, replicas: list[ReplicaLoad]) -> None:
        self.replicas = replicas
        self._table: Ints = np.zeros((len(replicas), len(SUMS) + 4), dtype=np.int64)
        self._changed = set(range(len(replicas)))

    def copy(self) -> Load:
        """Return a snapshot, to be read."""
        return Load([load.copy() for load in self.replicas])

    def add(self, replica: int, request: Request) -> None:
        """Count a request."""
        self.replicas[replica].change(request, 1)
        self._changed.add(replica)

    def take(self, replica: int, request: Request) -> None:
        """Count a request no longer."""
        self.replicas[replica].change(request, -1)
        self._changed.add(replica)

    @property
    def sums(self) -> Ints:
        """All that adds up, in the order of SUMS `[replicas, sums]`."""
        return self._arrays()[:, : len(SUMS)]

    @property
    def max_rank(self) -> Ints:
        """The highest rank of each replica's adapters; 0 without any."""
        return self._arrays()[:, _MAX_RANK]

    @property
    def adapters(self) -> Ints:
        """Distinct adapters of each replica."""
        return self._arrays()[:, _ADAPTERS]

    @property
    def full_batches(self) -> Ints:
        """Full batches of each replica."""
        return self._arrays()[:, _FULL_BATCHES]

    @property
    def held_tokens(self) -> Ints:
        """Prompts, declared outputs and adapters of each replica, in token slots."""
        return self._arrays()[:, _HELD_TOKENS]

    def uses(self, adapter_id: int) -> NDArray[np.bool_]:
        """Which replicas have requests for the adapter."""
        return np.array([adapter_id in load.users for load in self.replicas], dtype=np.bool_)

    def requests_for(self, adapter: Adapter | None) -> Ints:
        """How many requests every replica has for the adapter, or for the base model."""
        id = BASE_MODEL if adapter is None else adapter.id
        return np.array([load.users.get(id, 0) for load in self.replicas], dtype=np.int64)

    def _arrays(self) -> Ints:
        for replica in self._changed:
            load = self.replicas[replica]
            self._table[replica] = (
                load.requests,
                load.prompt_tokens,
                load.lora_requests,
                load.lora_tokens,
                load.rank_sum,
                load.token_rank_sum,
                load.max_rank,
                load.adapters,
                load.full_batches,
                load.held_tokens,
            )
        self._changed.clear()
        return self._table


class LoadTracker:
    """Of every replica: the requests that have not left (`all`), and those of them that wait (`waiting`)."""

    def __init__(self, batch_sizes: Sequence[int]) -> None:
        """Begin without requests; `batch_sizes` are the requests of a full batch of each replica."""
        self.all = Load([ReplicaLoad(size) for size in batch_sizes])
        self.waiting = Load([ReplicaLoad(size) for size in batch_sizes])

    @property
    def held_tokens(self) -> Ints:
        """Prompts and declared outputs of all requests, and the adapters in slots of the pool, each once."""
        return self.all.held_tokens

    def copy(self) -> LoadTracker:
        """Return a snapshot, to be read."""
        found = LoadTracker(())
        found.all, found.waiting = self.all.copy(), self.waiting.copy()
        return found

    def arrive(self, replica: int, request: Request) -> None:
        """A replica is given a request."""
        self.all.add(replica, request)

    def leave(self, replica: int, request: Request) -> None:
        """A request has ended, or goes elsewhere."""
        self.all.take(replica, request)
