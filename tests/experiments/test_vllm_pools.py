"""What an hour's own figures say of the memory that it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.fidelity.vllm import pools
from experiments.fidelity.vllm.predict import FIGURES
from tests.experiments.test_fidelity_vllm import CELLS, a_file, a_row

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
