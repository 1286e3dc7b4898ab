"""The printed table of S-LoRA's runs: a line a group of rows, then the medians over what was predicted and fitted."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from experiments.fidelity.compare import Comparison, cells, medians
from experiments.fidelity.rows import FIGURES, Row
from experiments.fidelity.section import grouped

HEAD = f"{'system':<18} {'gpu':<9} {'set':<4} {'campaign':<17} {'':<9} {'rows':>4}"
NAMES = f"{'throughput':>14} {'mean latency':>22} {'first token':>22} {'attainment':>13}"
UNITS = f"{'median worst %':>14} {'median worst %, med. s':>22} {'median worst %, med. s':>22} {'median worst':>13}"


def groups(comparisons: Sequence[Comparison[Row]]) -> dict[tuple[str, ...], list[Comparison[Row]]]:
    """Return comparisons by system, GPU, setting, campaign and whether they were fitted, in order."""
    place = itemgetter("system", "gpu", "setting", "campaign")
    found = grouped(
        comparisons, lambda one: (*place(one.row.columns), "fitted" if one.fitted else "predicted")
    )
    return dict(sorted(found.items()))


def table(comparisons: Sequence[Comparison[Row]]) -> str:
    """Return the printed table: a line a group, then the medians by system and over all."""
    lines = [HEAD + NAMES, " " * len(HEAD) + UNITS]
    for (system, gpu, setting, campaign, fitted), members in groups(comparisons).items():
        lines.append(_line(f"{system:<18} {gpu:<9} {setting:<4} {campaign:<17} {fitted}", members))
    predicted = [one for one in comparisons if not one.fitted]
    for system, own in sorted(grouped(predicted, lambda one: one.row.columns["system"]).items()):
        lines.append(_line(f"all predicted rows of {system}", own))
    for whole, name in ((predicted, "predicted"), ([one for one in comparisons if one.fitted], "fitted")):
        for load in ("", "below", "near", "past"):
            members = [one for one in whole if load in ("", one.row.load)]
            if members:
                lines.append(_line(f"  {load} saturation" if load else f"all {name} rows", members))
    return "\n".join(lines)


def _line(label: str, members: Sequence[Comparison[Row]]) -> str:
    return f"{label:<{len(HEAD) - 4}}{len(members):>4}" + cells(medians(members, FIGURES), FIGURES)
