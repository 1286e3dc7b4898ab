"""What-ifs: every study can be composed, points run with seeds, and what is printed has its interval."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.studies import simulating
from experiments.studies.found import Found, means, table
from experiments.studies.points import points
from experiments.studies.study import EXPERIMENTS, Study, read, read_all
from simlora.api.preparing import composed
from simlora.sweeps.outcome import NOT_SIMULATED, RAN, Outcome

FOLDER = EXPERIMENTS / "what_if"
STUDIES = read_all(FOLDER)
SMALL = """
title: Two routers
source: nowhere
note: A study that takes no time.
metrics: [slo.attainment, ttft_s.p95]
logarithmic: [ttft_s.p95]
x: {key: cluster.stragglers, written: "[{replica: 1, at_s: 0, factor: {x}}]", label: times as long, values: [1, 4]}
set: {workload: synthetic, workload.duration_s: 30, workload.adapters: 5, cluster.replicas: 2}
panels:
  all: {title: "all"}
series:
  blind: {title: round robin, system: slora}
  idle: {title: fewest requests, system: slora, set: {router: most_idle}}
"""


@pytest.fixture
def small(tmp_path: Path) -> Study:
    (tmp_path / "small.yaml").write_text(SMALL)
    return read(tmp_path / "small.yaml")


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_curve_and_every_x_of_every_study_is_a_configuration(study: Study) -> None:
    seen = set()
    for point in points(study):
        curve, x = (point.panel, point.series), point.x
        if not {curve, x} <= seen:
            seen |= {curve, x}
            composed(point.overrides)


def test_x_is_written_into_the_key_that_it_stands_for(small: Study) -> None:
    written = {
        dict(o.split("=", 1) for o in point.overrides)["cluster.stragglers"] for point in points(small)
    }
    assert written == {"[{replica: 1, at_s: 0, factor: 1}]", "[{replica: 1, at_s: 0, factor: 4}]"}


def test_means_and_intervals_are_over_seeds(small: Study) -> None:
    """Of three seeds with attainments 0.7, 0.8, 0.9: Student's 4.303 times 0.1 / sqrt(3)."""
    outcomes = [
        Outcome(RAN, {"slo": {"attainment": attained}, "ttft_s": {"p95": ttft_s}})
        for attained, ttft_s in ((0.7, 2.0), (0.8, None), (0.9, None))
    ]
    first, *others = points(small)
    lost = Found(first, [*outcomes[:2], Outcome(NOT_SIMULATED, reason="no")])
    found = means(small, [lost, *(Found(point, outcomes) for point in others)])
    whole = found["all", "idle", 1, "slo.attainment"]
    assert whole.mean == pytest.approx(0.8)
    assert whole.high - whole.mean == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)
    assert found["all", "blind", 1, "slo.attainment"].mean == pytest.approx(0.75), "of those that ran"
    assert str(found["all", "idle", 1, "ttft_s.p95"]) == "2", "one run has no interval"
    text = table(small, found, "slo.attainment")
    assert text.splitlines()[0] == "  SLO attainment over times as long"
    assert text.splitlines()[2].split() == ["round", "robin", "0.75", "±", "0.64", "0.8", "±", "0.25"]


def test_the_command_draws_writes_and_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], small: Study
) -> None:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(simulating, "read_all", lambda folder: {"small": small})
    assert (
        simulating.main(FOLDER, ["small", "--seeds", "2", "--jobs", "1", "--out", str(tmp_path / "out")]) == 0
    )
    assert "95th percentile of TTFT (s) over times as long" in capsys.readouterr().out
    rows = (tmp_path / "out" / "small.csv").read_text().splitlines()
    assert rows[0] == "panel,series,cluster.stragglers,metric,mean,low,high"
    assert len(rows) == 1 + 2 * 2 * 2
    assert (tmp_path / "out" / "small.png").exists()
