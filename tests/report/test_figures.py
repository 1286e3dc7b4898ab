"""Figures for notebooks draw what the tables hold."""

import math
import subprocess
import sys

import pandas as pd
import pytest
from matplotlib.figure import Figure

from simlora.metrics.journal import Journal
from simlora.metrics.slo import SloTargets, attainment
from simlora.report.capacity import plot_capacity
from simlora.report.figures import (
    plot_adapters,
    plot_hbm,
    plot_latency_cdf,
    plot_modes,
    plot_slo_attainment,
    plot_timeline,
)
from simlora.report.sweeps import plot_sweep
from tests.metrics.frames import finished, lost, table
from tests.report.make_results import make_journal, make_requests, make_timeline

REQUESTS = make_requests(300)
TARGETS = SloTargets(ttft_s=6.0)


@pytest.fixture(autouse=True)
def _off_screen():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


def drawn(ax):
    """The axes, once it is certain that they can be drawn."""
    ax.figure.canvas.draw()
    return ax


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_attainment_names_what_was_reached_of_systems_in_one_figure_and_needs_no_target():
    ax = drawn(plot_slo_attainment(REQUESTS, targets=TARGETS))
    assert ax.get_xlabel() == "TTFT target (s)"
    assert legend(ax) == [f"{attainment(REQUESTS, TARGETS) * 100:.1f} % at 6 s".replace(".0 %", " %")]
    ax = plot_slo_attainment(REQUESTS, targets=TARGETS, label="one")
    assert plot_slo_attainment(make_requests(50), targets=TARGETS, ax=ax, label="two") is ax
    assert [text.split(":")[0] for text in legend(drawn(ax))] == ["one", "two"]
    assert drawn(plot_slo_attainment(REQUESTS, "tpot_s")).get_legend() is None


def modes_of(journal, end_s=800.0, **more):
    return drawn(plot_modes(journal.decisions(), end_s, **more))


def test_a_span_for_each_time_that_an_adapter_was_merged():
    journal = Journal()
    for time_s, name, id in ((10.0, "a", 0), (40.0, "", -1), (60.0, "$x^{$", 1)):
        journal.switch(time_s, 0, name, id)
    ax = modes_of(journal, end_s=100.0)
    assert [(span.get_x(), span.get_x() + span.get_width()) for span in ax.patches] == [(10, 40), (60, 100)]
    assert ax.get_title("left") == "replica 0: merged adapter"
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == ["$x^{$", "a"]
    assert len(ax.figure.axes) == 1


def test_thresholds_are_steps_beside_and_credits_lines_below_but_not_in_axes_of_others():
    ax = modes_of(make_journal(2), replica=1, most_credits=5)
    modes, below, beside = ax.figure.axes
    assert modes is ax
    assert [line.get_label() for line in beside.lines] == ["alpha", "beta"]
    assert len(below.lines) == 5 + 1  # and zero
    assert below.get_ylabel() == "credit, beyond the start"
    mine = Figure().add_subplot()
    assert modes_of(make_journal(1), ax=mine) is mine
    assert len(mine.figure.axes) == 2  # and thresholds


@pytest.mark.parametrize("plot", [plot_timeline, plot_hbm])
@pytest.mark.parametrize("timeline", [make_timeline(2, rows=10), pd.DataFrame()])
def test_a_replica_that_is_not_there(timeline, plot):
    with pytest.raises(ValueError, match="no replica 7"):
        plot(timeline, 7)


def test_cold_start_is_drawn_within_ttft():
    frame = table(finished(adapter="a", ttft_s=2.0, cold_start_s=0.5), finished(adapter="b", ttft_s=4.0))
    heights = [bar.get_height() for bar in drawn(plot_adapters(frame)).patches]
    assert heights == [2.0, 4.0, 0.5, 0.0]


def test_adapters_are_the_most_requested_and_their_names_no_formulas():
    names = ("$x^{$", *(f"a{i}" for i in range(40)))
    ax = drawn(plot_adapters(make_requests(3_000, names=names), most=5))
    assert len(ax.get_xticklabels()) == 5
    assert ax.get_xticklabels()[0].get_text() == "$x^{$"


@pytest.mark.parametrize("requests", [table(), table(lost("rejected"))])
def test_a_run_that_finished_nothing_can_be_drawn_and_so_can_all_replicas(requests):
    drawn(plot_slo_attainment(requests, targets=TARGETS))
    drawn(plot_adapters(requests))
    drawn(plot_latency_cdf(requests))
    drawn(plot_timeline(pd.DataFrame()))
    drawn(plot_hbm(pd.DataFrame()))
    assert len(modes_of(Journal()).patches) == 0
    together = drawn(plot_timeline(make_timeline(3, rows=100)))
    assert together.get_title("left") == "all replicas"


def test_importing_the_figures_does_not_import_matplotlib():
    code = "import sys, simlora.report.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_shares_have_a_straight_axis_and_times_of_many_sizes_one_of_logarithms():
    runs = pd.DataFrame({"seed": 0, "value": [1.0, 2.0], "met": [True, False]})
    runs["slo.attainment"], runs["ttft_s.p95"] = [1.0, 0.01], [0.1, 10.0]
    means = runs.rename(columns={"slo.attainment": "estimate"}).assign(low=0.0, high=1.0, load="below")
    span = (math.nan, math.nan)
    scales = [
        plot_capacity(runs, "slo.attainment", 0.95, 1.0, span, "requests/s", Figure().add_subplot()),
        plot_sweep(means, "slo.attainment", "value", [], Figure().add_subplot()),
        plot_capacity(runs, "ttft_s.p95", 1.0, 1.0, span, "requests/s", Figure().add_subplot()),
        plot_sweep(means, "ttft_s.p95", "value", [], Figure().add_subplot()),
    ]
    assert [ax.get_yscale() for ax in scales] == ["linear", "linear", "log", "log"]
