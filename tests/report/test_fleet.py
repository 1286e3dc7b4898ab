"""Tenants, costs and replicas that come and go, on the page and in the table."""

from typing import Any

import pandas as pd
import pytest

from simlora.metrics.journal import Journal, Scaled
from simlora.report import fleet, hosts, time_charts
from simlora.report.html import render
from simlora.report.results import RunResults
from simlora.report.terminal import summary_table
from tests.report.make_results import make_requests, make_summary

COST = {
    "gpu_hours": 3.0,
    "usd": 4.5,
    "usd_per_million_tokens": 0.25,
    "usd_per_million_output_tokens": 0.75,
    "energy_j": 7.2e6,
    "energy_j_per_output_token": 1.2,
    "each": [
        {"gpu": "a10g", "gpus": 2.0, "gpu_hours": 2.0, "usd": 2.0, "energy_j": 3.6e6},
        {"gpu": "<b>a100</b>", "gpus": 1.0, "gpu_hours": 1.0, "usd": 2.5, "energy_j": 3.6e6},
    ],
}
TIMES = {"p50": 0.25, "p99": 2.0}
CLASSES = {
    "<gold>": {
        "targets": {"ttft_s": 1.0},
        "attainment": 0.875,
        "requests": 80,
        "adapters": 2,
        "ttft_s": TIMES,
        "tpot_s": TIMES,
        "latency_s": TIMES,
    }
}
SCALING = {"changes": 2, "boots": 1, "boot_s": 33.9, "mean_on": 1.5, "most_on": 2, "least_on": 1}


def changes(*rows: tuple[float, int, int, int, int]) -> Journal:
    journal = Journal()
    journal.scaled += [Scaled(*row, reason="2 wanted") for row in rows]
    return journal


def results(frame: pd.DataFrame, summary: dict[str, Any], journal: Journal | None = None) -> RunResults:
    scaling = (journal or Journal()).scalings()
    return RunResults(summary, frame, scaling=scaling)


def page(**more: Any) -> str:
    frame = make_requests(200)
    journal = changes((0.0, 1, 1, 0, 0), (60.0, 2, 1, 1, 0), (90.0, 2, 2, 0, 0))
    summary = make_summary(frame, **{"cost": COST, "scaling": SCALING, **more})
    summary["slo"]["classes"] = CLASSES
    return render(results(frame, summary, journal))


def test_the_page_has_them_and_escapes_what_a_user_named():
    text = page()
    assert "&lt;gold&gt;" in text
    assert "<gold>" not in text.replace("&lt;gold&gt;", "")
    assert "87.5 %" in text
    assert "&lt;b&gt;a100&lt;/b&gt;" in text
    assert "1 to 2 replicas, 1.50 on average" in text
    summary = make_summary(make_requests(200), cost=COST, scaling=SCALING)
    summary["slo"]["classes"] = {"gold": CLASSES["<gold>"]}
    lines = " ".join(summary_table(summary).split())
    assert "SLO of gold 87.5 % of 80 requests for 2 adapters (TTFT < 1 s)" in lines
    assert "Cost 3 GPU hours; 4.5 USD, 0.25 a million tokens; at most 2 kWh" in lines
    assert "Replicas 1 to 2, 1.50 on average; 1 boot" in lines


@pytest.mark.parametrize("summary", [{"slo": {}}, {"slo": {"classes": {}}, "cost": None, "scaling": None}])
def test_an_older_run_has_none_of_it(summary):
    assert not any(map(str, (fleet.tenants(summary), fleet.cost(summary))))
    assert not fleet.scaling(results(make_requests(3), summary), {})


def test_replicas_are_drawn_to_the_end_each_time_once_and_not_stacked():
    """Of two changes at one moment the later; the last goes on until the run ends."""
    table = changes((0.0, 1, 1, 0, 0), (60.0, 3, 1, 2, 0), (60.0, 2, 1, 1, 1), (120.0, 2, 2, 0, 0)).scalings()
    chart = time_charts.scaling(table, 600.0)
    drawn = [(row["x"], row["on"], row["serving"]) for row in chart["data"]["values"]]
    assert drawn == [(0, 1, 1), (1, 2, 1), (2, 2, 2), (10, 2, 2)]
    assert all(layer["encoding"]["y"]["stack"] is None for layer in chart["layer"])


SLOWNESS = {
    "stragglers": [{"replica": 1, "at_s": 60.0, "factor": 3.0, "until_s": None}] * 2,
    "slow_links": [{"host": 0, "at_s": 5.0, "factor": 10.0, "until_s": 8.0}] * 30,
}


def test_what_was_slow_is_listed_up_to_some_and_counted_in_the_table():
    found = str(hosts.slowness({"slowness": SLOWNESS}))
    assert found.count("<tr>") == 21
    assert "3.00 times" in found
    assert "and 12 more in summary.json" in found
    assert not hosts.slowness({})
    assert not hosts.slowness({"slowness": {"stragglers": [], "slow_links": []}})
    lines = " ".join(summary_table(make_summary(make_requests(50), slowness=SLOWNESS)).split())
    assert "Slow 2 times iterations of 1 replica; 30 times the links of 1 host" in lines
