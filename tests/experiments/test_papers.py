"""What is alike of all papers: studies that can be composed, claims of the list, and where coefficients are from."""

from __future__ import annotations

import csv
import os
from importlib import import_module
from pathlib import Path

import pytest

from experiments.claims.__main__ import LIST, papers
from experiments.claims.claim import read as read_claims
from experiments.dlora import calibration as dlora
from experiments.dlora import slower
from experiments.fastlibra import calibration as fastlibra
from experiments.fastlibra import links
from experiments.loraserve import calibration as loraserve
from experiments.loraserve import fitting
from experiments.loraserve.fitting import available
from experiments.studies.points import Point, points
from experiments.studies.study import read_all
from simlora.calibrate.calibration_file import CALIBRATIONS
from simlora.config.composing import compose
from simlora.config.setup import prepare
from simlora.engine.cluster.simulation import Simulation
from simlora.latency import calibration as calibrations

MEASURED = pytest.mark.skipif(not available(), reason="LoRAServe's runs are not here")
LINKED = Path(fastlibra.__file__).parent / "what_if" / "linked"
"""What what_if_shape's third model has: an A800's links."""
DOCUMENTED = ("fastlibra.calibration", "loraserve.calibration")
"""What prints the tables of docs/calibrations.md."""
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


SHORT = {
    "fastlibra": ["workload.duration_s=100"],
    # Operating points would be searched for.
    "loraserve": ["workload.duration_s=20", "placement.operating_points={8: 5500, 128: 4500}"],
}
SET_UP = {f"{paper} {name}": study for paper in SHORT for name, study in read_all(papers()[paper]).items()}


@pytest.mark.parametrize("name", SET_UP)
def test_every_panel_and_every_series_of_a_study_can_be_set_up(name: str) -> None:
    paper, seen = name.partition(" ")[0], set()
    for point in points(SET_UP[name]):
        if not {point.panel, point.series} <= seen:
            seen |= {point.panel, point.series}
            short, *more = SHORT[paper]
            prepare(*compose([*point.overrides, short, *(more if point.system == "loraserve" else ())]))


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


# Calibrations


@pytest.mark.parametrize(
    ("name", "arguments", "folder", "files"),
    [
        ("caraserve.calibration", [], CALIBRATIONS, 1),
        ("dlora.calibration", [], CALIBRATIONS, 3),
        ("dlora.slower", [], slower.FOLDER, 6),
        ("fastlibra.calibration", [], CALIBRATIONS, len(fastlibra.SOURCES)),
        ("fastlibra.calibration", ["--peer-link", "nvlink_3_a800"], LINKED, len(fastlibra.SOURCES)),
        ("fastlibra.links", [], links.FOLDER, 3),
        pytest.param("loraserve.calibration", [], CALIBRATIONS, len(loraserve.ALL), marks=MEASURED),
    ],
)
def test_calibrations_are_what_their_command_writes(
    name: str,
    arguments: list[str],
    folder: Path,
    files: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert import_module(f"experiments.{name}").main([*arguments, "--out", str(tmp_path)]) == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(written) == files
    assert written == {each: (folder / each).read_text() for each in written}
    if name in DOCUMENTED and not arguments:
        assert capsys.readouterr().out in (Path(__file__).parents[2] / "docs" / "calibrations.md").read_text()


OWN_SYSTEMS = {
    "loraserve": ("system=slora", "system=slora kernel=mbgmv_max", "system=punica", "system=toppings"),
    "fastlibra": (
        "system=slora",
        "system=chunked_prefill replica.prefix_caching=true",
        "system=punica",
        "system=vllm engine=null kernel=mbgmv",
    ),
}
CHOSEN = {
    **{fitting.name(*each): ("loraserve", fitting.GPU, *each) for each in loraserve.ALL},
    **{fastlibra.setting(*each).name: ("fastlibra", fastlibra.GPU, *each) for each in fastlibra.SOURCES},
}


@pytest.mark.parametrize("name", CHOSEN)
def test_systems_find_their_coefficients(name: str) -> None:
    paper, card, shape, tp = CHOSEN[name]
    engine = [f"engine={fitting.ENGINE}"] if paper == "loraserve" else []
    chosen = [f"gpu={card}", f"model={shape}", f"replica.tp={tp}", *engine, "workload.duration_s=4"]
    for system in OWN_SYSTEMS[paper]:
        scenario = prepare(*compose([*chosen, *system.split()])).scenario
        assert scenario.calibration.path == name
        Simulation(scenario)  # raises for a coefficient that the run needs
