"""FastLibra against vLLM and S-LoRA, cell by cell: `python -m experiments.fastlibra.reductions [--out DIR]`.

Figure 11: three scenarios, three models, 20, 50 and 100 adapters. As its authors do, TTFT and TPOT of a cell are means
over rates up to FastLibra's peak, at which the mean TTFT passes 500 ms; theirs are ten rates from 0 on, ours those of
figure_11_<scenario>.yaml. What they print as "average reduction" can be read in two ways, and both are printed here.
Section 6.3 "collects the average" over rates, which the figure's bars are, and speaks of what is "observed" in it: how
much less one bar is than another, the mean over cells. The claims are judged by that. Or it is the mean over rates of
how much less each is, in which rates past another system's peak count no more than others (`each_rate`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from experiments.claims.spots import Curve, Figures, Limit
from experiments.studies.command import JOBS, into, program
from experiments.studies.points import Point, points
from experiments.studies.running import NoNumberError, figure_of, run_all
from experiments.studies.study import Study, read
from simlora.api.cache import HELP

FOLDER = Path(__file__).parent
SCENARIOS = {"chatbot": "chatbot", "translation": "translation", "agent": "personal agent"}
ADAPTERS = (20, 50, 100)
TTFT, TPOT = "ttft_s.mean", "tpot_s.mean"
LIMIT_S = 0.5
"""Of the mean TTFT: the peak is the highest rate below it (section 6.1)."""
OURS, OTHERS = "fastlibra", ("vllm", "slora")


@dataclass(frozen=True)
class Cell:
    """A scenario with a model and a number of adapters: by system, seconds at each rate, and requests/s."""

    scenario: str
    model: str
    adapters: int
    ttft_s: Mapping[str, Sequence[float]]
    tpot_s: Mapping[str, Sequence[float]]
    peak_rps: Mapping[str, float]


def study(scenario: str, adapters: int) -> Study:
    """Return the study of a scenario with another number of adapters."""
    found = read(FOLDER / f"figure_11_{scenario}.yaml")
    return replace(found, settings={**found.settings, "workload.adapters": adapters})


def cells(
    jobs: int = -1, scenarios: Iterable[str] = SCENARIOS, adapters: Iterable[int] = ADAPTERS, model: str = ""
) -> list[Cell]:
    """Return all cells, or those of some scenarios, numbers of adapters and a model. Runs what was not run before."""
    studies = {(scenario, n): _only(study(scenario, n), model) for scenario in scenarios for n in adapters}
    outcomes = run_all([point for each in studies.values() for point in points(each)], jobs)

    def figures(point: Point, metric: str) -> float:
        return figure_of(outcomes, point, metric)

    return [
        cell_of(scenario, adapters, each, panel.name, figures)
        for (scenario, adapters), each in studies.items()
        for panel in each.panels
    ]


def _only(of: Study, model: str) -> Study:
    """Return a study with the panel of one model; with all, if none is named."""
    return replace(of, panels=[panel for panel in of.panels if model in ("", panel.name)])


def cell_of(scenario: str, adapters: int, of: Study, panel: str, figures: Figures) -> Cell:
    """Return the cell of a panel of a study: of each system its peak, and its times at rates up to FastLibra's."""

    def curve(system: str, metric: str) -> Curve:
        return Curve(of, panel, system, metric)

    peaks = {each.name: Limit(curve(each.name, TTFT), LIMIT_S).number(figures) for each in of.series}
    rates = [x for x in of.panel(panel).x if x <= peaks[OURS]] or [of.panel(panel).x[0]]

    def at_rates(system: str, metric: str) -> list[float]:
        return [curve(system, metric).at(x).number(figures) for x in rates]

    names = [each.name for each in of.series]
    return Cell(
        scenario,
        panel,
        adapters,
        {name: at_rates(name, TTFT) for name in names},
        {name: at_rates(name, TPOT) for name in names},
        peaks,
    )


def reduction(found: Iterable[Cell], metric: str, other: str, each_rate: bool = False) -> float:
    """Return by how many per cent FastLibra's is less than another system's, the mean over cells.

    It is that of a cell's means over rates or, with `each_rate`, the mean of that of each rate.
    """

    def less(cell: Cell) -> float:
        ours, theirs = getattr(cell, metric)[OURS], getattr(cell, metric)[other]
        if each_rate:
            return fmean(1 - one / two for one, two in zip(ours, theirs, strict=True))
        return 1 - fmean(ours) / fmean(theirs)

    return 100 * fmean(less(cell) for cell in found)


