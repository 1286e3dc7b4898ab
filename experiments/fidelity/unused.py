"""Files of the folder of measured runs that nothing is compared with, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from experiments.fidelity import base_engine, profiles

REASONS = {
    "profiles/agullo_compute_overhead_llama2-7b.csv": "throughput of Llama-2-7B under a vLLM for which there is no "
    "calibration; of the same authors' two models with one, `vllm_lora_runs.csv` has whole runs",
    "profiles/vidur_llama2-7b_h100_mlp.csv": "no calibration is made of it, as sums of kernels have no host in them; "
    "`python -m experiments.profiles.compare` holds operators that are scaled from an A100 against it",
}
SAYS = "README.md"
"""What says what the files are is not data."""


def unused(folder: Path, compared: set[str]) -> str:
    """Return a line of Markdown for each file that is neither compared nor one of the profiles that are."""
    own = compared | {f"{profiles.FILE}/{name}" for name in profiles.files()}
    found = [
        path
        for path in _files(folder)
        if path not in own and not path.endswith(SAYS) and not path.startswith(f"{base_engine.FILE}/")
    ]
    return (
        "\n".join(f"* `{path}`: {REASONS.get(path, 'this command does not know it')}." for path in found)
        or "None."
    )


def _files(folder: Path) -> Iterator[str]:
    found = (Path(place) / name for place, _, names in os.walk(folder, followlinks=True) for name in names)
    for path in sorted(found):
        yield path.relative_to(folder).as_posix()
