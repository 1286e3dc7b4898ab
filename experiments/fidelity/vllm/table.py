"""The printed table: a line a group of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.fidelity.compare import furthest
from experiments.fidelity.table import cell
from experiments.fidelity.vllm.compare import JUDGED, LABELS, TIMES, Comparison, groups, medians
from experiments.studies import markdown
from experiments.studies.markdown import percent

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
    """Return the printed table, and the rows that are furthest off."""
    lines = [HEAD, UNITS]
    for name, members in groups(comparisons).items():
        label = name if " " not in name else f"  {name.partition(' ')[2]}"
        lines.append(f"{label:<{WIDTH}} {len(members):>5} {line(medians(members))}")
    return "\n".join([*lines, *far_off(comparisons), first_tokens(comparisons)])


def far_off(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a line for each of the rows that are furthest off, by their lines in the file."""
    found = []
    for c in furthest(comparisons, JUDGED, FURTHEST):
        errors = ", ".join(f"{NAMES[name]} {100 * c.error[name]:+.1f} %" for name in NAMES if name in c.error)
        found.append(f"far off: line {c.row.line}: {errors}")
    return found


def first_tokens(comparisons: Sequence[Comparison]) -> str:
    """Say by which rows first tokens are judged."""
    below = sum(c.load == "below" for c in comparisons)
    return f"first tokens: over the {below} rows whose measured mean is below 2 s; the others are past saturation"


def short(comparisons: Sequence[Comparison]) -> str:
    """Return the table in Markdown, without a line for each number of slots."""
    head = ["absolute errors: median, worst", "rows", *LABELS.values(), "saturation, called right"]
    rows = []
    for name, members in groups(comparisons).items():
        if "max_loras=" not in name:
            found = medians(members)
            figures = [_median_and_worst(found, each) for each in LABELS]
            right = percent(found["saturation"]["share"]) if "saturation" in found else ""
            rows.append([name, str(found["rows"]), *figures, right])
    return markdown.table(head, rows, numbers=True)


def _median_and_worst(found: dict[str, Any], name: str) -> str:
    if name not in found:
        return ""
    return f"{percent(found[name]['median'])}, {percent(found[name]['worst'], 0)}"
