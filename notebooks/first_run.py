# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A first run, in five minutes
#
# simlora simulates GPUs that serve one large language model with many LoRA adapters. You describe the GPUs, the
# traffic and the policies, and it tells you how long every request would have waited. No GPU is needed: the
# times of single iterations come from *calibrations*, which are fitted to measurements on real GPUs.
#
# This notebook simulates S-LoRA on one A10G, explains the words, raises the load until it is too much, and then
# tries another policy. Everything goes into a temporary folder.

# %%
import os
import tempfile
from pathlib import Path

import pandas as pd
from matplotlib import pyplot

import simlora

folder = Path(tempfile.mkdtemp(prefix="simlora-"))
os.chdir(folder)

# %% [markdown]
# ## One run
#
# `simulate` takes the same words as the command line: `simlora workload.rate_rps=1` would do the same. What is not
# said has a default: Llama-7B on one A10G, S-LoRA's scheduler, 200 adapters that are asked for equally often, five
# minutes of Poisson arrivals.

# %%
result = simlora.simulate(["system=slora", "workload.rate_rps=1"])
result

# %% [markdown]
# `summary` is a tree of figures. Some of them:

# %%
summary = result.summary
pd.Series(
    {
        "requests that arrived": summary["requests"]["submitted"],
        "of them finished": summary["requests"]["finished"],
        "mean TTFT, s": summary["ttft_s"]["mean"],
        "95th percentile of TTFT, s": summary["ttft_s"]["p95"],
        "mean TPOT, s": summary["tpot_s"]["mean"],
        "SLO attainment": summary["slo"]["attainment"],
        "adapters loaded from the host": summary["adapters"]["loads"],
        "load": summary["load"]["label"],
    },
    name="one A10G, 1 request/s",
    dtype=object,
).to_frame()

# %% [markdown]
# - **TTFT**, time to first token: from the arrival of a request to its first token. Waiting is in it.
# - **TPOT**, time per output token: how long each token after the first took.
# - **SLO**, the service-level objective: here, a TTFT of at most 6 s (`slo.ttft_s`). There are others, as `slo.tpot_s`.
# - **SLO attainment**: the share of all requests that met every target.
# - **load**: `below` saturation, `near` it, or `past` it; `unknown` if the run is too short to tell. Past it the queue
#   grows for as long as the run lasts. Then means say how long the run was, and little else.
#
# Where the times come from is part of the result:

# %%
calibration = summary["calibration"]
assert (calibration["gpu"], calibration["model"]) == ("a10g", "llama_7b")
residuals = calibration["provenance"]["residuals"]
print(calibration["provenance"]["source"])
print(
    "mean latency of the runs it was fitted to: median error {median:.1%}".format(**residuals["mean_latency"])
)

# %% [markdown]
# ## Every request is a row
#
# Nothing in the summary is hidden from you: `requests` is a DataFrame. Here we compute the attainment by hand.

# %%
requests = result.requests
by_hand = (requests["ttft_s"] <= summary["slo"]["targets"]["ttft_s"]).mean()
assert by_hand == summary["slo"]["attainment"]
assert (requests["first_token_s"] - requests["arrival_s"] - requests["ttft_s"]).abs().max() < 1e-9
requests[
    ["arrival_s", "adapter", "rank", "prompt_tokens", "output_tokens", "queue_s", "ttft_s", "tpot_s"]
].head()

# %% [markdown]
# How strict could the SLO be? `plot_slo_attainment` draws the attainment for every target that it could have.

# %%
result.plot_slo_attainment()
pyplot.show()

# %% [markdown]
# ## Raise the rate
#
# Six runs, each with more requests per second.

