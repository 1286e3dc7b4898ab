# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # One S-LoRA replica: three requests, event by event
#
# How does an adapter get from the host into a batch, and which file does it? We follow three requests through one
# replica and print every hook that the engine calls, with its time. Beside each stands the file below `simlora/` that
# calls it. [The replica's clock](../docs/clock.md) has the rules, this page one case of them.

# %%
import os
import sys
import tempfile
from pathlib import Path

import pandas as pd
from matplotlib import pyplot

import simlora

folder = Path(tempfile.mkdtemp(prefix="simlora-"))
os.chdir(folder)
sys.path.insert(0, str(folder))

# %% [markdown]
# ## The requests
#
# `a` and `c` ask for the adapter `alice`, `b` for `bob`. `b` arrives while `a` is served, and `c` when `alice` has
# been used and is idle.

# %%
TRACE = """\
arrival_s,adapter,rank,prompt_tokens,output_tokens
0.000,alice,16,200,4
0.050,bob,64,100,3
0.300,alice,16,50,2
"""
_ = Path("trace.csv").write_text(TRACE)

# %% [markdown]
# ## A part that writes down what it is told
#
# A [part](../docs/extending.md#a-part-of-your-own) is one mechanism of a replica. It defines the hooks that it needs,
# and the replica calls them at their places in a boundary. This one changes nothing. A row has the time, the request,
# what happens, the adapters in HBM, the running batch, and the file that does it.

# %%
PART = """\
from simlora.engine.replica.part import Part

SEEN = []


class Diary(Part):
    def __init__(self, replica):
        self.replica = replica

    def note(self, request, what, file):
        now_s, cache = self.replica.clock.now, self.replica.kv.adapters
        in_hbm = " ".join(sorted(cache.adapter(id).name for id in cache.ready_s))
        running = " ".join("abc"[each.id] for each in self.replica.table.batch)
        SEEN.append((now_s, "" if request is None else "abc"[request.id], what, in_hbm, running, file))

    def on_queue(self, request, waits):
        self.note(request, "joins the queue" if waits else "leaves the queue", "engine/replica/request_table.py")

    def before_admit(self, requests):
        for request in requests:
            self.note(request, "is chosen by the scheduler", "policies/scheduling/fcfs.py")
        return requests

    def on_plan(self, plan, now_s):
        self.note(None, f"weights are in HBM at {plan.weights_s:.4f} s", "engine/replica/adapter_loader.py")

    def prepare(self, output, now_s):
        what = "a prefill begins" if output.prefill else "decode steps begin"
        self.note(None, what, "engine/replica/iterations.py")
        return 0.0

    def on_ran(self, now_s):
        self.note(None, "the iteration ends", "engine/replica/iterations.py")

    def after_prefill(self, request, now_s):
        self.note(request, "has its first token", "engine/replica/request_table.py")

    def before_finish(self, request, now_s):
        self.note(request, "has its last token", "engine/replica/request_table.py")

    def on_release(self, request, now_s):
        self.note(request, "gives back its KV and its hold on the adapter", "memory/adapter_cache.py")

    def on_sweep(self, now_s):
        self.note(None, "idle adapters leave", "policies/eviction/on_demand.py")
"""
_ = Path("diary.py").write_text(PART)

# %%
result = simlora.simulate(
    [
        *("gpu=a10g", "model=llama_7b", "system=slora", "replica.max_wait_tokens=1", "fast_forward=false"),
        *("workload=file", "workload.path=trace.csv", "parts=[diary.Diary]", "report=false"),
    ]
)
result.tables["requests"][
    ["adapter", "arrival_s", "admitted_s", "first_token_s", "finish_s", "cold_start_s"]
].round(4)

# %% [markdown]
# ## What happened
#
# S-LoRA's replica prefills or decodes, and asks its scheduler only between iterations.

# %%
import diary

COLUMNS = ["time_s", "request", "what happens", "adapters in HBM", "running", "file below simlora/"]
events = pd.DataFrame(diary.SEEN, columns=COLUMNS).round({"time_s": 4})
events.style.hide(axis="index").format({"time_s": "{:.4f}"})

# %% [markdown]
# The same as a picture: when each request waits, when its weights are copied, and when it is in an iteration.

