"""How far LoRAServe is ahead in Figures 19 and 20: `python -m experiments.loraserve.improvements`.

Of each baseline the largest ratio of its P95 of TTFT, and of its mean time between tokens, to LoRAServe's, over rates:
of points where both are within the SLO of 10 s, as past it TTFT grows with the length of a run; and the smallest, where
LoRAServe is least ahead or behind. The runs are figure_19's, kept once they are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments.studies import markdown
from experiments.studies.command import program
from experiments.studies.points import points
from experiments.studies.running import NoNumberError, figure_of, run_all
from experiments.studies.study import Study, read
from simlora.api.cache import HELP

STUDY, STUDY_OF_TBT = (Path(__file__).with_name(f"figure_{number}.yaml") for number in (19, 20))
"""The same runs; the second shows TBT."""
SLO_S = 10.0
OURS, BASELINES = "loraserve", ("toppings", "random", "contiguous")
SLOWER_RPS = (8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 80.0)
TTFT, TBT = "ttft_s.p95", "tbt_s.mean"
PUBLISHED = {TTFT: "up to 9 times the TTFT", TBT: "up to 15 % better TBT"}
Figures = Mapping[tuple[str, str, float], Mapping[str, float]]
"""TTFT and TBT by panel, series and rate."""


class Ratio(NamedTuple):
    """A baseline's figure over LoRAServe's, and where that is so."""

    value: float
    panel: str
    rate_rps: float


def figures(study: Study) -> dict[tuple[str, str, float], dict[str, float]]:
    """Return TTFT and TBT of every point of the study."""
    here = list(points(study))
    found = run_all(here)
    return {
        (one.panel, one.series, one.x): {name: figure_of(found, one, name) for name in PUBLISHED}
        for one in here
    }


def ratios(found: Figures, series: str, metric: str, within_slo: bool = True) -> Iterator[Ratio]:
    """Yield what a baseline has over what LoRAServe has, wherever both are within the SLO, or everywhere."""
    for (panel, name, rate), theirs in found.items():
        if name != series:
            continue
        ours = found[panel, OURS, rate]
        if not within_slo or max(ours[TTFT], theirs[TTFT]) <= SLO_S:
            yield Ratio(theirs[metric] / ours[metric], panel, rate)


def poisson() -> list[float]:
    """Return both claims of Poisson arrivals, at lower rates too: what servers slower than ours carry is among them.

    Raises NoNumberError where no rate is within the SLO for LoRAServe and a baseline.
    """
    study = read(STUDY)
    panels = [
        replace(panel, x=list(SLOWER_RPS)) for panel in study.panels if not panel.name.endswith("_even")
    ]
    found = figures(replace(study, panels=panels))
    ahead = [one.value for name in BASELINES for one in ratios(found, name, TTFT)]
    tbts = [one.value for one in ratios(found, "toppings", TBT)]
    if not ahead or not tbts:
        raise NoNumberError("no rate is within the SLO for LoRAServe and a baseline")
    return [max(ahead), 100 * (1 - 1 / max(tbts))]


def ttft() -> float:
    """Return the claim ls-ttft: the most that any baseline's P95 of TTFT is of LoRAServe's, both within the SLO."""
    study = read(STUDY)
    found = figures(study)
    return max(max(ratios(found, name, TTFT)).value for name in BASELINES)


def tbt() -> float:
    """Return the claim ls-tbt: by how many % LoRAServe's mean TBT is below Toppings', at most."""
    return 100 * (1 - 1 / max(ratios(figures(read(STUDY_OF_TBT)), "toppings", TBT)).value)


def table(study: Study, found: Figures) -> str:
    """Return the ratios in Markdown."""
    rows = []
    for metric, title in ((TTFT, "P95 of TTFT"), (TBT, "mean TBT")):
        for series in study.series:
            if series.name == OURS:
                continue
            within = list(ratios(found, series.name, metric))
            cells = [max(within), min(within), max(ratios(found, series.name, metric, within_slo=False))]
            texts = (f"{one.value:.2f} ({one.panel}, {one.rate_rps:g})" for one in cells)
            rows.append([f"{title}, {series.title}", *texts])
    return markdown.table(["", "most", "least", "most, SLO or not"], rows)


@program(epilog=HELP)
def main() -> None:
    """Print the ratios."""
    study = read(STUDY)
    print(f"Over LoRAServe's, within {SLO_S:.0f} s (trace, requests/s):\n\n{table(study, figures(study))}\n")
    print(f"Published: {'; '.join(PUBLISHED.values())}.")
