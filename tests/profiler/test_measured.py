"""What was measured on real GPUs, and the calibrations that were fitted to it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import profiler
from profiler.collect import FILE, IDENTITY, Samples
from profiler.fit import fit_all
from profiler.write import coefficients
from simlora.hardware.model import ModelShape
from simlora.latency import calibration

MEASURED = sorted((Path(profiler.__file__).parent / "measured").iterdir())
MODELS = Path(calibration.__file__).parents[1] / "conf" / "model"


@pytest.mark.parametrize("folder", MEASURED, ids=lambda folder: folder.name)
def test_a_shipped_calibration_is_the_fit_to_its_samples(folder: Path) -> None:
    identity = json.loads(pq.read_schema(folder / FILE).metadata[IDENTITY])
    shape = yaml.safe_load((MODELS / f"{identity['model']}.yaml").read_text())
    shape = ModelShape(**{name: value for name, value in shape.items() if not name.startswith("_")})
    table = Samples(folder, identity).by_point()
    shipped = calibration.load(f"{folder.name}-tp1-profiler")
    assert shipped.provenance["kind"] == "measured"
    assert shipped.provenance["samples"] == table["samples"].sum()
    assert dict(shipped.coefficients) == pytest.approx(
        coefficients(fit_all(table, shape), table), rel=1e-3, abs=1e-12
    )
