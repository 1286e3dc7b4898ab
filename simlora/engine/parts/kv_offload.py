"""KV that outlives its request: kept by prefix in HBM, and on the host where that has room for it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterator, Sequence

from simlora.core.request import Request
from simlora.engine.replica.admission import Admission, TrialLimits
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.kv_cache_manager import InFlightKV
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.running_batch import RunningBatch
from simlora.engine.replica_config import PREFIX_RESERVES
from simlora.engine.scenario import Scenario
from simlora.memory.adapter_cache import AdapterCache, DividedAdapterCache
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.reservation import Reservation
from simlora.memory.segments import Segment
from simlora.metrics.recorder import Recorder


class PrefixCachingKV(InFlightKV):
    """KV of requests and, in `tree`, KV that later requests can begin with.

    KV that no request uses is evicted before idle adapters are.
    """

    def __init__(
        self,
        reservation: Reservation,
        adapters: AdapterCache,
        batch: RunningBatch,
        host_link: HostLink,
        pooled: bool,
        make_tree: Callable[..., PrefixTree],
        recorder: Recorder,
        write_through: bool = False,
    ) -> None:
        super().__init__(reservation, adapters, batch, host_link, pooled)
        self.tree = make_tree(send=self.send_out)
        if write_through:
            self.tree.write, self.tree.give_up = self.write_through, self.give_up
        adapters.on_change += (self.tree.adapter,)
        self._recorder = recorder
        self._coming: list[list[Segment]] = []  # KV on the host that requests being admitted begin with

    def send_out(self, tokens: int, now_s: float, there_s: float) -> float:
        """Copy cached KV to the host that is in HBM since `there_s`; return when it is on the host.

        KV that is still on its way from the host need not go back, but its slots count as in use until it would have
        come.
        """
        if there_s > now_s:
            self.give_up(tokens, there_s, now_s)
            return now_s
        self.host_link.kv_tokens_out += tokens
        done_s = self.host_link.send_kv(tokens, now_s)
        insort(self.copies, (done_s, tokens))
        return done_s

    def write_through(self, tokens: int, now_s: float) -> float:
        """Copy KV to the host that has just been computed; return when it is there."""
        self.host_link.kv_tokens_out += tokens
        return self.host_link.send_kv(tokens, now_s)

    def tokens(self) -> int:
        return self.reservation.used_tokens(self.batch.step) + self.tree.tokens

    def running_tokens(self, step: int) -> int:
        return self.reservation.used_tokens(step) + self.tree.held_tokens

    def peak_tokens(self) -> int:
        return super().peak_tokens() + self.tree.held_tokens

    def make_room(self, now_s: float, more: int = 0, keep: Container[int] = ()) -> int:
        beside = 0 if isinstance(self.adapters, DividedAdapterCache) else more
        self.tree.evict(beside - self.adapters.free_tokens(self.tokens()), now_s)
        return super().make_room(now_s, more, keep)

    def matched_tokens(self, request: Request, running_tokens: int, now_s: float) -> int:
        tree = self.tree
        tree.evict(-self.adapters.free_tokens(running_tokens - tree.held_tokens + tree.tokens), now_s)
        return tree.matched_tokens(request)

    def steps_until_full(self, most: int, now_s: float) -> int:
        """As without a cache. Where cached KV is dropped by its last use, its slots count as free.

        That can be done later, as if at the step that needed them.
        """
        if not self.tree.keeps:
            step = self.batch.step
            free = self.adapters.free_tokens(self.running_tokens(step))
            most = min(most, self.reservation.steps_until_full(free, step, most))
            if not self.copies:
                return most
        return self._steps_until_written(most, now_s)

    def begin_with(self, request: Request, now_s: float) -> None:
        """A request is admitted, and holds what is cached of its prompt, if it does not yet."""
        if self.tree.holds(request):
            return
        self._recorder.prefix_lookup(request)
        if segments := self.tree.hold(request, now_s):
            self._coming.append(segments)

    def hold(self, request: Request, step: int) -> None:
        generated = request.generated_tokens + 1
        own_tokens = request.prompt_tokens + generated - self.tree.shared_tokens(request)
        self.reservation.add(request, own_tokens, request.max_output_tokens - generated, step)

    def bring(self, requests: Sequence[Request], begin_s: float) -> list[float]:
        tree, coming = self.tree, self._coming
        self._coming = []
        for segments in coming:
            # Once it is on the host.
            there_s, tokens = begin_s, 0
            for segment in segments:
                there_s = max(there_s, segment.ready_s)
                tokens += tree.size(segment)
            self.host_link.kv_tokens_in += tokens
            ready_s = self.host_link.bring_kv(tokens, begin_s, there_s)
            for segment in segments:
                segment.ready_s = ready_s
        own_s = super().bring(requests, begin_s)
        for place, request in enumerate(requests):
            own_s[place] = max(own_s[place], tree.ready_s(request))
        return own_s

    def is_on_host(self, request: Request) -> bool:
        return self.tree.begins_on_host(request)

    def fetch(self, request: Request, since_s: float, now_s: float) -> None:
        """As far as slots are free. The copy has gone on since then, unless its slots are still being copied out."""
        tree, link = self.tree, self.host_link
        for segment in tree.claim_prefix(request):
            if segment.resident:
                continue
            tokens = tree.size(segment)
            if tokens > self.adapters.free_tokens(self.tokens()):
                break
            writable_s = self.claim_writable_s(now_s, tokens)
            begin_s = since_s if writable_s == now_s else writable_s
            ready_s = link.bring_kv(tokens, begin_s, segment.ready_s)
            segment.used_s = now_s
            tree.enter(segment)
            segment.ready_s = ready_s
            link.kv_tokens_in += tokens

    def shared_tokens(self, request: Request) -> int:
        return self.tree.shared_tokens(request)

    def share(self, request: Request, now_s: float) -> None:
        """All KV of a request's prompt is there: others can begin with it from now on."""
        self.tree.add(request, request.prompt_tokens + request.generated_tokens, now_s)
        self.hold_again(request, self.batch.step)

    def free(self, request: Request, now_s: float) -> None:
        super().free(request, now_s)
        self.tree.leave(request, now_s)

    def release(self, request: Request, now_s: float) -> None:
        super().release(request, now_s)
        self.tree.leave(request, now_s)


