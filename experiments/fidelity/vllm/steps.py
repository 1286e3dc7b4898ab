"""What the table of step times says by itself: closed batches whose every step is known.

A closed batch of b requests, each of p prompt and o output tokens, takes steps of b sequences with
b * (p + o / 2) tokens of context on average. Adapters drawn at random for n requests among k are
k * (1 - (1 - 1 / k) ** n) distinct ones. All of it is linear in the coefficients, so non-negative least squares
on relative errors finds them. Source of the measurements: arXiv 2508.08343, as its authors published them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

from experiments.fidelity.vllm.rows import MODELS
from simlora.core.errors import InputError
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import TILE, LoraWork, Vllm

TABLE = Path("profiles") / "vllm_lora_steps.csv"
COLUMNS = (
    "kind",
    "model",
    "max_num_seqs",
    "max_loras",
    "max_lora_rank",
    "adapters_used",
    "requests",
    "prompt_tokens_each",
    "output_tokens_each",
    "duration_s",
    "ttft_mean_ms",
    "tpot_mean_ms",
    "itl_mean_ms",
)
KINDS = ("no_lora", "single_request", "lora_batch")
"""Of the table's rows those whose every step is known."""
LOAD_S = 0.0065
"""A load from host memory, as the authors measured it: 6.4 to 6.6 ms for ranks 8 to 32."""


def read(folder: Path) -> pd.DataFrame:
    """Read the table. Raises InputError where it is not there, or not that table."""
    path = folder / TABLE
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise InputError(f"{path} has no column {missing[0]}")
    return table


def _fit(
    columns: Mapping[str, NDArray[np.float64] | float], seconds: NDArray[np.float64]
) -> dict[str, float]:
    """Return non-negative coefficients by column, of the least relative errors."""
    full = [
        np.broadcast_to(np.asarray(column, dtype=np.float64), seconds.shape) for column in columns.values()
    ]
    found, _ = nnls(np.column_stack(full) / seconds[:, None], np.ones(len(seconds)))
    return dict(zip(columns, map(float, found), strict=True))


def coefficients(table: pd.DataFrame, model: str) -> dict[str, float]:
    """Return what the table says of a model (our name), by coefficient."""
    theirs = {ours: name for name, ours in MODELS.items()}[model]
    own = table[table["model"] == theirs]
    return decode(own) | prefill(table) | slots(own) | adapters(own) | loads(own)


def decode(own: pd.DataFrame) -> dict[str, float]:
    """The base model's decode step."""
    rows = own[(own["kind"] == "no_lora") & (own["output_tokens_each"] > 1)]
    size = rows["max_num_seqs"].to_numpy(dtype=np.float64)
    context = size * (rows["prompt_tokens_each"] + rows["output_tokens_each"] / 2).to_numpy()
    names = ("decode.intercept_s", "decode.per_sequence_s", "decode.per_context_token_s")
    return _fit(dict(zip(names, (1.0, size, context), strict=True)), rows["itl_mean_ms"].to_numpy() / 1000)


def prefill(table: pd.DataFrame) -> dict[str, float]:
    """The base model's prefill: requests that want one token, in as few full steps as can be.

    Each of them also costs the client and the front end, which the tokens do not see. Both models are of one
    size and only Llama was measured with full steps, so it stands for both; a step reads the weights as a decode step.
    """
    rows = table[
        (table["kind"] == "no_lora") & (table["output_tokens_each"] == 1) & (table["requests"] > 1000)
    ]
    requests = rows["requests"].to_numpy(dtype=np.float64)
    found = _fit(
        {"request": requests, "prefill.per_token_s": requests * rows["prompt_tokens_each"].to_numpy()},
        rows["duration_s"].to_numpy(),
    )
    return {"prefill.per_token_s": found["prefill.per_token_s"]}


def slots(own: pd.DataFrame) -> dict[str, float]:
    """What one request pays for slots that no request uses: the programs of one block of tokens."""
    rows = own[own["kind"] == "single_request"]
    count = rows["max_loras"].to_numpy(dtype=np.float64)
    rank = np.maximum(rows["max_lora_rank"].to_numpy(dtype=np.float64), TILE)
    columns = {"one": 1.0, "kernels.vllm.per_slot_s": count, "kernels.vllm.per_slot_rank_s": count * rank}
    found = _fit(columns, rows["itl_mean_ms"].to_numpy() / 1000)
    del found["one"]  # the base model's step, the request's adapter and what every pass with LoRA costs
    return found


