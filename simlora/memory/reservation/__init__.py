"""How much of the pool a request takes, and when another one still fits: one rule a file.

All quantities are token slots. `step` is the replica's count of decode steps so far; a running request's context, which
counts the slot of the token it has produced last, grows by one at each. Admission runs in trials: `begin`, then `fits`
for one candidate after the other. A candidate that fits stays in the trial; the replica then calls `add` for those that
it really admits.
"""

from __future__ import annotations

from simlora.memory.reservation.base import UNLIMITED, Reservation
from simlora.memory.reservation.full import Full
from simlora.memory.reservation.padded import PaddedKv
from simlora.memory.reservation.paged import Paged
from simlora.memory.reservation.pausable import Pausable
from simlora.memory.reservation.peak import Peak

__all__ = ["UNLIMITED", "Full", "PaddedKv", "Paged", "Pausable", "Peak", "Reservation"]
