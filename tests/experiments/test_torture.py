"""Laws hold of random scenarios, and the command that looks for scenarios that break them says what it finds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from experiments.same_bytes.calibration import written
from experiments.same_bytes.drawing import drawn
from experiments.torture import __main__ as torture
from experiments.torture import laws as laws_module
from experiments.torture.__main__ import BROKEN, HELD, main, tried
from experiments.torture.laws import LAWS

SEED = 7
MOST = 60


@pytest.fixture(scope="module")
def calibration() -> Path:
    return written()


@pytest.mark.parametrize("law", LAWS)
def test_a_law_holds_of_a_random_scenario(law: str, calibration: Path) -> None:
    for number in range(MOST):
        (found,) = tried(SEED, number, [law], calibration)
        assert found.ended != BROKEN, torture.told(SEED, found, calibration)
        if found.ended == HELD:
            return
    pytest.fail(f"the first {MOST} scenarios are none for this law")


def test_what_is_found_is_printed_with_the_commands_that_show_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = laws_module.moved
    command = ["--seed", str(SEED), "--law", "shift", "--jobs", "1", "--scenarios", "2"]
    with monkeypatch.context() as broken:
        broken.setattr(laws_module, "moved", lambda scenario, by_s: real(scenario, by_s + 1.0))
        assert main(command) == 1
    found = capsys.readouterr().out
    assert "shift (what comes later ends as much later): admitted_s of request 0 is" in found
    assert f"python -m experiments.torture --seed {SEED} --first " in found
    assert "\n  simlora system=" in found
    assert main(command) == 0


def test_an_error_within_a_run_is_found_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(scenario: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(laws_module, "table", breaks)
    assert main(["--law", "again", "--jobs", "1", "--scenarios", "1"]) == 1
    assert "ZeroDivisionError: by zero" in capsys.readouterr().out


def test_mechanisms_that_no_system_has_are_drawn_too(calibration: Path) -> None:
    some = [override for number in range(400) for override in drawn(SEED, number, calibration).overrides]
    counts = Counter(override.partition("=")[0] for override in some)
    keys = ("speculation.tokens", "cluster.lora_server_gpus", "cluster.kv_store_bytes", "cluster.kv_handover")
    assert min(counts[key] for key in (*keys, "clients.patience_s", "replica.adapter_bits")) >= 4
