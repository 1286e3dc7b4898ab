"""The running batch: its members and what is summed over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from simlora.core.request import Request
from simlora.latency.kernels import LoraWork


class Batch:
    """Requests that decode together, as running aggregates: joining and leaving cost O(log n).

    `step` counts the replica's decode steps. A member's context is `offset + step`, so a step
    changes no member. The order of completion is known to the engine alone.
    """

    __slots__ = (
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
        self._finish: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.members.values())

    @property
    def context_tokens(self) -> int:
        """Sum of contexts."""
        return self.offsets + len(self.members) * self.step

    def context(self, request: Request) -> int:
        """Prompt and tokens of one member."""
        return self._offset[request.id] + self.step

    def generated(self, request: Request) -> int:
        """Tokens that one member has produced."""
        return self.context(request) - request.prompt_tokens - request.padding_tokens

    def work(self, adapters: int, count_segments: bool = False) -> LoraWork:
        """What the LoRA kernels of a decode step process, with `adapters` distinct ones."""
        top = max(self._rank_counts) if self._rank_counts else 0
        return LoraWork(
            self.lora_requests, self.rank_sum, top, adapters, segments(self) if count_segments else 0
        )

    def join(self, request: Request, generated: int, to_come: int) -> None:
        """Add a request that has `generated` tokens, and whose last is `to_come` steps away."""
        assert to_come > 0, f"request {request.id} joins the batch with nothing to come"
        offset = request.prompt_tokens + request.padding_tokens + generated - self.step
        self.members[request.id] = request
        self._offset[request.id] = offset
        self.offsets += offset
        heappush(self._finish, (self.step + to_come, request.id))
        rank = request.rank
        if rank:
            self.lora_requests += 1
            self.rank_sum += rank
            self._rank_counts[rank] = self._rank_counts.get(rank, 0) + 1

    def steps_to_finish(self) -> int:
        """Decode steps until the next member is done."""
        return self._finish[0][0] - self.step

    def finished(self) -> Iterable[Request]:
        """Take out the members whose last step this was, by id."""
        finish = self._finish
        while finish and finish[0][0] == self.step:
            yield self._leave(heappop(finish)[1])

    def take(self, request: Request) -> None:
        """Take out a member before its end."""
        self._finish = [entry for entry in self._finish if entry[1] != request.id]
        heapify(self._finish)
        self._leave(request.id)

    def _leave(self, id: int) -> Request:
        request = self.members.pop(id)
        self.offsets -= self._offset.pop(id)
        rank = request.rank
        if rank:
            self.lora_requests -= 1
            self.rank_sum -= rank
            left = self._rank_counts[rank] - 1
            if left:
                self._rank_counts[rank] = left
            else:
                del self._rank_counts[rank]
        return request


def prefill_work(
    requests: Sequence[Request], chunks: Sequence[int] = (), count_segments: bool = False
) -> tuple[int, int, LoraWork]:
    """Return what a prefill processes: of each request that many tokens, or all that it has left.

    The tokens, the sum of squares that attention follows, and what the LoRA kernels process. A token's
    attention also reaches over what was cached, what came back from the host, and the chunks before.
    """
    tokens = tokens_sq = lora_tokens = token_rank_sum = top = 0
    adapters = set()
    for index, request in enumerate(requests):
        chunk = chunks[index] if chunks else request.prefill_tokens
        tokens += chunk
        before = request.cached_tokens + request.host_tokens + request.chunked_tokens
        tokens_sq += chunk * (chunk + 2 * before)
        adapter = request.adapter
        if adapter is not None:
            rank = adapter.rank
            lora_tokens += chunk
            token_rank_sum += chunk * rank
            if rank > top:
                top = rank
            adapters.add(adapter.id)
    stretches = segments(requests) if count_segments else 0
    return tokens, tokens_sq, LoraWork(lora_tokens, token_rank_sum, top, len(adapters), stretches)


def segments(requests: Iterable[Request]) -> int:
    """Count the stretches of equal adapters among requests that use one."""
    used = [request.adapter for request in requests if request.adapter is not None]
    return sum(one is not other for one, other in zip([None, *used], used, strict=False))
