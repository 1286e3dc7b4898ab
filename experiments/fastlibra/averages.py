"""What FastLibra's authors average over Figures 13, 15 and 16: `python -m experiments.fastlibra.averages`.

Ratios are taken point by point, then averaged. Figure 15: over rates up to FastLibra's peak in each scenario and over
five seeds, with the standard error; a peak is where the mean TTFT passes 500 ms, and where that is below all rates that
are run, the lowest counts. The hit rate of Figure 13 is the mean of that of adapters and that of prompt tokens found in
HBM, as one bar has both.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from experiments.claims.spots import Curve, Figures
from experiments.fastlibra.reductions import FOLDER, OTHERS, OURS, TPOT, TTFT, cell_of
from experiments.studies.command import program
from experiments.studies.points import Point, points
from experiments.studies.running import figure_of, run_all
from experiments.studies.study import Study, read
from simlora.api.cache import HELP

FOUND, KEEPS_NO_KV = "kv.hbm_hit_rate", "slora"
"""S-LoRA keeps no history KV, so that it finds none and its runs have no such rate."""
WITHOUT_END = {"replica.kv_token_budget": 400_000_000, "loader": "cached"}
"""Memory for all KV, and all adapters in HBM from the beginning."""
SEEDS = range(5)
"""Of the ablations, which differ by less than one seed can tell."""


def _figures(of: Study) -> Figures:
    """Return the figures of a study's runs. Runs what was not run before."""
    outcomes = run_all(points(of))

    def figures(point: Point, metric: str) -> float:
        if metric == FOUND and point.series == KEEPS_NO_KV:
            return 0.0
        return figure_of(outcomes, point, metric)

    return figures


def without(part: str, study: str = "figure_15") -> list[float]:
    """Return TTFT and TPOT without a part over those with it, and by how many per cent the peak is lower."""
    return [fmean(values) for values in zip(*each_seed(part, study), strict=True)]


def each_seed(part: str, study: str) -> list[list[float]]:
    """Return the same for every seed."""
    of = read(FOLDER / f"{study}.yaml")
    return [_without(part, replace(of, settings={**of.settings, "seed": seed})) for seed in SEEDS]


def without_in(scenario: str, part: str) -> list[float]:
    """Return the same of one scenario and one seed."""
    of = read(FOLDER / "figure_15.yaml")
    return _without(part, replace(of, panels=[panel for panel in of.panels if panel.name == scenario]))


def _without(part: str, of: Study) -> list[float]:
    pair = replace(of, series=[each for each in of.series if each.name in (OURS, part)])
    figures = _figures(pair)
    found = [cell_of("", 0, pair, panel.name, figures) for panel in pair.panels]
    longer = [
        fmean(its / ours for each in times for ours, its in zip(each[OURS], each[part], strict=True))
        for times in ([cell.ttft_s for cell in found], [cell.tpot_s for cell in found])
    ]
    return [*longer, 100 * fmean(1 - cell.peak_rps[part] / cell.peak_rps[OURS] for cell in found)]


def most_without(scenario: str, part: str) -> list[float]:
    """Return what `without_in` cannot exceed, whatever the cost model: a part is compared with memory without end.

    In place of FastLibra runs the same system with all adapters and all KV in HBM. A published ratio is a mean over
    rates up to FastLibra's peak, which is at most the peak of that system. So the mean is over as many of the rates up
    to that peak as make it the largest.
    """
    of = read(FOLDER / "figure_15.yaml")
    lacking, ours = (next(each for each in of.series if each.name == name) for name in (part, OURS))
    whole = replace(ours, settings={**ours.settings, **WITHOUT_END})
    panels = [panel for panel in of.panels if panel.name == scenario]
    pair = replace(of, panels=panels, series=[whole, lacking])
    cell = cell_of(scenario, 0, pair, scenario, _figures(pair))
    ratios = [
        [its / best for best, its in zip(times[OURS], times[part], strict=True)]
        for times in (cell.ttft_s, cell.tpot_s)
    ]
    most = [max(fmean(each[:count]) for count in range(1, len(each) + 1)) for each in ratios]
    return [*most, 100 * (1 - cell.peak_rps[part] / cell.peak_rps[OURS])]


def _points(study: str, other: str, *metrics: str) -> list[float]:
    """Return FastLibra's metric, or the mean of several, over another system's at every point of a study."""
    of = read(FOLDER / f"{study}.yaml")
    figures = _figures(of)

    def mean(panel: str, series: str, x: Any) -> float:
        return fmean(Curve(of, panel, series, metric).at(x).number(figures) for metric in metrics)

    return [mean(panel.name, OURS, x) / mean(panel.name, other, x) for panel in of.panels for x in panel.x]


def hbm() -> list[float]:
    """Return the claim fl-hbm: HBM in use over that of vLLM and of S-LoRA."""
    return [fmean(_points("figure_13", other, "kv.hbm_share")) for other in OTHERS]


def hits() -> list[float]:
    """Return the claim fl-hit: the hit rate over that of vLLM and of S-LoRA."""
    return [fmean(_points("figure_13", other, FOUND, "adapters.hit_rate")) for other in OTHERS]


def many() -> list[float]:
    """Return the claim fl-many: how much lower TTFT and TPOT are with thousands of adapters, over both others, in %."""
    return [
        100 * fmean(1 - ratio for other in OTHERS for ratio in _points("figure_16", other, metric))
        for metric in (TTFT, TPOT)
    ]


@program(epilog=HELP)
def main() -> None:
    """Print the averages."""
    published = {"wom": "1.27, 1.18, 19.8 %", "wos": "1.24, 1.15, 17.2 %", "wol": "1.13, 1.11, 13.1 %"}
    for study, title in (("figure_15", ""), ("figure_15_link_3", ", copies at 3 GB/s")):
        for part, said in published.items():
            found = list(zip(*each_seed(part, study), strict=True))
            ttft, tpot, peak = (
                f"{fmean(values):.3f} +- {stdev(values) / len(values) ** 0.5:.3f}" for values in found
            )
            print(f"{part}: TTFT {ttft}, TPOT {tpot}, peak lower by {peak} % (published {said}){title}")
    print("HBM in use over vLLM's and S-LoRA's: {:.2f}, {:.2f} (published 1.2, 2.6)".format(*hbm()))
    print("hit rate over vLLM's and S-LoRA's: {:.2f}, {:.2f} (published 1.3, 3.2)".format(*hits()))
    less = "1000 and 2000 adapters: TTFT less by {:.1f} %, TPOT by {:.1f} % (published 55.4, 16.2)"
    print(less.format(*many()))
