"""The read-only views that the engine gives to policies.

A view shows what a real system would know: prompts and declared `max_output_tokens`, never how
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
from simlora.policies.loads import ReplicaLoad


class WaitingView(Protocol):
    """A replica's waiting queue, in order of (arrival, id)."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Request]: ...
    def __reversed__(self) -> Iterator[Request]: ...

    @property
    def count(self) -> int:
        """Number of waiting requests, as len() returns it; cheaper, for what is asked at every boundary."""
        ...

    @property
    def returned(self) -> int:
        """Number of requests so far that were inserted before the queue's end: preempted or migrated ones."""
        ...

    def counts(self) -> Mapping[int, int]:
        """Waiting requests per adapter id; BASE_MODEL counts those without an adapter."""
        ...

    def of(self, adapter_id: int) -> Iterator[Request]:
        """Waiting requests that use this adapter, or none for BASE_MODEL; in queue order."""
        ...

    def among(self, adapters: Set[int], after: Request) -> Iterator[Request]:
        """Waiting requests behind `after` that use one of these adapter ids or no adapter; in queue order."""
        ...

    def place(self, request: Request) -> int:
        """Number of waiting requests ahead of this one."""
        ...


class Refusal(Enum):
    """Why a request cannot start now. MEMORY and REGION end the trial: further `admit` calls are undefined."""

    SEATS = "max_num_seqs requests run"
    TOKENS = "the prefill would have more than max_num_batched_tokens"
    ADAPTERS = "max_loras other adapters are in the batch, or all that their memory can hold"
    MEMORY = "the pool has too few slots"
    REGION = "the adapters' own memory has too few slots, or none in a row"


class Admission(Protocol):
    """A trial of which requests could start now; it has no effect until the scheduler returns its output."""

    @property
    def refusal(self) -> Refusal | None:
        """Why the last refused request was refused."""
        ...

    @property
    def adapters(self) -> Set[int]:
        """Ids of the adapters in use: by all admitted requests (or those `beside`), and by this trial's so far."""
        ...

    def admit(self, request: Request) -> bool:
        """Return whether the request fits beside the running batch and the requests already admitted in this trial."""
        ...

    def retry_steps(self) -> int:
        """Decode steps for which the last refused request cannot fit, unless another request leaves."""
        ...


class IdleView(Protocol):
    """Adapters in HBM that no running request of a replica uses, least recently used first."""

    def __iter__(self) -> Iterator[Adapter]: ...
    def __len__(self) -> int: ...
    @property
    def now_s(self) -> float: ...
    def uses(self, adapter: Adapter) -> int:
        """Requests that have begun to use the adapter here, whether or not it left HBM meanwhile."""
        ...

    def last_use_s(self, adapter: Adapter) -> float:
        """Time at which the last of them was gone."""
        ...

    def load_s(self, adapter: Adapter) -> float:
        """Seconds in which the adapter would be loaded, on a link that nothing else uses."""
        ...

    def waiting(self, adapter: Adapter) -> int:
        """Requests that wait for the adapter here."""
        ...


