"""NVIDIA's kernel times against iterations of real GPUs, and parts of S-LoRA's engine read off calibrations."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from experiments.kernels import slora
from experiments.kernels.measured import profiles, rows
from simlora.latency.parts.composed import engines


@pytest.mark.parametrize(("gpu", "model"), profiles())
def test_decode_steps_take_what_the_kernels_take_and_about_a_millisecond_of_host(
    gpu: str, model: str
) -> None:
    left_s = [
        measured_s - kernels_s for kind, _, _, measured_s, kernels_s in rows(gpu, model) if kind == "decode"
    ]
    assert len(left_s) >= 3
    assert 0.0004 < median(left_s) < 0.002
    # 128 sequences on an H200 take 1.1 ms less than the kernels that were measured elsewhere.
    assert min(left_s) > -0.0012
    assert max(left_s) < 0.0022


@pytest.mark.parametrize("name, value", slora.parts().items())
def test_the_parts_that_come_with_simlora_are_those_that_it_reads(name: str, value: float) -> None:
    section, _, leaf = name.rpartition(".")
    parts = engines()["slora"]
    assert (parts[section] if section else parts)[leaf] == pytest.approx(value, rel=1e-4)


def test_hosts_are_compared_by_steps_that_launches_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    assert slora.main(["--hosts"]) == 2
    assert "set SIMLORA_MEASURED_DIR" in capsys.readouterr().err
    path = tmp_path / slora.STEPS
    path.parent.mkdir()
    lines = ["model,hardware,prompt_size,batch_size,token_time,tensor_parallel"]
    for tp, a100, h100 in ((4, 44, 29), (8, 45, 30)):
        lines += [
            f"llama2-70b,a100-80gb,512,1,{a100},{tp}",
            f"llama2-70b,h100-80gb,512,1,{h100},{tp}",
            f"llama2-70b,h100-80gb,512,64,99,{tp}",
        ]
    path.write_text("\n".join(lines) + "\n")
    assert slora.main(["--hosts"]) == 0
    assert "at TP 8: 1.50" in capsys.readouterr().out


def test_without_measured_runs_it_prints_the_parts_and_says_what_it_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    assert slora.main([]) == 0
    printed = capsys.readouterr().out
    assert "host.launch_s: 0.0209" in printed
    assert "skipped: there is no" in printed
