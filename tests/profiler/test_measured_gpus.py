"""What was measured on real GPUs, and the calibrations that were fitted to it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import profiler
from experiments.scenarios import scenario
from profiler.collect import FILE, IDENTITY, Samples
from profiler.fit import fit_all
from profiler.write import coefficients

MEASURED = sorted((Path(profiler.__file__).parent / "measured").iterdir())


@pytest.mark.parametrize("folder", MEASURED, ids=lambda folder: folder.name)
def test_a_shipped_calibration_is_the_fit_to_its_samples(folder: Path) -> None:
    identity = json.loads(pq.read_schema(folder / FILE).metadata[IDENTITY])
    gpu, _, model = folder.name.partition("-")
    run = scenario([f"gpu={gpu}", f"model={model}", "engine=profiler", "system=slora"])
    table, shipped = Samples(folder, identity).by_point(), run.calibration
    assert shipped.path == f"{folder.name}-tp1-profiler"
    assert shipped.provenance["kind"] == "measured"
    assert shipped.provenance["samples"] == table["samples"].sum()
    assert dict(shipped.coefficients) == pytest.approx(
        coefficients(fit_all(table, run.model), table), rel=1e-3, abs=1e-12
    )
