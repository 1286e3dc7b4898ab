# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From a profile to a capacity plan
#
# How many GPUs does my traffic need? The answer rests on how long an iteration takes on them. So there are two steps:
#
# 1. **Profile** the device: `simlora-profile` times iterations, LoRA kernels and copies of adapters, and writes a
#    *calibration*, a YAML file of coefficients.
# 2. **Plan** with it: `simlora.capacity` simulates your traffic until it knows what the device carries.
#
# First we do both with the machine that this notebook runs on: its CPU, and a model of 16 million parameters, so that
# it takes seconds. Then the same plan with a calibration that comes with simlora, for a GPU that you may not have.
#
# The profiler needs torch: `pip install -c constraints.txt -e '.[profiler]'`.

# %%
import os
import sys
import tempfile
from pathlib import Path

import pandas as pd
import yaml
from matplotlib import pyplot

import simlora

folder = Path(tempfile.mkdtemp(prefix="simlora-"))
os.chdir(folder)
os.environ["SIMLORA_CACHE_DIR"] = str(folder / "cache")
os.environ["PATH"] = (
    f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where the commands are
)

# %% [markdown]
# ## Step 1: profile this machine
#
# A plan says what to time. `plan=quick`, the default, has 143 points and takes one to three minutes on a CPU. Ours is
# rougher and takes seconds.

# %%
PLAN = """\
rounds: 1
prefill:
- {requests: [1], tokens: [16, 64, 128, 256]}
- {requests: [2], tokens: [32, 64]}
- {requests: [1, 2], tokens: [32], ranks: [8, 32]}
decode:
- {requests: [1, 4, 8], tokens: [32, 128]}
- {requests: [1, 4, 8], tokens: [64], ranks: [8, 32]}
adapter_load:
- {ranks: [8, 32, 64]}
"""
Path("plan.yaml").write_text(PLAN)
print(PLAN)

# %% language="bash"
# simlora-profile device=cpu plan=plan.yaml 'kernels=[mbgmv]' out=profile

# %% [markdown]
# "Off where unseen" is the honest number: every fifth of the points is predicted from the others. A rough plan is off
# by ten per cent and more, and by far more when the machine does something else meanwhile; then measure again.
# `plan=full` on a GPU is the one to trust. [docs/profiling.md](../docs/profiling.md) has both. This is the calibration:

# %%
path = Path("profile/cpu-llama_16m-tp1.yaml")
measured = yaml.safe_load(path.read_text())
assert measured["provenance"]["kind"] == "measured"
assert measured["decode"]["intercept_s"] + measured["decode"]["per_sequence_s"] > 0
parts = ("prefill", "decode", "adapter_load")
pd.json_normalize({part: measured[part] for part in parts}).T.set_axis(["value"], axis=1)

# %% [markdown]
# ## Step 2: plan with it
#
# The calibration is named on the command line. Our traffic: 20 adapters of ranks 8 and 32, prompts of 32 to 128 tokens,
# answers of 10 to 50. A request is in time when its first token comes within a second, and each further one takes
# 200 ms at most, on average. We ask that of 95 % of the requests.

# %%
TRAFFIC = [
    "workload=synthetic",
    "workload.adapters=20",
    "workload.ranks=[8,32]",
    "workload.prompt_tokens.lo=32",
    "workload.prompt_tokens.hi=128",
    "workload.output_tokens.lo=10",
    "workload.output_tokens.hi=50",
    "workload.duration_s=60",
    "slo.ttft_s=1",
    "slo.tpot_s=0.2",
    "timeline=false",
]
CPU = ["gpu=cpu", "model=llama_16m", f"calibration={path}", "replica.kv_token_budget=20000"]

one = simlora.capacity([*CPU, *TRAFFIC], attainment=0.95, seeds=3, precision=0.05)
assert one.value > 0
print(one.text())

# %% [markdown]
# Did it really use what was just measured? Every result says which calibration it had, and we can make the measured
# machine twice as slow and ask again.

# %%
run = simlora.simulate([*CPU, *TRAFFIC])
used = run.summary["calibration"]
assert used["path"].endswith("cpu-llama_16m-tp1.yaml")
assert used["provenance"]["kind"] == "measured"
assert used["coefficients"]["prefill.pass_s_by_tokens.16"] == measured["prefill"]["pass_s_by_tokens"][16]


