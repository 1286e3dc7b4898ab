"""How much of the pool a request takes, and when another one still fits.

All quantities are token slots. `step` is the replica's count of decode steps so far; a running
request's context, which counts the slot of the token it has produced last, grows by one at each.
Admission runs in trials: `begin`, then `fits` for one
candidate after the other. A candidate that fits stays in the trial; the replica then calls
`add` for those that it really admits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import accumulate, count
from operator import mul, sub

UNLIMITED = 1 << 60
"""More decode steps than any run takes."""


class Reservation(ABC):
    """What the KV of running requests takes out of a pool of `capacity` token slots."""

    __slots__ = ("capacity",)
    grows = False
    """Whether what a request takes grows with the steps that it runs."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    @abstractmethod
    def begin(self, step: int) -> None:
        """Start a trial with nobody but the running requests."""

    @abstractmethod
    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        """Whether a candidate fits beside the running requests and the candidates before it.

        `context` is what it holds once prefilled (prompt and first token, less what it shares), `to_come` the tokens
        it may still produce after that one, `beside_tokens` the adapters of all of them and the KV they share.
        """

    def retry_steps(self) -> int:
        """Decode steps before which the candidate just refused cannot fit, unless somebody leaves."""
        return UNLIMITED

    @abstractmethod
    def add(self, id: int, context: int, to_come: int, step: int) -> None:
        """Charge an admitted request."""

    @abstractmethod
    def remove(self, id: int, step: int) -> None:
        """Give back what a request took."""

    @abstractmethod
    def held_tokens(self, id: int, step: int) -> int:
        """Token slots that a request takes at this step."""

    @abstractmethod
    def used_tokens(self, step: int) -> int:
        """Token slots taken by KV at this step."""

    def peak_tokens(self, step: int) -> int:
        """The most token slots that KV will take as far as this rule knows, if nobody joins."""
        return self.used_tokens(step)

    @abstractmethod
    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        """How many decode steps until KV takes more than the `free_tokens` that are left now.

        From `most` on any number may be said: nobody asks for more.
        """


class Full(Reservation):
    """A request takes its prompt and its declared output, from admission to its end."""

    __slots__ = ("_taken", "_trial", "_used")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._taken: dict[int, int] = {}
        self._used = 0
        self._trial = 0

    def begin(self, step: int) -> None:
        self._trial = self._used

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        need = self._trial + context + to_come
        if need > self.capacity - beside_tokens:
            return False
        self._trial = need
        return True

    def add(self, id: int, context: int, to_come: int, step: int) -> None:
        self._taken[id] = context + to_come
        self._used += context + to_come

    def remove(self, id: int, step: int) -> None:
        self._used -= self._taken.pop(id)

    def held_tokens(self, id: int, step: int) -> int:
        return self._taken[id]

    def used_tokens(self, step: int) -> int:
        return self._used

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return UNLIMITED


class Padded(Reservation):
    """Every request takes as much as the longest prompt and the longest output of the batch.

    No paging and no growth: key and value tensors of one shape for a batch that starts together,
    which shrink when a request leaves (HuggingFace Transformers).
    """

    __slots__ = ("_context", "_ids", "_to_come", "_trial")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._ids: set[int] = set()
        self._context = self._to_come = 0
        self._trial = (0, 0, 0)

    def begin(self, step: int) -> None:
        self._trial = len(self._ids), self._context, self._to_come

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        count, longest_context, longest_to_come = self._trial
        trial = count + 1, max(longest_context, context), max(longest_to_come, to_come)
        if trial[0] * (trial[1] + trial[2]) > self.capacity - beside_tokens:
            return False
        self._trial = trial
        return True

    def add(self, id: int, context: int, to_come: int, step: int) -> None:
        self._ids.add(id)
        self._context = max(self._context, context)
        self._to_come = max(self._to_come, to_come)

    def remove(self, id: int, step: int) -> None:
        self._ids.remove(id)
        if not self._ids:
            self._context = self._to_come = 0

    def held_tokens(self, id: int, step: int) -> int:
        return self._context + self._to_come

    def used_tokens(self, step: int) -> int:
        return len(self._ids) * (self._context + self._to_come)

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return UNLIMITED


