"""What vLLM counts of a replica's requests, in simulated seconds."""

from __future__ import annotations

from collections import deque

from simlora.core.request import Request
from simlora.metrics.rows import ABORTED
from simlora.serving.tally import Tally

FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
GAP_S = (
    *(
        0.01,
        0.025,
        0.05,
        0.075,
        0.1,
        0.15,
        0.2,
        0.3,
        0.4,
        0.5,
        0.75,
        1.0,
        2.5,
        5.0,
        7.5,
        10.0,
        20.0,
        40.0,
        80.0,
    ),
)
LATENCY_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
TOKENS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
"""Buckets of vLLM. Source: vllm/v1/metrics/loggers.py of vLLM 0.10."""
RECENT_S, RECENT_MOST = 60.0, 10_000


class Tallies:
    """Counters and histograms of one replica since the start; `recent` has (time, TTFT) of the last minute.

    `preemptions` are those of requests that have ended.
    """

    def __init__(self, caches: bool) -> None:
        self._caches = caches
        self.prompt_tokens = self.generation_tokens = self.preemptions = 0
        self.queried_tokens = self.cached_tokens = 0
        self.ended = {"stop": 0, "length": 0, "abort": 0}
        self.rejected = 0
        self.first_token_s, self.gap_s = Tally(FIRST_TOKEN_S), Tally(GAP_S)
        self.latency_s, self.queue_s, self.inference_s = (Tally(LATENCY_S) for _ in range(3))
        self.prefill_s, self.decode_s = Tally(LATENCY_S), Tally(LATENCY_S)
        self.prompts, self.generations, self.max_tokens = (Tally(TOKENS) for _ in range(3))
        self.recent: deque[tuple[float, float]] = deque(maxlen=RECENT_MOST)

    def first_token(self, request: Request, time_s: float, ttft_s: float) -> None:
        """A request has its first token, so long after its arrival."""
        self.prompt_tokens += request.prompt_tokens
        if self._caches:  # otherwise vLLM asks for no prefix
            self.queried_tokens += request.prompt_tokens
        self.cached_tokens += request.cached_tokens
        self.generation_tokens += 1
        self.first_token_s.add(ttft_s)
        self.recent.append((time_s, ttft_s))

    def gap(self, gap_s: float) -> None:
        """A request has a further token, so long after the one before."""
        self.generation_tokens += 1
        self.gap_s.add(gap_s)

    def finished(
        self, request: Request, tokens: int, limit: int, arrival_s: float, end_s: float, cut: bool
    ) -> None:
        """A request has its last token, of `limit` at most; `cut`: because its client has gone."""
        whole = tokens == limit
        self.ended["abort" if cut else "length" if whole else "stop"] += 1
        self.preemptions += request.preemptions
        self.latency_s.add(end_s - arrival_s)
        self.queue_s.add(request.admitted_s - arrival_s)
        self.inference_s.add(end_s - request.admitted_s)
        self.prefill_s.add(request.first_token_s - request.admitted_s)
        self.decode_s.add(end_s - request.first_token_s)
        self.prompts.add(request.prompt_tokens)
        self.generations.add(tokens)
        self.max_tokens.add(limit)

    def lost(self, request: Request, status: int) -> None:
        """A request was aborted or rejected."""
        self.preemptions += request.preemptions
        if status == ABORTED:
            self.ended["abort"] += 1
        else:
            self.rejected += 1

    def recent_ttfts_s(self, now_s: float) -> list[float]:
        """Return the times to first token of the last minute."""
        recent = self.recent
        while recent and recent[0][0] < now_s - RECENT_S:
            recent.popleft()
        return [ttft_s for _, ttft_s in recent]