def twice(section):
    return (
        {name: twice(value) for name, value in section.items()} if isinstance(section, dict) else 2 * section
    )


slow = yaml.safe_load(path.read_text())
for part in ("prefill", "decode"):
    slow[part] = twice(slow[part])
Path("slow.yaml").write_text(yaml.safe_dump(slow))
slower = simlora.capacity([*CPU, "calibration=slow.yaml", *TRAFFIC], attainment=0.95, seeds=3, precision=0.05)
assert slower.value < one.value
print(f"as measured {one.value:.3g} requests/s, twice as slow {slower.value:.3g} requests/s")

# %% [markdown]
# How many such machines for three times what one carries? `find="replicas"` looks for the fewest that are enough with
# every seed. Requests go to the one that has least to do.

# %%
target_rps = float(f"{3 * one.value:.3g}")
machines = simlora.capacity(
    [*CPU, *TRAFFIC, f"workload.arrivals.rate_rps={target_rps}", "router=most_idle"],
    find="replicas",
    attainment=0.95,
    seeds=3,
)
assert 2 <= machines.value <= 6
print(f"{target_rps} requests/s need {machines.value:.0f} of them")

# %% [markdown]
# ## The same plan for GPUs that you do not have
#
# simlora comes with calibrations that were fitted to measurements others published
# ([docs/calibrations.md](../docs/calibrations.md) says which, and how far to trust them). A plan for Llama-2-7B on
# H100s: 100 adapters of ranks 8 to 64, a first token within a second and 50 ms a token, for 99 % of the requests. The
# target is 60 requests per second.

# %%
H100 = [
    "gpu=h100_80g",
    "model=llama_2_7b",
    "router=most_idle",
    "workload=synthetic",
    "workload/popularity=zipf",
    "workload.arrivals.rate_rps=60",
    "workload.duration_s=20",
    "slo.ttft_s=1",
    "slo.tpot_s=0.05",
    "timeline=false",
]
plan = simlora.capacity(H100, find="replicas", attainment=0.99, seeds=2)
kind = simlora.simulate([*H100, f"cluster.replicas={plan.value:.0f}"]).summary["calibration"]["provenance"][
    "kind"
]
print(f"{plan.value:.0f} H100 for 60 requests/s; the calibration is {kind}")
print(plan.text())

# %% [markdown]
# A number alone is no plan. What does one GPU more or less change? A point is a run, filled where the SLO was met. They
# are longer than the 20 s above: runs get longer until the answer no longer moves.

# %%
longest = plan.runs[plan.runs["times"] == plan.question.times]
ax = plan.plot()
ax.set(yscale="linear", ylim=(0, 1.03), xticks=sorted(longest["value"].unique().astype(int)))
pyplot.show()
attainment = longest.groupby("value")["slo.attainment"].min()
assert attainment[plan.value] >= 0.99  # enough, with every seed
assert attainment[plan.value - 1] < 0.99  # and one less is not
attainment.rename(int).round(4)

# %% [markdown]
# ## And if more requests come?
#
# The fewest GPUs for several rates, by simulating all combinations, with runs as long as those that settled the plan.

# %%
RATE, REPLICAS = "workload.arrivals.rate_rps", "cluster.replicas"
others = [override for override in H100 if not override.startswith((RATE, "workload.duration_s"))]
others.append(f"workload.duration_s={20 * plan.question.times}")
sizes = range(1, int(plan.value) + 3)
grid = simlora.sweep([f"{RATE}=15,30,60", f"{REPLICAS}={','.join(map(str, sizes))}", *others], seeds=2)
ax = grid.plot("slo.attainment", x=REPLICAS)
ax.axhline(0.99, color="black", linestyle="--", linewidth=1)
ax.set(ylim=(0, 1.03), xticks=list(sizes))
ax.get_legend().set_title("requests/s")
pyplot.show()

worst = grid.table.groupby([RATE, REPLICAS])["slo.attainment"].min().reset_index()
fewest = worst[worst["slo.attainment"] >= 0.99].groupby(RATE)[REPLICAS].min()
assert fewest.is_monotonic_increasing
assert fewest[60] == plan.value
fewest.rename("fewest H100").to_frame()

# %% [markdown]
# Before you buy: look at `provenance` of the calibration, profile the GPU with `simlora-profile device=cuda plan=full`,
# leave room for the hour in which traffic is highest, and for a host that fails
# (`cluster.failures='[{host: 0, at_s: 30}]'`).
