"""LoRAServe's calibrations: what is committed, how well it fits, and what it assumes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.loraserve import fitting, ranks
from experiments.loraserve.calibration import ALL
from experiments.loraserve.fitting import MEASURED, OUTPUT_TOKENS, RUNS, Single, available, runs
from experiments.studies.reading import measured_dir
from simlora.api import simulate
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration

measured = pytest.mark.skipif(not available(), reason=f"no {RUNS} in {measured_dir()}")


def load(shape: str, tp: int) -> Calibration:
    return calibrations.load(fitting.name(shape, tp))


def chosen(shape: str, tp: int, *overrides: str) -> list[str]:
    own = [f"gpu={fitting.GPU}", f"model={shape}", f"replica.tp={tp}", f"engine={fitting.ENGINE}"]
    return [*own, *overrides]


def one_request(shape: str, tp: int, prompt: int, rank: int) -> list[str]:
    count = ["workload.duration_s=null", "workload.requests=1", "workload.adapters=1"]
    lengths = {"prompt_tokens": prompt, "output_tokens": OUTPUT_TOKENS}
    fixed = [
        override
        for key, tokens in lengths.items()
        for override in (f"workload/{key}=fixed", f"workload.{key}.tokens={tokens}")
    ]
    files = ["report=false", "timeline=false"]
    return chosen(shape, tp, "workload=synthetic", *count, f"workload.ranks=[{rank}]", *fixed, *files)


@measured
def test_lengths_of_prompts_that_were_not_fitted_come_out() -> None:
    data, fitted = runs(), fitting.fit()
    assert set(data.prompt[data.held]) == {400, 800, 1200, 1600, 2000}
    for shape, error in (("llama_7b", 0.04), ("llama_2_70b_mha", 0.025)):
        rows = data.held & (data.shape == shape)
        assert fitted.ttft_errors[rows].mean() < error
        assert fitted.ttft_errors[rows].max() < 0.075
        assert fitted.step_errors[rows].max() < 0.015


@measured
def test_the_files_give_the_errors_that_they_state() -> None:
    """From a file alone, as a run reads it: nothing is lost or counted twice on the way."""
    data = runs()
    for shape, tp in MEASURED:
        one, stated = Single(load(shape, tp)), load(shape, tp).provenance
        rows = np.flatnonzero(data.held & (data.shape == shape))
        ttft_s = [one.ttft_s(int(data.prompt[row]), int(data.rank[row])) for row in rows]
        errors = np.abs(ttft_s / data.ttft_s[rows] - 1)
        assert errors.mean() == pytest.approx(stated["held_out_mape"]["ttft"], rel=0.01)
        contexts = [int(data.prompt[row]) + OUTPUT_TOKENS // 2 for row in rows]
        step_s = [one.step_s(1, at, int(data.rank[row])) for at, row in zip(contexts, rows, strict=True)]
        errors = np.abs(step_s / data.step_s[rows] - 1)
        assert errors.mean() == pytest.approx(stated["held_out_mape"]["decode_step"], rel=0.01)


def test_the_figures_numbers() -> None:
    """2.7 is predicted; 45 % and 20 % are of runs in the data, which have 45 % and 29 %."""
    assert ranks.figure_3() == pytest.approx(2.69, abs=0.01)
    assert ranks.figure_4() == pytest.approx(35.4, abs=0.1)
    assert ranks.figure_5() == pytest.approx(31.2, abs=0.1)


@measured
def test_the_measured_ratios_are_those_of_the_runs() -> None:
    data = runs()
    assert ranks.measured_relative(data, "llama_2_70b_mha", 8) == pytest.approx(1.447, abs=0.001)
    assert ranks.measured_relative(data, "llama_7b", 8) == pytest.approx(1.286, abs=0.001)
    assert ranks.measured_relative(data, "llama_7b", 4) is None


def test_the_figures_are_printed_without_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path / "nowhere"))
    assert ranks.main([]) == 0
    printed = capsys.readouterr().out
    assert "skipped the measured runs: there is no" in printed
    assert "Figure 3: 2.69 times, published 2.7" in printed


@pytest.mark.parametrize("shape, tp", ALL)
@pytest.mark.parametrize("kernel", ["mbgmv", "mbgmv_max"])
def test_a_run_of_one_request_takes_what_the_calibration_says(shape: str, tp: int, kernel: str) -> None:
    one = Single(load(shape, tp))
    found = simulate([*one_request(shape, tp, 2000, 128), "system=slora", f"kernel={kernel}"]).requests
    assert len(found) == 1
    assert found["ttft_s"].item() == pytest.approx(one.ttft_s(2000, 128))
    step_s = one.step_s(1, 2000 + OUTPUT_TOKENS // 2, 128)
    assert found["tpot_s"].item() == pytest.approx(step_s, rel=1e-3)
