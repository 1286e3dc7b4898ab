"""What a search for a capacity has found, in words, as files and as a picture."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.core import libm
from simlora.core.errors import InputError, nearest
from simlora.metrics.saturation import UNKNOWN
from simlora.metrics.summary import json_safe
from simlora.report.sides import CONDITIONS, Side
from simlora.results.files import writing
from simlora.sweeps.question import LEAST, LONGEST, RATE, REPLICAS, STEP, Question
from simlora.sweeps.statistics import CONFIDENCE, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILES = ("runs.parquet", "capacity.png", "capacity.json")


@dataclass(frozen=True)
class Capacity:
    """What was found. `seeds`: a row a seed; `runs`: a row a run, in the order of length, seed and value.

    Looking for a rate, `seeds` has the highest `value` that met the SLO and the lowest that did not, `beyond`; looking
    for replicas the fewest that met it, and one less; NaN where one is enough. `load` says how near to saturation the
    run at `value` was, `arrivals_s` for how many seconds its requests arrived. `side` says what the configuration is
    called, runs on and is judged by. `shorter` is the answer of shorter
    runs, None where these are as configured. `doubt` says why the answer may mix what files were before an edit
    and after; "" if it does not. `warnings` say what the calibration was not measured for, and the error to expect.
    """

    question: Question
    seeds: pd.DataFrame
    runs: pd.DataFrame
    side: Side
    shorter: Capacity | None = None
    doubt: str = ""
    warnings: Sequence[str] = ()

    @property
    def value(self) -> float:
        """The answer: the mean over seeds of a rate; as many replicas as are enough for every seed."""
        values = self._ends("value")
        return float(values.max() if self.question.find == REPLICAS else values.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of a rate's mean over seeds, which takes the precision in.

        Of the logarithms: from what met the SLO to what did not. NaN of a single seed, and of replicas,
        whose answer is no mean. Where seeds change nothing, as of a trace from a file, it is the precision alone.
        """
        if self.question.find == REPLICAS:
            return math.nan, math.nan
        low, high = interval(libm.log(self._ends("value")))[0], interval(libm.log(self._ends("beyond")))[1]
        return math.exp(low), math.exp(high)

    @property
    def arrivals_s(self) -> float:
        """For how many seconds requests arrived at the answer, the mean over seeds."""
        return float(self._ends("arrivals_s").mean())

    @property
    def moved(self) -> float:
        """By what share the answer differs from that of shorter runs; NaN if there are none."""
        return math.nan if self.shorter is None else abs(self.value / self.shorter.value - 1.0)

    @property
    def settled(self) -> bool:
        """Whether longer runs moved the answer by no more than the precision, of replicas not at all."""
        most = 0.0 if self.question.find == REPLICAS else self.question.precision
        return self.moved <= most and not (self.seeds["load"] == UNKNOWN).any()

    @property
    def lengths(self) -> list[dict[str, float]]:
        """The answers of all lengths, the shortest first: how many `times` as configured, `arrivals_s`, `value`."""
        own = {"times": self.question.times, "arrivals_s": self.arrivals_s, "value": self.value}
        return [*([] if self.shorter is None else self.shorter.lengths), own]

    @property
    def _of_what(self) -> str:
        """What the interval is of."""
        told = ["value", "beyond", *self.question.figures]
        if len(self.seeds) > 1 and len(self.seeds[told].drop_duplicates()) == 1:
            return "what met it and what did not: all seeds are the same run, as of a trace from a file"
        return "95 % interval over seeds"

    @property
    def _how_long(self) -> str:
        """For how long requests arrived, and what another length changes."""
        first = f"of {self.arrivals_s:,.0f} s of arrivals"
        if not self.question.lasts:
            return f"{first}, as long as the workload lasts"
        if self.shorter is None:
            return f"{first}, as configured; longer runs may answer otherwise"
        moved = f"{self.moved:.1%} from that of {self.shorter.arrivals_s:,.0f} s"
        return f"{first}; {moved}{'' if self.settled else ', so not settled: allow a higher --longest'}"

    @property
    def _asked(self) -> Question:
        """The question of runs as long as configured."""
        return self.question if self.shorter is None else self.shorter._asked

    @property
    def command(self) -> str:
        """The shell command that finds it again."""
        question = self._asked
        words = ["simlora-capacity", *question.overrides, f"--seeds={len(question.seeds)}"]
        words += [f"--precision={question.precision}", f"--start={question.start:g}"]
        words += [f"--limit={name}={limit!r}" for name, limit in question.limits.items()]
        if question.least != LEAST:
            words.append(f"--least={question.least:g}")
        if question.step != STEP:
            words.append(f"--step={question.step:g}")
        if question.longest != LONGEST:
            words.append(f"--longest={question.longest}")
        if question.attainment is not None:
            words.append(f"--attainment={question.attainment}")
        words.append("--replicas" if question.find == REPLICAS else f"--key={question.key}")
        return shlex.join(words)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the single runs, ready for `json.dumps(..., allow_nan=False)`."""
        question = self.question
        tree: dict[str, Any] = json_safe(
            {
                "value": self.value,
                "unit": question.unit,
                "mean": float(self._ends("value").mean()),
                "interval": list(self.interval),
                "confidence": CONFIDENCE,
                "precision": question.precision,
                "lengths": self.lengths,
                "settled": self.settled,
                "key": question.key,
                "side": {"name": self.side.name} | {name: getattr(self.side, name) for name in CONDITIONS},
                "slo": {"limits": dict(question.limits), "attainment": question.attainment},
                "seeds": self.seeds.to_dict("records"),
                "runs": len(self.runs),
                "warnings": list(self.warnings),
                "command": self.command,
            }
        )
        return tree

    def text(self) -> str:
        """Return what the configuration runs on, the answer and a line a seed."""
        question = self.question
        lines = [self.side.text(), "", self.words, f"within {question.slo}", self._how_long, ""]
        lines.append(
            f"{'seed':>6}{'met at':>12}{'missed at':>12}"
            + "".join(f"{name:>22}" for name in question.figures)
        )
        for row in self.seeds.to_dict("records"):
            beyond = "" if math.isnan(row["beyond"]) else f"{row['beyond']:.5g}"
            figures = "".join(f"{row[name]:>22.4g}" for name in question.figures)
            lines.append(f"{row['seed']:>6}{row['value']:>12.5g}{beyond:>12}{figures}  {row['load']}")
        return "\n".join(lines)

    @property
    def words(self) -> str:
        """The answer in words."""
        low, high = self.interval
        if self.question.find == REPLICAS:
            return f"{self.value:.0f} replicas are enough with every seed"
        first = f"{self.value:.4g} {self.question.unit}"
        return (
            f"{first}, one seed" if math.isnan(low) else f"{first} [{low:.4g}, {high:.4g}], {self._of_what}"
        )

    def save(self, folder: Path) -> None:
        """Write runs.parquet, capacity.png and capacity.json into a folder. Raises InputError if that cannot be."""
        from matplotlib.figure import Figure

        picture = Figure(figsize=(7, 4.2), layout="constrained")
        self.plot(ax=picture.add_subplot())
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        with writing(folder, FILES) as draft:
            self.runs.to_parquet(draft / "runs.parquet")
            picture.savefig(draft / "capacity.png", dpi=150)
            (draft / "capacity.json").write_text(f"{text}\n", encoding="utf-8")

    def plot(self, figure: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw a figure of the longest runs over what was varied, with its limit and the answer.

        The figure is the first limit's where none is given.
        """
        from simlora.report.capacity import plot_capacity

        question = self.question
        name = figure or question.figures[0]
        if name not in question.figures:
            raise InputError(f"the SLO is not about {name}; {nearest(name, question.figures)}")
        limit = question.limit(name)
        span = self.interval if question.find == RATE else (math.nan, math.nan)
        longest = self.runs[self.runs["times"] == question.times]
        drawn = plot_capacity(longest, name, limit, self.value, span, question.unit, ax)
        drawn.set_title(f"{self.side.name}: {self.side.model} on {self.side.gpu}", fontsize=9)
        return drawn

    def _ends(self, name: str) -> NDArray[np.float64]:
        return self.seeds[name].to_numpy(dtype=np.float64)
