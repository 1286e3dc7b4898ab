"""Which waiting requests could start now, beside the running batch; and which never could."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica_config import ReplicaConfig
from simlora.memory.adapter_cache import AdapterCache, DividedAdapterCache
from simlora.memory.adapter_region import adapter_region
from simlora.memory.reservation import UNLIMITED, Full, Lookahead, PaddedKv, Paged, Peak, Reservation
from simlora.policies.views import Refusal

RegionCheck = Callable[[Request, bool], bool]
"""Whether a candidate's adapter fits the adapters' own memory; the second says that it has to be loaded."""


class TrialLimits:
    """What every trial of a replica has: its reservation and adapters, and the limits of its configuration.

    `adapter_tokens` are the slots that adapters may take at most. `shared` is 1 if they take slots that KV could have,
    else 0. `regions` check the adapters' own memory.
    """

    __slots__ = ("adapter_tokens", "adapters", "cache", "prefill_tokens", "regions", "reservation", "shared")

    def __init__(
        self,
        reservation: Reservation,
        cache: AdapterCache,
        prefill_tokens: int,
        adapters: int,
        adapter_tokens: int,
        shared: int,
        regions: tuple[RegionCheck, ...] = (),
    ) -> None:
        self.reservation, self.cache, self.prefill_tokens = reservation, cache, prefill_tokens
        self.adapters, self.adapter_tokens = adapters, adapter_tokens
        self.shared, self.regions = shared, regions


def trial_limits(
    reservation: Reservation, cache: AdapterCache, config: ReplicaConfig, regions: tuple[RegionCheck, ...]
) -> TrialLimits:
    """Return the limits of a replica's trials."""
    adapters = UNLIMITED if config.max_loras is None else config.max_loras
    if isinstance(cache, DividedAdapterCache):
        return TrialLimits(
            reservation, cache, config.max_num_batched_tokens, adapters, cache.adapter_capacity, 0, regions
        )
    return TrialLimits(reservation, cache, config.max_num_batched_tokens, adapters, UNLIMITED, 1, regions)


class Admission:
    """One trial: batch size, adapters in the batch, prefill tokens and memory, candidate after candidate.

    The slots of an adapter count once, from its first candidate on. A request that was preempted or has moved may
    exceed the prefill tokens when it is the only candidate: it has grown since it was accepted.
    """

    __slots__ = (
        "_adapter_tokens",
        "_adapters",
        "_alone",
        "_beside_tokens",
        "_limits",
        "_more_adapters",
        "_pins",
        "_reservation",
        "_seats",
        "_tokens",
        "refusal",
    )

    def __init__(self, limits: TrialLimits, seats: int) -> None:
        """Start a trial of at most `seats` requests beside all that are admitted."""
        cache = limits.cache
        self._limits, self._reservation = limits, limits.reservation
        self._pins: Mapping[int, object] = cache.pins
        self._adapter_tokens = cache.pinned_tokens
        self._seats = seats
        self._tokens = limits.prefill_tokens
        self._more_adapters = limits.adapters - len(cache.pins)
        self._adapters: set[int] = set()
        self._beside_tokens = 0
        self._alone = True
        self.refusal: Refusal | None = None

    def occupy(self, tokens: int) -> None:
        """Keep so many slots beside those that the reservation counts."""
        self._beside_tokens = tokens

    def beside(self, requests: Iterable[Request]) -> None:
        """Try beside these requests only."""
        adapters: dict[int, Adapter] = {r.adapter.id: r.adapter for r in requests if r.adapter is not None}
        self._pins, self._adapter_tokens = adapters, sum(a.kv_tokens for a in adapters.values())
        self._more_adapters = self._limits.adapters - len(adapters)

    def admit(self, request: Request) -> bool:
        """Return whether a request fits; one that does takes its seat, tokens and memory in this trial."""
        if self._seats < 1:
            return self._refuse(Refusal.SEATS)
        tokens = request.prefill_tokens
        if tokens > self._tokens and not (self._alone and (request.preemptions or request.migrations)):
            return self._refuse(Refusal.TOKENS)
        adapter_tokens, fresh = self._adapter_tokens, request.adapter
        if fresh is not None:
            if fresh.id in self._pins or fresh.id in self._adapters:
                fresh = None
            else:
                adapter_tokens += fresh.kv_tokens
                if self._more_adapters < 1 or adapter_tokens > self._limits.adapter_tokens:
                    return self._refuse(Refusal.ADAPTERS)
        # As in KVCacheManager.hold: one function for both makes a trial a tenth slower.
        generated = request.generated_tokens + 1
        context = request.prompt_tokens + generated - request.cached_tokens
        beside_tokens = self._beside_tokens + self._limits.shared * adapter_tokens
        if not self._reservation.fits(context, request.max_output_tokens - generated, beside_tokens):
            return self._refuse(Refusal.MEMORY)
        for fits in self._limits.regions:
            if not fits(request, fresh is not None):
                return self._refuse(Refusal.REGION)
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
        """Ids of the adapters of all admitted requests, or of those tried `beside`, and of the candidates that fit."""
        return self._pins.keys() | self._adapters if self._adapters else self._pins.keys()

    def retry_steps(self) -> int:
        """Return the decode steps before which the refused request cannot fit, unless a request leaves."""
        return self._reservation.retry_steps() if self.refusal is Refusal.MEMORY else UNLIMITED

    def _refuse(self, why: Refusal) -> bool:
        self.refusal = why
        return False


