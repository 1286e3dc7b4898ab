"""S-LoRA's studies and claims say what the paper says, and can be composed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import experiments.slora
from experiments.claims.claim import read as read_claims
from experiments.fidelity.predict import server, unknown
from experiments.fidelity.rows import Row
from experiments.slora.late_start import LateStart
from experiments.studies import measured, slora_runs
from experiments.studies.measured import published
from experiments.studies.points import Point, points
from experiments.studies.reading import measured_dir
from experiments.studies.slora_runs import setting_of
from experiments.studies.study import read_all
from simlora.core.errors import InputError
from simlora.workload.slora import SLora

FOLDER = Path(experiments.slora.__file__).parent
STUDIES = read_all(FOLDER)
CLAIMS = read_claims(FOLDER / "claims.yaml", STUDIES)
OF_THE_PAPER = {name: study for name, study in STUDIES.items() if not name.startswith("why_")}


def test_every_figure_and_table_of_the_evaluation_is_there_and_says_where_it_stands_in_the_paper() -> None:
    assert list(OF_THE_PAPER) == [*(f"figure_{n}" for n in range(5, 13)), "table_3", "table_4", "table_5"]
    for name, study in OF_THE_PAPER.items():
        assert name.replace("_", " ").capitalize() in study.source


def test_the_workload_is_the_published_generator_with_a_token_in_front() -> None:
    """But for that of figure_7, which is a synthetic twin of a trace."""
    published = {"": "slora", ".bos_tokens": 1, ".prompt_tokens": [8, 512], ".output_tokens": [8, 512]}
    for name, study in STUDIES.items():
        for point in points(study) if name != "figure_7" else ():
            assert {key: point.settings[f"workload{key}"] for key in published} == published


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


def test_the_measured_runs_that_figures_show_are_found() -> None:
    rows = measured.rows()
    if rows is None:
        pytest.skip(f"there are no measured runs in {measured_dir()}")
    shown = {
        name: sum(bool(published(study, point, rows)) for point in points(study))
        for name, study in STUDIES.items()
        if not study.printed
    }
    assert {name for name, count in shown.items() if count == 0} == {"figure_7", "why_clusters"}
    assert shown["figure_5"] >= 40


def test_other_workloads_and_clusters_are_no_published_runs() -> None:
    published = next(points(STUDIES["figure_5"])).settings
    assert slora_runs.run(published) is not None
    for other in ({"workload": "synthetic"}, {"workload.seed": 1}, {"cluster.replicas": 4}):
        assert slora_runs.run({**published, **other}) is None


def test_servers_are_started_as_experiments_fidelity_starts_them() -> None:
    compared = set()
    for name in ("figure_5", "figure_6", "figure_10", "table_3", "table_4", "table_5"):
        for point in points(STUDIES[name]):
            row = published_row(point)
            if point.skip or unknown(row):
                continue
            wanted = dict(override.split("=", 1) for override in server(row))
            for key in [key for key in wanted if key.startswith("replica.")]:
                assert float(wanted[key]) == float(point.settings[key]), (point.key, key)
                compared.add((point.system, key))
    assert compared == {
        ("slora_bmm", "replica.kv_token_budget"),
        ("slora_bmm", "replica.gpu_memory_utilization"),
        ("slora_no_unify_mem", "replica.kv_token_budget"),
        ("slora_no_unify_mem", "replica.gpu_memory_utilization"),
        ("vllm_packed", "replica.gpu_memory_utilization"),
        ("hf_peft", "replica.max_num_seqs"),
    }


def published_row(point: Point) -> Row:
    """Return the row that the point's published run has, without what it measured."""
    settings = point.settings
    columns = {
        "system": point.system,
        "gpu": settings["gpu"],
        "setting": setting_of(settings),
        "campaign": "",
        "kv_token_budget": "",
    }
    return Row(columns, {"num_adapters": settings["workload.adapters"]}, {})


def test_a_late_start_brings_all_other_requests_forward() -> None:
    plain, late = (
        SLora(rate_rps=2, duration_s=10).build(0),
        LateStart(rate_rps=2, duration_s=10, late_s=1.5).build(0),
    )
    assert late.arrival_s[0] == plain.arrival_s[0]
    assert all(late.arrival_s[1:] == np.maximum(plain.arrival_s[1:] - 1.5, plain.arrival_s[0]))
    assert all(late.output_tokens == plain.output_tokens)
    with pytest.raises(InputError, match=r"workload\.late_s"):
        LateStart(late_s=-1).build(0)
