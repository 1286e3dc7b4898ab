"""Calibrations with slower copies: `python -m experiments.fastlibra.links [--out FOLDER]`.

FastLibra's NPU with Llama-7B, where copies between host memory and HBM reach so many GB/s instead of the 25 that four
fifths of PCIe 4.0 x16 are: 3 is what S-LoRA's adapters take on an A10G (docs/calibrations.md), block by block.
"""

from __future__ import annotations

from pathlib import Path

from experiments.studies.command import into, program
from experiments.studies.provenance import what_ifs

FOLDER = Path(__file__).parent / "what_if"


@program(into(FOLDER))
def main(folder: Path) -> None:
    """Write the files."""
    what_ifs(FOLDER / "sheet.yaml", folder)
