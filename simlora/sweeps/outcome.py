"""What became of one run among many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Overrides = tuple[str, ...]
"""What is simulated, as on the command line. Two runs with the same overrides are the same run."""
RAN, DOES_NOT_FIT, NOT_SIMULATED, FAILED = "ran", "does not fit", "not simulated", "failed"
STATUSES = (RAN, DOES_NOT_FIT, NOT_SIMULATED, FAILED)
NOT_KEPT = "not kept"


@dataclass(frozen=True)
class Outcome:
    """What became of a run: its summary, or in `reason` why there is none. `seconds`: how long
    simulating it occupied a core, whatever else runs on it.

    `key`: the hash of its configuration, of the files that it names and of simlora's own, from before it ran. A run
    whose inputs changed meanwhile has a `reason`, too: why it is not kept.
    """

    status: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0
    key: str = ""

    @property
    def warnings(self) -> Sequence[str]:
        """What the calibrations of the run's replicas were not measured for, and the error to expect."""
        others = (self.summary.get("run") or {}).get("others", ())
        found = [self.summary.get("calibration"), *(one.get("calibration") for one in others)]
        provenances = ((one or {}).get("provenance") or {} for one in found)
        return tuple(dict.fromkeys(said for each in provenances for said in each.get("warnings", ())))

    def figure(self, metric: str) -> float | None:
        """Return a figure of the run by its dotted place in summary.json; None if it did not run, or has none.

        Of what is counted by replica it is that of the replica with most of it; of a section that a run does not have,
        as `migration` where nothing may move, 0. Raises KeyError for a place that no summary has.
        """
        return figure(self.summary, metric) if self.status == RAN else None


def figure(summary: Mapping[str, Any], metric: str) -> float | None:
    """Return a figure of a summary, as `Outcome.figure` does."""
    found: Any = summary
    for name in metric.split("."):
        if isinstance(found, list):
            return max((float(replica[name]) for replica in found), default=None)
        found = found[name]
        if found is None:
            return 0.0 if name != metric.rpartition(".")[2] else None
    return float(found)
