"""What a router knows of the replicas when they do not tell it all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simlora.engine.overview import Overview

if TYPE_CHECKING:
    from simlora.engine.cluster import Cluster


class StaleOverview(Overview):
    """The cluster as it was when replicas told last, which they do at the first arrival of every `every_s` seconds.

    So what a router sees of `outstanding` and `loads` is up to that old, its own latest decisions included; all the
    rest is as it is `now`.
    """

    def __init__(self, cluster: Cluster, now: Overview, every_s: float) -> None:
        super().__init__(cluster, now.rng)
        self._now, self._every_s = now, every_s
        self._told = -1
        self.outstanding = now.outstanding.copy()
        self._loads = None

    def ask(self, informed: bool) -> None:
        """An arrival is to be routed: replicas tell anew if it is time."""
        period = int(self.now_s // self._every_s)
        if period > self._told:
            self._told = period
            self.outstanding = self._now.outstanding.copy()
            self._loads = self._now.loads.copy() if informed else None
