"""Whether FastLibra's ablations come out with its headline numbers: `python -m experiments.fastlibra.ablations`.

Reads the table of `python -m experiments.infer fastlibra --fit ablations`, and simulates nothing. A number of a setting
is its mean over the seeds that the setting has. In order means as in Figure 15: TTFT is higher without the tree (WOM)
than without the cost model (WOS), and without that higher than FastLibra's. The bound is what no cost model can exceed
(`averages.most_without`). A setting is excluded if its bound is too low for a published number, even within the error
with which a claim holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.claims.verdicts import HOLDS_WITHIN, NEAR_WITHIN
from experiments.infer.conditions import published, shares
from experiments.infer.evaluating import Key, Simulated, read_table
from experiments.infer.inference import SEEDS, means
from experiments.infer.saying import changed
from experiments.infer.unknowns import Unknowns, read
from experiments.studies.command import PROJECT, option, program
from simlora.core.arrays import Floats

FOLDER = Path(__file__).parent
TABLE = PROJECT / "docs" / "inferred" / "ablations" / "fastlibra.csv"
QUESTION = "ablations"
TREE, COST, MOST = "chatbot-wom", "chatbot-wos", "chatbot-wos-most"
HEADLINES = {
    "chatbot-100": "TTFT less than vLLM's; S-LoRA's, %",
    "chatbot-100-peak": "peak over vLLM's; S-LoRA's",
    "chatbot-100-tpot": "TPOT less than vLLM's; S-LoRA's, %",
}
TELLS = 1.005
"""Ratio from which a difference is more than seeds make."""

Numbers = Mapping[str, Mapping[Key, Floats]]
"""Simulated numbers by claim and setting."""


def numbers(unknowns: Unknowns, simulated: Simulated) -> Numbers:
    """Return the numbers of each setting, each the mean over seeds on the scale on which claims are compared."""
    return {
        claim.id: {
            setting: np.asarray(published(claim)) * shares(mean)
            for setting, mean in means(claim, simulated.all).items()
        }
        for claim in (*unknowns.claims, *unknowns.beside)
    }


def lines(unknowns: Unknowns, found: Numbers) -> Iterator[str]:
    """Yield what the table says."""
    without = {setting: float(ratio[0]) for setting, ratio in found[COST].items()}
    yield (
        f"{len(without)} settings; TTFT without the cost model over FastLibra's: {min(without.values()):.3f} to "
        f"{max(without.values()):.3f}, above {TELLS} in {sum(ratio > TELLS for ratio in without.values())}"
    )
    order = [
        setting
        for setting, ratio in without.items()
        if ratio > TELLS and setting in found[TREE] and found[TREE][setting][0] > ratio
    ]
    yield f"in order, WOM > WOS > {TELLS}: {len(order)} of {len(without)} settings"
    near = [setting for setting in order if _near(unknowns, found, setting)]
    yield f"  with the chatbot's headline numbers within {NEAR_WITHIN:.0%}: {len(near)}"
    for setting in sorted(order, key=lambda each: -without[each]):
        yield f"  {changed(unknowns, dict(setting))}"
        yield f"    WOM {_said(found[TREE][setting])}; WOS {_said(found[COST][setting])}"
        for name, title in HEADLINES.items():
            if setting in found[name]:
                yield f"    {title}: {_said(found[name][setting])}"
    yield from _bound(found[COST], found[MOST], _published(unknowns))


def _near(unknowns: Unknowns, found: Numbers, setting: Key) -> bool:
    """Whether all headline numbers that were simulated at a setting are near the published ones."""
    return all(
        bool(np.all(np.abs(found[claim.id][setting] / published(claim) - 1) <= NEAR_WITHIN))
        for claim in unknowns.claims
        if claim.id in HEADLINES and setting in found[claim.id]
    )


def _bound(cost: Mapping[Key, Floats], most: Mapping[Key, Floats], of: Floats) -> Iterator[str]:
    both = [setting for setting in most if setting in cost]
    bounds, gained = (np.asarray([each[setting] for setting in both]) for each in (most, cost))
    low = bounds < of * (1 - HOLDS_WITHIN)
    parts = ", ".join(
        f"{name} {share:.0%}" for name, share in zip(("TTFT", "TPOT", "peak"), low.mean(0), strict=True)
    )
    least, middle, highest = np.quantile(bounds[:, 0], (0.05, 0.5, 0.95))
    yield (
        f"with everything in HBM, TTFT without the cost model is at most {middle:.3g} times as high ({least:.3g} to "
        f"{highest:.3g}); FastLibra's own ratio exceeds this bound in "
        f"{int((gained[:, 0] > bounds[:, 0] * TELLS).sum())} of {len(both)} settings"
    )
    yield (
        f"excluded by the bound: {low.any(1).mean():.0%} of {len(both)} settings, in which no cost model gives "
        f"{_said(of)} within {HOLDS_WITHIN:.0%} ({parts})"
    )


def _published(unknowns: Unknowns) -> Floats:
    return np.asarray(published(next(one for one in unknowns.claims if one.id == COST)))


def _said(values: Sequence[float] | Floats) -> str:
    return "; ".join(f"{value:.3g}" for value in values)


@program(option("--table", type=Path, default=TABLE, help="the table (default: that of docs/inferred)"))
def main(table: Path) -> None:
    """Print it."""
    unknowns = read(FOLDER, [QUESTION])
    for line in lines(unknowns, numbers(unknowns, read_table(unknowns, SEEDS, table))):
        print(line)
