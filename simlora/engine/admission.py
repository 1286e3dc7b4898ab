"""Who could start now, beside the running batch, as schedulers try it; and who never could."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from simlora.core.request import Request
from simlora.engine.batch import Batch
from simlora.engine.replica_config import ReplicaConfig
from simlora.memory.adapter_region import adapter_region
from simlora.memory.pool import Pool
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.reservation import UNLIMITED, Full, PaddedKv, Paged, Peak, Reservation
from simlora.memory.segments import Segment
from simlora.policies.views import Refusal


class Admission:
    """One trial: batch size, adapters in the batch, prefill tokens and memory, candidate after candidate.

    The slots of an adapter count once, from its first candidate on. A request that was preempted or has moved
    may exceed the prefill tokens when it is the only candidate: it has grown since it was accepted.
    `still_tokens` are the slots of paused requests, less those of all requests that are not `beside`: they make way.
    One that fits knows its `cached_tokens`; the segments that hold them count once as well.
    """

    __slots__ = (
        "_adapter_tokens",
        "_adapters",
        "_alone",
        "_cached_tokens",
        "_mark",
        "_more_adapters",
        "_pins",
        "_prefixes",
        "_region",
        "_reservation",
        "_room",
        "_seats",
        "_shared",
        "_still_tokens",
        "_tokens",
        "refusal",
    )

    def __init__(
        self,
        reservation: Reservation,
        pool: Pool,
        seats: int,
        config: ReplicaConfig,
        running: Batch,
        prefixes: PrefixTree | None = None,
        still_tokens: int = 0,
        beside: Collection[Request] | None = None,
    ) -> None:
        self._reservation = reservation
        self._pins = pool.pins
        pinned_tokens = pool.pinned_tokens
        if beside is not None:
            adapters = {r.adapter.id: r.adapter for r in beside if r.adapter is not None}
            self._pins, pinned_tokens = adapters.keys(), sum(a.kv_tokens for a in adapters.values())
        self._region = pool.region
        self._seats = seats
        self._tokens = config.max_num_batched_tokens
        most = config.max_loras
        self._more_adapters = UNLIMITED if most is None else most - len(self._pins)
        self._adapter_tokens = pinned_tokens
        self._shared = pool.adapter_capacity is None
        self._room = UNLIMITED if pool.adapter_capacity is None else pool.adapter_capacity
        self._adapters: set[int] = set()
        self._prefixes = prefixes
        self._cached_tokens = prefixes.held_tokens if prefixes is not None else 0
        self._mark = object()  # on idle cached segments that those who fit will hold
        self._still_tokens = still_tokens
        self._alone = True
        self.refusal: Refusal | None = None
        reservation.begin(running.step)
        if self._region is not None:
            self._region.begin(running)

    def admit(self, request: Request) -> bool:
        """Whether it fits; one that does takes its seat, tokens and memory in this trial."""
        if self._seats < 1:
            return self._refuse(Refusal.SEATS)
        found: Sequence[Segment] = ()
        if self._prefixes is not None:
            found = self._prefixes.found(request)
            request.cached_tokens = sum(map(self._prefixes.size, found))
        tokens = request.prefill_tokens
        if tokens > self._tokens and not (self._alone and (request.preemptions or request.migrations)):
            return self._refuse(Refusal.TOKENS)
        fresh = request.adapter
        if fresh is not None and (fresh.id in self._pins or fresh.id in self._adapters):
            fresh = None
        adapter_tokens = self._adapter_tokens
        if fresh is not None:
            adapter_tokens += fresh.kv_tokens
            if self._more_adapters < 1 or adapter_tokens > self._room:
                return self._refuse(Refusal.ADAPTERS)
        # As in Holdings.hold: one function for both makes a trial a tenth slower.
        generated = request.generated_tokens
        context = request.prompt_tokens + generated + 1 - request.cached_tokens
        to_come = request.max_output_tokens - generated - 1
        beside_tokens = self._still_tokens + (adapter_tokens if self._shared else 0)
        if self._prefixes is not None:
            idle = [segment for segment in found if not segment.users and segment.mark is not self._mark]
            cached_tokens = self._cached_tokens + sum(map(self._prefixes.size, idle))
            beside_tokens += cached_tokens
        if not self._reservation.fits(context, to_come, beside_tokens):
            return self._refuse(Refusal.MEMORY)
        if self._region is not None and not self._region.fits(request, fresh is not None):
            return self._refuse(Refusal.REGION)
        if self._prefixes is not None:
            for segment in idle:
                segment.mark = self._mark
            self._cached_tokens = cached_tokens
        self._alone = False
        self._seats -= 1
        self._tokens -= tokens
        if fresh is not None:
            self._adapters.add(fresh.id)
            self._more_adapters -= 1
            self._adapter_tokens = adapter_tokens
        return True

    @property
    def adapters(self) -> Set[int]:
        """Ids of the adapters of all admitted requests, or of those `beside`, and of the candidates that fit."""
        return self._pins | self._adapters if self._adapters else self._pins

    def retry_steps(self) -> int:
        """Decode steps before which the last refused request cannot fit, unless somebody leaves."""
        return self._reservation.retry_steps() if self.refusal is Refusal.MEMORY else UNLIMITED

    def _refuse(self, why: Refusal) -> bool:
        self.refusal = why
        return False


def reservation(config: ReplicaConfig) -> Reservation:
    """Return the memory rule that `replica.reserve` names."""
    if config.reserve == "full":
        return Full(config.kv_token_budget)
    if config.reserve == "peak":
        return Peak(config.kv_token_budget)
    if config.reserve == "padded":
        return PaddedKv(config.kv_token_budget)
    return Paged(config.kv_token_budget, config.block_size, config.watermark)


def unservable(request: Request, config: ReplicaConfig) -> str:
    """Say why a request could never run on such a replica, even alone; empty if it could."""
    prompt = request.prompt_tokens
    if prompt > config.max_num_batched_tokens:
        return f"the prompt is longer than replica.max_num_batched_tokens {config.max_num_batched_tokens}"
    adapter_tokens = request.adapter.kv_tokens if request.adapter is not None else 0
    if config.adapter_memory != "unified":
        if not _fits_apart(request, config, adapter_tokens):
            return f"its adapter does not fit replica.adapter_region_tokens {config.adapter_region_tokens}"
        adapter_tokens = 0 if config.divided else adapter_tokens
    held = prompt + request.max_output_tokens
    if held + config.block_size + adapter_tokens < config.kv_token_budget:
        return ""
    alone = reservation(config)
    alone.begin(0)
    if alone.fits(held, 0, adapter_tokens):
        return ""
    return f"prompt, output and adapter do not fit replica.kv_token_budget {config.kv_token_budget}"


def _fits_apart(request: Request, config: ReplicaConfig, adapter_tokens: int) -> bool:
    """Whether the memory that is the adapters' own can hold the request's, alone."""
    if config.divided:
        return adapter_tokens <= config.adapter_region_tokens
    region = adapter_region(config.adapter_memory, config.adapter_region_tokens)
    assert region is not None
    region.begin(())
    return region.fits(request, fresh=True)