# %%
rows = result.tables["requests"]
begins = events[events["what happens"].str.endswith("begin") | events["what happens"].str.endswith("begins")]
ends = events[events["what happens"] == "the iteration ends"]
weights_s = events["what happens"].str.extract(r"weights are in HBM at ([0-9.]+) s")[0].dropna().astype(float)
iterations = [
    (max(start_s, *weights_s[weights_s.index < at].tail(1)), end_s, running.split())
    for (at, start_s), end_s, running in zip(
        begins["time_s"].items(), ends["time_s"], ends["running"], strict=True
    )
]
figure, ax = pyplot.subplots(figsize=(9, 2.4), layout="constrained")
for number, (name, row) in enumerate(zip("abc", rows.itertuples(), strict=True)):
    copied_s = row.admitted_s - row.cold_start_s
    ax.barh(number, row.finish_s - row.arrival_s, left=row.arrival_s, height=0.12, color="#c4c4c4")
    ax.barh(
        number,
        row.cold_start_s,
        left=copied_s,
        height=0.5,
        color="#d1792b",
    )
    for start_s, end_s, running in iterations:
        prefilled = end_s == round(row.first_token_s, 4)
        if name in running or prefilled:
            still = name in running and any(end_s == round(each, 4) for each in rows["first_token_s"])
            if not still:
                ax.barh(
                    number,
                    end_s - start_s,
                    left=start_s,
                    height=0.5,
                    color="#3b6fb6" if prefilled else "#7fb2e5",
                )
ax.set(yticks=range(3), yticklabels=list("abc"), xlabel="seconds")
ax.invert_yaxis()
ax.set_title(
    "orange: weights are copied; dark: prefill; light: decode step; grey: waits, or stands still", fontsize=9
)
pyplot.show()

# %% [markdown]
# What the picture shows is in the results:

# %%
a, b, c = rows.itertuples()
assert a.cold_start_s > 0.01  # the copy of alice, alone
assert b.queue_s + b.cold_start_s > a.first_token_s - b.arrival_s  # b waits for a's prefill, and then for bob
assert a.blocked_s > 0.04  # a stands still while bob is copied and b prefilled
assert len(weights_s) == result.summary["adapters"]["loads"] == 3  # alice twice

# %% [markdown]
# Read it with the code beside it:
#
# 1. **Arrival.** `engine/cluster/dispatcher.py` routes `a` to the replica, which puts it into its queue
#    (`RequestTable.enqueue`). The replica is idle, so that a boundary comes at once.
# 2. **A boundary** is `Replica._boundary`. It asks the scheduler (`Fcfs.schedule`, through `Replica.ask`), which
#    tries the waiting requests in order: is there a seat, room in the prefill, memory for the KV
#    (`engine/replica/admission.py`)?
# 3. **Admission** is `Replica.admit`. The KV of `a` is reserved and `alice` pinned (`AdapterCache.pin`); as HBM
#    lacks it, `AdapterLoader.admit` makes room and has the link copy it (`engine/replica/host_link.py`). With
#    `loader=blocking`, as S-LoRA's, the prefill waits until the weights are there. `IterationModel.prefill_s` and
#    the kernel's `prefill_s` say how long it takes (`latency/`).
# 4. **`b` arrives** in the middle of that prefill and waits. After the first decode step the replica looks at its
#    queue again (`replica.max_wait_tokens=1`) and admits `b`, whose adapter is four times as large: `a`, which only
#    wants to decode, stands still for the copy and the prefill. That is *blocked* time in the results, and what
#    CaraServe and vLLM avoid, each in its own way (`loader=cpu_assisted`, `loader=asynchronous`).
# 5. **The end.** At its last token a request gives back KV and adapter (`RequestTable`), and what is idle then may
#    be evicted. `eviction=on_demand` keeps nothing that is idle, so that `alice` is copied a second time for `c`,
#    though `c` waits already. With `eviction=lru` it would stay. Let us see:

# %%
diary.SEEN.clear()
kept = simlora.simulate(
    [
        *("gpu=a10g", "model=llama_7b", "system=slora", "replica.max_wait_tokens=1", "fast_forward=false"),
        *("workload=file", "workload.path=trace.csv", "parts=[diary.Diary]", "report=false", "eviction=lru"),
    ]
)
assert kept.summary["adapters"]["loads"] == result.summary["adapters"]["loads"] - 1
earlier = result.tables["requests"]["ttft_s"] - kept.tables["requests"]["ttft_s"]
assert earlier.iloc[2] > 0.01
(1e3 * earlier).round(1).rename("first token earlier with eviction=lru, ms").to_frame()

# %% [markdown]
# ## Where to go on
#
# * [The replica's clock](../docs/clock.md): every rule of a boundary, with the hooks.
# * [Architecture](../docs/architecture.md): the rooms, and what one event costs.
# * `fast_forward=true`, the default, takes many decode steps as one event and comes to the same times. A part that
#   wants a boundary says so, by `steps` or `next_s`.
