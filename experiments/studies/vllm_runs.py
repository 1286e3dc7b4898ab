"""How published runs of vLLM with LoRA are called: what vllm_lora_runs.csv says of the run that a point repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.fidelity.vllm.predict import GPU, LISTS, MODELS, SEQUENCES, STEP_TOKENS, Row, read

__all__ = ["FILE", "POOL", "Row", "columns_of", "read", "run", "run_of"]

FILE, POOL = "vllm_lora_runs.csv", "kv_tokens"
COMMON = {
    "system": "vllm",
    "gpu": GPU,
    "replica.max_num_seqs": SEQUENCES,
    "scheduler.max_batched_tokens": STEP_TOKENS,
    "workload": "per_adapter",
}
"""What all published runs have in common."""
SAID = (
    "model",
    "replica.max_loras",
    "replica.max_lora_rank",
    "replica.max_cpu_loras",
    "workload.adapters",
    "workload.ranks",
    "workload.rates_rps",
    "workload.duration_s",
)
"""What a point must say, to be one of these runs."""


def run(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the run of these settings so that equal ones are equal; None if it is no run of these."""
    if not (
        all(settings.get(key) == value for key, value in COMMON.items())
        and all(settings.get(key) is not None for key in SAID)
        and settings.get("until_s") == settings["workload.duration_s"]
    ):
        return None
    adapters, rates = settings["workload.adapters"], settings["workload.rates_rps"]
    counts = settings.get("workload.counts") or _evenly(adapters, len(rates))
    return _as_run(
        settings["model"],
        [settings[f"replica.{name}"] for name in ("max_loras", "max_lora_rank")],
        settings["replica.max_cpu_loras"],
        adapters,
        settings["workload.ranks"],
        dict(zip(rates, counts, strict=True)),
        settings["workload.duration_s"],
    )


def _evenly(adapters: int, rates: int) -> list[int]:
    """Return how many adapters have which rate: as many each as can be, the first rates one more."""
    return [(adapters + rates - 1 - index) // rates for index in range(rates)]


def run_of(columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a row's run."""
    ranks, rates, counts = (columns[name].split() for name in LISTS)
    return _as_run(
        MODELS[columns["model"]],
        [int(columns[name]) for name in ("max_loras", "max_lora_rank")],
        int(columns["max_cpu_loras"]),
        int(columns["adapters"]),
        [int(rank) for rank in ranks],
        dict(zip(map(float, rates), map(int, counts), strict=True)),
        float(columns["duration_s"]),
    )


def _as_run(
    model: str,
    slots: Sequence[int],
    max_cpu_loras: int,
    adapters: int,
    ranks: Sequence[int],
    counts: Mapping[float, int],
    duration_s: float,
) -> dict[str, Any]:
    """Return a run so that equal ones are equal.

    Host memory beyond all adapters is of no use; ranks 16, 16 in turn are 16; rates have no order.
    """
    return {
        "model": model,
        "slots": list(slots),
        "max_cpu_loras": min(max_cpu_loras, adapters),
        "adapters": adapters,
        "ranks": _in_turn(ranks),
        "rates": Counter({float(rate): count for rate, count in counts.items()}),
        "duration_s": float(duration_s),
    }


def _in_turn(ranks: Sequence[int]) -> list[int]:
    """Return the shortest list that, over and over, is the same as this one."""
    ranks = list(ranks)
    lengths = [length for length in range(1, len(ranks)) if len(ranks) % length == 0]
    parts = (ranks[:length] for length in lengths if ranks[:length] * (len(ranks) // length) == ranks)
    return next(parts, ranks)


def columns_of(key: str) -> dict[str, str]:
    """Return the columns that a row's key is made of: the model, and then name=value."""
    model, *rest = key.split()
    columns = dict(part.partition("=")[::2] for part in rest)
    return {"model": model} | {name: value.replace(",", " ") for name, value in columns.items()}
