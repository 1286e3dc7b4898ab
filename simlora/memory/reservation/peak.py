"""Admit by the future peak of the batch's KV."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

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
        self._entries: list[Entry] = []
        self._offsets: i64 = 0
        self._bound: i64 = 0  # never below the peak of the running requests
        self._trial: list[Entry] | None = None  # a copy of the entries, with those of candidates
        self._joined: list[Entry] = []  # of candidates that fit, and are not in the copy yet
        self._trial_bound: i64 = 0
        self._step: i64 = 0
        self._refused = Entry(0, 0)
        self._limit: i64 = 0

    def begin(self, step: int) -> None:
        self._trial, self._trial_bound, self._step = None, self._bound, step
        self._joined.clear()

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        limit: i64 = self.capacity - beside_tokens
        entry = Entry(self._step + to_come, context - self._step)
        # No request ever holds more than context + to_come, so the sum bounds the new peak.
        bound = self._trial_bound + context + to_come
        if bound < limit:
            self._joined.append(entry)
            self._trial_bound = bound
            return True
        trial = self._trial
        if trial is None:
            trial = self._trial = self._entries.copy()
        for earlier in self._joined:
            _insert(trial, earlier)
        self._joined.clear()
        place = _insert(trial, entry)
        peak = _peak(trial, limit)
        if peak >= limit:
            del trial[place]
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
        trial, refused = self._trial, self._refused
        assert trial is not None, "retry_steps is asked after a refusal"
        entries = trial.copy()
        place = _insert(entries, refused)
        index: i64 = len(entries)
        steps: i64 = 1
        total: i64 = 0
        count: i64 = 0
        for entry in reversed(entries):
            index -= 1
            count += 1
            total += entry.offset
            over = total + entry.last * count - self._limit
            if over < 0:
                continue
            if index < place:
                steps = max(steps, over + 1)
            elif index > place:
                steps = max(steps, entry.last - refused.last + 1)
            elif count > 1:
                steps = max(steps, entries[place + 1].last - refused.last + 1)
            else:
                return UNLIMITED
        return steps

    def add(self, request: Request, context: int, to_come: int, step: int) -> None:
        # Once prefilled, a request has one token less to come than as a candidate, but not less than 0.
        last, offset = step + to_come - (to_come > 0), context - step
        request.held_until, request.held_offset = last, offset
        _insert(self._entries, Entry(last, offset))
        self._offsets += offset
        self._bound += context + to_come

    def remove(self, request: Request, step: int) -> None:
        self._take(request.held_until, request.held_offset)
        self._offsets -= request.held_offset
        if not self._entries:
            self._bound = 0

    def _take(self, last: i64, offset: i64) -> None:
        """Take out the entry of a request."""
        entries = self._entries
        place: i64 = 0
        while entries[place].last != last or entries[place].offset != offset:
            place += 1
        del entries[place]

    def advance(self, request: Request, tokens: int, step: int) -> None:
        last, offset = request.held_until, request.held_offset
        self._take(last, offset)
        request.held_until, request.held_offset = last - tokens, offset + tokens
        _insert(self._entries, Entry(last - tokens, offset + tokens))
        self._offsets += tokens
        self._bound += tokens  # others may stay longer beside it than the peak so far had them

    def held_tokens(self, request: Request, step: int) -> int:
        return request.held_offset + step

    def peak_tokens(self, step: int) -> int:
        return _peak(self._entries, UNLIMITED)

    def used_tokens(self, step: int) -> int:
        return self._offsets + len(self._entries) * step

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return free_tokens // len(self._entries) + 1 if self._entries else UNLIMITED


@mypyc_attr(acyclic=True)  # many are made, none is part of a cycle: nothing to collect
class Entry:
    """A request, by its last step and its context at step 0."""

    __slots__ = ("last", "offset")

    def __init__(self, last: i64, offset: i64) -> None:
        self.last, self.offset = last, offset


def _insert(entries: list[Entry], entry: Entry) -> i64:
    """Insert an entry, after its equals, and return its place.

    The latest is at the end; of those with the same last step, the one with the least offset.
    """
    last, offset = entry.last, entry.offset
    low: i64 = 0
    high: i64 = len(entries)
    while low < high:
        middle = (low + high) >> 1
        other = entries[middle]
        if other.last < last or (other.last == last and other.offset >= offset):
            low = middle + 1
        else:
            high = middle
    entries.insert(low, entry)
    return low


def _peak(entries: list[Entry], enough: i64) -> i64:
    """Return the highest of i * last_i + the sum of offsets 1..i, or the first that is `enough`."""
    total: i64 = 0
    peak: i64 = 0
    for index, entry in enumerate(reversed(entries)):
        total += entry.offset
        need = total + entry.last * (index + 1)
        if need > peak:
            peak = need
            if peak >= enough:
                break
    return peak
