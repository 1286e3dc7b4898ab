"""What policies may see. The engine provides it; nothing here can be changed by a policy.

A view knows what a real system would know: prompts and declared `max_output_tokens`, never how
many tokens a request will really produce.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request


class WaitingView(Protocol):
    """A replica's queue, in order of (arrival, id)."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Request]: ...
    def __reversed__(self) -> Iterator[Request]: ...

    def among(self, adapters: Set[int], after: Request) -> Iterator[Request]:
        """Requests behind `after` that use one of these adapters, by id, or none at all; in order."""
        ...

    def place(self, request: Request) -> int:
        """How many wait ahead of this one."""
        ...


class Refusal(Enum):
    """Why a request cannot start now. After MEMORY or REGION a trial is over: whom else to ask is not defined."""

    SEATS = "max_batch_size requests run"
    TOKENS = "the prefill would have more than max_prefill_tokens"
    ADAPTERS = "max_adapters other adapters are in the batch, or all that their memory can hold"
    MEMORY = "the pool has too few slots"
    REGION = "the adapters' own memory has too few slots, or none in a row"


class Admission(Protocol):
    """A trial of who could start now; nothing happens until the scheduler returns its decision."""

    @property
    def refusal(self) -> Refusal | None:
        """Why the request refused last was refused."""
        ...

    @property
    def adapters(self) -> Set[int]:
        """Ids of the adapters of the running requests and of those admitted so far."""
        ...

    def admit(self, request: Request) -> bool:
        """Whether the request fits beside the running batch and all those admitted before it."""
        ...

    def retry_steps(self) -> int:
        """Decode steps before which the request refused last cannot fit, unless somebody leaves."""
        ...


class ReplicaView(Protocol):
    """One replica at an iteration boundary."""

    @property
    def now_s(self) -> float: ...
    @property
    def waiting(self) -> WaitingView: ...
    @property
    def running(self) -> int:
        """Requests in the running batch."""
        ...

    @property
    def prefilling(self) -> Sequence[Request]:
        """Admitted requests of which a part is prefilled, in the order of their admission."""
        ...

    @property
    def adapters(self) -> int:
        """Distinct adapters of the running batch."""
        ...

    @property
    def merged(self) -> Adapter | None:
        """The adapter that is merged into the weights."""
        ...

    @property
    def preempted(self) -> bool:
        """Whether a request was preempted at this boundary, because KV had run out."""
        ...

    @property
    def steps_since_prefill(self) -> int:
        """Decode steps since the last prefill."""
        ...

    @property
    def admit_every(self) -> int:
        """Decode steps after a prefill during which a running replica leaves the queue alone."""
        ...

    def resident(self, adapter: Adapter) -> bool:
        """Whether an adapter is in HBM, or on its way."""
        ...

    def in_use(self, adapter: Adapter) -> bool:
        """Whether a running request uses the adapter."""
        ...

    def upcoming(self) -> Iterable[Request]:
        """The waiting requests, in the order in which the scheduler would start them."""
        ...

    def trial(self) -> Admission: ...


class ClusterView(Protocol):
    """All replicas at one moment; arrays are indexed by replica `[replicas]`."""

    @property
    def now_s(self) -> float: ...
    @property
    def outstanding(self) -> NDArray[np.int64]:
        """Requests that each replica has, running or waiting."""
        ...

    @property
    def rng(self) -> np.random.Generator:
        """This policy's own stream of randomness."""
        ...
