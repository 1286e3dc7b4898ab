"""The example of section 4.2, simulated: `python -m experiments.dlora.example`.

One request of three iterations, each 50 ms merged and 100 ms unmerged; to merge its adapter takes 100 ms.
"""

from __future__ import annotations

from experiments.dlora.slower import FOLDER
from experiments.studies.command import program
from simlora.api import simulate

PUBLISHED_MS = {"dlora_unmerged_only": 300, "dlora_merged_only": 250}
"""dLoRA (OSDI'24) §4.2: 300 ms if it stays unmerged; 250 ms if the adapter is merged at the beginning."""


def milliseconds(system: str) -> float:
    """Return what the three iterations take, to a nanosecond."""
    workload = ("workload=file", f"workload.path={FOLDER / 'example.csv'}")
    overrides = (f"system={system}", f"calibration={FOLDER / 'example.yaml'}", *workload)
    summary = simulate([*overrides, "timeline=false", "report=false", "progress=false"]).summary
    return round(1e3 * float(summary["latency_s"]["mean"]), 6)


@program()
def main() -> None:
    """Print what they take."""
    for system, published_ms in PUBLISHED_MS.items():
        print(f"{system}: {milliseconds(system):g} ms, {published_ms} in the paper")
