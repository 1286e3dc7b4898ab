"""A server that is known, and its benchmark's result: a simulation whose calibration is another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simlora.api.preparing import composed, ready
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.reporting import TokenStream
from simlora.latency.calibration import Calibration
from simlora.validation.measured import Unsaid
from simlora.workload.logs.importing import Wishes

SERVER = ("system=vllm", "gpu=h100_80g", "model=llama_3_1_8b", "workload=per_adapter", "workload.adapters=8")
TRAFFIC = ("workload.rates_rps=[0.75]", "workload.duration_s=60", "workload.ranks=[16]")
BUSY = ("workload.rates_rps=[1.5]", "workload.duration_s=120", "workload.ranks=[16]")
CONFIG = SERVER[:3]
EIGHT = Unsaid(wishes=Wishes(rank=16), adapters=8)
"""What a benchmark's result does not say of such a server."""


def served(
    overrides: Sequence[str], changed: Callable[[Calibration], Calibration] = lambda calibration: calibration
) -> dict[str, Any]:
    """Return what vllm bench serve --save-detailed writes of a server with a `changed` calibration."""
    scenario = ready(*composed([*overrides, "progress=false"])).scenario
    scenario = replace(scenario, calibration=changed(scenario.calibration))
    trace, times_s = scenario.trace, [[] for _ in scenario.trace.arrival_s]

    def on_token(request: Request, tokens: int, at_s: float) -> None:
        times_s[request.id].append(at_s)

    stream = partial(TokenStream, on_token=on_token)
    Simulation(replace(scenario, parts=(stream, *scenario.parts))).run()
    gaps_s = [np.diff(each).tolist() for each in times_s]
    return {
        "request_rate": "inf",
        "start_times": (1000 + trace.arrival_s).tolist(),
        "input_lens": trace.prompt_tokens.tolist(),
        "output_lens": trace.output_tokens.tolist(),
        "ttfts": [each[0] - came for each, came in zip(times_s, trace.arrival_s.tolist(), strict=True)],
        "itls": gaps_s,
        "errors": [""] * len(trace),
        "adapters": [trace.adapters[at].name for at in trace.adapter.tolist()],
        "ranks": [trace.adapters[at].rank for at in trace.adapter.tolist()],
    }


def as_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the same as a gateway would log it: a row a request, with its adapter."""
    names = ("start_times", "adapters", "ranks", "input_lens", "output_lens", "ttfts", "itls")
    ours = ("arrival_s", "adapter", "rank", "prompt_tokens", "output_tokens", "ttft_s", "itls")
    return [dict(zip(ours, row, strict=True)) for row in zip(*(result[name] for name in names), strict=True)]


def written(result: dict[str, Any] | list[dict[str, Any]], path: Path) -> Path:
    """Write a result and return its path."""
    path.write_text(json.dumps(result), encoding="utf-8")
    return path
