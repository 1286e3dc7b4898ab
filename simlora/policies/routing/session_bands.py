"""Route a conversation's turns to its KV, and first turns by rank bands."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.checks import GivenFloat, GivenInt, number
from simlora.core.request import Request
from simlora.policies.routing.rank_bands import RankBands
from simlora.policies.views import ClusterView

MOST_SESSIONS = 1 << 20
"""Sessions remembered: more than any workload here has. The least recently used is forgotten first."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionBands(RankBands):
    """A turn goes to the replica that served the conversation's previous turn, unless its load is too high.

    The load is too high with `session_slack` or more requests above the least loaded candidate. First turns, turns that
    cannot go there, and requests without a session are routed by rank bands with their own `slack`. The last
    MOST_SESSIONS sessions are remembered.
    Source: none of the five papers, whose routers do not look at sessions. FastLibra (§4), which matches KV by adapter
    and prompt, has one replica. dLoRA keeps an adapter's requests together, and thereby its sessions.
    """

    def __init__(
        self, slack: GivenFloat = 32.0, session_slack: GivenFloat = 16.0, window: GivenInt = 2000
    ) -> None:
        super().__init__(slack, window)
        self.session_slack = number("router.session_slack", session_slack, "requests", above=0)
        self._homes: OrderedDict[str, int] = OrderedDict()  # replica by session, least recently used first

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        if request.session is None:
            return super().route(request, candidates, view)
        home = self._homes.get(request.session)
        if home is None or home not in candidates or self._busy(home, candidates, view):
            home = super().route(request, candidates, view)
            self._homes[request.session] = home
            if len(self._homes) > MOST_SESSIONS:
                self._homes.popitem(last=False)
        else:
            self._count(request)
        self._homes.move_to_end(request.session)
        return home

    def _busy(self, home: int, candidates: NDArray[np.int64], view: ClusterView) -> bool:
        return bool(view.outstanding[home] >= view.outstanding[candidates].min() + self.session_slack)