def ahead(found: Iterable[Cell], other: str) -> float:
    """Return FastLibra's peak over another system's, the mean over cells where that has one."""
    return fmean(cell.peak_rps[OURS] / cell.peak_rps[other] for cell in found if cell.peak_rps[other])


def over_others(metric: str) -> list[float]:
    """Return the claims fl-ttft and fl-tpot: the reduction against vLLM and against S-LoRA."""
    found = cells()
    return [reduction(found, metric, other) for other in OTHERS]


def peak() -> list[float]:
    """Return the claim fl-peak."""
    found = cells()
    return [ahead(found, other) for other in OTHERS]


def apart(scenario: str, other: str) -> list[float]:
    """Return the claims fl-translation and fl-agent: against another system, in a scenario and in the others."""
    found = cells()
    return [
        reduction([cell for cell in found if (cell.scenario == scenario) == inside], "ttft_s", other)
        for inside in (True, False)
    ]


def alone(metric: str, scenario: str) -> list[float]:
    """Return by how many per cent TTFT or TPOT is less than others', of Llama-7B with 100 adapters alone."""
    found = cells(scenarios=[scenario], adapters=[100], model="7B")
    return [reduction(found, metric, other) for other in OTHERS]


def alone_peak(scenario: str) -> list[float]:
    """Return the peak over vLLM's and S-LoRA's, of Llama-7B with 100 adapters alone.

    Raises NoNumberError where one of them has no peak.
    """
    (found,) = cells(scenarios=[scenario], adapters=[100], model="7B")
    if not all(found.peak_rps[other] for other in OTHERS):
        raise NoNumberError(f"{scenario}: a system is past its limit at every rate")
    return [found.peak_rps[OURS] / found.peak_rps[other] for other in OTHERS]


def _bar(cell: Cell, metric: str, system: str) -> float:
    """Return what a cell shows of a system: the mean over rates, or its peak."""
    value = getattr(cell, metric)[system]
    return float(value) if metric == "peak_rps" else fmean(value)


def lines(found: Sequence[Cell]) -> Iterator[str]:
    """Yield what the authors say of the figure, beside ours."""
    said = {"ttft_s": ("TTFT", (60.3, 50.1)), "tpot_s": ("TPOT", (33.9, 28.6))}
    for metric, (name, published) in said.items():
        for other, theirs in zip(OTHERS, published, strict=True):
            for each_rate, means in ((False, "means over rates"), (True, "rate by rate")):
                less = {
                    scenario: reduction(
                        [cell for cell in found if cell.scenario == scenario], metric, other, each_rate
                    )
                    for scenario in SCENARIOS
                }
                all_cells = reduction(found, metric, other, each_rate)
                parts = ", ".join(f"{scenario} {number:.1f}" for scenario, number in less.items())
                yield f"{name} less than {other}'s by {all_cells:.1f} % (published {theirs}; {means}); {parts}"
    for other, theirs in zip(OTHERS, (1.7, 1.6), strict=True):
        none = sum(not cell.peak_rps[other] for cell in found)
        yield f"peak {ahead(found, other):.2f} times {other}'s (published {theirs}), which has none in {none} cells"


@program(into("outputs/fastlibra"), JOBS, epilog=HELP)
def main(folder: Path, jobs: int) -> None:
    """Write Figure 11 as CSV and print its reductions."""
    found = cells(jobs)
    with (folder / "figure_11.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        systems = (OURS, *OTHERS)
        bars = [(metric, system) for metric in ("ttft_s", "tpot_s", "peak_rps") for system in systems]
        table.writerow(["scenario", "model", "adapters", *map(" ".join, bars)])
        for cell in found:
            numbers = [_bar(cell, metric, system) for metric, system in bars]
            table.writerow([cell.scenario, cell.model, cell.adapters, *numbers])
    print(f"figure_11 -> {folder}/figure_11.csv")
    for line in lines(found):
        print(f"  {line}")
