# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Bring your own trace
#
# A trace is a file with a row for each request: CSV, Parquet or JSONL. Five columns are needed:
#
# | column | meaning |
# |---|---|
# | `arrival_s` | when the request arrives, in seconds from the start |
# | `adapter` | the name of its LoRA adapter; empty for the base model alone |
# | `rank` | the rank of that adapter |
# | `prompt_tokens` | length of the prompt |
# | `output_tokens` | length of the answer |
#
# `max_output_tokens`, `session` and `block_hashes` may be there too. The first is what a request declares: a scheduler
# sees it, and never the true length.

# %%
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot

import simlora

folder = Path(tempfile.mkdtemp(prefix="simlora-"))
os.chdir(folder)
os.environ["SIMLORA_CACHE_DIR"] = str(folder / "cache")
os.environ["PATH"] = (
    f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where the commands are
)

# %% [markdown]
# ## Write one
#
# Yours comes from the log of your service. Here we make one up: ten minutes of a company with two products. *Support*
# has an adapter of rank 16 for each of 40 customers, short answers, and a rush in the middle. *Reports* has three
# adapters of rank 64, and sends a batch of long jobs every two minutes.

# %%
rng = np.random.default_rng(7)

minute_rps = np.interp(np.arange(600), [0, 200, 300, 400, 600], [0.4, 0.4, 1.6, 0.4, 0.4])
support_s = np.sort(np.repeat(np.arange(600), rng.poisson(minute_rps)) + rng.random())
support = pd.DataFrame(
    {
        "arrival_s": support_s,
        "adapter": [f"support-{customer}" for customer in rng.zipf(1.5, len(support_s)) % 40],
        "rank": 16,
        "prompt_tokens": rng.integers(100, 900, len(support_s)),
        "output_tokens": rng.integers(20, 200, len(support_s)),
    }
)
reports = pd.DataFrame(
    {
        "arrival_s": np.repeat(np.arange(60, 600, 120), 12) + np.tile(0.05 * np.arange(12), 5),
        "adapter": [f"report-{kind}" for kind in rng.integers(0, 3, 60)],
        "rank": 64,
        "prompt_tokens": rng.integers(500, 1500, 60),
        "output_tokens": rng.integers(300, 900, 60),
    }
)
trace = pd.concat([support, reports]).sort_values("arrival_s", ignore_index=True)
trace["arrival_s"] = trace["arrival_s"].round(3)
trace["max_output_tokens"] = 1000  # the length of an answer is not known beforehand, so all declare the limit
trace.to_csv("trace.csv", index=False)
trace.head()

# %% [markdown]
# ## Look at it
#
# `simlora-trace info` says what simlora reads in it.

# %% language="bash"
# simlora-trace info trace.csv --picture trace.png

# %%
figure, ax = pyplot.subplots(figsize=(10, 5.6), layout="constrained")
ax.imshow(pyplot.imread("trace.png"), interpolation="antialiased")
ax.set_axis_off()
pyplot.show()

# %% [markdown]
# Large traces load faster as Parquet. `convert` also takes the public formats that `simlora-trace list` names.

# %% language="bash"
# simlora-trace convert trace.csv trace.parquet

# %%
again = pd.read_parquet("trace.parquet")
assert len(again) == len(trace)
assert (again["prompt_tokens"].to_numpy() == trace["prompt_tokens"].to_numpy()).all()

# %% [markdown]
# ## Simulate it
#
# On one A100 with S-LoRA, and a target of 2 s to the first token.

# %%
MINE = ["workload=file", "workload.path=trace.csv", "gpu=a100_80g", "slo.ttft_s=2"]
result = simlora.simulate(MINE)
requests = result.requests
assert len(requests) == len(trace)
assert (requests["status"] == "finished").all()
result.plot_timeline()
pyplot.show()

# %% [markdown]
# The peaks are the reports; the hill in the middle is the rush. Which requests wait? A result has a row for each
# request, so any question of this kind is one line.

# %%
requests["product"] = requests["adapter"].str.split("-").str[0]
requests["in_time"] = requests["ttft_s"] <= 2
requests.groupby("product")[["in_time", "ttft_s", "tpot_s", "cold_start_s"]].mean().round(3)

# %% [markdown]
# ## What if there were more of it?
#
# `speedup=4` lets the same requests arrive four times as fast: the rush stays a rush, a batch stays a batch.

# %%
speedups = [1, 4, 8, 12]
runs = {speedup: simlora.simulate([*MINE, f"speedup={speedup}"]) for speedup in speedups}
share = {speedup: run.summary["slo"]["attainment"] for speedup, run in runs.items()}
assert share[1] == result.summary["slo"]["attainment"]
assert abs(runs[4].requests["arrival_s"].max() - requests["arrival_s"].max() / 4) < 1e-6
assert share[12] < share[1]

figure, ax = pyplot.subplots(figsize=(8, 3.8), layout="constrained")
for run in runs.values():
    run.plot_slo_attainment(ax=ax)
curves = [line for line in ax.lines if line.get_linestyle() == "-"]
labels = [f"speedup {speedup}: {share[speedup]:.0%} in time" for speedup in speedups]
ax.legend(curves, labels, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
pyplot.show()

# %% [markdown]
# ## How much more does it carry?
#
# `simlora-capacity` searches for it. A trace from a file has no rate to vary, so it varies `speedup`. One seed is
# enough, as nothing in a file is random.

# %% language="bash"
# simlora-capacity workload=file workload.path=trace.csv gpu=a100_80g slo.ttft_s=2 \
#     --attainment 0.95 --seeds 1 --out capacity

# %%
found = json.loads(Path("capacity/capacity.json").read_text())
assert found["key"] == "speedup"
at_limit = simlora.simulate([*MINE, f"speedup={found['value']}"])
assert at_limit.summary["slo"]["attainment"] >= 0.95
print(f"One A100 carries this traffic {found['value']:.2f} times as fast with 95 % in time.")

# %% [markdown]
# Would an A10G do?

# %%
small = simlora.simulate([*MINE, "gpu=a10g"])
print(f"{small.summary['slo']['attainment']:.0%} in time on one A10G, {share[1]:.0%} on one A100")
assert small.summary["slo"]["attainment"] < share[1]
for replicas in range(1, 9):
    several = simlora.simulate([*MINE, "gpu=a10g", f"cluster.replicas={replicas}", "router=most_idle"])
    if several.summary["slo"]["attainment"] >= 0.95:
        break
assert several.summary["slo"]["attainment"] >= 0.95
print(f"{replicas} of them keep 95 % in time.")