# %%
rates = [0.5, 1.0, 1.25, 1.5, 2.0, 2.5]
runs = {rate: simlora.simulate([f"workload.rate_rps={rate}"]) for rate in rates}
table = pd.DataFrame(
    {
        "SLO attainment": {rate: run.summary["slo"]["attainment"] for rate, run in runs.items()},
        "mean TTFT, s": {rate: run.summary["ttft_s"]["mean"] for rate, run in runs.items()},
        "mean TPOT, s": {rate: run.summary["tpot_s"]["mean"] for rate, run in runs.items()},
        "finished/s": {rate: run.summary["throughput_rps"] for rate, run in runs.items()},
        "load": {rate: run.summary["load"]["label"] for rate, run in runs.items()},
    }
).rename_axis("requests/s")
assert table["load"].iloc[0] == "below"
assert table["load"].iloc[-1] == "past"
assert table["SLO attainment"].iloc[0] > 0.99 > 0.5 > table["SLO attainment"].iloc[-1]
table.round(3)

# %% [markdown]
# Past saturation the GPU finishes no more requests per second, however many arrive. TPOT has hardly changed: the
# batch is as large as memory allows, and no larger. So what grows is the wait in the queue.

# %%
served = table["finished/s"]
assert served[2.5] < 1.1 * served[1.5]
assert table["mean TTFT, s"][2.5] / table["mean TTFT, s"][1.0] > 50
assert table["mean TPOT, s"][2.5] / table["mean TPOT, s"][1.0] < 1.5

figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
table["SLO attainment"].plot(ax=left, marker="o", ylim=(0, 1.05), ylabel="SLO attainment")
served.plot(ax=right, marker="o", label="finished")
right.plot(rates, rates, color="grey", linestyle="--", label="as many as arrive")
right.set(xlabel="requests/s", ylabel="finished requests/s")
right.legend(frameon=False)
for ax in (left, right):
    ax.grid(color="#e6e8eb")
pyplot.show()

# %% [markdown]
# ## Another policy
#
# S-LoRA serves first come, first served (`scheduler=fcfs`). What if the newest request went first (`lcfs`)? The
# requests are the same, to the microsecond; only the policy differs.

# %%
rate = 2.0
newest_first = simlora.simulate([f"workload.rate_rps={rate}", "scheduler=lcfs"])
in_turn = runs[rate]
assert newest_first.requests["arrival_s"].equals(in_turn.requests["arrival_s"])

figure, ax = pyplot.subplots(figsize=(8, 3.8), layout="constrained")
for name, run in {"first come, first served": in_turn, "newest first": newest_first}.items():
    share = run.summary["slo"]["attainment"]
    ax.scatter(run.requests["arrival_s"], run.requests["ttft_s"], s=9, label=f"{name}: {share:.0%} in time")
ax.axhline(6, color="black", linestyle="--", linewidth=1)
ax.annotate("SLO: 6 s", (0, 6.8), fontsize=9)
ax.set(xlabel="arrival, s", ylabel="TTFT, s", yscale="log", title=f"{rate:g} requests/s, past saturation")
ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, markerscale=2)
pyplot.show()

# %% [markdown]
# Newest first keeps many more promises, because it gives up on those it has already broken. The price: the
# slowest requests wait longer. Neither makes the GPU any faster.

# %%
old, new = in_turn.summary, newest_first.summary
assert new["slo"]["attainment"] > old["slo"]["attainment"] + 0.3
assert new["ttft_s"]["p99"] > old["ttft_s"]["p99"]
assert abs(new["throughput_rps"] / old["throughput_rps"] - 1) < 0.05
pd.DataFrame(
    {
        name: {
            "SLO attainment": s["slo"]["attainment"],
            **{f"TTFT {p}, s": s["ttft_s"][p] for p in ("p50", "p99")},
        }
        for name, s in {"first come": old, "newest first": new}.items()
    }
).round(3)

# %% [markdown]
# ## Keep it
#
# `save` writes what the command line would: tables, the whole configuration, and `report.html`, one page that needs no
# network.

# %%
result.save(folder / "run")
files = sorted(path.name for path in (folder / "run").iterdir())
assert {"report.html", "summary.json", "requests.parquet", "config.yaml"} <= set(files)
files

# %% [markdown]
# Next: [slo_attainment](slo_attainment.ipynb) compares systems on one workload, [own_trace](own_trace.ipynb) takes
# your traffic, [own_policy](own_policy.ipynb) your policy, and [capacity_plan](capacity_plan.ipynb) counts GPUs.