class ReplicaView(Protocol):
    """One replica at an iteration boundary."""

    @property
    def now_s(self) -> float: ...
    @property
    def waiting(self) -> WaitingView: ...
    def due_s(self, request: Request) -> float:
        """Time at which a request's first token is due under its tenant's TTFT target; inf without a target."""
        ...

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        ...

    @property
    def step_tokens(self) -> int:
        """Tokens that the running batch has in an iteration: one a request, and those that a draft proposes."""
        ...

    @property
    def members(self) -> Collection[Request]:
        """The requests of the running batch, in the order in which they joined it."""
        ...

    @property
    def paused(self) -> Collection[Request]:
        """Requests taken out of the batch with their KV in HBM, in the order in which they were paused."""
        ...

    @property
    def max_num_seqs(self) -> int:
        """The most requests that may run together."""
        ...

    @property
    def served_adapters(self) -> int:
        """Number of adapters that the cluster serves, whether or not this replica has seen a request for them."""
        ...

    @property
    def iterations(self) -> int:
        """Number of iterations so far."""
        ...

    @property
    def prefilling(self) -> Sequence[Request]:
        """Admitted requests that are partly prefilled, in order of admission."""
        ...

    @property
    def loading(self) -> int:
        """Number of admitted requests that do not run because their adapter is still being loaded."""
        ...

    @property
    def adapters(self) -> int:
        """Number of distinct adapters that admitted requests use, running or not."""
        ...

    @property
    def merged(self) -> Adapter | None:
        """The adapter that is merged into the base weights, if any."""
        ...

    @property
    def preempted(self) -> bool:
        """Whether a request was preempted at this boundary because KV ran out."""
        ...

    @property
    def steps_since_prefill(self) -> int:
        """Number of decode steps since the last prefill."""
        ...

    @property
    def max_wait_tokens(self) -> int:
        """Decode steps after a prefill during which a running replica admits no waiting request."""
        ...

    def resident(self, adapter: Adapter) -> bool:
        """Whether an adapter is in HBM or in flight to it."""
        ...

    def in_use(self, adapter: Adapter) -> bool:
        """Whether an admitted request uses the adapter: a running, loading, partly prefilled or paused one."""
        ...

    def uses(self, adapter: Adapter) -> int:
        """Requests that have been admitted with the adapter here."""
        ...

    def last_use_s(self, adapter: Adapter) -> float:
        """Time at which the last of them was gone: now while one is there, -inf before the first."""
        ...

    def upcoming(self) -> Iterable[Request]:
        """The waiting requests, in the order in which the scheduler would start them."""
        ...

    def pass_s(self, requests: Sequence[Request], chunks: Sequence[int]) -> float:
        """Seconds of one pass that prefills `chunks[i]` tokens of `requests[i]` and decodes the running batch.

        Excludes waits before the pass begins, and the scheduler's time for looking at skipped requests.
        """
        ...

    def trial(self, beside: Collection[Request] | None = None) -> Admission:
        """Start an admission trial beside all admitted requests, or beside these of them only.

        With `beside`, running and paused requests that are not in it count as if they had released their memory.
        """
        ...


class LoadView(Protocol):
    """Totals over some of the requests of every replica.

    `replicas` has the totals of each replica. The same as arrays: `sums` is `[replicas, sums]` in the order of SUMS;
    the others are `[replicas]`. `max_rank` and `adapters` (distinct) cover the requests that use an adapter.
    `full_batches` counts the batches of `max_num_seqs` requests that can be formed with one adapter each, or with the
    base model only.
    """

    replicas: list[ReplicaLoad]

    @property
    def sums(self) -> NDArray[np.int64]: ...
    @property
    def max_rank(self) -> NDArray[np.int64]: ...
    @property
    def adapters(self) -> NDArray[np.int64]: ...
    @property
    def full_batches(self) -> NDArray[np.int64]: ...

    def uses(self, adapter_id: int) -> NDArray[np.bool_]:
        """Which replicas have requests for the adapter `[replicas]`."""
        ...

    def requests_for(self, adapter: Adapter | None) -> NDArray[np.int64]:
        """Number of requests that each replica has for the adapter, or for the base model `[replicas]`."""
        ...


class LoadsView(Protocol):
    """The outstanding work of every replica."""

    @property
    def held_tokens(self) -> NDArray[np.int64]:
        """Prompts and declared outputs of all outstanding requests, plus each of their adapters once, in token slots.

        `[replicas]`
        """
        ...

    @property
    def all(self) -> LoadView:
        """All outstanding requests."""
        ...

    @property
    def waiting(self) -> LoadView:
        """The outstanding requests that wait."""
        ...


