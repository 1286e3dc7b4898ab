"""Which of two systems is ahead, as measured and as simulated, wherever both served the same workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from experiments.fidelity.compare import Comparison
from experiments.fidelity.rows import CLUSTER, WORKLOAD, Row
from experiments.fidelity.section import grouped

TIE = 0.02
"""Systems whose measured throughput differs by less are as fast as each other: runs repeat to about 1 %."""


@dataclass(frozen=True)
class Pair:
    """Two systems on one GPU, setting and workload; the first is the faster one as measured."""

    faster: Comparison[Row]
    slower: Comparison[Row]

    @property
    def right(self) -> bool:
        """Whether the simulation puts them in the same order."""
        figures = [side.simulated.get("throughput_rps", 0.0) for side in (self.faster, self.slower)]
        return figures[0] > figures[1]

    def __str__(self) -> str:
        sides = " over ".join(
            f"{side.row.columns['system']} {side.row.measured['throughput_rps']:.3g} "
            f"({side.simulated.get('throughput_rps', 0.0):.3g} simulated)"
            for side in (self.faster, self.slower)
        )
        return f"{self.faster.row.place}: {sides}"


def pairs(comparisons: Sequence[Comparison[Row]]) -> list[Pair]:
    """Return all pairs of different systems that served one workload in one campaign, ties left out.

    hf_peft ran in a campaign of its own, after the others' workloads.
    """
    found = []
    for members in grouped(comparisons, _workload).values():
        for one, other in combinations(members, 2):
            a, b = (side.row.measured.get("throughput_rps", 0.0) for side in (one, other))
            if one.row.columns["system"] != other.row.columns["system"] and abs(a - b) > TIE * max(a, b):
                found.append(Pair(*((one, other) if a > b else (other, one))))
    return found


def _workload(one: Comparison[Row]) -> tuple[str, ...]:
    columns, workload = one.row.columns, one.row.workload
    campaign = "synthetic" if columns["campaign"] == "peft" else columns["campaign"]
    file = one.row.file if columns["system"].startswith(CLUSTER) else ""
    return (columns["gpu"], columns["setting"], campaign, file, *(f"{workload[n]:g}" for n in WORKLOAD))
