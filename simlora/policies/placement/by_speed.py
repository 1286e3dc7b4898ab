"""High ranks on fast GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.checks import number, whole
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView


class BySpeed(Placement):
    """Assigns adapters, highest rank first, to kinds of replicas, fastest first.

    A replica's speed is the tokens per second of a base-model decode step of `sequences` requests of `context_tokens`
    each. Replicas of one speed are a kind. Each kind serves adapters with the same share of the expected demand as it
    has of the cluster's speed; the router chooses within the kind. Demand is the history of earlier days, or equal if
    unknown. If all replicas are alike, each serves all adapters.
    A placement of ours, for clusters of different GPUs; no paper has it.
    """

    def __init__(self, sequences: int = 16, context_tokens: float = 512.0) -> None:
        self.sequences = whole("placement.sequences", sequences, "requests", least=1)
        self.context_tokens = number("placement.context_tokens", context_tokens, "tokens", least=1)

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        speed = self._tokens_per_s(view)
        kinds = sorted(set(speed.tolist()), reverse=True)
        if len(kinds) == 1 or not adapters:
            return Placed()
        members = [np.flatnonzero(speed == kind) for kind in kinds]
        share = np.cumsum([speed[replicas].sum() for replicas in members]) / speed.sum()
        ordered = sorted(adapters, key=lambda adapter: (-adapter.rank, adapter.id))
        demand = np.ones(len(ordered))
        if view.history_rps is not None and view.history_rps.sum() > 0:
            demand = view.history_rps[[adapter.id for adapter in ordered]]
        middle = (np.cumsum(demand) - demand / 2) / demand.sum()
        kind_of = np.searchsorted(share[:-1], middle, side="right")
        return Placed(
            {adapter.id: members[kind] for adapter, kind in zip(ordered, kind_of.tolist(), strict=True)}
        )

    def _tokens_per_s(self, view: ClusterView) -> NDArray[np.float64]:
        """Return each replica's decode speed in tokens per second `[replicas]`."""
        context_tokens = int(self.sequences * self.context_tokens)
        step_s = [iteration.decode_s(self.sequences, context_tokens) for iteration, _ in view.models]
        return self.sequences / np.array(step_s)
