"""What a router knows of the replicas when they do not tell it all the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.loads import Loads

if TYPE_CHECKING:
    from simlora.engine.cluster import Cluster


class Status:
    """The cluster as it was when replicas told last, which they do at the first arrival of every `every_s` seconds.

    So what a router sees is up to that old, its own latest decisions included. What does not change is as it is; where
    adapters lie, what fills the pools and how long requests took is as of now.
    """

    def __init__(self, cluster: Cluster, every_s: float) -> None:
        self._cluster, self._every_s = cluster, every_s
        self._told = -1
        self.outstanding: NDArray[np.int64] = cluster.outstanding.copy()
        self._loads: Loads | None = None
        self.rng, self.iteration, self.kernel = cluster.rng, cluster.iteration, cluster.kernel
        self.kv_token_budgets, self.max_batch_size = cluster.kv_token_budgets, cluster.max_batch_size

    @property
    def now_s(self) -> float:
        """The time."""
        return self._cluster.now_s

    @property
    def loads(self) -> Loads:
        """What every replica had to do."""
        assert self._loads is not None, "a router asks for loads that does not say it is informed"
        return self._loads

    @property
    def history(self) -> NDArray[np.float64] | None:
        """Mean requests per second of every adapter, as known from the days before."""
        return self._cluster.history

    @property
    def alive(self) -> NDArray[np.bool_]:
        """Which replicas take requests: as of now."""
        return self._cluster.alive

    @property
    def asked_tokens(self) -> NDArray[np.int64]:
        """Tokens of every adapter so far, which is a placement's to ask."""
        return self._cluster.asked_tokens

    def shares(self, adapter: Adapter | None, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What share of an adapter's requests the placement gives to each candidate: as of now."""
        return self._cluster.shares(adapter, candidates)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's KV on all GPUs of a replica."""
        return self._cluster.kv_bytes_per_token

    def requests_of(self, replica: int) -> Sequence[Request]:
        """Requests that a replica has, running or waiting: routers are not told of them one by one."""
        return self._cluster.requests_of(replica)

    def context_tokens(self, request: Request, replica: int) -> int:
        """Prompt and the tokens that one of a replica's requests has so far."""
        return self._cluster.context_tokens(request, replica)

    def resident(self, adapter: Adapter) -> NDArray[np.bool_]:
        """Which replicas have an adapter in HBM, or on its way there."""
        return self._cluster.resident(adapter)

    def load_s(self, adapter: Adapter) -> float:
        """Seconds that it takes to load an adapter from host memory."""
        return self._cluster.load_s(adapter)

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        """Mean seconds from start to end of the requests that have finished, for an adapter or for all."""
        return self._cluster.execution_s(adapter)

    @property
    def used_tokens(self) -> NDArray[np.int64]:
        """Token slots of the replicas' pools that KV and adapters take."""
        return self._cluster.used_tokens

    def ask(self, informed: bool) -> None:
        """An arrival is to be routed: replicas tell anew if it is time."""
        period = int(self._cluster.now_s // self._every_s)
        if period > self._told:
            self._told = period
            self.outstanding = self._cluster.outstanding.copy()
            self._loads = self._cluster.loads.copy() if informed else None