def reservation(config: ReplicaConfig) -> Reservation:
    """Return the memory rule that `replica.reserve` names, with slots for what a draft proposes."""
    rule = _rule(config)
    return Lookahead(rule, config.speculative_tokens) if config.speculative_tokens else rule


def _rule(config: ReplicaConfig) -> Reservation:
    if config.reserve == "full":
        return Full(config.kv_token_budget)
    if config.reserve == "peak":
        return Peak(config.kv_token_budget)
    if config.reserve == "padded":
        return PaddedKv(config.kv_token_budget)
    return Paged(config.kv_token_budget, config.block_size, config.watermark)


def unservable(request: Request, adapter: Adapter | None, config: ReplicaConfig) -> str:
    """Return why a request could never run on such a replica, even alone; empty if it could.

    `adapter` is the request's, as large as the replica's memory lays it out.
    """
    prompt, held = request.prompt_tokens, request.prompt_tokens + request.max_output_tokens
    adapter_tokens = 0
    if adapter is not None:
        adapter_tokens = adapter.kv_tokens
        if adapter.rank > config.highest_rank:
            return (
                f"its adapter has rank {adapter.rank}, more than replica.max_lora_rank {config.highest_rank}"
            )
    if prompt <= config.max_num_batched_tokens and held + adapter_tokens < config.surely_tokens:
        if adapter_tokens <= config.surely_adapter_tokens:
            return ""
    if prompt > config.max_num_batched_tokens:
        return f"the prompt is longer than replica.max_num_batched_tokens {config.max_num_batched_tokens}"
    if config.adapter_memory != "unified":
        if not _fits_apart(request, adapter, config):
            return f"its adapter does not fit replica.adapter_region_tokens {config.adapter_region_tokens}"
        adapter_tokens = 0 if config.divided else adapter_tokens
    if held + config.speculative_tokens + config.block_size + adapter_tokens < config.kv_token_budget:
        return ""
    alone = reservation(config)
    alone.begin(0)
    if alone.fits(held, 0, adapter_tokens):
        return ""
    return f"prompt, output and adapter do not fit replica.kv_token_budget {config.kv_token_budget}"


def _fits_apart(request: Request, adapter: Adapter | None, config: ReplicaConfig) -> bool:
    """Return whether the adapters' own memory can hold the request's adapter, alone."""
    if config.divided:
        return adapter is None or adapter.kv_tokens <= config.adapter_region_tokens
    if adapter is not request.adapter:  # on another replica it has another size
        request = Request(request.id, adapter, 0.0, request.prompt_tokens, request.max_output_tokens)
    region = adapter_region(config.adapter_memory, config.adapter_region_tokens)
    assert region is not None
    region.begin(())
    return region.fits(request, fresh=True)
