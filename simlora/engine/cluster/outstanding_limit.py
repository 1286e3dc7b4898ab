"""The most requests that a cluster has at once, at its front end."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.engine.scenario import ClusterConfig
from simlora.metrics.recorder import Recorder


class OutstandingLimit:
    """Rejects a request that arrives when `cluster.max_outstanding` others wait or run.

    Source: TGI's --max-concurrent-requests and SGLang's --max-queued-requests, which answer at once that the server is
    overloaded; differs: it counts the whole cluster, as a gateway can, and SGLang's counts waiting requests alone.
    """

    def __init__(self, config: ClusterConfig, recorder: Recorder) -> None:
        assert config.max_outstanding is not None, "without a number there is no limit"
        self._most, self._recorder = config.max_outstanding, recorder
        self._left_early: list[int] = []  # ids of requests that ended before they arrived
        self._reason = f"cluster.max_outstanding, {self._most} requests, were there already"

    def refusal(self, request: Request) -> str:
        """Return why a request that arrives now is rejected; empty if there is room.

        As many came before as its id says; later ones that have left already count as ended, and were never there.
        """
        self._left_early = [id for id in self._left_early if id > request.id]
        there = request.id - self._recorder.ended + len(self._left_early)
        assert there <= self._most, "more requests are there than the cluster takes"
        return self._reason if there == self._most else ""

    def leave_early(self, request: Request) -> None:
        """A request that has not arrived yet has ended."""
        self._left_early.append(request.id)
