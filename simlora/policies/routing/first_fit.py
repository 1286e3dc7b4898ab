"""Route to the first replica that has room."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.checks import GivenInt, whole
from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class FirstFit(Router):
    """Fill one replica after another in order of id, so that the last ones can be released.

    A replica has room while it has fewer than `most_requests` (None: replica.max_num_seqs) and memory for the prompts
    and declared outputs of all its requests. If no replica has room, the one with the fewest requests is picked.
    Source: CaraServe §7.5; Punica (MLSys'24) §5.1, which takes the fullest replica that has room, lets requests wait
    at the router, and has batches of at most 32 requests.
    """

    informed: ClassVar[bool] = True

    def __init__(self, most_requests: GivenInt | None = None) -> None:
        if most_requests is not None:
            whole("router.most_requests", most_requests, "requests", least=1)
        self.most_requests = most_requests

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        most = view.max_num_seqs if self.most_requests is None else self.most_requests
        held = view.loads.held_tokens + request.declared_tokens
        room = (view.outstanding < most) & (held <= view.kv_token_budgets)
        open_to = candidates[room[candidates]]
        if len(open_to):
            return int(open_to[0])
        return int(candidates[view.outstanding[candidates].argmin()])
