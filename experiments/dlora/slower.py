"""Calibrations of what was not measured: `python -m experiments.dlora.slower [--out FOLDER]`.

`plus_4ms` to `plus_12ms` are dLoRA's Llama-2-7B with iterations that take so much longer, merged or not, prefill or
decode: as if Python, Ray and the client, which the profiled 15 and 27 ms leave out, took it. `example` is that of
section 4.2: an iteration takes 50 ms merged and 100 ms unmerged, a switch 100 ms. `70b_link_*` is Llama-2-70B where
weights come from host memory at so many GB/s to each GPU, as from memory that is not pinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.dlora.calibration import DERIVED, MEASURED, name
from experiments.studies.command import into, program
from simlora.api import simulate
from simlora.calibrate.calibration_file import committed, derived, published, save, written

FOLDER = Path(__file__).parent / "what_if"
LONGER_MS = (4, 8, 12)
LINK_GB = (10, 3)
EXAMPLE_MS = {"dlora_unmerged_only": 300, "dlora_merged_only": 250}
"""dLoRA (OSDI'24) §4.2: 300 ms if it stays unmerged; 250 ms if the adapter is merged at the beginning."""
COMMAND, DATE = "python -m experiments.dlora.slower", "2026-11-22"


def files() -> dict[str, dict[str, Any]]:
    """Return what each file holds, by its name."""
    iterations = {f"plus_{longer_ms}ms": slower(longer_ms) for longer_ms in LONGER_MS}
    links = {f"70b_link_{gb_per_s}": slow_link(gb_per_s) for gb_per_s in LINK_GB}
    return iterations | links | {"example": example()}


def slower(longer_ms: float) -> dict[str, Any]:
    """Return dLoRA's Llama-2-7B with longer iterations."""
    tree = committed(name(*MEASURED))
    for phase in ("prefill", "decode"):
        tree[phase]["intercept_s"] = float(f"{tree[phase]['intercept_s'] + longer_ms / 1e3:.6g}")
    source = f"what if: {name(*MEASURED)} with {longer_ms} ms more an iteration"
    return said(tree, source, ["prefill.intercept_s", "decode.intercept_s"])


def slow_link(gb_per_s: float) -> dict[str, Any]:
    """Return dLoRA's Llama-2-70B with another rate of the links."""
    shape = DERIVED[-1]
    tree = committed(name(*shape))
    tree["adapter_load"]["bytes_per_s"] = 1e9 * gb_per_s
    return said(tree, f"what if: {name(*shape)} with links of {gb_per_s} GB/s", ["adapter_load.bytes_per_s"])


def said(tree: dict[str, Any], source: str, changed: Sequence[str]) -> dict[str, Any]:
    """Return a file's tree with where its coefficients are from."""
    tree["provenance"] |= {"kind": "derived", "source": source, "command": COMMAND, "date": DATE}
    tree["provenance"]["coefficients"] |= {each: derived(source) for each in changed}
    return tree


def example() -> dict[str, Any]:
    """Return iterations of which only the length is known."""
    source = "dLoRA (OSDI'24), section 4.2: 50 ms merged, 100 ms unmerged, 100 ms to switch"
    nothing = {"per_token_s": 0.0, "per_token_sq_s": 0.0}
    return {
        "gpu": "a800_80g",
        "model": "llama_2_7b",
        "tp": 1,
        "provenance": published(source) | {"command": COMMAND, "date": DATE},
        "prefill": {"intercept_s": 0.05, **nothing},
        "decode": {"intercept_s": 0.05, "per_sequence_s": 0.0, "per_context_token_s": 0.0},
        "kernels": {
            "one_hot_einsum": {
                "decode": {"intercept_s": 0.05, "per_sequence_adapter_max_rank_s": 0.0},
                "prefill": {"intercept_s": 0.05, "per_token_adapter_max_rank_s": 0.0},
            }
        },
        "adapter_load": {"latency_s": 0.0, "bytes_per_s": 31.5077e9},
        "merge": {"intercept_s": 0.1, "per_byte_s": 0.0},
    }


def example_ms(system: str) -> float:
    """Return what the example's request of three iterations takes, simulated, to a nanosecond."""
    workload = ("workload=file", f"workload.path={FOLDER / 'example.csv'}")
    overrides = (f"system={system}", f"calibration={FOLDER / 'example.yaml'}", *workload)
    summary = simulate([*overrides, "timeline=false", "report=false", "progress=false"]).summary
    return round(1e3 * float(summary["latency_s"]["mean"]), 6)


@program(into(FOLDER))
def main(folder: Path) -> None:
    """Write the files."""
    for stem, tree in files().items():
        path = folder / f"{stem}.yaml"
        save(path, written(tree, {}))
        print(path)
