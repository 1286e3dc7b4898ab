"""Route requests of similar rank together, within a limit on load imbalance."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.checks import GivenFloat, GivenInt, number, whole
from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class RankBands(Router):
    """Candidates in order of id divide a line into equal parts, and each rank has a band on that line.

    A band is as wide as the rank's share of the declared output tokens. A rank's replicas are those whose midpoint lies
    in its band or, if there is none, the one that contains the band's midpoint. Of these the one with the fewest
    requests is picked, of equals the lowest id. Replicas with `slack` or more requests above the least loaded candidate
    are excluded. If none is left, the least loaded replica within the slack that has a request of this rank or a higher
    one is picked, because the request does not slow it down further; failing that, the least loaded of all. Shares are
    those of the last `window` requests, because popularity shifts.
    Source: none of the five papers. LoRAServe (§IV-A) groups ranks of similar cost by a plan for the next minute. Here
    each request is routed on its own, adapters are on every replica, and what a band cannot take goes elsewhere.
    """

    informed: ClassVar[bool] = True

    def __init__(self, slack: GivenFloat = 32.0, window: GivenInt = 2000) -> None:
        self.slack = number("router.slack", slack, "requests", above=0)
        self.window = whole("router.window", window, "requests", least=1)
        self._recent: deque[tuple[int, int]] = deque()  # (rank, declared output tokens)
        self._tokens: dict[int, int] = {}  # sums of declared output tokens, by rank

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        rank = request.rank
        self._count(request)
        outstanding = view.outstanding[candidates]
        free = outstanding < outstanding.min() + self.slack
        first, last = self._band(rank, len(candidates))
        chosen = np.flatnonzero(free[first:last]) + first
        if not len(chosen):
            chosen = np.flatnonzero(free & (view.loads.all.max_rank[candidates] >= rank))
        if not len(chosen):
            return int(candidates[outstanding.argmin()])
        return int(candidates[chosen[outstanding[chosen].argmin()]])

    def _count(self, request: Request) -> None:
        if len(self._recent) == self.window:
            rank, tokens = self._recent.popleft()
            self._tokens[rank] -= tokens
        self._recent.append((request.rank, request.max_output_tokens))
        self._tokens[request.rank] = self._tokens.get(request.rank, 0) + request.max_output_tokens

    def _band(self, rank: int, candidates: int) -> tuple[int, int]:
        """Return the first candidate of a rank's band, and the one after its last."""
        total, own = sum(self._tokens.values()), self._tokens[rank]
        below = sum(tokens for other, tokens in self._tokens.items() if other < rank)
        first = _midpoints_before(below, total, candidates)
        last = _midpoints_before(below + own, total, candidates)
        if first == last:
            first = min(candidates * (2 * below + own) // (2 * total), candidates - 1)
            last = first + 1
        return first, last


def _midpoints_before(tokens: int, total: int, candidates: int) -> int:
    """Return how many candidates' midpoints lie before the point at `tokens` of `total` from the line's start."""
    return -((total - 2 * candidates * tokens) // (2 * total))
