"""Admit by the future peak of the batch's KV."""

from __future__ import annotations

from bisect import bisect_left, insort

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
        "_joined",
        "_limit",
        "_members",
        "_offsets",
        "_refused",
        "_sorted",
        "_step",
        "_trial",
        "_trial_bound",
    )

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._members: dict[int, tuple[int, int]] = {}
        self._sorted: list[tuple[int, int]] = []  # (-last step, offset)
        self._offsets = 0
        self._bound = 0  # never below the peak of the running requests
        self._trial: list[tuple[int, int]] | None = None
        self._joined: list[tuple[int, int]] = []
        self._trial_bound = 0
        self._step = 0
        self._refused = (0, 0)
        self._limit = 0

    def begin(self, step: int) -> None:
        self._trial, self._trial_bound, self._step = None, self._bound, step
        self._joined.clear()

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        limit = self.capacity - beside_tokens
        entry = (-(self._step + to_come), context - self._step)
        # No request ever holds more than context + to_come, so the sum bounds the new peak.
        bound = self._trial_bound + context + to_come
        if bound < limit:
            self._joined.append(entry)
            self._trial_bound = bound
            return True
        if self._trial is None:
            self._trial = self._sorted.copy()
        for earlier in self._joined:
            insort(self._trial, earlier)
        self._joined.clear()
        insort(self._trial, entry)
        peak = _peak(self._trial, limit)
        if peak >= limit:
            del self._trial[bisect_left(self._trial, entry)]
            self._refused, self._limit = entry, limit
            return False
        self._bound, self._trial_bound = min(self._bound, peak), peak
        return True

    def retry_steps(self) -> int:
        """Return the decode steps for which the candidate just refused cannot fit, unless a request leaves.

        A candidate that starts k steps later ends k steps later and holds k slots less until then. A peak at the end of
        a request that ends before it therefore falls by one per step. A peak at the candidate's own end, or later,
        stays until that end has moved past the next request's end. All peaks over the limit must be gone.
        """
        assert self._trial is not None, "retry_steps is asked after a refusal"
        entries = self._trial.copy()
        place = bisect_left(entries, self._refused)
        entries.insert(place, self._refused)
        last = -self._refused[0]
        steps = 1
        total = 0
        for index, (minus_last, offset) in enumerate(entries):
            total += offset
            over = total - minus_last * (index + 1) - self._limit
            if over < 0:
                continue
            if index > place:
                steps = max(steps, over + 1)
            elif index < place:
                steps = max(steps, -entries[index][0] - last + 1)
            elif place:
                steps = max(steps, -entries[place - 1][0] - last + 1)
            else:
                return UNLIMITED
        return steps

    def add(self, id: int, context: int, to_come: int, step: int) -> None:
        # Once prefilled, a request has one token less to come than as a candidate, but not less than 0.
        entry = (-(step + max(to_come - 1, 0)), context - step)
        self._members[id] = entry
        insort(self._sorted, entry)
        self._offsets += entry[1]
        self._bound += context + to_come

    def remove(self, id: int, step: int) -> None:
        entry = self._members.pop(id)
        del self._sorted[bisect_left(self._sorted, entry)]
        self._offsets -= entry[1]
        if not self._sorted:
            self._bound = 0

    def held_tokens(self, id: int, step: int) -> int:
        return self._members[id][1] + step

    def peak_tokens(self, step: int) -> int:
        return _peak(self._sorted, UNLIMITED)

    def used_tokens(self, step: int) -> int:
        return self._offsets + len(self._sorted) * step

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return free_tokens // len(self._sorted) + 1 if self._sorted else UNLIMITED


def _peak(entries: list[tuple[int, int]], enough: int) -> int:
    """Return the highest of i * last_i + the sum of offsets 1..i, or the first that is `enough`."""
    total = peak = 0
    for count, (minus_last, offset) in enumerate(entries, 1):
        total += offset
        need = total - minus_last * count
        if need > peak:
            peak = need
            if peak >= enough:
                break
    return peak
