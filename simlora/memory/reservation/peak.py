"""Admit by the future peak of the batch's KV."""

from __future__ import annotations

from librt.vecs import append, pop, vec
from mypy_extensions import i64

from simlora.core.request import Request
from simlora.memory.reservation.base import UNLIMITED, Reservation


class Peak(Reservation):
    """A request fits when the future peak of the batch stays strictly below the pool.

    With requests sorted by tokens to come, descending, cumulative contexts c_i and tokens to come
    l_i, the peak is max over i = 1, 2, … of l_i * i + c_i: the batch's contexts at the moment
    when request i makes its last step and the requests after it have left.
    Source: LightLLM's router; S-LoRA (MLSys'24) §4.

    Every request is kept as (last step, context at step 0), which decode steps do not change:
    l_i = last_i - step and context_i = offset_i + step, and step cancels out of l_i * i + c_i.
    So the peak changes only when a request joins or leaves.
    """

    grows = True
    __slots__ = (
        "_bound",
        "_entries",
        "_joined",
        "_limit",
        "_offsets",
        "_refused",
        "_step",
        "_trial",
        "_trial_bound",
    )

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._entries = Entries()
        self._offsets: i64 = 0
        self._bound: i64 = 0  # never below the peak of the running requests
        self._trial: Entries | None = None
        self._joined = Entries()
        self._trial_bound: i64 = 0
        self._step: i64 = 0
        self._refused: tuple[i64, i64] = (0, 0)
        self._limit: i64 = 0

    def begin(self, step: int) -> None:
        self._trial, self._trial_bound, self._step = None, self._bound, step
        if len(self._joined.lasts):
            self._joined = Entries()

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        limit: i64 = self.capacity - beside_tokens
        last, offset = self._step + to_come, context - self._step
        # No request ever holds more than context + to_come, so the sum bounds the new peak.
        bound = self._trial_bound + context + to_come
        if bound < limit:
            self._joined.insert(last, offset)
            self._trial_bound = bound
            return True
        trial = self._trial
        if trial is None:
            trial = self._trial = self._entries.copy()
        joined = self._joined
        if len(joined.lasts):
            for earlier in range(len(joined.lasts)):
                trial.insert(joined.lasts[earlier], joined.offsets[earlier])
            self._joined = Entries()
        trial.insert(last, offset)
        peak = trial.peak(limit)
        if peak >= limit:
            trial.take(last, offset)
            self._refused, self._limit = (last, offset), limit
            return False
        self._bound, self._trial_bound = min(self._bound, peak), peak
        return True

    def retry_steps(self) -> int:
        """Return the decode steps for which the candidate just refused cannot fit, unless a request leaves.

        A candidate that starts k steps later ends k steps later and holds k slots less until then. A peak at the end of
        a request that ends before it therefore falls by one per step. A peak at the candidate's own end, or later,
        stays until that end has moved past the next request's end. All peaks over the limit must be gone.
        """
        trial = self._trial
        assert trial is not None, "retry_steps is asked after a refusal"
        last, offset = self._refused
        entries = trial.copy()
        place = entries.insert(last, offset)
        lasts, offsets = entries.lasts, entries.offsets
        count: i64 = len(lasts)
        steps: i64 = 1
        total: i64 = 0
        for back in range(count):
            index = count - 1 - back
            total += offsets[index]
            over = total + lasts[index] * (back + 1) - self._limit
            if over < 0:
                continue
            if index < place:
                steps = max(steps, over + 1)
            elif index > place:
                steps = max(steps, lasts[index] - last + 1)
            elif back:
                steps = max(steps, lasts[place + 1] - last + 1)
            else:
                return UNLIMITED
        return steps

    def add(self, request: Request, context: int, to_come: int, step: int) -> None:
        # Once prefilled, a request has one token less to come than as a candidate, but not less than 0.
        request.held_until, request.held_offset = step + max(to_come - 1, 0), context - step
        self._entries.insert(request.held_until, request.held_offset)
        self._offsets += request.held_offset
        self._bound += context + to_come

    def remove(self, request: Request, step: int) -> None:
        self._entries.take(request.held_until, request.held_offset)
        self._offsets -= request.held_offset
        if not len(self._entries.lasts):
            self._bound = 0

    def held_tokens(self, request: Request, step: int) -> int:
        return request.held_offset + step

    def peak_tokens(self, step: int) -> int:
        return self._entries.peak(UNLIMITED)

    def used_tokens(self, step: int) -> int:
        return self._offsets + len(self._entries.lasts) * step

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        count: i64 = len(self._entries.lasts)
        return free_tokens // count + 1 if count else UNLIMITED


class Entries:
    """Requests by their last step, the latest at the end; of equals, the one with the least offset at the end."""

    __slots__ = ("lasts", "offsets")

    def __init__(self) -> None:
        self.lasts: vec[i64] = vec[i64]()
        self.offsets: vec[i64] = vec[i64]()

    def copy(self) -> Entries:
        """Return the same entries, to be changed."""
        found = Entries()
        found.lasts, found.offsets = self.lasts[:], self.offsets[:]
        return found

    def insert(self, last: i64, offset: i64) -> i64:
        """Insert an entry; return its place, which is after its equals."""
        lasts, offsets = append(self.lasts, last), append(self.offsets, offset)
        place: i64 = len(lasts) - 1
        while place and (
            lasts[place - 1] > last or (lasts[place - 1] == last and offsets[place - 1] < offset)
        ):
            lasts[place], offsets[place] = lasts[place - 1], offsets[place - 1]
            place -= 1
        lasts[place], offsets[place] = last, offset
        self.lasts, self.offsets = lasts, offsets
        return place

    def take(self, last: i64, offset: i64) -> None:
        """Remove an entry."""
        lasts, offsets = self.lasts, self.offsets
        place: i64 = 0
        while lasts[place] != last or offsets[place] != offset:
            place += 1
        self.lasts, _ = pop(lasts, place)
        self.offsets, _ = pop(offsets, place)

    def peak(self, enough: i64) -> i64:
        """Return the highest of i * last_i + the sum of offsets 1..i, or the first that is `enough`."""
        lasts, offsets = self.lasts, self.offsets
        count: i64 = len(lasts)
        total: i64 = 0
        peak: i64 = 0
        for back in range(count):
            index = count - 1 - back
            total += offsets[index]
            need = total + lasts[index] * (back + 1)
            if need > peak:
                peak = need
                if peak >= enough:
                    break
        return peak
