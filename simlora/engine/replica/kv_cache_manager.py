"""The KV of one replica's requests in HBM, beside its adapters."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Container, Sequence

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.running_batch import RunningBatch
from simlora.memory.adapter_cache import AdapterCache
from simlora.memory.reservation import Reservation


class KVCacheManager:
    """Charges requests by the reservation's rule, and evicts idle adapters to make room for KV.

    KV grows with the decode steps that the running `batch` counts. All quantities are token slots.
    """

    __slots__ = ("adapters", "batch", "reservation")

    certain = 1
    """Whether nothing but KV takes free slots while a decode window runs; 0: room has to be made at every boundary."""

    def __init__(self, reservation: Reservation, adapters: AdapterCache, batch: RunningBatch) -> None:
        self.reservation, self.adapters, self.batch = reservation, adapters, batch

    def tokens(self) -> int:
        """Return the slots of all KV."""
        return self.reservation.used_tokens(self.batch.step)

    def running_tokens(self, step: int) -> int:
        """Return the slots of the KV that admitted requests hold at a step."""
        return self.reservation.used_tokens(step)

    def make_room(self, now_s: float, more: int = 0, keep: Container[int] = ()) -> int:
        """Evict until all KV, all adapters and `more` slots of another adapter fit; return the slots still short."""
        return self.adapters.make_room(self.reservation.used_tokens(self.batch.step), more, keep)

    def steps_until_full(self, most: int, now_s: float) -> int:
        """Return after how many of the next decode steps KV needs slots that are not free now.

        A result of `most` or more only means: not within `most` steps.
        """
        step = self.batch.step
        free = self.adapters.free_tokens(self.reservation.used_tokens(step))
        return self.reservation.steps_until_full(free, step, most)

    # One request's KV -------------------------------------------------------------------

    def hold(self, request: Request, step: int) -> None:
        """Charge a request's own KV at the end of its prefill, and the growth that may follow."""
        generated = request.generated_tokens + 1
        to_come = request.max_output_tokens - generated
        self.reservation.add(request, request.prompt_tokens + generated, to_come, step)

    def shared_tokens(self, request: Request) -> int:
        """Return the tokens of an admitted request whose KV lies in the prefix cache."""
        return 0

    def matched_tokens(self, request: Request, running_tokens: int, now_s: float) -> int:
        """Return the cached tokens that a prompt begins with, while admitted requests hold so many slots."""
        return 0

    def hold_again(self, request: Request, step: int) -> None:
        """Charge a request anew that was charged at an earlier step."""
        self.reservation.remove(request, step)
        self.hold(request, step)

    def hold_growth(self, request: Request, step: int) -> None:
        """The KV of a request that does not decode has not grown by the steps up to this one."""
        if self.reservation.grows:
            self.hold_again(request, step)

    def own_tokens(self, request: Request, step: int) -> int:
        """Return the slots of the KV of its own that an admitted request holds at a step."""
        return self.reservation.held_tokens(request, step)

    def free(self, request: Request, now_s: float) -> None:
        """A request that no longer holds its adapter gives back its KV."""
        self.reservation.remove(request, self.batch.step)

    def release(self, request: Request, now_s: float) -> None:
        """A request gives back its KV and its hold on its adapter."""
        self.reservation.remove(request, self.batch.step)
        if request.adapter is not None:
            self.adapters.unpin(request.adapter, now_s)


class InFlightKV(KVCacheManager):
    """For a replica whose copies overlap its iterations: slots that a copy still uses cannot be written yet.

    `copies` are (end, slots), the earliest first, of KV on its way to the host, and of KV and adapters that were given
    up on their way to HBM. Their slots are free at once, but cannot be written before the copy would have ended.
    `loads` are the adapters that have been loaded and are still there: when each is in HBM, by id, and in how many
    slots; none unless adapters and KV take slots of the same pool (`pooled`).
    """

    __slots__ = ("_given_up", "_pooled", "copies", "host_link", "loads")

    certain = 0

    def __init__(
        self,
        reservation: Reservation,
        adapters: AdapterCache,
        batch: RunningBatch,
        host_link: HostLink,
        pooled: bool,
    ) -> None:
        super().__init__(reservation, adapters, batch)
        self.host_link, self._pooled = host_link, pooled
        self.copies: deque[tuple[float, int]] = deque()
        self.loads: dict[int, tuple[float, int]] = {}
        self._given_up: list[tuple[float, int]] = []  # loads of adapters that were evicted, to be looked at
        adapters.on_change += (self._evicted,)

    def expect(self, adapter: Adapter, ready_s: float) -> None:
        """An adapter is being loaded."""
        if self._pooled:
            self.loads[adapter.id] = ready_s, adapter.kv_tokens

    def _evicted(self, id: int, resident: bool) -> None:
        if not resident and (load := self.loads.pop(id, None)) is not None:
            self._given_up.append(load)

    def note_given_up(self, now_s: float) -> None:
        """Keep the slots of adapters that were evicted before their load had ended."""
        if self._given_up:
            for until_s, tokens in self._given_up:
                self.give_up(tokens, until_s, now_s)
            self._given_up.clear()

    def give_up(self, tokens: int, until_s: float, now_s: float) -> None:
        """Slots are free that a copy would have used until then: they cannot be written before."""
        if until_s > now_s:
            insort(self.copies, (until_s, tokens))

    def make_room(self, now_s: float, more: int = 0, keep: Container[int] = ()) -> int:
        short = self.adapters.make_room(self.tokens(), more, keep)
        self.note_given_up(now_s)
        return short

    def claim_writable_s(self, now_s: float, more: int = 0) -> float:
        """Claim the slots of all that is held now and `more`; return when all of them can be written.

        The claim is the caller's: others do not wait for the same copies.
        """
        copies = self.copies
        while copies and copies[0][0] <= now_s:
            copies.popleft()
        if not copies:
            return now_s
        short = more + sum(tokens for _, tokens in copies) - self.adapters.free_tokens(self.tokens())
        while copies and short > 0:
            now_s, tokens = copies.popleft()
            if tokens > short:
                copies.appendleft((now_s, tokens - short))
            short -= tokens
        return now_s

    def steps_until_full(self, most: int, now_s: float) -> int:
        most = min(most, super().steps_until_full(most, now_s))
        return self._steps_until_written(most, now_s) if self.copies else most

    def _steps_until_written(self, most: int, now_s: float) -> int:
        """Return the decode steps, at most `most`, until KV takes slots that a copy uses, or that hold something."""
        in_flight = sum(tokens for until_s, tokens in self.copies if until_s > now_s)
        free = self.adapters.free_tokens(self.tokens()) - in_flight
        return min(most, self.reservation.steps_until_full(max(free, 0), self.batch.step, most))

    def is_on_host(self, request: Request) -> bool:
        """Return whether some of the cached KV that a waiting request begins with is on the host only."""
        return False

    def fetch(self, request: Request, since_s: float, now_s: float) -> None:
        """Bring KV from the host that a waiting request begins with, asked for at `since_s`, before this boundary."""

    def peak_tokens(self) -> int:
        """Return the most slots that the KV of the admitted requests will take, as far as the reservation knows."""
        return self.reservation.peak_tokens(self.batch.step)

    def bring(self, requests: Sequence[Request], begin_s: float) -> list[float]:
        """Copy the KV of admitted requests from the host, from then on; return by request when all of it is there."""
        link = self.host_link
        return [link.bring_kv(r.host_tokens, begin_s) if r.host_tokens else begin_s for r in requests]
