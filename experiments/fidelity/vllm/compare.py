"""Measured against simulated, row by row and at the median."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.fidelity.compare import spread
from experiments.fidelity.vllm.rows import Row

FIRST_TOKEN = ("ttft_mean_ms", "ttft_p50_ms")
TIMES = ("itl_mean_ms", *FIRST_TOKEN)
ERRORS = ("output_tokens_per_s", *TIMES)
LABELS = {
    "output_tokens_per_s": "output tokens/s",
    "itl_mean_ms": "inter-token latency",
    "ttft_mean_ms": "mean first token",
    "ttft_p50_ms": "median first token",
}
JUDGED = ("output_tokens_per_s", "itl_mean_ms")
"""Figures by which rows are furthest off."""
SATURATED_MS = 2000.0
"""Mean time to first token from which on a run counts as saturated: its queue grows as long as it lasts."""


def saturated(figures: Mapping[str, float]) -> bool | None:
    """Whether a run was past saturation; None where that was not measured."""
    if figures.get("completed") == 0:
        return True
    return figures["ttft_mean_ms"] >= SATURATED_MS if "ttft_mean_ms" in figures else None


@dataclass(frozen=True)
class Comparison:
    """One row as measured and as simulated; errors are signed, relative or in milliseconds."""

    row: Row
    simulated: Mapping[str, float]
    fitted: bool

    @property
    def error(self) -> dict[str, float]:
        """Relative errors of the figures that both sides have."""
        measured = self.row.measured
        return {
            name: self.simulated[name] / measured[name] - 1.0
            for name in ERRORS
            if name in self.simulated and measured.get(name, 0.0) > 0.0
        }

    @property
    def error_ms(self) -> dict[str, float]:
        """Errors of the times in milliseconds."""
        return {name: self.simulated[name] - self.row.measured[name] for name in TIMES if name in self.error}

    @property
    def saturated(self) -> dict[str, bool | None]:
        """Whether the run was past saturation, as measured and as simulated."""
        return {"measured": saturated(self.row.measured), "simulated": saturated(self.simulated)}

    @property
    def load(self) -> str:
        """Where the measured run was: below or past saturation."""
        past = self.saturated["measured"]
        return "unknown" if past is None else "past" if past else "below"

    def as_dict(self) -> dict[str, Any]:
        """What the JSON holds for this row: its own columns, then ours."""
        return {
            "line": self.row.line,
            **self.row.columns,
            "measured": dict(self.row.measured),
            "simulated": dict(self.simulated),
            "error": self.error,
            "error_ms": self.error_ms,
            "fitted": self.fitted,
            "load": self.load,
            "saturated": self.saturated,
            "calibration": self.row.calibration,
        }


def medians(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the median and the worst absolute error of each figure, and how often saturation is called right.

    Times to first token are those of runs below saturation: past it they grow with the length of the run.
    """
    result: dict[str, Any] = {"rows": len(comparisons)}
    for name in ERRORS:
        own = counted(comparisons, name)
        if not own:
            continue
        result[name] = spread([c.error[name] for c in own])
        if name in TIMES:
            result[name] |= spread([c.error_ms[name] for c in own], "_ms")
    known = [c.saturated for c in comparisons if c.load != "unknown"]
    if known:
        right = sum(each["measured"] == each["simulated"] for each in known)
        result["saturation"] = {"right": right, "rows": len(known), "share": right / len(known)}
    return result


def counted(comparisons: Sequence[Comparison], name: str) -> list[Comparison]:
    """Return the rows that have a figure on both sides; of times to first token those below saturation."""
    own = [c for c in comparisons if name in c.error]
    return [c for c in own if c.load == "below"] if name in FIRST_TOKEN else own


def groups(comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Return all comparisons, then by model, adapter slots, their rank, and load: fitted and predicted apart.

    Of the predicted ones also those of workloads (adapters' rates and ranks) of which no row at all was fitted to.
    """
    found: dict[str, list[Comparison]] = {}
    known = {_workload(c.row) for c in comparisons if c.fitted}
    for fitted, name in ((False, "predicted"), (True, "fitted")):
        own = [c for c in comparisons if c.fitted is fitted]
        found[name] = own
        if not fitted:
            found[f"{name} of unseen workloads"] = [c for c in own if _workload(c.row) not in known]
        for column in ("model", "max_loras", "max_lora_rank"):
            for value in sorted({c.row.columns[column] for c in own}, key=_in_order):
                members = [c for c in own if c.row.columns[column] == value]
                found[f"{name} {column}={value}"] = members
        for load in ("below", "past"):
            found[f"{name} {load} saturation"] = [c for c in own if c.load == load]
    return {name: members for name, members in found.items() if members}


def _workload(row: Row) -> tuple[str, ...]:
    return tuple(row.columns.get(name, "") for name in ("model", "rate_values", "module_ranks"))


def _in_order(value: str) -> tuple[float, str]:
    return (float(value), "") if value.isdigit() else (0.0, value)