def adapters(own: pd.DataFrame) -> dict[str, float]:
    """What each distinct adapter of a step of many tokens costs, at one number of slots and sequences."""
    rows = own[(own["kind"] == "lora_batch") & (own["adapters_used"] > 0)]
    used, size = (
        rows["adapters_used"].to_numpy(dtype=np.float64),
        rows["max_num_seqs"].to_numpy(dtype=np.float64),
    )
    distinct = used * (1 - (1 - 1 / used) ** size)
    found = _fit({"one": 1.0, "kernels.vllm.per_adapter_s": distinct}, rows["itl_mean_ms"].to_numpy() / 1000)
    return {"kernels.vllm.per_adapter_s": found["kernels.vllm.per_adapter_s"]}


def simulated(table: pd.DataFrame, calibration: Calibration) -> pd.DataFrame:
    """Return the steps of the calibration's model: `kind`, `measured_ms` and `simulated_ms`.

    Left out are requests for one token, and where the number of sequences is blank, as it changed during the run.
    """
    theirs = {ours: name for name, ours in MODELS.items()}[calibration.model]
    own = table[(table["model"] == theirs) & (table["output_tokens_each"] > 1)]
    own = own[own["kind"].isin(KINDS) & own["max_num_seqs"].notna()]
    iteration, found = IterationModel(calibration), []
    for row in own.itertuples():
        single = row.kind == "single_request"
        size = 1 if single else int(row.max_num_seqs)
        step_s = iteration.decode_s(size, int(size * (row.prompt_tokens_each + row.output_tokens_each / 2)))
        used = 1 if single else row.adapters_used
        if used > 0:
            distinct = round(used * (1 - (1 - 1 / used) ** size))
            kernel = Vllm(calibration, int(row.max_loras), int(row.max_lora_rank))
            step_s += kernel.decode_s(LoraWork(size, 0, 0, distinct))
        found.append((row.kind, float(row.itl_mean_ms), 1000 * step_s))
    return pd.DataFrame(found, columns=["kind", "measured_ms", "simulated_ms"])


def errors(table: pd.DataFrame, calibration: Calibration) -> dict[str, dict[str, float]]:
    """Return the median and the worst relative error of a calibration on the table, by kind of row, in magnitude."""
    steps = simulated(table, calibration)
    off = (steps["simulated_ms"] / steps["measured_ms"] - 1).abs()
    return {
        kind: {
            "median": float(off[steps["kind"] == kind].median()),
            "worst": float(off[steps["kind"] == kind].max()),
        }
        for kind in KINDS
        if (steps["kind"] == kind).any()
    }


def loads(own: pd.DataFrame) -> dict[str, float]:
    """First uses of adapters: requests sent at once, every one for another adapter, of which one runs at a time.

    Of n requests, the i-th has its first token at n * front + (i - 1) * each + (each - decoding), where the front end
    takes `front` for a new adapter, before any request runs, and the engine takes `each` for a request, of which
    `decoding` are the steps after its first token. The run's duration and its mean time to first token give both. What
    `each` has beyond the steps, the first token of a request that loads nothing, and LOAD_S, is read from disk.
    """
    rows, single = own[own["kind"] == "loading"], own[own["kind"] == "single_request"]
    first_token_ms = single.loc[single["max_loras"] == single["max_loras"].min(), "ttft_mean_ms"].mean()
    n, decoding_s = rows["requests"], rows["tpot_mean_ms"] * (rows["output_tokens_each"] - 1) / 1000
    each_s = (rows["duration_s"] - rows["ttft_mean_ms"] / 1000 - decoding_s) / ((n - 1) / 2)
    front_s = rows["duration_s"] / n - each_s
    disk_s = each_s - decoding_s - first_token_ms / 1000 - LOAD_S
    return {
        "front_end.per_adapter_s": float(front_s.median()),
        "adapter_load.disk_latency_s": max(float(disk_s.median()), 0.0),
    }
