"""Calibrations with slower copies: `python -m experiments.fastlibra.links [--out FOLDER]`.

FastLibra's NPU with Llama-7B, where copies between host memory and HBM reach so many GB/s instead of the 25 that four
fifths of PCIe 4.0 x16 are: 3 is what S-LoRA's adapters take on an A10G (docs/calibrations.md), block by block.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.fastlibra.calibration import setting
from experiments.profiles.__main__ import CALIBRATIONS
from simlora.latency import calibration as calibrations

FOLDER = Path(__file__).parent / "what_if"
LINK_GB = (12, 6, 3)
SOURCE = setting("llama_7b", 1).name


def slower(gb_per_s: float) -> dict[str, Any]:
    """Return the calibration with such copies."""
    tree: dict[str, Any] = yaml.safe_load((CALIBRATIONS / f"{SOURCE}.yaml").read_text(encoding="utf-8"))
    tree["adapter_load"]["bytes_per_s"] = gb_per_s * 1e9
    what = f"what if: {SOURCE} with copies at {gb_per_s:g} GB/s"
    tree["provenance"] |= {
        "kind": "derived",
        "source": what,
        "command": "python -m experiments.fastlibra.links",
    }
    tree["provenance"]["coefficients"]["adapter_load.bytes_per_s"] = {"kind": "derived", "source": what}
    return tree


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.fastlibra.links", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    folder = parser.parse_args(arguments).out
    folder.mkdir(parents=True, exist_ok=True)
    for gb_per_s in LINK_GB:
        path = folder / f"link_{gb_per_s}.yaml"
        text = yaml.safe_dump(slower(gb_per_s), sort_keys=False, width=110)
        calibrations.parse(text, str(path))
        path.write_text(text, encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
