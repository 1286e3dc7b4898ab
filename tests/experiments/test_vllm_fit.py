"""Fits of vLLM's calibrations to its steps and runs, and the memory that hours were missing."""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from experiments.fidelity.compare import Comparison
from experiments.fidelity.vllm import fit, pools, steps
from experiments.fidelity.vllm.predict import FIGURES, MODELS, Row
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.parts.composed import engines
from simlora.latency.parts.kernel_times import shipped
from tests.experiments.test_fidelity_vllm import CELLS, a_file, a_row

TRUE = {
    "decode.intercept_s": 0.0115,
    "decode.per_sequence_s": 2.5e-5,
    "decode.per_context_token_s": 8e-8,
    "prefill.pass_s_by_tokens.512": 0.0115,
    "prefill.pass_s_by_tokens.2048": 2048 * 2.6e-5,
    "front_end.per_adapter_s": 0.25,
    "adapter_load.disk_latency_s": 0.0175,
}
FRONT_END_S, FIRST_TOKEN_S, PROMPT_TOKEN_S = 0.001, 0.02, 2.6e-5


def table(model: str = "llama-3.1-8b-instruct") -> pd.DataFrame:
    """A table of step times as a machine with those coefficients would give it."""
    t, rows = TRUE, []
    for size in (50, 200, 800):
        for output in (100, 400):
            context = size * (5 + output / 2)
            step_s = t["decode.intercept_s"] + t["decode.per_sequence_s"] * size
            step_s += t["decode.per_context_token_s"] * context
            rows.append(
                {"kind": "no_lora", "max_num_seqs": size, "prompt_tokens_each": 5.0} | of(output, step_s)
            )
    for prompt in (111, 209, 407):
        duration_s = 4096 * (FRONT_END_S + PROMPT_TOKEN_S * prompt)
        row = {"kind": "no_lora", "max_num_seqs": 100, "prompt_tokens_each": prompt, "duration_s": duration_s}
        rows.append(row | of(1, 0.0))
    row = {"kind": "single_request", "max_loras": 8, "max_lora_rank": 16}
    rows.append(row | of(120, 0.0125) | {"ttft_mean_ms": 1000 * FIRST_TOKEN_S})
    each_s = t["adapter_load.disk_latency_s"] + steps.LOAD_S + FIRST_TOKEN_S + 49 * 0.014
    front_s = 50 * t["front_end.per_adapter_s"]
    row = {"kind": "loading", "duration_s": front_s + 50 * each_s, "requests": 50}
    ttft_s = front_s + 49 / 2 * each_s + each_s - 49 * 0.014
    rows.append(row | of(50, 0.014) | {"ttft_mean_ms": 1000 * ttft_s})
    return pd.DataFrame([{"requests": 4096, **row} for row in rows], columns=steps.COLUMNS).assign(
        model=model
    )


def of(output: int, step_s: float) -> dict[str, float]:
    return {"output_tokens_each": output, "itl_mean_ms": 1000 * step_s, "tpot_mean_ms": 1000 * step_s}


def test_the_coefficients_of_a_machine_are_found_again_in_its_table() -> None:
    found = steps.coefficients(table(), "llama_3_1_8b")
    assert found.pop("host.per_sequence_s") == engines()["vllm"]["host"]["sequence_s"]
    assert found == pytest.approx(TRUE, rel=1e-6)


def test_full_steps_of_the_model_that_was_not_measured_go_by_the_kernels_of_both() -> None:
    qwen = table("qwen-2.5-7b-instruct")
    both = pd.concat([table(), qwen[(qwen["kind"] != "no_lora") | (qwen["output_tokens_each"] > 1)]])
    full = "prefill.pass_s_by_tokens.2048"
    kernels_s = [
        shipped()[("h100_64g", model, 1, "vllm")].pass_s[2048] for model in ("qwen_2_5_7b", "llama_3_1_8b")
    ]
    found = steps.coefficients(both, "qwen_2_5_7b")
    assert found[full] == pytest.approx(TRUE[full] * kernels_s[0] / kernels_s[1], rel=1e-6)
    assert kernels_s[0] < kernels_s[1]


def row(**measured: float) -> Row:
    columns = {"model": "llama-3.1-8b-instruct", "max_loras": "8", "module_ranks": "8 16"}
    counts = {"max_loras": 8, "max_cpu_loras": 8, "max_lora_rank": 16, "adapters": 8}
    return Row(columns, counts, None, (8, 16), (0.1,), (8,), 60.0, measured, "runs.csv line 2")


