"""Route to a random replica."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class Random(Router):
    """Pick one of the candidates uniformly at random."""

    blind: ClassVar[bool] = True

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        return int(candidates[view.rng.integers(len(candidates))])