class ClusterView(Protocol):
    """All replicas at one moment; arrays are indexed by replica `[replicas]`."""

    @property
    def now_s(self) -> float: ...
    @property
    def adapters(self) -> Sequence[Adapter]:
        """All adapters that the cluster serves, by id."""
        ...

    @property
    def history_rps(self) -> NDArray[np.float64] | None:
        """Mean requests per second of every adapter on earlier days, by adapter id; None if unknown."""
        ...

    @property
    def asked_tokens(self) -> NDArray[np.int64]:
        """Tokens so far per adapter id: prompts of arrived requests, and outputs of requests that ended.

        Available to placements that plan more than once.
        """
        ...

    @property
    def asked_requests(self) -> NDArray[np.int64]:
        """Requests that have arrived so far, per adapter id; available to migrations."""
        ...

    def shares(self, adapter: Adapter | None, candidates: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """The placement's share of an adapter's requests for each candidate; None if it defines no shares."""
        ...

    @property
    def open(self) -> NDArray[np.bool_]:
        """Which replicas accept requests: switched on and not failed `[replicas]`."""
        ...

    @property
    def outstanding(self) -> NDArray[np.int64]:
        """Number of requests that each replica has, running or waiting `[replicas]`."""
        ...

    def requests_of(self, replica: int) -> Sequence[Request]:
        """A replica's requests, running or waiting, in order of arrival."""
        ...

    def context_tokens(self, request: Request, replica: int) -> int:
        """Prompt and generated tokens of one of a replica's requests: what its KV holds, or will have to hold."""
        ...

    def resident(self, adapter: Adapter) -> NDArray[np.bool_]:
        """Which replicas have an adapter in HBM or in flight to it `[replicas]`."""
        ...

    def holders(self, adapter: Adapter) -> set[int]:
        """The replicas that have an adapter in HBM or in flight to it; as `resident`, for less."""
        ...

    def load_s(self, adapter: Adapter) -> float:
        """Seconds to load an adapter from host memory."""
        ...

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        """Mean seconds from admission to end, over the ended requests that had a first token.

        For one adapter, or for all requests; None while there is none. Of routers, only `informed` ones may ask.
        """
        ...

    @property
    def resident_adapters(self) -> NDArray[np.int64]:
        """Number of adapters that each replica has in HBM or in flight to it `[replicas]`."""
        ...

    def cached_tokens(self, request: Request) -> NDArray[np.int64]:
        """Leading tokens of a request's prompt whose KV each replica has in HBM, so that it needs no prefill.

        `[replicas]`; zeros without `replica.prefix_caching`.
        """
        ...

    @property
    def used_tokens(self) -> NDArray[np.int64]:
        """Token slots taken by KV and adapters of admitted requests, which cannot be evicted `[replicas]`."""
        ...

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's KV on all GPUs of a replica; the size of a token slot."""
        ...

    @property
    def loads(self) -> LoadsView:
        """The outstanding work of every replica; only for routers that declare `informed`."""
        ...

    @property
    def sent(self) -> LoadsView:
        """The same as a router counts it that sees each answer: as of now, whatever `cluster.status_every_s` is."""
        ...

    @property
    def kv_token_budgets(self) -> NDArray[np.int64]:
        """Token slots of each replica's pool `[replicas]`."""
        ...

    @property
    def max_num_seqs(self) -> NDArray[np.int64]:
        """The most requests that each replica may run together `[replicas]`."""
        ...

    @property
    def max_loras(self) -> NDArray[np.float64]:
        """The most adapters that each replica's batch may have `[replicas]`; inf: no limit."""
        ...

    @property
    def max_lora_ranks(self) -> NDArray[np.int64]:
        """The highest rank of an adapter that each replica can hold `[replicas]`; without slots any: 2**30."""
        ...

    @property
    def models(self) -> Sequence[tuple[IterationModel, Kernel]]:
        """Latency models of every replica: of a base-model iteration, and of what LoRA adds to it `[replicas]`."""
        ...

    @property
    def rng(self) -> np.random.Generator:
        """The random stream that placement, router and migration share."""
        ...


class FleetView(ClusterView, Protocol):
    """The cluster as an autoscaler sees it; arrays `[replicas]` cover every replica that could exist."""

    @property
    def desired(self) -> int:
        """Number of replicas that the autoscaler wanted last, or 1 after a boot from zero.

        While hosts have failed, fewer may accept requests or boot.
        """
        ...

    @property
    def scaled(self) -> Sequence[tuple[float, int]]:
        """Times and numbers by which the autoscaler has changed `desired`, in order, without boots from zero."""
        ...

    @property
    def unassigned(self) -> int:
        """Number of requests assigned to no replica: none accepts requests now, or all are still being asked."""
        ...

    @property
    def active(self) -> bool:
        """Whether there are requests, or one has arrived since the autoscaler was last asked."""
        ...

    @property
    def adapters_in_use(self) -> int:
        """Number of adapters of which a request runs, waits or is unassigned."""
        ...

    @property
    def waits_s(self) -> NDArray[np.float64]:
        """Seconds that each request still waiting for its first prefill has waited `[waiting]`."""
        ...

    def first_tokens_s(self, window_s: float) -> NDArray[np.float64]:
        """TTFT of the requests that ended in the last `window_s` seconds `[ended]`.

        inf for requests aborted before their first token, or rejected because of `cluster.max_outstanding`.
        """
        ...
