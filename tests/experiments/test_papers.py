"""What is alike of all papers: studies that can be composed, claims of the list, and where coefficients are from."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from experiments.claims.__main__ import LIST, papers
from experiments.claims.claim import read as read_claims
from experiments.dlora import calibration as dlora
from experiments.fastlibra import calibration as fastlibra
from experiments.loraserve import calibration as loraserve
from experiments.loraserve import fitting
from experiments.studies.points import Point, points
from experiments.studies.study import read_all
from simlora.config.composing import compose
from simlora.latency import calibration as calibrations

STUDIES = {paper: read_all(papers()[paper]) for paper in ("caraserve", "dlora", "slora")}
OF_A_KIND = {
    (paper, point.settings["system"], tuple(sorted(point.settings))): point
    for paper, studies in STUDIES.items()
    for study in reversed(studies.values())
    for point in reversed([*points(study)])
    if not point.skip
}


@pytest.mark.parametrize(
    "point",
    OF_A_KIND.values(),
    ids=[f"{paper} {point.study} {name}" for (paper, name, _), point in OF_A_KIND.items()],
)
def test_the_first_point_of_every_system_and_its_settings_can_be_composed(point: Point) -> None:
    """Others are set up in the tests of their papers."""
    compose(point.overrides)


@pytest.mark.parametrize("paper", papers())
def test_every_claim_of_the_list_is_judged(paper: str) -> None:
    path = Path(os.environ.get("SIMLORA_CLAIMS", LIST))
    if not path.exists():
        pytest.skip(f"there is no {path}")
    with path.open(newline="") as file:
        listed = {row["id"]: row for row in csv.DictReader(file) if row["paper"] == paper}
    folder = papers()[paper]
    ours = {claim.id: claim for claim in read_claims(folder / "claims.yaml", read_all(folder))}
    assert ours.keys() == listed.keys()
    for name, row in listed.items():
        claim = ours[name]
        if paper == "slora" or (paper, row["kind"]) == ("dlora", "ratio"):
            assert claim.kind == row["kind"], name
        numbers = paper == "dlora" and name != "dlora-ilp"
        increases = claim.kind == "increase" and name.startswith(("cara-e2e", "cara-maf"))
        if numbers or increases:
            values = [float(value) for value in row["value"].split(";")]
            assert list(claim.published)[: len(values)] == values, name
            assert numbers or len(claim.published) == len(values), name


SOURCES = {
    **{dlora.name(*each): each[0] == "llama_2_7b" for each in (dlora.MEASURED, *dlora.DERIVED)},
    **{fastlibra.setting(*each).name: False for each in fastlibra.SOURCES},
    **{fitting.name(*each): each in fitting.MEASURED for each in loraserve.ALL},
}
"""Calibrations, and whether their paper published what they are of."""


@pytest.mark.parametrize(("name", "published"), SOURCES.items())
def test_every_coefficient_says_where_it_is_from(name: str, published: bool) -> None:
    ours = calibrations.load(name)
    said = ours.provenance["coefficients"]

    def is_of(coefficient: str, entry: str) -> bool:
        return coefficient == entry or coefficient.startswith(f"{entry}.")

    assert ours.provenance["kind"] == ("published" if published else "derived")
    for coefficient in ours.coefficients:
        assert any(is_of(coefficient, entry) for entry in said), coefficient
    if not name.endswith("dlora"):
        for entry in said:
            assert any(is_of(coefficient, entry) for coefficient in ours.coefficients), entry
        kinds = {"published", "derived"} if published else {"derived"}
        assert {of["kind"] for of in said.values()} == kinds
