"""Figures can be of the requests in the middle of a run; all are simulated."""

import numpy as np
import pytest

from simlora import simulate
from simlora.core.errors import InputError
from simlora.report.terminal import summary_table

SHORT = ("workload.duration_s=120", "workload.rate_rps=2", "timeline=false")
MIDDLE = (*SHORT, "window.warm_up_s=30", "window.drain_s=20")


def test_figures_are_of_those_that_arrive_in_it():
    whole, middle = simulate(SHORT), simulate(MIDDLE)
    assert middle.requests.equals(whole.requests), "all are simulated, and in the table"
    last_s = float(whole.requests["arrival_s"].iloc[-1])
    inside = whole.requests[whole.requests["arrival_s"].between(30.0, last_s - 20.0, inclusive="left")]
    assert 0 < len(inside) < len(whole.requests)
    assert middle.counted.equals(inside)
    summary = middle.summary
    assert summary["window"] == {"from_s": 30.0, "until_s": last_s - 20.0}
    assert summary["requests"]["submitted"] == len(inside)
    assert summary["ttft_s"]["mean"] == pytest.approx(inside["ttft_s"].mean())
    assert summary["slo"]["attainment"] == np.mean(inside["ttft_s"] < 6.0)
    assert summary["throughput_rps"] == pytest.approx(len(inside) / (last_s - 50.0))
    for name in ("load", "makespan_s", "tbt_s"):
        assert summary[name] == whole.summary[name], "of the whole run"


def test_without_one_all_count():
    whole = simulate(SHORT)
    assert whole.summary["window"] is None
    assert whole.counted is whole.requests
    only_warm = simulate([*SHORT, "window.warm_up_s=1e-9"])
    assert only_warm.summary["requests"] == whole.summary["requests"], "the last request is in it"


def test_the_terminal_says_so():
    assert "requests that arrive from 30.0 s to" in summary_table(simulate(MIDDLE).summary)
    assert "Counted" not in summary_table(simulate(SHORT).summary)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["window.warm_up_s=-1"], "window.warm_up_s is -1, must be at least 0 seconds"),
        (["window.drain_s=soon"], "window.drain_s is 'soon'"),
        (["window.warm_up_s=100", "window.drain_s=100"], "leave no request of a workload whose last one"),
    ],
)
def test_what_it_cannot_be_is_said(settings, sentence):
    with pytest.raises(InputError) as error:
        simulate([*SHORT, *settings])
    assert sentence in str(error.value)
