"""The printed table: a line a group of rows, then the medians over what was predicted and fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.fidelity.compare import Comparison, groups, medians

HEAD = f"{'system':<18} {'gpu':<9} {'set':<4} {'campaign':<17} {'':<9} {'rows':>4}"
FIGURES = f"{'throughput':>14} {'mean latency':>22} {'first token':>22} {'attainment':>13}"
UNITS = f"{'median worst %':>14} {'median worst %, med. s':>22} {'median worst %, med. s':>22} {'median worst':>13}"


def line(found: dict[str, Any]) -> str:
    """One line of figures for the table."""
    columns = [
        cell(found, "throughput", "median", "7.2", 100),
        cell(found, "throughput", "worst", "6.2", 100),
    ]
    for name in ("mean_latency", "mean_first_token"):
        columns += [
            cell(found, name, "median", "7.1", 100),
            cell(found, name, "worst", "6.1", 100),
            cell(found, name, "median_s", "7.2"),
        ]
    columns += [cell(found, "attainment", "median", "6.3"), cell(found, "attainment", "worst", "6.3")]
    return " ".join(columns)


def cell(found: dict[str, Any], name: str, key: str, form: str, factor: float = 1) -> str:
    """One figure, `form` wide; what was not measured is left blank."""
    width = int(form.split(".")[0])
    return f"{factor * found[name][key]:{form}f}" if name in found else " " * width


def table(comparisons: Sequence[Comparison]) -> str:
    """Return the printed table: a line a group, then the medians by system and over all."""
    lines = [HEAD + FIGURES, " " * len(HEAD) + UNITS]
    for (system, gpu, setting, campaign, fitted), members in groups(comparisons).items():
        head = f"{system:<18} {gpu:<9} {setting:<4} {campaign:<17} {fitted:<9} {len(members):>4}"
        lines.append(head + line(medians(members)))
    for system in sorted({c.row.columns["system"] for c in comparisons}):
        members = [c for c in comparisons if c.row.columns["system"] == system and not c.fitted]
        if members:
            label = f"all predicted rows of {system}"
            lines.append(f"{label:<{len(HEAD) - 4}}{len(members):>4}" + line(medians(members)))
    for fitted, name in ((False, "all predicted rows"), (True, "all fitted rows")):
        for load in ("", "below", "near", "past"):
            members = [c for c in comparisons if c.fitted is fitted and load in ("", c.load)]
            if members:
                label = f"  {load} saturation" if load else name
                lines.append(f"{label:<{len(HEAD) - 4}}{len(members):>4}" + line(medians(members)))
    return "\n".join(lines)
