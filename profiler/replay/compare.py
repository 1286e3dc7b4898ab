"""The device against the simulator: iteration by iteration, and request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from profiler.replay.loop import Iteration
from simlora.engine.scenario import Scenario
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import NO_LORA, Kernel, LoraWork


@dataclass(frozen=True)
class Compared:
    """Two runs of one trace. `iterations`: those of the device, with `seconds` and `predicted_s`."""

    iterations: pd.DataFrame
    real: pd.DataFrame
    simulated: pd.DataFrame

    @property
    def iteration_error(self) -> dict[str, float]:
        """The mean relative error of an iteration's time, by kind."""
        off = (self.iterations["predicted_s"] / self.iterations["seconds"] - 1.0).abs()
        return {
            str(kind): float(error) for kind, error in off.groupby(self.iterations["kind"]).mean().items()
        }

    def figures(self) -> dict[str, tuple[float, float]]:
        """Return (real, simulated) of the makespan and of the means over requests, in seconds."""
        found = {"makespan_s": (float(self.real["finish_s"].max()), float(self.simulated["finish_s"].max()))}
        for name in ("ttft_s", "tpot_s", "latency_s"):
            found[name] = (float(self.real[name].mean()), float(self.simulated[name].mean()))
        return found

    def lines(self) -> list[str]:
        """Return what people read."""
        found = [
            f"{name:12} real {real:9.4f} s, simulated {simulated:9.4f} s, {100 * (simulated / real - 1):+5.1f} %"
            for name, (real, simulated) in self.figures().items()
        ]
        kinds = ", ".join(f"{kind} {100 * error:.1f} %" for kind, error in self.iteration_error.items())
        off = (self.simulated["latency_s"] / self.real["latency_s"] - 1.0).abs()
        found.append(f"an iteration alone is off by {kinds} on average")
        found.append(
            f"a request's latency is off by {100 * off.median():.1f} % at the median, {100 * off.max():.1f} % at most"
        )
        return found


def compare(
    scenario: Scenario, iterations: Sequence[Iteration], real: pd.DataFrame, simulated: pd.DataFrame
) -> Compared:
    """Set a real run beside the simulated one, and price each real iteration with the scenario's calibration."""
    table = pd.DataFrame([asdict(each) for each in iterations])
    table["seconds"] = table["end_s"] - table["begin_s"]
    model = IterationModel(scenario.calibration)
    kernel = scenario.policies.kernel(scenario.calibration)
    table["predicted_s"] = [_predicted(each, model, kernel) for each in iterations]
    return Compared(table, real, simulated)


def _predicted(each: Iteration, model: IterationModel, kernel: Kernel) -> float:
    lora = each.lora_tokens > 0
    work = (
        LoraWork(each.lora_tokens, each.rank_sum, each.max_rank, each.adapters, each.requests)
        if lora
        else NO_LORA
    )
    if each.kind == "prefill":
        return model.prefill_s(each.tokens, each.tokens_sq) + kernel.prefill_s(work)
    return model.decode_s(each.requests, each.tokens) + kernel.decode_s(work)
