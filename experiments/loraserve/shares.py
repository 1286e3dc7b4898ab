"""LoRAServe's Figure 8: `python -m experiments.loraserve.shares`.

Which share of the requests each adapter has. The five busiest of over a thousand have 72.4 % in a week of production;
`workload/popularity=top_heavy` is told so, and this looks at what it draws for a thousand. Beside it stand a single
power law that gives the five as much, and the trace that LoRAServe's evaluation is made again with, whose hundred
adapters are made from five (section V-E).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from experiments.scenarios import scenario
from experiments.studies.command import program
from simlora.workload.popularity import Zipf

Floats = NDArray[np.float64]
TOP, ADAPTERS, REQUESTS = 5, 1000, 250_138
PUBLISHED = 72.4
"""Share of the five busiest in %; the text has it as what 27.6 % leave."""
WEEK = (
    "workload=loraserve",
    "workload/popularity=top_heavy",
    f"workload.adapters={ADAPTERS}",
    "workload.duration_s=null",
    f"workload.requests={REQUESTS}",
)
EVALUATION = ("workload=loraserve_production", "workload.adapters=100")


def drawn(workload: Sequence[str]) -> Floats:
    """Return the shares of the requests of a workload's trace in %, the busiest adapter's first [adapters]."""
    trace = scenario(["system=slora_random", *workload]).trace
    counts = np.sort(np.bincount(trace.adapter, minlength=len(trace.adapters)))[::-1]
    shares: Floats = 100 * counts / counts.sum()
    return shares


def power_law() -> tuple[float, Floats]:
    """Return the exponent of the one power law with which the five have what was published, and its shares in %."""

    def shares(exponent: float) -> Floats:
        rates = Zipf(exponent).rates(ADAPTERS)
        found: Floats = 100 * rates / rates.sum()
        return found

    exponent = float(brentq(lambda x: top(shares(x)) - PUBLISHED, 0.5, 5.0))
    return exponent, shares(exponent)


def top(shares: Floats) -> float:
    """Return the share of the five busiest adapters in %."""
    return float(shares[:TOP].sum())


def of_the_week() -> float:
    """Return the claim ls-top5, which the workload is told: what is drawn of it."""
    return top(drawn(WEEK))


def shown(shares: Floats) -> str:
    """Say what the five busiest have, and the sixth."""
    return f"the five busiest have {top(shares):.1f} %, the sixth {shares[TOP]:.2f} %"


@program()
def main() -> None:
    """Print the figure's numbers."""
    week, evaluation = drawn(WEEK), drawn(EVALUATION)
    exponent, law = power_law()
    print(f"top_heavy, {ADAPTERS:,} adapters, {REQUESTS:,} requests: {shown(week)}; published {PUBLISHED} %")
    print(f"One power law with an exponent of {exponent:.2f}: {shown(law)}")
    print(f"loraserve_production, {len(evaluation)} adapters: {shown(evaluation)}")
