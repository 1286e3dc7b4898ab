"""What policies may see. The engine provides it; nothing here can be changed by a policy.

A view knows what a real system would know: prompts and declared `max_output_tokens`, never how
many tokens a request will really produce.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel


class WaitingView(Protocol):
    """A replica's queue, in order of (arrival, id)."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Request]: ...
    def __reversed__(self) -> Iterator[Request]: ...

    @property
    def returned(self) -> int:
        """Requests so far that were inserted before the queue's end: preempted ones, and those from other replicas."""
        ...

    def counts(self) -> Mapping[int, int]:
        """How many wait for each adapter, by its id; those of the base model by BASE_MODEL."""
        ...

    def of(self, adapter_id: int) -> Iterator[Request]:
        """Those that wait for an adapter, by its id, or with BASE_MODEL for none; in order."""
        ...

    def among(self, adapters: Set[int], after: Request) -> Iterator[Request]:
        """Requests behind `after` that use one of these adapters, by id, or none at all; in order."""
        ...

    def place(self, request: Request) -> int:
        """How many wait ahead of this one."""
        ...


class Refusal(Enum):
    """Why a request cannot start now. After MEMORY or REGION a trial is over: whom else to ask is not defined."""

    SEATS = "max_num_seqs requests run"
    TOKENS = "the prefill would have more than max_num_batched_tokens"
    ADAPTERS = "max_loras other adapters are in the batch, or all that their memory can hold"
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
        """Ids of the adapters of all admitted requests, or of those `beside`, and of those admitted so far."""
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
    def due_s(self, request: Request) -> float:
        """When a request is to have its first token, as its tenant was promised; inf where no target says so."""
        ...

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        ...

    @property
    def members(self) -> Collection[Request]:
        """The running batch, in the order in which they joined it."""
        ...

    @property
    def paused(self) -> Collection[Request]:
        """Requests taken out of the batch with their KV in HBM, in the order in which they were paused."""
        ...

    @property
    def max_num_seqs(self) -> int:
        """The most requests that run together."""
        ...

    @property
    def served_adapters(self) -> int:
        """Adapters that the cluster serves, of which this replica may have met none."""
        ...

    @property
    def iterations(self) -> int:
        """Iterations so far."""
        ...

    @property
    def prefilling(self) -> Sequence[Request]:
        """Admitted requests of which a part is prefilled, in the order of their admission."""
        ...

    @property
    def loading(self) -> int:
        """Admitted requests that run as soon as their weights have landed."""
        ...

    @property
    def adapters(self) -> int:
        """Distinct adapters that requests of the batch use, or admitted ones that stand still."""
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
    def max_wait_tokens(self) -> int:
        """Decode steps after a prefill during which a running replica leaves the queue alone."""
        ...

    def resident(self, adapter: Adapter) -> bool:
        """Whether an adapter is in HBM, or on its way."""
        ...

    def in_use(self, adapter: Adapter) -> bool:
        """Whether an admitted request uses the adapter: one that runs, lands, is being prefilled or is paused."""
        ...

    def upcoming(self) -> Iterable[Request]:
        """The waiting requests, in the order in which the scheduler would start them."""
        ...

    def pass_s(self, requests: Sequence[Request], chunks: Sequence[int]) -> float:
        """Seconds of one pass that prefills so many tokens of each of these, and decodes with the running batch.

        Without what they wait for before it begins, and what the scheduler takes that looks at others.
        """
        ...

    def trial(self, beside: Collection[Request] | None = None) -> Admission:
        """Start a trial beside all admitted requests, or beside these of them only.

        As if the others had given up their memory.
        """
        ...


SUMS = ("requests", "prompt_tokens", "lora_requests", "lora_tokens", "rank_sum", "token_rank_sum")
"""What of a replica's requests adds up; `lora_tokens` are those of prompts, `token_rank_sum` is rank times prompt."""


def amounts(request: Request) -> tuple[int, ...]:
    """Return what a request adds to SUMS. A preempted one counts with its prompt."""
    tokens = request.prompt_tokens
    if request.adapter is None:
        return 1, tokens, 0, 0, 0, 0
    rank = request.adapter.rank
    return 1, tokens, 1, tokens, rank, tokens * rank


