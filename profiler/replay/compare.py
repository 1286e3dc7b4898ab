"""The device against the simulator: iteration by iteration, and request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np
import pandas as pd

from profiler.replay.iteration_log import Iteration
from simlora.engine.scenario import Scenario
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork

FIGURES = ("makespan_s", "ttft_s", "tpot_s", "latency_s")


@dataclass(frozen=True)
class Served:
    """One run of a trace on the device: a row a request, and a row an iteration."""

    requests: pd.DataFrame
    iterations: pd.DataFrame


@dataclass(frozen=True)
class Compared:
    """Runs of one trace on the device, beside its simulation with one calibration.

    `iterations`: those of all runs, with the `predicted_s` of each by itself.
    """

    calibration: str
    runs: tuple[Served, ...]
    simulated: pd.DataFrame
    iterations: pd.DataFrame

    def figures(self) -> pd.DataFrame:
        """Return a row a figure: `real` (the mean of the runs), `least` and `most` of them, `simulated`, `error`."""
        runs = pd.DataFrame([_figures(run.requests) for run in self.runs])
        found = pd.DataFrame({"real": runs.mean(), "least": runs.min(), "most": runs.max()})
        found["simulated"] = pd.Series(_figures(self.simulated))
        found["error"] = found["simulated"] / found["real"] - 1.0
        return found

    def iteration_error(self) -> pd.DataFrame:
        """Return by kind the mean relative error of an iteration alone, and the error of their sum."""
        by_kind = self.iterations.groupby("kind")
        sums = by_kind[["seconds", "predicted_s"]].sum()
        off = (self.iterations["predicted_s"] / self.iterations["seconds"] - 1.0).abs()
        return pd.DataFrame(
            {
                "iterations": by_kind.size(),
                "each": off.groupby(self.iterations["kind"]).mean(),
                "sum": sums["predicted_s"] / sums["seconds"] - 1.0,
            }
        )

    def latency_error(self) -> pd.Series[float]:
        """Return the relative error of every request's latency, in every run."""
        real = pd.concat([run.requests["latency_s"] for run in self.runs], ignore_index=True)
        return pd.Series(np.tile(self.simulated["latency_s"], len(self.runs))) / real - 1.0

    def lines(self) -> list[str]:
        """Return what people read."""
        found = [f"with {self.calibration}:"]
        for name, row in self.figures().iterrows():
            span = f" ({row.least:.4g} to {row.most:.4g})" if len(self.runs) > 1 else ""
            found.append(
                f"  {name:12}real {row.real:9.4g}{span}, simulated {row.simulated:9.4g}, {100 * row.error:+6.1f} %"
            )
        for kind, row in self.iteration_error().iterrows():
            found.append(
                f"  {kind:12}{row.iterations:.0f} iterations, each off by {100 * row.each:.1f} %, all together "
                f"by {100 * row['sum']:+.1f} %"
            )
        off = self.latency_error().abs()
        found.append(
            f"  {'a request':12}its latency is off by {100 * off.median():.1f} % at the median, "
            f"{100 * off.quantile(0.95):.1f} % at the 95th percentile"
        )
        return found


def table(iterations: Sequence[Iteration]) -> pd.DataFrame:
    """Return a row an iteration, with its `seconds`."""
    found = pd.DataFrame([asdict(each) for each in iterations])
    return found.assign(seconds=found["end_s"] - found["begin_s"])


def compare(scenario: Scenario, runs: Sequence[Served], simulated: pd.DataFrame) -> Compared:
    """Set runs beside the scenario's simulation, and price each iteration with the scenario's calibration."""
    model = IterationModel(scenario.calibration)
    kernel = scenario.policies.kernel(scenario.calibration)
    iterations = pd.concat([run.iterations for run in runs], ignore_index=True)
    predicted = []
    for each in (
        Iteration(*row) for row in iterations[[field.name for field in fields(Iteration)]].to_numpy()
    ):
        work = LoraWork(each.lora_tokens, each.token_rank_sum, each.max_rank, each.adapters, each.requests)
        if each.kind == "prefill":
            predicted.append(model.prefill_s(each.batch_tokens, each.tokens_sq) + kernel.prefill_s(work))
        else:
            predicted.append(model.decode_s(each.requests, each.batch_tokens) + kernel.decode_s(work))
    return Compared(
        scenario.calibration.path, tuple(runs), simulated, iterations.assign(predicted_s=predicted)
    )


def _figures(requests: pd.DataFrame) -> dict[str, float]:
    found = {name: float(requests[name].mean()) for name in FIGURES[1:]}
    return {"makespan_s": float(requests["finish_s"].max())} | found
