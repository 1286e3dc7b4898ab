"""Calibrations of what was not measured: `python -m experiments.dlora.slower [--out FOLDER]`.

`plus_*ms` are dLoRA's Llama-2-7B with iterations that take so much longer, merged or not, prefill or decode: as if
Python, Ray and the client, which the profiled 15 and 27 ms leave out, took it; with `slow_calls` calls to replicas take
longer, too. `example` is that of section 4.2: an iteration takes 50 ms merged and 100 ms unmerged, a switch 100 ms.
`70b_link_*` is Llama-2-70B where weights come from host memory at so many GB/s to each GPU, as from memory that is not
pinned.
"""

from __future__ import annotations

from pathlib import Path

from experiments.studies.command import into, program
from experiments.studies.provenance import what_ifs
from simlora.api import simulate

FOLDER = Path(__file__).parent / "what_if"
EXAMPLE_MS = {"dlora_unmerged_only": 300, "dlora_merged_only": 250}
"""dLoRA (OSDI'24) §4.2: 300 ms if it stays unmerged; 250 ms if the adapter is merged at the beginning."""


def example_ms(system: str) -> float:
    """Return what the example's request of three iterations takes, simulated, to a nanosecond."""
    workload = ("workload=file", f"workload.path={FOLDER / 'example.csv'}")
    overrides = (f"system={system}", f"calibration={FOLDER / 'example.yaml'}", *workload)
    summary = simulate([*overrides, "timeline=false", "report=false", "progress=false"]).summary
    return round(1e3 * float(summary["latency_s"]["mean"]), 6)


@program(into(FOLDER))
def main(folder: Path) -> None:
    """Write the files."""
    what_ifs(FOLDER / "sheet.yaml", folder)