class LoadView(Protocol):
    """Some of the requests of every replica: `sums` `[replicas, sums]`, in the order of SUMS, and arrays `[replicas]`.

    `max_rank` and `adapters` (distinct) are over those that use an adapter. `full_batches` is how many batches of
    `max_num_seqs` requests they make up that are all for one adapter, or all for the base model.
    """

    sums: NDArray[np.int64]
    max_rank: NDArray[np.int64]
    adapters: NDArray[np.int64]
    full_batches: NDArray[np.int64]

    def uses(self, adapter_id: int) -> NDArray[np.bool_]:
        """Which replicas have requests for the adapter."""
        ...

    def requests_for(self, adapter: Adapter | None) -> NDArray[np.int64]:
        """How many requests every replica has for the adapter, or for the base model `[replicas]`."""
        ...


class LoadsView(Protocol):
    """What every replica has been given and has not done.

    `held_tokens` `[replicas]`: prompts and declared outputs of all, and their adapters, each once, in token slots.
    """

    held_tokens: NDArray[np.int64]

    @property
    def all(self) -> LoadView:
        """Requests that have not left."""
        ...

    @property
    def waiting(self) -> LoadView:
        """Those of them that wait."""
        ...


class ClusterView(Protocol):
    """All replicas at one moment; arrays are indexed by replica `[replicas]`."""

    @property
    def now_s(self) -> float: ...
    @property
    def history_rps(self) -> NDArray[np.float64] | None:
        """Mean requests per second of every adapter, by its id, as known from the days before; None: not known."""
        ...

    @property
    def asked_tokens(self) -> NDArray[np.int64]:
        """Tokens of every adapter, by its id, so far: prompts that arrived, and what requests that ended generated.

        For a placement that plans more than once.
        """
        ...

    def shares(self, adapter: Adapter | None, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """What share of an adapter's requests the placement gives to each candidate; None: it does not say."""
        ...

    @property
    def open(self) -> NDArray[np.bool_]:
        """Which replicas take requests: they have not failed, and are switched on `[replicas]`."""
        ...

    @property
    def outstanding(self) -> NDArray[np.int64]:
        """Requests that each replica has, running or waiting."""
        ...

    def requests_of(self, replica: int) -> Sequence[Request]:
        """Requests that a replica has, running or waiting, in order of arrival."""
        ...

    def context_tokens(self, request: Request, replica: int) -> int:
        """Prompt and the tokens that one of a replica's requests has so far: what its KV holds, or will have to."""
        ...

    def resident(self, adapter: Adapter) -> NDArray[np.bool_]:
        """Which replicas have an adapter in HBM, or on its way there."""
        ...

    def load_s(self, adapter: Adapter) -> float:
        """Seconds that it takes to load an adapter from host memory."""
        ...

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        """Mean seconds from admission to end of the requests that had a first token and have left.

        For an adapter or for all; None as long as there are none. Of routers, only those that are `informed` may ask.
        """
        ...

    @property
    def used_tokens(self) -> NDArray[np.int64]:
        """Token slots of the replicas' pools that admitted requests' KV and adapters take: what cannot be evicted."""
        ...

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's KV on all GPUs of a replica: of a token slot."""
        ...

    @property
    def loads(self) -> LoadsView:
        """What every replica has to do, for a router that says it is `informed`."""
        ...

    @property
    def kv_token_budgets(self) -> NDArray[np.int64]:
        """Token slots of the replicas' pools."""
        ...

    @property
    def max_num_seqs(self) -> int:
        """Requests that a replica runs together."""
        ...

    @property
    def iteration(self) -> IterationModel:
        """How long an iteration of the base model takes."""
        ...

    @property
    def kernel(self) -> Kernel:
        """What LoRA adds to it."""
        ...

    @property
    def rng(self) -> np.random.Generator:
        """The stream of randomness that placement, router and migration share, and draw from in turn."""
        ...


class FleetView(ClusterView, Protocol):
    """The cluster as an autoscaler sees it; arrays `[replicas]` are of all that there could be."""

    @property
    def on(self) -> int:
        """Replicas that take requests, or will when they have booted."""
        ...

    @property
    def unassigned(self) -> int:
        """Requests that no replica has, as none takes any now."""
        ...

    @property
    def waits_s(self) -> NDArray[np.float64]:
        """How long each of those has waited that waits for its first prefill now `[waiting]`."""
        ...

    def first_tokens_s(self, window_s: float) -> NDArray[np.float64]:
        """TTFT of the requests that ended in the last `window_s` seconds `[ended]`.

        It is inf of those that were given up before they had a first token, or turned away as too many were there.
        """
        ...
