"""How much of the pool a request takes, and whether another one still fits: one rule per file.

All quantities are token slots. `step` is the replica's count of decode steps so far. A running request's context,
which includes the slot of its latest token, grows by one at each step. Admission runs in trials: `begin`, then `fits`
for one candidate after another. A candidate that fits stays in the trial; the replica then calls `add` for those that
it really admits.
"""

from __future__ import annotations

from simlora.memory.reservation.base import UNLIMITED, Reservation
from simlora.memory.reservation.full import Full
from simlora.memory.reservation.lookahead import Lookahead
from simlora.memory.reservation.padded import PaddedKv
from simlora.memory.reservation.paged import Paged
from simlora.memory.reservation.pausable import Pausable
from simlora.memory.reservation.peak import Peak

__all__ = ["UNLIMITED", "Full", "Lookahead", "PaddedKv", "Paged", "Pausable", "Peak", "Reservation"]
