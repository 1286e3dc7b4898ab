"""simlora from Python."""

import subprocess
import sys

import matplotlib as mpl
import pandas as pd
import pytest

import simlora
from simlora.api.running import Interrupted, run
from simlora.config.composing import compose
from simlora.config.setup import prepare
from simlora.core.errors import InputError
from simlora.engine.cluster.dispatcher import Dispatcher
from tests.cli.command import CALIBRATION

mpl.use("agg")


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("calibration") / "cal.yaml"
    path.write_text(CALIBRATION)
    return f"calibration={path}"


@pytest.fixture(scope="module")
def result(calibration: str) -> simlora.Result:
    return simlora.simulate([calibration, "workload.duration_s=20"])


def test_a_run_that_stops_at_a_time_is_judged_by_what_had_happened_until_then(calibration, result):
    stopped = simlora.simulate([calibration, "workload.duration_s=20", "until_s=15.5"]).summary
    came = int((result.requests["arrival_s"] <= 15.5).sum())
    over = int((result.requests["finish_s"] <= 15.5).sum())
    assert stopped["requests"]["submitted"] == came < 40
    assert stopped["requests"]["finished"] == over < came
    assert stopped["makespan_s"] == 15.5
    assert stopped["throughput_rps"] == over / 15.5
    waiting = stopped["load"]["given_up_share"] * came
    assert waiting < came - over, "some of those that were left ran"
    assert stopped["complete"]


@pytest.mark.parametrize(
    "plot",
    ["plot_slo_attainment", "plot_latency_cdf", "plot_timeline", "plot_hbm", "plot_adapters", "plot_modes"],
)
def test_a_result_draws_itself(result, plot):
    axes = getattr(result, plot)()
    assert axes.figure is not None
    mpl.pyplot.close(axes.figure)


def test_simulating_writes_nothing_until_it_is_saved(calibration, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = simlora.simulate([calibration, "workload.duration_s=20", "timeline=false"])
    assert list(tmp_path.iterdir()) == []
    assert found.timeline.empty
    folder = found.save("out", report=False)
    pd.testing.assert_frame_equal(
        pd.read_parquet(folder / "requests.parquet")[["request_id", "adapter", "ttft_s"]],
        found.requests[["request_id", "adapter", "ttft_s"]],
    )


@pytest.mark.parametrize(
    ("override", "said"),
    [("sede=1", "there is no key sede; did you mean seed"), ("until_s=0", "until_s is 0, must be")],
)
def test_bad_input_is_one_sentence(override, said):
    with pytest.raises(InputError, match=said):
        simlora.simulate([override])


def test_one_string_is_not_a_list_of_overrides():
    with pytest.raises(TypeError, match="a list of strings"):
        simlora.simulate("seed=1")


def test_an_interrupt_brings_what_was_finished(calibration, monkeypatch, tmp_path):
    setup = prepare(*compose([calibration]))
    dispatch = Dispatcher.dispatch

    def interrupted(self: Dispatcher, request):
        if request.id == 300:
            raise KeyboardInterrupt
        dispatch(self, request)

    monkeypatch.setattr(Dispatcher, "dispatch", interrupted)
    with pytest.raises(Interrupted) as caught:
        run(setup)
    found = caught.value.result
    assert found.summary["complete"] is False
    assert found.summary["cost"]["gpu_hours"] == pytest.approx(found.summary["makespan_s"] / 3600)
    assert set(found.requests["status"]) == {"finished", "unfinished"}
    found.save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "requests.incomplete.parquet",
        "summary.incomplete.json",
    ]


def test_simulating_imports_nothing_heavy(calibration):
    heavy = {"matplotlib", "altair", "scipy", "vl_convert", "rich", "torch"}
    code = (
        "import sys, simlora\n"
        f"simlora.simulate([{calibration!r}, 'workload.duration_s=5'])\n"
        f"sys.exit(sorted({heavy!r} & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


SHORT_VLLM = [
    "system=vllm",
    "gpu=h100_64g",
    "model=llama_3_1_8b",
    "workload=slora",
    "workload.rate_rps=10",
    "workload.duration_s=20",
    "replica.max_loras=32",
    "workload.ranks=[8]",
]


def test_a_short_run_of_vllm_says_that_its_first_tokens_wait_for_tokenizers():
    (said,) = [notice for notice in simlora.simulate(SHORT_VLLM).notices if "tokenizer" in notice]
    assert "replica.adapter_tokenizers=false" in said
    without = simlora.simulate([*SHORT_VLLM, "replica.adapter_tokenizers=false"])
    assert not any("tokenizer" in notice for notice in without.notices)
