# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Bring your own policy
#
# A policy is a class in a file of yours. Nothing inside simlora has to change: the command line names the class by
# `_target_`, and so does a sweep. This notebook writes a scheduler in ten lines, runs it from the command line, and
# compares it with first come, first served on the same requests.
#
# **The idea.** With many adapters, a request often waits for its adapter's weights to be copied to the GPU, and while
# they travel, S-LoRA's batch stands still. So let those go first whose adapter is there already. That should need
# fewer copies. Which requests would wait longer?

# %%
import json
import os
import sys
import tempfile
from pathlib import Path

import pandas as pd
from matplotlib import pyplot

import simlora

folder = Path(tempfile.mkdtemp(prefix="simlora-"))
os.chdir(folder)
os.environ["SIMLORA_CACHE_DIR"] = str(folder / "cache")
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where `simlora` is
sys.path.insert(
    0, str(folder)
)  # where this notebook finds my_policy; the command line looks in its folder anyway

# %% [markdown]
# ## Ten lines
#
# `Fcfs` asks `order` which request should start next, and admits them until one does not fit. We only change the order.
# `view` is what a real scheduler would know: the queue, the batch, which adapters are in memory. It does not tell how
# long an answer will be.

# %%
# %%writefile my_policy.py
from simlora.policies.scheduling.fcfs import Fcfs


class WarmFirst(Fcfs):
    """Start those first whose adapter is in the GPU's memory."""

    def order(self, view):
        return sorted(view.waiting, key=lambda request: (not view.resident(request.adapter), request.id))

    def on_arrival(self):
        return 0  # look again at every arrival: its adapter may be there


# %% [markdown]
# ## On the command line
#
# From the folder where the file lies. `hydra.run.dir` says where the results go.

# %% language="bash"
# simlora scheduler._target_=my_policy.WarmFirst workload=synthetic workload/popularity=zipf \
#     workload.arrivals.rate_rps=1.8 hydra.run.dir=mine

# %%
summary = json.loads(Path("mine/summary.json").read_text())
assert "my_policy.WarmFirst" in Path("mine/config.yaml").read_text()
assert Path("mine/report.html").exists()
assert summary["requests"]["finished"] == summary["requests"]["submitted"]
summary["slo"]

# %% [markdown]
# ## Is it better?
#
# One run proves nothing. A sweep runs both policies at three rates with five seeds. A seed fixes the requests, so both
# policies always get the same ones (*common random numbers*). The differences are then those of the policies.

# %%
POLICY, RATE = "scheduler._target_", "workload.arrivals.rate_rps"
FCFS, OURS = "simlora.policies.scheduling.fcfs.Fcfs", "my_policy.WarmFirst"
sweep = simlora.sweep(
    [
        f"{POLICY}={FCFS},{OURS}",
        f"{RATE}=1.2,1.6,2.0",
        "workload=synthetic",
        "workload/popularity=zipf",  # some adapters are asked for much more often
        "workload.duration_s=150",
        "timeline=false",
    ],
    seeds=5,
)
assert (sweep.table["status"] == "ran").all()
names = {FCFS: "first come, first served", OURS: "warm first"}
readable = simlora.Sweep(sweep.table.assign(policy=sweep.table[POLICY].map(names)), ["policy", RATE])

figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
for ax, name in zip(axes, ("adapters.hit_rate", "slo.attainment", "ttft_s.p95"), strict=True):
    readable.plot(name, x=RATE, ax=ax)
pyplot.show()

# %% [markdown]
# The bands are 95 % intervals over seeds, and open circles are past saturation. The bands overlap here and there. The
# *paired* differences, seed by seed, say more: `differs` is whether the interval excludes zero.

# %%
FIGURES = ("adapters.loads", "slo.attainment", "ttft_s.p50", "ttft_s.p95")
paired = {name: sweep.paired(name, between=POLICY, base=FCFS).set_index(RATE) for name in FIGURES}
pd.concat(
    {name: table[["difference", "low", "high", "differs"]] for name, table in paired.items()},
    names=["figure"],
).round(3)

# %% [markdown]
# ## Verdict
#
# Computed, so that it stays true when you change the policy and run again:

# %%
less_is_better = {"adapters.loads": True, "slo.attainment": False, "ttft_s.p50": True, "ttft_s.p95": True}
for name, table in paired.items():
    for rate, row in table.iterrows():
        better = (row["difference"] < 0) == less_is_better[name]
        verdict = (
            ("better" if better else "worse")
            if row["differs"]
            else "no difference that five seeds would show"
        )
        print(f"{name:14} at {rate} requests/s: {verdict}")

# %% [markdown]
# Below saturation there is no queue to reorder, so nothing changes. Where a queue builds up, warm requests first mean
# fewer copies and more promises kept. But requests for rare adapters wait longer: the 95th percentile gets worse. A
# policy for production would let no request wait too long; `simlora/policies/scheduling/credit.py` shows how dLoRA does
# that.

# %%
busy = 2.0
assert paired["adapters.loads"].loc[busy, "high"] < 0  # fewer copies
assert paired["slo.attainment"].loc[busy, "low"] > 0  # more requests in time
assert paired["ttft_s.p95"].loc[busy, "difference"] > 0  # and others wait longer
assert not paired["slo.attainment"].loc[1.2, "differs"]  # no queue, no difference

# %% [markdown]
# ## Further
#
# - How much more traffic does it carry? `simlora-capacity scheduler._target_=my_policy.WarmFirst --attainment 0.9`
# - Routers, placements, loaders, evictions, migrations and kernels are slots of the same kind:
#   [docs/extending.md](../docs/extending.md) lists what each is asked and what it may see.
