"""`simlora-profile` as a user types it, on this machine's CPU with a small plan."""

import re
from pathlib import Path

import pandas as pd
import pytest

from experiments.scenarios import scenario
from profiler.command import HELP, main
from profiler.write import calibration, coefficients
from simlora.engine.cluster.simulation import Simulation
from simlora.latency import calibration as calibrations
from tests.profiler.test_fit import STEPS, measured, step_s

PLAN = """\
rounds: 1
prefill:
- {requests: [1], tokens: [4, 8, 16, 32]}
- {requests: [2], tokens: [8, 16]}
- {requests: [1, 2], tokens: [8, 16], ranks: [8, 16]}
decode:
- {requests: [1, 2, 4], tokens: [8, 32, 64]}
- {requests: [1, 2, 4], tokens: [16], ranks: [8, 16, [8, 16]]}
adapter_load:
- {ranks: [8, 16, 32]}
merge:
- {ranks: [8, 16, 32]}
cpu_lora:
- {tokens: [4, 16, 64], ranks: [8, 16], cores: [1]}
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole profile."""
    folder = tmp_path_factory.mktemp("profile")
    (folder / "plan.yaml").write_text(PLAN)
    assert main(["device=cpu", f"plan={folder / 'plan.yaml'}", f"out={folder / 'out'}"]) == 0
    return folder


def test_it_leaves_a_calibration_a_report_and_its_measurements(profiled):
    names = {path.name for path in (profiled / "out").iterdir()}
    assert names == {"cpu-llama_16m-tp1.yaml", "report.html", "measurements.parquet"}


def test_simlora_runs_with_it(profiled):
    path = profiled / "out" / "cpu-llama_16m-tp1.yaml"
    for kernel in ("bgmv", "mbgmv"):
        command = [
            "gpu=cpu",
            "model=llama_16m",
            f"calibration={path}",
            f"kernel={kernel}",
            "workload.duration_s=5",
        ]
        run = scenario([*command, "replica.kv_token_budget=20000"])
        assert Simulation(run).run().ended == len(run.trace)


def test_the_report_stands_alone(profiled):
    page = (profiled / "out" / "report.html").read_text()
    assert "llama_16m on" in page
    assert "<svg" in page
    assert "MBGMV on this device" in page
    assert not re.search(r"(?:src|href)=\"?https?:", page), "nothing is loaded from anywhere"


def test_a_second_run_measures_nothing_again(profiled, capsys):
    measurements = profiled / "out" / "measurements.parquet"
    before = pd.read_parquet(measurements)
    assert main(["device=cpu", f"plan={profiled / 'plan.yaml'}", f"out={profiled / 'out'}"]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet(measurements), before)
    assert "cpu-llama_16m-tp1.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["devise=cpu"], "devise"),
        (["device=cpu", "kernels=[sgmv]"], "kernels: there is no 'sgmv' on cpu"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("simlora: error: ")
    assert says in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("profiler.bench.Bench.samples_s", interrupted)
    plan = tmp_path / "plan.yaml"
    plan.write_text("rounds: 1\ndecode:\n- {requests: [1], tokens: [8]}\n")
    assert main(["device=cpu", f"plan={plan}", f"out={tmp_path}"]) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_help_names_every_key(capsys):
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == HELP
    for key in ("device", "model", "plan", "kernels", "threads", "seed", "out"):
        assert f"  {key}=" in HELP


def test_bytes_a_second_and_the_synchronisation_have_the_calibrations_names(tmp_path):
    from profiler.fit import fit_all
    from profiler.points import Point
    from tests.profiler.test_fit import TINY

    loads = [Point("adapter_load", "pinned", ranks=(rank,)) for rank in (8, 16, 32, 64)]
    points = [*STEPS, *loads, Point("cpu_sync")]
    seconds = [
        *map(step_s, STEPS),
        *(1e-3 + TINY.adapter_bytes(point.ranks[0]) / 2e9 for point in loads),
        3e-6,
    ]
    table = measured(points, seconds).assign(samples=1)
    fitted = fit_all(table, TINY)
    found = coefficients(fitted, table)
    assert found["adapter_load.bytes_per_s"] == pytest.approx(2e9)
    assert found["cpu_lora.sync_s"] == 3e-6
    assert "adapter_load.s_per_byte" not in found
    path = tmp_path / "made.yaml"
    calibration(path, "cpu", "tiny", fitted, table, {"kind": "measured", "source": "made up"})
    assert calibrations.load(str(path)).need("adapter_load.bytes_per_s") == pytest.approx(2e9)
    assert [each.name for each in tmp_path.iterdir()] == ["made.yaml"]
