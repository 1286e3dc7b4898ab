"""S-LoRA's studies and claims say what the paper says, and can be composed."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

import experiments.slora
from experiments.claims.__main__ import LIST, papers
from experiments.claims.claim import read as read_claims
from experiments.measured import measured_dir
from experiments.studies import measured
from experiments.studies.measured import published
from experiments.studies.points import points
from experiments.studies.running import unknown_system
from experiments.studies.study import Study, read_all
from simlora.config.composing import compose

FOLDER = Path(experiments.slora.__file__).parent
STUDIES = read_all(FOLDER)
CLAIMS = read_claims(FOLDER / "claims.yaml", STUDIES)


def test_every_figure_and_table_of_the_evaluation_is_there() -> None:
    assert list(STUDIES) == [*(f"figure_{n}" for n in range(5, 13)), "table_3", "table_4", "table_5"]
    assert "slora" in papers()


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_a_study_says_where_it_stands_in_the_paper(study: Study) -> None:
    number = study.name.partition("_")[2]
    assert f"{study.name.split('_')[0].title()} {number}" in study.source


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_the_first_point_of_every_series_can_be_composed(study: Study) -> None:
    firsts = {point.series: point for point in reversed(list(points(study))) if not point.skip}
    for point in firsts.values():
        if not unknown_system(point.overrides):
            compose(point.overrides)


def test_the_workload_is_the_published_generator_with_a_token_in_front() -> None:
    for study in STUDIES.values():
        if study.name == "figure_7":
            assert "synthetic twin" in study.title
            continue
        for point in points(study):
            assert point.settings["workload"] == "slora"
            assert point.settings["workload.bos_tokens"] == 1
            assert point.settings["workload.prompt_tokens"] == [8, 512]
            assert point.settings["workload.output_tokens"] == [8, 512]


def test_claims_publish_what_the_tables_print() -> None:
    compared = 0
    for claim in CLAIMS:
        for value, spot in zip(claim.published, claim.spots, strict=False):
            key = (spot.point.panel, spot.point.series, spot.point.x)
            printed = STUDIES[spot.point.study].printed.get(key, {})
            if spot.metric in printed:
                assert printed[spot.metric] == value, claim.id
                compared += 1
    assert compared == 28 + 15


def test_every_claim_of_the_list_is_judged() -> None:
    path = Path(os.environ.get("SIMLORA_CLAIMS", LIST))
    if not path.exists():
        pytest.skip(f"there is no {path}")
    with path.open(newline="") as file:
        listed = [row for row in csv.DictReader(file) if row["paper"] == "slora"]
    ours = {claim.id: claim for claim in CLAIMS}
    assert set(ours) == {row["id"] for row in listed}
    for row in listed:
        assert ours[row["id"]].kind == row["kind"]


def test_the_measured_runs_that_figures_show_are_found() -> None:
    rows = measured.rows()
    if rows is None:
        pytest.skip(f"there are no measured runs in {measured_dir()}")
    shown = {
        name: sum(bool(published(study, point, rows)) for point in points(study))
        for name, study in STUDIES.items()
        if not study.printed
    }
    assert {name for name, count in shown.items() if count == 0} == {"figure_7"}
    assert shown["figure_5"] >= 40
