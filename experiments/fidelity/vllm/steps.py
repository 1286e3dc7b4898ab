"""What the table of step times says by itself: closed batches whose every step is known.

A closed batch of b requests, each of p prompt and o output tokens, takes steps of b sequences with
b * (p + o / 2) tokens of context on average. That is linear in the coefficients, so non-negative least squares
on relative errors finds them: steps.yaml says from which rows. Source of the measurements: arXiv 2508.08343, as its
authors published them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from experiments.fidelity.compare import spread
from experiments.fidelity.vllm.predict import GPU, MODELS
from experiments.profiles.sums import terms_of
from experiments.studies.reading import load as read_sheet
from simlora.core.errors import InputError
from simlora.latency.calibration import PASS_BY_TOKENS, Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, Vllm
from simlora.latency.parts.composed import engines
from simlora.latency.parts.kernel_times import shipped

FORMS = Path(__file__).with_suffix(".yaml")
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
MEASURED = "llama_3_1_8b"
"""The model whose full steps of prompts were measured."""
WEIGHTS, FULL = 512, 2048
"""Tokens up to which NVIDIA's kernels of both models take as long as reading the weights, and those of a full step."""
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


def coefficients(table: pd.DataFrame, model: str) -> dict[str, float]:
    """Return what the table says of a model (our name), by coefficient."""
    own = table[table["model"] == _theirs(model)]
    found = loads(own)
    for form in read_sheet(FORMS).values():
        found |= _fit(table if form.get("of") == "both models" else own, form)
    full_s, kernels = FULL * found.pop("full.per_token_s"), shipped()
    of_kernels = [kernels[(GPU, name, 1, "vllm")].pass_s[FULL] for name in (model, MEASURED)]
    return found | {
        f"{PASS_BY_TOKENS}.{WEIGHTS}": found["decode.intercept_s"],
        f"{PASS_BY_TOKENS}.{FULL}": full_s * of_kernels[0] / of_kernels[1],
        "host.per_sequence_s": engines()["vllm"]["host"]["sequence_s"],
    }


def _fit(table: pd.DataFrame, form: Mapping[str, Any]) -> dict[str, float]:
    """Return non-negative coefficients of the least relative errors, of terms that are called like coefficients."""
    rows = table.query(form["rows"], engine="python")
    terms, seconds = terms_of(rows, form["terms"]), rows.eval(form["seconds"], engine="python").to_numpy()
    found, _ = nnls(np.column_stack(list(terms.values())) / seconds[:, None], np.ones(len(seconds)))
    return {name: float(value) for name, value in zip(terms, found, strict=True) if "." in name}


def _theirs(model: str) -> str:
    return {ours: name for name, ours in MODELS.items()}[model]


def simulated(table: pd.DataFrame, calibration: Calibration) -> pd.DataFrame:
    """Return the steps of the calibration's model: `kind`, `measured_ms` and `simulated_ms`.

    Left out are requests for one token, and where the number of sequences is blank, as it changed during the run.
    Adapters drawn at random for n sequences among k are k * (1 - (1 - 1 / k) ** n) distinct ones.
    """
    own = table[(table["model"] == _theirs(calibration.model)) & (table["output_tokens_each"] > 1)]
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
    off = steps["simulated_ms"] / steps["measured_ms"] - 1
    return {kind: spread(off[steps["kind"] == kind]) for kind in KINDS if (steps["kind"] == kind).any()}


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
