"""The running batch: its members and what is summed over them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from simlora.core.request import Request
from simlora.latency.kernels import LoraWork

ID_BITS: Final = 34
"""Request ids are below 2 ** 34."""


class RunningBatch:
    """Requests that decode together, as running aggregates: joining and leaving cost O(log n).

    `step` counts the replica's decode steps. A member's context is `context_offset + step`; a step changes no member.
    Policies do not see the order of completion: it follows from the true `outputs`, by request id.
    """

    __slots__ = (
        "_finish",
        "_outputs",
        "_rank_counts",
        "_top_rank",
        "lora_requests",
        "members",
        "offsets",
        "rank_sum",
        "step",
    )

    def __init__(self, outputs: Sequence[int]) -> None:
        self._outputs = outputs
        self.step = 0
        self.members: dict[int, Request] = {}
        self.offsets = 0
        self.lora_requests = 0  # members that use an adapter
        self.rank_sum = 0
        self._rank_counts: dict[int, int] = {}
        self._top_rank = 0
        # Of each member the step that finishes it and its id, in one number; in order.
        self._finish: list[int] = []

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.members.values())

    @property
    def context_tokens(self) -> int:
        """Sum of contexts."""
        return self.offsets + len(self.members) * self.step

    def context(self, request: Request) -> int:
        """Return the prompt and generated tokens of one member."""
        return request.context_offset + self.step

    def generated(self, request: Request) -> int:
        """Return the tokens that one member has generated."""
        return self.context(request) - request.prompt_tokens - request.padding_tokens

    def work(self, adapters: int, stretches: int = 0) -> LoraWork:
        """Return what the LoRA kernels of a decode step process, with `adapters` distinct adapters."""
        return LoraWork(self.lora_requests, self.rank_sum, self._top_rank, adapters, stretches)

    def join(self, request: Request, generated: int) -> None:
        """Add a request that has `generated` tokens, and more to come."""
        to_come = self._outputs[request.id] - generated
        assert to_come > 0, f"request {request.id} joins the batch with nothing to come"
        request.context_offset = request.prompt_tokens + request.padding_tokens + generated - self.step
        self.members[request.id] = request
        self.offsets += request.context_offset
        insort(self._finish, ((self.step + to_come) << ID_BITS) + request.id)
        if request.adapter is not None:
            rank, counts = request.adapter.rank, self._rank_counts
            self.lora_requests += 1
            self.rank_sum += rank
            counts[rank] = counts.get(rank, 0) + 1
            if rank > self._top_rank:
                self._top_rank = rank

    def steps_to_finish(self) -> int:
        """Return the number of decode steps until the next member is finished."""
        return (self._finish[0] >> ID_BITS) - self.step

    def finished(self) -> list[Request]:
        """Remove and return the members that the last step finished, by id."""
        after = (self.step + 1) << ID_BITS
        found: list[Request] = []
        for finish in self._finish:
            if finish >= after:
                break
            found.append(self.members[finish & ((1 << ID_BITS) - 1)])
        del self._finish[: len(found)]
        for request in found:
            self._leave(request)
        return found

    def take(self, request: Request) -> None:
        """Remove a member before it is finished."""
        place = bisect_left(self._finish, self._finish_of(request))
        assert self._finish[place] == self._finish_of(request), f"request {request.id} is not in the batch"
        del self._finish[place]
        self._leave(request)

    def to_come(self, request: Request) -> int:
        """Return the tokens that one member has yet to generate; policies do not see it."""
        return self._outputs[request.id] - self.generated(request)

    def advance(self, request: Request, tokens: int) -> None:
        """Count so many tokens of a member that come beside those of its steps."""
        finish = self._finish_of(request)
        del self._finish[bisect_left(self._finish, finish)]
        insort(self._finish, finish - (tokens << ID_BITS))
        request.context_offset += tokens
        self.offsets += tokens

    def shorten(self, request: Request, output_tokens: int) -> None:
        """Let a member finish at that many tokens, fewer than its true output; the caller changes the `outputs`."""
        finish = self._finish_of(request)
        del self._finish[bisect_left(self._finish, finish)]
        fewer = self._outputs[request.id] - output_tokens
        insort(self._finish, finish - (fewer << ID_BITS))

    def _finish_of(self, request: Request) -> int:
        """Return the step that finishes a member, and its id."""
        whole = request.prompt_tokens + request.padding_tokens + self._outputs[request.id]
        return ((whole - request.context_offset) << ID_BITS) + request.id

    def _leave(self, request: Request) -> None:
        del self.members[request.id]
        self.offsets -= request.context_offset
        if request.adapter is not None:
            rank, counts = request.adapter.rank, self._rank_counts
            self.lora_requests -= 1
            self.rank_sum -= rank
            counts[rank] -= 1
            if not counts[rank]:
                del counts[rank]
                if rank == self._top_rank:
                    self._top_rank = max(counts, default=0)


def prefill_work(
    requests: Sequence[Request], tokens: Sequence[int], stretches: int = 0
) -> tuple[int, int, LoraWork]:
    """Return what a prefill that processes `tokens[i]` tokens of `requests[i]` amounts to.

    That is the sum of tokens, the sum of squares that attention follows, and the work of the LoRA kernels. The
    attention of a token also reaches over what was cached, what came back from the host, and earlier chunks.
    """
    assert len(requests) == len(tokens), "a prefill has another number of chunks than of requests"
    total = total_sq = lora_tokens = token_rank_sum = top = 0
    adapters: set[int] = set()
    for index, request in enumerate(requests):
        chunk = tokens[index]
        total += chunk
        before = request.cached_tokens + request.host_tokens + request.chunked_tokens
        total_sq += chunk * (chunk + 2 * before)
        adapter = request.adapter
        if adapter is not None:
            rank = adapter.rank
            lora_tokens += chunk
            token_rank_sum += chunk * rank
            if rank > top:
                top = rank
            adapters.add(adapter.id)
    return total, total_sq, LoraWork(lora_tokens, token_rank_sum, top, len(adapters), stretches)


def distinct_adapters(requests: Iterable[Request]) -> int:
    """Return how many distinct adapters the requests use."""
    return len({request.adapter.id for request in requests if request.adapter is not None})


def segments(requests: Iterable[Request]) -> int:
    """Return the number of stretches of equal adapters among the requests that use one."""
    used = [request.adapter for request in requests if request.adapter is not None]
    return sum(one is not other for one, other in zip([None, *used], used, strict=False))
