"""Calibrations with slower copies: `python -m experiments.fastlibra.links [--out FOLDER]`.

FastLibra's NPU with Llama-7B, where copies between host memory and HBM reach so many GB/s instead of the 25 that four
fifths of PCIe 4.0 x16 are: 3 is what S-LoRA's adapters take on an A10G (docs/calibrations.md), block by block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.fastlibra.calibration import setting
from experiments.studies.command import into, program
from simlora.calibrate.calibration_file import committed, derived, save, written

FOLDER = Path(__file__).parent / "what_if"
LINK_GB = (12, 6, 3)
SOURCE = setting("llama_7b", 1).name


def slower(gb_per_s: float) -> dict[str, Any]:
    """Return the calibration with such copies."""
    tree = committed(SOURCE)
    tree["adapter_load"]["bytes_per_s"] = gb_per_s * 1e9
    changed = derived(f"what if: {SOURCE} with copies at {gb_per_s:g} GB/s")
    tree["provenance"] |= changed | {"command": "python -m experiments.fastlibra.links"}
    tree["provenance"]["coefficients"]["adapter_load.bytes_per_s"] = changed
    return tree


@program(into(FOLDER))
def main(folder: Path) -> None:
    """Write the files."""
    for gb_per_s in LINK_GB:
        path = folder / f"link_{gb_per_s}.yaml"
        save(path, written(slower(gb_per_s), {}))
        print(path)
