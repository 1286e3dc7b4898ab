"""A calibration with the coefficients of every kernel and mechanism, so that all policies can be exchanged.

Its times are those of several measurements put together: good for comparing bytes, not for predictions.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir

import yaml

from simlora.calibrate.calibration_file import committed
from simlora.core.files import whole_file

FILE = Path(gettempdir()) / "simlora-same_bytes" / "calibration.yaml"
BASE = "a100_80g-llama_2_7b-tp1"
ALSO = {
    "kernels.one_hot_einsum": "a800_80g-llama_2_7b-tp1-dlora",
    "kernels.vllm": "h100_64g-llama_3_1_8b-tp1-vllm",
    "scheduler": "h100_64g-llama_3_1_8b-tp1-vllm",
    "host": "a100_80g-llama_7b-tp1-vllm_packed",
}
"""Sections that other calibrations have."""


def written() -> Path:
    """Write the calibration where it stays, so that a scenario can be simulated again by hand; return its path."""
    tree = committed(BASE)
    for section, name in ALSO.items():
        *path, leaf = section.split(".")
        source, target = committed(name), tree
        for part in path:
            source, target = source[part], target[part]
        target[leaf] = source[leaf]
    sources = ", ".join(sorted(set(ALSO.values())))
    tree["provenance"] = {"kind": "derived", "source": f"{BASE}, and sections of {sources}"}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(FILE) as draft:
        draft.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return FILE
