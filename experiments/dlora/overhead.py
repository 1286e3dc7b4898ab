"""Draw what inference leaves to switches and to the ILP: `python -m experiments.dlora.overhead [--out DIR]`.

Figure 15, from the runs of the study figure_15: seconds of switching over busy seconds, and `migration.delay_s` for
every plan over the run's time. Inference does not wait for a plan here; the share says what it would cost if it did, as
the authors count it. What the solver takes us is in summary.json (simulation.migration_wall_s), and printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib import pyplot as plt

from experiments.claims.checks import Comparison
from experiments.dlora.paper import FOLDER, SEEDS
from experiments.studies.command import command, into
from experiments.studies.draw import COLOURS, INK, legend_below, plain, write
from experiments.studies.several import Several, of_study
from experiments.studies.study import Study, read

PUBLISHED = 0.967
MILLISECONDS_S = 1.0
"""What "within milliseconds" is read as: less than a second each."""
LEAST_SHARE = 0.95
"""Of inference, that the figure begins with."""


class Shares(NamedTuple):
    """Shares of a run's time."""

    switching: float
    solving: float

    @property
    def inference(self) -> float:
        """What is left."""
        return 1.0 - self.switching - self.solving


def shares(summary: Mapping[str, Any], delay_s: float) -> Shares:
    """Return how a run's time is shared, if inference waited `delay_s` for every plan."""
    busy_s = sum(replica["busy_s"] for replica in summary["replicas"])
    plans = summary["migration"]["plans"]
    return Shares(summary["adapters"]["switch_s"] / busy_s, plans * delay_s / summary["makespan_s"])


def mean(one: Several) -> Shares:
    """Return the mean over a point's runs."""
    delay_s = float(one.point.settings["migration.delay_s"])
    found = [shares(outcome.summary, delay_s) for outcome in one.outcomes]
    return Shares(*(fmean(each) for each in zip(*found, strict=True)))


def least_inference() -> list[float]:
    """Return the least share of inference over Figure 15's rates, of dLoRA as described."""
    found = of_study(study(), SEEDS, -1)
    return [min(mean(one).inference for one in found if one.point.series == "dlora")]


def plan_s(one: Several) -> list[float]:
    """Return what a plan took us on average, by seed, where there were any."""
    pairs = [
        (outcome.summary["simulation"]["migration_wall_s"], outcome.summary["migration"]["plans"])
        for outcome in one.outcomes
    ]
    return [wall_s / plans for wall_s, plans in pairs if plans]


def solved_within_milliseconds() -> list[Comparison]:
    """Compare what a plan takes us with what the paper says, at every rate at which there are plans."""
    found = []
    for one in of_study(study(), SEEDS, -1):
        if taken := plan_s(one):
            says = f"{one.point.series} at {one.point.x}/s: {1e3 * fmean(taken):.0f} ms a plan"
            found.append(Comparison(says, fmean(taken) < MILLISECONDS_S))
    return found


def study() -> Study:
    """Return the study whose runs these are."""
    return read(FOLDER / "figure_15.yaml")


def draw(path: Path) -> None:
    """Write Figure 15 as PNG."""
    found = of_study(study(), SEEDS)
    names = list(dict.fromkeys(one.point.series for one in found))
    figure, axes = plt.subplots(1, len(names), figsize=(9, 3.8), layout="constrained", sharey=True)
    for ax, name in zip(axes, names, strict=True):
        own = [one for one in found if one.point.series == name]
        bottom = [0.0] * len(own)
        for colour, part in zip(COLOURS, ("inference", "switching", "solving"), strict=False):
            high = [100 * getattr(mean(one), part) for one in own]
            ax.bar([str(one.point.x) for one in own], high, bottom=bottom, color=colour, label=part)
            bottom = [low + more for low, more in zip(bottom, high, strict=True)]
        ax.axhline(100 * PUBLISHED, color=INK, linewidth=0.9, linestyle=(0, (5, 3)))
        ax.set_title(study().series_named(name).title, fontsize="small")
        ax.set_xlabel("requests/s", fontsize="small")
        plain(ax)
    axes[0].set_ylim(100 * LEAST_SHARE, 100)
    axes[0].set_ylabel("time (%)", fontsize="small")
    legend_below(figure, axes[0], 3)
    figure.suptitle(
        "Inference, switches and plans · dLoRA (OSDI'24), Figure 15 (dashed: published)", fontsize="medium"
    )
    write(figure, path)


@command(into("outputs/dlora"))
def main(folder: Path) -> None:
    """Draw the figures and print their numbers."""
    draw(folder / "figure_15_shares.png")
    print(folder / "figure_15_shares.png")
    for one in of_study(study(), SEEDS):
        found, taken = mean(one), plan_s(one)
        plans = fmean(outcome.summary["migration"]["plans"] for outcome in one.outcomes)
        solver = f"{plans:.1f} plans, {1e3 * fmean(taken):.0f} ms each" if taken else "no plans"
        print(
            f"{one.point.series} at {one.point.x}/s: inference {found.inference:.2%}, switching "
            f"{found.switching:.2%}, if it waited for plans {found.solving:.2%}; {solver}"
        )
