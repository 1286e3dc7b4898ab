"""What was measured on real GPUs, and the calibrations that were fitted to it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import profiler
from experiments.scenarios import scenario
from profiler.collect import FILE, IDENTITY, Samples
from profiler.fit import Model, features, fit, fit_all, prefill_model
from profiler.write import coefficients

MEASURED = sorted((Path(profiler.__file__).parent / "measured").iterdir())


@pytest.mark.parametrize("folder", MEASURED, ids=lambda folder: folder.name)
def test_a_shipped_calibration_is_the_fit_to_its_samples(folder):
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


@pytest.mark.parametrize(
    ("gpu", "by_curve", "by_line"), [("h100_80g", 0.131, 0.165), ("h200_141g", 0.080, 0.137)]
)
def test_a_curve_predicts_prefills_better_than_a_straight_line(gpu, by_curve, by_line):
    folder = MEASURED[0].parent / f"{gpu}-llama_2_7b"
    identity = json.loads(pq.read_schema(folder / FILE).metadata[IDENTITY])
    run = scenario([f"gpu={gpu}", "model=llama_2_7b", "engine=profiler", "system=slora"])
    table = features(Samples(folder, identity).by_point(), run.model)
    prefills = table[(table["section"] == "prefill") & (table["kernel"] == "")]
    line = Model(
        "line",
        "prefill",
        {
            "intercept_s": lambda p: p["requests"] / p["requests"],
            "per_token_s": lambda p: p["batch_tokens"],
            "per_token_sq_s": lambda p: p["tokens_sq"],
        },
    )
    assert fit(prefill_model(prefills), prefills).mape == pytest.approx(by_curve, abs=0.0006)
    assert fit(line, prefills).mape == pytest.approx(by_line, abs=0.0006)
