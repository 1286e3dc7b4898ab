"""What is said about a file in the schema of vLLM's measured runs with LoRA, as printed and in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.fidelity import compare
from experiments.fidelity.cells import hashed, kept
from experiments.fidelity.compare import Comparison, Section, compared, fenced, furthest, judged, plot
from experiments.fidelity.vllm import predict, scrapes
from experiments.fidelity.vllm.predict import FIGURES, Row, read, saturated
from experiments.studies import markdown
from experiments.studies.markdown import percent
from simlora.latency import calibration as calibrations

WIDTH = 40
HEAD = (
    f"{'vLLM with LoRA':<{WIDTH}} {'rows':>5} {'tokens/s':>14} {'inter-token latency':>22} "
    f"{'mean first token':>23} {'median first token':>23} {'saturation':>11}"
)
UNITS = (
    f"{'':<{WIDTH}} {'':>5} {'median worst %':>14} {'median worst %, med. ms':>22} "
    f"{'median worst %, med. ms':>23} {'median worst %, med. ms':>23} {'called right':>11}"
)
JUDGED = {"output_tokens_per_s": "tokens/s", "itl_mean_ms": "inter-token latency"}
"""Figures by which rows are furthest off."""
FURTHEST = 15
WITHIN = {"output_tokens_per_s": 0.05, "itl_mean_ms": 0.08}
BEYOND = 0.2
"""Errors within which a row is right, and beyond which it is wrong."""


def past(one: Comparison[Row]) -> dict[str, bool | None]:
    """Return whether a run was past saturation, as measured and as simulated."""
    return {"measured": saturated(one.row.measured), "simulated": saturated(one.simulated)}


def medians(members: Sequence[Comparison[Row]]) -> dict[str, Any]:
    """Return the median and the worst absolute error of each figure, and how often saturation is called right."""
    found = compare.medians(members, FIGURES)
    known = [past(one) for one in members if one.row.load != "unknown"]
    if known:
        right = sum(each["measured"] == each["simulated"] for each in known)
        found["saturation"] = {"right": right, "rows": len(known), "share": right / len(known)}
    return found


def groups(comparisons: Sequence[Comparison[Row]]) -> dict[str, list[Comparison[Row]]]:
    """Return all comparisons, then by model, adapter slots, their rank, and load: fitted and predicted apart.

    Of the predicted ones also those of workloads (adapters' rates and ranks) of which no row at all was fitted to.
    """
    found: dict[str, list[Comparison[Row]]] = {}
    known = {_workload(one.row) for one in comparisons if one.fitted}
    for fitted, name in ((False, "predicted"), (True, "fitted")):
        own = [one for one in comparisons if one.fitted is fitted]
        found[name] = own
        if not fitted:
            found[f"{name} of unseen workloads"] = [one for one in own if _workload(one.row) not in known]
        for column in ("model", "max_loras", "max_lora_rank"):
            for value in sorted({one.row.columns[column] for one in own}, key=_in_order):
                found[f"{name} {column}={value}"] = [one for one in own if one.row.columns[column] == value]
        for load in ("below", "past"):
            found[f"{name} {load} saturation"] = [one for one in own if one.row.load == load]
    return {name: members for name, members in found.items() if members}


def table(comparisons: Sequence[Comparison[Row]]) -> str:
    """Return the printed table, and the rows that are furthest off."""
    lines = [HEAD, UNITS]
    for name, members in groups(comparisons).items():
        found = medians(members)
        right = f"{100 * found['saturation']['share']:9.1f}" if "saturation" in found else f"{'':9}"
        lines.append(f"{compare.line(name, found, FIGURES, WIDTH, 5)} {right} %")
    below = sum(one.row.load == "below" for one in comparisons)
    first = f"first tokens: over the {below} rows whose measured mean is below 2 s; the others are past saturation"
    return "\n".join([*lines, *tail(comparisons), *far_off(comparisons), first])


def tail(comparisons: Sequence[Comparison[Row]]) -> list[str]:
    """Return a line on how many predicted rows are right in both figures, and wrong in one."""
    errors = [
        [abs(one.error[name]) for name in WITHIN]
        for one in comparisons
        if not one.fitted and WITHIN.keys() <= one.error.keys()
    ]
    if not errors:
        return []
    right = sum(all(size <= most for size, most in zip(of, WITHIN.values(), strict=True)) for of in errors)
    wrong = sum(max(of) > BEYOND for of in errors)
    limits = " and ".join(f"{percent(most, 0)} in {JUDGED[name]}" for name, most in WITHIN.items())
    share = f"{percent(right / len(errors), 0)} of {len(errors)} predicted rows"
    return [f"within {limits}: {share}; beyond {percent(BEYOND, 0)} in one of them: {wrong}"]


def far_off(comparisons: Sequence[Comparison[Row]]) -> list[str]:
    """Return a line for each of the rows that are furthest off, by their lines in the file."""
    found = []
    for one in furthest(comparisons, list(JUDGED), FURTHEST):
        errors = (
            f"{label} {100 * one.error[name]:+.1f} %" for name, label in JUDGED.items() if name in one.error
        )
        found.append(f"far off: line {one.row.line}: {', '.join(errors)}")
    return found


def short(comparisons: Sequence[Comparison[Row]]) -> str:
    """Return the table in Markdown, without a line for each number of slots."""
    labels = [figure.label for figure in FIGURES]
    head = ["absolute errors: median, worst", "rows", *labels, "saturation, called right"]
    rows = []
    for name, members in groups(comparisons).items():
        if "max_loras=" not in name:
            found = medians(members)
            figures = [_median_and_worst(found, figure.name) for figure in FIGURES]
            right = percent(found["saturation"]["share"]) if "saturation" in found else ""
            rows.append([name, str(found["rows"]), *figures, right])
    return markdown.table(head, rows, numbers=True)


def _median_and_worst(found: dict[str, Any], name: str) -> str:
    if name not in found:
        return ""
    return f"{percent(found[name]['median'])}, {percent(found[name]['worst'], 0)}"


def _workload(row: Row) -> tuple[str, ...]:
    return tuple(row.columns.get(name, "") for name in ("model", "rate_values", "module_ranks"))


def _in_order(value: str) -> tuple[float, str]:
    return (float(value), "") if value.isdigit() else (0.0, value)


MARK = "max_loras"
"""The column by which the schema is known."""
HASHED = hashed(predict.__file__, scrapes.__file__)


def fitted(row: Row) -> bool:
    """Whether the row's coefficients were fitted to it."""
    return row.key in calibrations.load(row.calibration).provenance.get("fitted_rows", ())


def figures(row: Row) -> dict[str, float]:
    """Return the row's figures, simulated again only after simlora or what we make of its runs has changed."""
    return kept([*predict.overrides(row), HASHED], lambda: predict.simulate(row))


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the file's rows. Raises InputError for bad input."""
    rows, known = read(path), calibrations.names()
    missing = Counter(
        f"there is no calibration {row.calibration}" for row in rows if row.calibration not in known
    )
    comparisons = compared([row for row in rows if row.calibration in known], figures, jobs, fitted)
    overall = medians(comparisons).get("saturation")
    lines = [table(comparisons)] if comparisons else []
    if overall:
        lines.append(f"saturation called right in {overall['right']} of {overall['rows']} rows")
    lines += [f"not simulated: {count} rows, {reason}" for reason, count in sorted(missing.items())]
    return Section(
        printed="\n".join(lines),
        tree={
            "runs": str(path),
            "rows": [as_dict(one) for one in comparisons],
            "medians": {name: medians(members) for name, members in groups(comparisons).items()},
            "saturation": overall,
            "skipped": dict(sorted(missing.items())),
        },
        parts={
            "table": short(comparisons),
            "furthest": fenced("\n".join([*tail(comparisons), *far_off(comparisons)])),
        },
        plot=plot("vllm", "vLLM 0.8.5 with LoRA, H100 64 GB, one-hour runs", comparisons, FIGURES),
        errors=judged("vLLM with LoRA", comparisons, FIGURES),
    )


def as_dict(one: Comparison[Row]) -> dict[str, Any]:
    """Return what the JSON holds for a row: its own columns, then ours."""
    row = one.row
    ours = {"error_ms": one.off, "fitted": one.fitted, "load": row.load, "saturated": past(one)}
    return {"line": row.line, **row.columns, **one.sides, **ours, "calibration": row.calibration}