class Peak(Reservation):
    """A request fits when the future peak of the batch stays strictly below the pool.

    With requests sorted by tokens to come, descending, cumulative contexts c_i and tokens to come
    l_i, the peak is max over i = 1, 2, … of l_i * i + c_i: the batch's contexts at the moment
    when request i makes its last step and those after it are gone.
    Source: LightLLM's router; S-LoRA (MLSys'24) §4.

    Every request is kept as (last step, context at step 0), which decode steps do not change:
    l_i = last_i - step and context_i = offset_i + step, and step cancels out of l_i * i + c_i.
    So the peak moves only when somebody joins or leaves.
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
        # Nobody ever holds more than context + to_come, so the sum bounds the new peak.
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
        peak = max(_needs(self._trial))
        self._bound = min(self._bound, peak)
        if peak >= limit:
            self._trial.remove(entry)
            self._refused, self._limit = entry, limit
            return False
        self._trial_bound = peak
        return True

    def retry_steps(self) -> int:
        """A candidate that starts k steps later ends k steps later and holds k less until then.

        So a peak among those that end before it sinks by one a step. One at its own end, or
        later, stays until its end has moved past the next one's. Every peak must have gone.
        """
        assert self._trial is not None, "retry_steps is asked after a refusal"
        entries = self._trial.copy()
        place = bisect_left(entries, self._refused)
        entries.insert(place, self._refused)
        last = -self._refused[0]
        steps = 1
        for index, need in enumerate(_needs(entries)):
            over = need - self._limit
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
        # Once prefilled it has one token less to come than as a candidate. One that has none stays until then.
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
        return max(_needs(self._sorted)) if self._sorted else 0

    def used_tokens(self, step: int) -> int:
        return self._offsets + len(self._sorted) * step

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return free_tokens // len(self._sorted) + 1 if self._sorted else UNLIMITED


def _needs(entries: list[tuple[int, int]]) -> Iterator[int]:
    """Offsets_1..i + i * last_i for entries sorted by last step, descending."""
    lasts, offsets = zip(*entries, strict=True)
    return map(sub, accumulate(offsets), map(mul, lasts, count(1)))


class Paged(Reservation):
    """KV comes in blocks as tokens come; a watermark is kept free at admission.

    When blocks run out the replica preempts. Source: vLLM (SOSP'23) §4.
    """

    grows = True
    __slots__ = (
        "_classes",
        "_offset",
        "_rounded",
        "_step",
        "_trial",
        "_used",
        "_watermark_tokens",
        "block_tokens",
    )

    def __init__(self, capacity: int, block_tokens: int = 16, watermark: float = 0.01) -> None:
        super().__init__(capacity)
        self.block_tokens = block_tokens
        self._watermark_tokens = int(watermark * capacity)
        self._offset: dict[int, int] = {}  # context at step 0
        # Requests by offset modulo the block: those of one class fill their block together.
        self._classes = [0] * block_tokens
        self._rounded = 0  # sum over requests of offset rounded up to whole blocks, at step 0
        self._step, self._used = 0, 0  # what was used at which step, until that changes
        self._trial = 0

    def begin(self, step: int) -> None:
        self._trial = self.used_tokens(step)

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        need = self._trial + self._blocks(context) * self.block_tokens
        # A candidate alone may use the watermark too, or a long prompt would never start.
        spare = self._watermark_tokens if self._trial else 0
        if need > self.capacity - beside_tokens - spare:
            return False
        self._trial = need
        return True

    def add(self, id: int, context: int, to_come: int, step: int) -> None:
        offset = context - step
        self._offset[id] = offset
        self._classes[offset % self.block_tokens] += 1
        self._rounded += self._blocks(offset) * self.block_tokens
        self._changed(step, self._blocks(context))

    def remove(self, id: int, step: int) -> None:
        offset = self._offset.pop(id)
        self._classes[offset % self.block_tokens] -= 1
        self._rounded -= self._blocks(offset) * self.block_tokens
        self._changed(step, -self._blocks(offset + step))

    def held_tokens(self, id: int, step: int) -> int:
        return self._blocks(self._offset[id] + step) * self.block_tokens

    def used_tokens(self, step: int) -> int:
        """Whole blocks held by contexts of offset + step tokens.

        With step = q * B + r, ceil((offset + step) / B) is ceil(offset / B) + q, and one more
        when the r tokens spill over: when -offset mod B < r.
        """
        if step != self._step:  # asked four times a boundary
            cycles, rest = divmod(step, self.block_tokens)
            spilled = self._classes[0] + sum(self._classes[self.block_tokens - rest + 1 :]) if rest else 0
            self._step = step
            self._used = self._rounded + (len(self._offset) * cycles + spilled) * self.block_tokens
        return self._used

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        if not self._offset:
            return UNLIMITED
        cycles, free = divmod(free_tokens // self.block_tokens, len(self._offset))
        steps = cycles * self.block_tokens
        if steps >= most:
            return most
        for ahead in range(self.block_tokens):
            # Contexts that are whole blocks now need another one for the next token.
            free -= self._classes[-(step + ahead) % self.block_tokens]
            if free < 0:
                return steps + ahead + 1
        raise AssertionError("a whole cycle of blocks fits after all cycles were taken out")

    def _changed(self, step: int, blocks: int) -> None:
        if step == self._step:
            self._used += blocks * self.block_tokens
        else:
            self._step = -1

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)
