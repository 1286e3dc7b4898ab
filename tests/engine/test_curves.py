"""Iterations by curves: fast-forward is exact, with chunks too, and the knee is where the batch has it."""

from dataclasses import replace

import pandas as pd
import pytest

from simlora.api.preparing import composed, ready
from simlora.engine.cluster.simulation import Simulation

CURVES = {
    "prefill.pass_s_by_tokens.64": 0.012,
    "prefill.pass_s_by_tokens.512": 0.020,
    "prefill.pass_s_by_tokens.2048": 0.080,
    "decode.step_s_by_batch.1": 0.011,
    "decode.step_s_by_batch.8": 0.0115,
    "decode.step_s_by_batch.32": 0.020,
    "decode.per_context_token_s_by_batch.1": 4e-8,
    "decode.per_context_token_s_by_batch.32": 9e-8,
}
TIMES = ["admitted_s", "first_token_s", "finish_s"]


def simulated(system: str, fast_forward: bool) -> pd.DataFrame:
    """Return the requests of a run with CURVES instead of the coefficients of its calibration."""
    overrides = ["workload=synthetic", "workload.duration_s=20", "workload.arrivals.rate_rps=3"]
    scenario = ready(*composed([f"system={system}", *overrides])).scenario
    kept = {
        name: value
        for name, value in scenario.calibration.coefficients.items()
        if not name.startswith(("prefill.", "decode."))
    }
    calibration = replace(scenario.calibration, coefficients=kept | CURVES)
    return Simulation(replace(scenario, calibration=calibration, fast_forward=fast_forward)).run().requests()


@pytest.mark.parametrize("system", ["slora", "vllm"])
def test_fast_forward_is_exact(system):
    fast, stepwise = (simulated(system, on) for on in (True, False))
    pd.testing.assert_frame_equal(fast[TIMES], stepwise[TIMES], rtol=1e-12, atol=1e-9)
    assert fast["finish_s"].notna().all()
