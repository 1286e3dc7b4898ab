"""The running batch: its members and what is summed over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from simlora.core.request import Request
from simlora.latency.kernels import LoraWork


class RunningBatch:
    """Requests that decode together, as running aggregates: joining and leaving cost O(log n).

    `step` counts the replica's decode steps. A member's context is `offset + step`, so a step changes no member.
    Policies do not see the order of completion: it follows from the true output lengths.
    """

    __slots__ = (
        "_ends",
        "_finish",
        "_offset",
        "_rank_counts",
        "lora_requests",
        "members",
        "offsets",
        "rank_sum",
        "step",
    )

    def __init__(self) -> None:
        self.step = 0
        self.members: dict[int, Request] = {}
        self.offsets = 0
        self.lora_requests = 0  # members that use an adapter
        self.rank_sum = 0
        self._offset: dict[int, int] = {}
        self._rank_counts: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # the step that finishes each member
        self._finish: list[
            tuple[int, int]
        ] = []  # a heap of (that step, id); members that were taken stay in it

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
        return self._offset[request.id] + self.step

    def generated(self, request: Request) -> int:
        """Return the tokens that one member has generated."""
        return self.context(request) - request.prompt_tokens - request.padding_tokens

    def work(self, adapters: int, stretches: int = 0) -> LoraWork:
        """Return what the LoRA kernels of a decode step process, with `adapters` distinct adapters."""
        counts = self._rank_counts
        return LoraWork(self.lora_requests, self.rank_sum, max(counts) if counts else 0, adapters, stretches)

    def join(self, request: Request, generated: int, to_come: int) -> None:
        """Add a request that has `generated` tokens and is finished after `to_come` more steps."""
        assert to_come > 0, f"request {request.id} joins the batch with nothing to come"
        id, adapter = request.id, request.adapter
        offset = request.prompt_tokens + request.padding_tokens + generated - self.step
        self.members[id] = request
        self._offset[id] = offset
        self.offsets += offset
        self._ends[id] = self.step + to_come
        heappush(self._finish, (self.step + to_come, id))
        if adapter is not None:
            rank, counts = adapter.rank, self._rank_counts
            self.lora_requests += 1
            self.rank_sum += rank
            counts[rank] = counts.get(rank, 0) + 1

    def steps_to_finish(self) -> int:
        """Return the number of decode steps until the next member is finished."""
        finish, ends = self._finish, self._ends
        while ends.get(finish[0][1]) != finish[0][0]:
            heappop(finish)
        return finish[0][0] - self.step

    def finished(self) -> list[Request]:
        """Remove and return the members that the last step finished, by id."""
        finish, step, found = self._finish, self.step, []
        while finish and finish[0][0] <= step:
            end, id = heappop(finish)
            if self._ends.get(id) == end:
                found.append(self._leave(id))
        return found

    def take(self, request: Request) -> None:
        """Remove a member before it is finished."""
        self._leave(request.id)

    def _leave(self, id: int) -> Request:
        request = self.members.pop(id)
        del self._ends[id]
        self.offsets -= self._offset.pop(id)
        if (adapter := request.adapter) is not None:
            rank, counts = adapter.rank, self._rank_counts
            self.lora_requests -= 1
            self.rank_sum -= rank
            counts[rank] -= 1
            if not counts[rank]:
                del counts[rank]
        return request


def prefill_work(
    requests: Sequence[Request], tokens: Sequence[int], stretches: int = 0
) -> tuple[int, int, LoraWork]:
    """Return what a prefill that processes `tokens[i]` tokens of `requests[i]` amounts to.

    That is the sum of tokens, the sum of squares that attention follows, and the work of the LoRA kernels. The
    attention of a token also reaches over what was cached, what came back from the host, and earlier chunks.
    """
    total = total_sq = lora_tokens = token_rank_sum = top = 0
    adapters = set()
    for request, chunk in zip(requests, tokens, strict=True):
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


def segments(requests: Iterable[Request]) -> int:
    """Return the number of stretches of equal adapters among the requests that use one."""
    used = [request.adapter for request in requests if request.adapter is not None]
    return sum(one is not other for one, other in zip([None, *used], used, strict=False))