class PrefixCaching(Part):
    """Puts the KV of prefilled and of finished requests into the tree.

    `outputs` are the true output lengths by request.
    """

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        replica, trace = scenario.replica, scenario.trace
        if not replica.prefix_caching:
            return
        if replica.reserve not in PREFIX_RESERVES:
            yield f"replica.prefix_caching is true, which needs replica.reserve full or paged, not {replica.reserve}"
        tokens = trace.hash_block_tokens
        if replica.reserve == "paged" and trace.has_hashes and tokens % replica.block_size:
            yield (
                f"replica.block_size is {replica.block_size}, must divide the {tokens} tokens of the workload's "
                "blocks (workload.hash_block_tokens), or else replica.prefix_caching be false"
            )

    def __init__(self, replica: Replica, kv: PrefixCachingKV, outputs: Sequence[int]) -> None:
        self._kv, self._outputs, self._table = kv, outputs, replica.table
        replica.loader.on_admit += (kv.begin_with,)

    def after_prefill(self, request: Request, now_s: float) -> None:
        self._kv.share(request, now_s)

    def before_finish(self, request: Request, now_s: float) -> None:
        # The KV of the last token is never computed.
        self._kv.tree.add(request, request.prompt_tokens + self._outputs[request.id] - 1, now_s)

    def before_last_step(self, window: DecodeWindow, steps: int, now_s: float) -> None:
        """Evict what had to leave before a request may finish now."""
        if steps > 1:
            if self._table.held_count:
                for request in self._table.growing():
                    self._kv.hold_growth(request, self._kv.batch.step)
            self._kv.make_room(now_s)

    def sample(self) -> tuple[int, ...]:
        tree = self._kv.tree
        return tree.tokens - tree.held_tokens, tree.invalid_tokens, tree.host_tokens


class PrefixAdmission(Admission):
    """A trial with a prefix cache: cached segments count once, and the `cached_tokens` of a candidate are set."""

    def __init__(self, tree: PrefixTree, limits: TrialLimits, seats: int) -> None:
        super().__init__(limits, seats)
        tree.marks += 1
        self._tree, self._cached_tokens = tree, tree.held_tokens
        self._mark = tree.marks  # of idle cached segments that the requests which fit will hold

    def admit(self, request: Request) -> bool:
        if self._seats < 1:
            return super().admit(request)
        tree = self._tree
        found = tree.claim_prefix(request)
        request.cached_tokens, idle_tokens = 0, 0
        for segment in found:
            request.cached_tokens += tree.size(segment)
            if not segment.users and segment.mark != self._mark:
                idle_tokens += tree.size(segment)
        beside = self._beside_tokens
        self._beside_tokens = beside + self._cached_tokens + idle_tokens
        fits = super().admit(request)
        self._beside_tokens = beside
        if fits:
            self._cached_tokens += idle_tokens
            for segment in found:
                segment.mark = self._mark
        return fits
