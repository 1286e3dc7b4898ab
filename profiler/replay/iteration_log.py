"""What the iterations of a replay processed, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simlora.core.request import Request


@dataclass(frozen=True)
class Iteration:
    """What one iteration processed, and when.

    `batch_tokens`: the prompts of a prefill, or the contexts of a step; `tokens_sq`: their squares. `lora_tokens`: of
    requests with an adapter, of a step one each; `rank_sum` sums their ranks by request, `token_rank_sum` by token.
    """

    kind: str
    begin_s: float
    end_s: float
    requests: int
    batch_tokens: int
    tokens_sq: int
    lora_tokens: int
    rank_sum: int
    token_rank_sum: int
    max_rank: int
    adapters: int


def iteration(
    kind: str, begin_s: float, end_s: float, requests: Sequence[Request], tokens: Sequence[int]
) -> Iteration:
    """Return the row of a prefill of `tokens[i]` tokens of `requests[i]`, or of a step with such contexts."""
    processed = tokens if kind == "prefill" else [1] * len(requests)
    of_lora = [
        (request.rank, count)
        for request, count in zip(requests, processed, strict=True)
        if request.adapter is not None
    ]
    return Iteration(
        kind=kind,
        begin_s=begin_s,
        end_s=end_s,
        requests=len(requests),
        batch_tokens=sum(tokens),
        tokens_sq=sum(count * count for count in tokens),
        lora_tokens=sum(count for _, count in of_lora),
        rank_sum=sum(rank for rank, _ in of_lora),
        token_rank_sum=sum(rank * count for rank, count in of_lora),
        max_rank=max((rank for rank, _ in of_lora), default=0),
        adapters=len({request.adapter_id for request in requests if request.adapter is not None}),
    )
