"""Which replicas take requests, and who waits while nobody does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.engine.departed import Departed


class Members:
    """A replica is `open`, and takes requests, if it is `alive` and `on`.

    That is, if its host has not failed, and it is switched on and not draining. All three are `[replicas]`. Requests
    that come while nobody is open wait as long as somebody `is_expected`.
    """

    def __init__(self, replicas: int) -> None:
        self._everywhere: NDArray[np.int64] = np.arange(replicas, dtype=np.int64)
        self.alive: NDArray[np.bool_] = np.ones(replicas, dtype=np.bool_)
        self.on: NDArray[np.bool_] = np.ones(replicas, dtype=np.bool_)
        self.open: NDArray[np.bool_] = np.ones(replicas, dtype=np.bool_)
        self.all_open = True
        self.expected = 0  # hosts that are gone and come back
        self.grows = False  # whether somebody adds replicas when they are missing
        self._homeless: list[Departed] = []

    def set_alive(self, ids: Sequence[int], alive: bool) -> None:
        """The host of these replicas has failed, or is back."""
        self.alive[ids] = alive
        self._reopen()

    def set_on(self, ids: Sequence[int], on: bool) -> None:
        """These replicas are switched on, or begin to drain."""
        self.on[ids] = on
        self._reopen()

    def _reopen(self) -> None:
        self.open = self.alive & self.on
        self.all_open = bool(self.open.all())

    def among(self, replicas: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of some replicas that are open; if none of them is, whoever is."""
        found = replicas[self.open[replicas]]
        return found if len(found) else self._everywhere[self.open]

    @property
    def is_expected(self) -> bool:
        """Whether somebody will be open."""
        return self.expected > 0 or (self.grows and bool(self.alive.any()))

    @property
    def unassigned(self) -> int:
        """How many wait for somebody to be open."""
        return len(self._homeless)

    @property
    def arrivals_s(self) -> list[float]:
        """When those arrived who wait for somebody to be open."""
        return [each.request.arrival_s for each in self._homeless]

    def wait(self, departed: Departed) -> bool:
        """A request finds nobody; return whether it waits."""
        if self.is_expected:
            self._homeless.append(departed)
            return True
        return False

    def take_homeless(self) -> list[Departed]:
        """Return who waits, in order; they wait no longer."""
        found, self._homeless = self._homeless, []
        return found