def test_a_plan_names_one_run_an_entry() -> None:
    found = fit.chosen([row()], "llama_3_1_8b", {"fit": {"llama_3_1_8b": [{"max_loras": 8}]}})
    assert len(found) == 1
    for where in ({"max_loras": 9}, {"module_ranks": "8"}):
        with pytest.raises(InputError, match="is 0 runs, must be one"):
            fit.chosen([row()], "llama_3_1_8b", {"fit": {"llama_3_1_8b": [where]}})


def test_residuals_are_relative_errors_in_units_of_accuracy() -> None:
    below = row(output_tokens_per_s=100.0, itl_mean_ms=20.0, ttft_mean_ms=50.0, ttft_p50_ms=40.0)
    simulated = {
        "output_tokens_per_s": 102.0,
        "itl_mean_ms": 19.0,
        "ttft_mean_ms": 50.0,
        "ttft_p50_ms": 44.0,
        "completed": 9,
    }
    assert fit.residuals(Comparison(below, simulated)) == pytest.approx([log(1.02) / 0.02, log(0.95) / 0.03])


def test_the_front_end_takes_what_median_first_tokens_lack() -> None:
    own = Calibration("own", "h100_64g", "llama_3_1_8b", 1, {}, {fit.FRONT_END: 0.005})

    def one(lacks_ms: float, mean_ms: float = 50.0) -> Comparison[Row]:
        measured = row(ttft_mean_ms=mean_ms, ttft_p50_ms=40.0)
        return Comparison(measured, {"ttft_mean_ms": mean_ms, "ttft_p50_ms": 40.0 - lacks_ms})

    late = [one(1.0), one(2.0), one(9.0), one(500.0, mean_ms=9000.0)]
    assert fit.with_front_end(own, late).coefficients[fit.FRONT_END] == pytest.approx(0.007)
    early = [one(-20.0)]
    assert fit.with_front_end(own, early).coefficients[fit.FRONT_END] == 0


def test_no_run_counts_for_more_than_the_most() -> None:
    lost = fit.residuals(Comparison(row(output_tokens_per_s=100.0), {"output_tokens_per_s": 1.0}))
    assert lost[0] == -fit.MOST


def test_every_model_of_the_plan_has_a_calibration_that_names_its_runs() -> None:
    plan = yaml.safe_load(fit.PLAN.read_text(encoding="utf-8"))
    assert set(plan["fit"]) == set(MODELS.values())
    for model, entries in plan["fit"].items():
        found = calibrations.load(f"h100_64g-{model}-tp1-vllm")
        assert len(found.provenance["fitted_rows"]) > len(entries), "hours of steps besides"
        assert set(plan["start"]) | set(plan["fixed"]) < set(found.coefficients)
        assert np.isfinite(list(found.coefficients.values())).all()


LLAMA_TOKEN_BYTES = 2 * 32 * 8 * 128 * 2


def test_the_missing_memory_is_what_the_running_requests_do_not_fill(tmp_path: Path) -> None:
    found = pools.pool(a_row(tmp_path))
    assert found.running == pytest.approx(150 * 0.020)
    assert found.kv_tokens == 3 * pools.TOKENS_EACH
    assert found.missing_bytes == pytest.approx((250_000 - found.kv_tokens) * LLAMA_TOKEN_BYTES)
    assert found.smaller.kv_tokens == found.kv_tokens
    assert found.smaller.seed == found.row.seed, "the requests are the same"


def test_a_line_says_how_far_off_the_hour_is_with_either_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_file(tmp_path, {}).rename(tmp_path / "vllm_lora_runs.csv")
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    measured = {figure.column: float(CELLS[figure.column]) for figure in FIGURES}

    def figures(row: pools.Row) -> dict[str, float]:
        return {name: value * (1.5 if row.kv_tokens == 250_000 else 1.0) for name, value in measured.items()}

    monkeypatch.setattr(pools, "figures", figures)
    assert pools.main(["2"]) == 0
    said = capsys.readouterr().out
    assert "tokens/s +50.0 %" in said
    assert "with 1,104 tokens tokens/s +0.0 %" in said
    assert pools.main(["9"]) == 2
    assert "has no line 9" in capsys.readouterr().err
