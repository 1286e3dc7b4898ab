"""What FastLibra's authors show over time: `python -m experiments.fastlibra.over_time`.

Figure 2: TTFT of vLLM (static) in three scenarios with Llama-7B, and its mean, which they print. Figure 4: how full the
two parts of its HBM are in translation. Figure 14: what HBM holds with Llama-13B, 100 adapters and 1.6 requests/s on
average in chatbot, whose load they describe: low until 400 s, rising until 900, highest until 1,300, then lower, which
is the shape of figure_11_chatbot.yaml. Half an hour each, as theirs. How their loads go otherwise, and how high, they
do not say: in Figures 2 and 4 ours go up and down twice, around the rates at which FastLibra passes 500 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from experiments.fastlibra.reductions import SCENARIOS, study
from experiments.studies.command import program
from experiments.studies.points import Point, written
from experiments.studies.running import figure_of, run_all
from simlora.api import simulate
from simlora.results.result import Result

DURATION_S = 1800.0
TWICE = [1, 2, 3, 2, 1, 2, 3, 2, 1]
"""The load of Figures 2 and 4: relative, of nine parts of the run."""
RATES = {"chatbot": 1.6, "translation": 5.0, "agent": 4.5}
"""Requests/s with Llama-7B, the means: in the busiest part a half more."""
PUBLISHED_MS = {"chatbot": 1032.4, "translation": 1905.1, "agent": 730.8}
SYSTEMS = {"fastlibra": "FastLibra", "vllm_static": "vLLM (static)", "slora": "S-LoRA"}
FIGURE_14 = {"model": "llama_13b", "replica.tp": 2, "workload.rate_rps": 1.6}
SHIFT_S = 1100.0
"""When adapters change in the authors' translation (section 2.3.2)."""


def half_an_hour(system: str, scenario: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of half an hour of a scenario with 100 adapters, and some of a run's own."""
    base = {"system": system, **study(scenario, 100).settings, "workload.duration_s": DURATION_S}
    return {**base, **own}


def vllm(scenario: str) -> dict[str, Any]:
    """Return the settings of Figure 2's run."""
    load = {"workload.rate_rps": RATES[scenario], "workload.shape": TWICE}
    return half_an_hour("vllm_static", scenario, load)


def simulated(settings: Mapping[str, Any]) -> Result:
    """Simulate these settings."""
    quiet = {**settings, "report": False, "progress": False}
    return simulate([f"{key}={written(value)}" for key, value in quiet.items()])


def ttft_ms() -> list[float]:
    """Return the claim fl-vllm-ttft: mean TTFT of each scenario."""
    return [1e3 * number for number in _vllm_figures("ttft_s.mean")]


def invalid() -> list[float]:
    """Return the claim fl-invalid: the share of history KV without its adapter, the mean over scenarios, in %."""
    return [100 * fmean(_vllm_figures("kv.invalid_share"))]


def _vllm_figures(metric: str) -> list[float]:
    """Return a figure of Figure 2's run of each scenario. Runs what was not run before."""
    here = [Point("", scenario, "vllm_static", 0, vllm(scenario)) for scenario in SCENARIOS]
    found = run_all(here)
    return [figure_of(found, point, metric) for point in here]


def shift(run: Result) -> str:
    """Say how many adapters are asked for before and after the moment at which the authors see their number change."""
    requests, capacity = run.requests, run.timeline["capacity_tokens"].max()
    before = requests["arrival_s"] < SHIFT_S
    used = (requests.loc[here, "adapter"].nunique() for here in (before, ~before))
    part = capacity - run.summary["replicas"][0]["kv_token_budget"]
    full = run.timeline["adapter_tokens"].max() / part
    return (
        "adapters asked for before {:,.0f} s and after: {}, {} (published 41, 75); ".format(SHIFT_S, *used)
        + f"their part is at most {full:.0%} full"
    )


@program()
def main() -> None:
    """Print the numbers of the figures."""
    runs = {scenario: simulated(vllm(scenario)) for scenario in SCENARIOS}
    for scenario, run in runs.items():
        mean_ms = 1e3 * float(run.requests["ttft_s"].mean())
        print(f"  {scenario}: mean {mean_ms:,.1f} ms, published {PUBLISHED_MS[scenario]:,}")
    shares = (f"{100 * run.summary['kv']['invalid_share']:.1f} %" for run in runs.values())
    print(f"  history KV without its adapter: {', '.join(shares)}")
    print(f"  {shift(runs['translation'])}")
    for system, title in SYSTEMS.items():
        run = simulated(half_an_hour(system, "chatbot", FIGURE_14))
        print(f"  {title}: mean TTFT {run.requests['ttft_s'].mean():.2f} s")
