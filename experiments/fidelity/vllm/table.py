"""The printed table: a line a group of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.fidelity.table import cell
from experiments.fidelity.vllm.compare import TIMES, Comparison, furthest, groups, medians

WIDTH = 40
HEAD = (
    f"{'vLLM with LoRA':<{WIDTH}} {'rows':>5} {'tokens/s':>14} {'inter-token latency':>22} "
    f"{'mean first token':>23} {'median first token':>23} {'saturation':>11}"
)
FURTHEST = 15
NAMES = {"output_tokens_per_s": "tokens/s", "itl_mean_ms": "inter-token latency"}
UNITS = (
    f"{'':<{WIDTH}} {'':>5} {'median worst %':>14} {'median worst %, med. ms':>22} "
    f"{'median worst %, med. ms':>23} {'median worst %, med. ms':>23} {'called right':>11}"
)


def line(found: dict[str, Any]) -> str:
    """One line of figures for the table."""
    columns = [
        cell(found, "output_tokens_per_s", "median", "7.1", 100),
        cell(found, "output_tokens_per_s", "worst", "6.1", 100),
    ]
    for name in TIMES:
        columns += [
            cell(found, name, "median", "7.1", 100),
            cell(found, name, "worst", "7.1", 100),
            cell(found, name, "median_ms", "7.1"),
        ]
    return " ".join([*columns, cell(found, "saturation", "share", "9.1", 100)]) + " %"


def table(comparisons: Sequence[Comparison]) -> str:
    """Return the printed table."""
    lines = [HEAD, UNITS]
    for name, members in groups(comparisons).items():
        label = name if " " not in name else f"  {name.partition(' ')[2]}"
        lines.append(f"{label:<{WIDTH}} {len(members):>5} {line(medians(members))}")
    for c in furthest(comparisons, FURTHEST):
        errors = ", ".join(f"{NAMES[name]} {100 * c.error[name]:+.1f} %" for name in NAMES if name in c.error)
        lines.append(f"far off: {c.row.place}: {errors}")
    below = sum(c.load == "below" for c in comparisons)
    return "\n".join(
        [
            *lines,
            f"first tokens: over the {below} rows whose measured mean is below 2 s; the others are past saturation",
        ]
    )
