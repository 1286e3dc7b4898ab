"""`python -m experiments.kernels.slora` reads the parts of S-LoRA's engine off calibrations fitted as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.kernels import slora
from simlora.latency.parts.composed import engines


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
