"""Numbers as people read them: three digits and a unit that fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

ABSENT = "–"
JOULES_A_KWH = 3.6e6
SYSTEM_NAMES = {
    "slora": "S-LoRA",
    "punica": "Punica",
    "caraserve": "CaraServe",
    "dlora": "dLoRA",
    "fastlibra": "FastLibra",
    "loraserve": "LoRAServe",
    "toppings": "Toppings",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "hf_peft": "HF-PEFT",
}
METRIC_NAMES = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "tbt_s": "TBT",
    "latency_s": "Latency",
    "latency_per_output_token_s": "Time per token",
    "queue_s": "Queueing delay",
    "cold_start_s": "Cold start",
    "kv_cold_start_s": "KV cold start",
    "blocked_s": "Blocked by loads",
}
KV_NAMES = {
    "running": "KV of running requests",
    "history": "history KV",
    "invalid_kv_tokens": "history KV without its adapter",
    "host_kv_tokens": "KV on the host",
}
"""What KV is called where some of it outlives its requests."""


def is_number(value: Any) -> bool:
    """Return whether `value` is a finite number (a bool is not)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def digits(value: Any) -> str:
    """Return a number with three significant digits, thousands apart: 0.0123, 12.3, 1,230."""
    if not is_number(value):
        return ABSENT
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.2e}"
    places = 2 - math.floor(math.log10(abs(value)) + 1e-4)
    return f"{value:.{max(places, 0)}f}"


def time_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit for times up to `longest_s`, and what to multiply seconds with."""
    if longest_s < 1e-3:
        return "µs", 1e6
    if longest_s < 1.0:
        return "ms", 1e3
    return "s", 1.0


def clock_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit for an axis of simulated time up to `longest_s`, and its factor."""
    if longest_s >= 3 * 3600:
        return "h", 1 / 3600
    return ("min", 1 / 60) if longest_s >= 600 else ("s", 1.0)


def seconds(value: Any) -> str:
    """Return a time with its unit: 12.3 ms, 4.56 s."""
    if not is_number(value):
        return ABSENT
    unit, factor = time_unit(abs(value)) if value else ("s", 1.0)
    return f"{digits(value * factor)} {unit}"


def clock(value: Any) -> str:
    """Return a time of the simulation, with the unit that its axis would have: 12.3 min, 4.56 h."""
    if not is_number(value) or value < 600:
        return seconds(value)
    unit, factor = clock_unit(value)
    return f"{digits(value * factor)} {unit}"


def rate(value: Any, unit: str) -> str:
    """Return how much per second: 2.34 req/s."""
    return f"{digits(value)} {unit}/s" if is_number(value) else ABSENT


def limit(value: Any) -> str:
    """Return a time that was set, with the digits that it was given: 6 s, 150 ms."""
    if not is_number(value) or value <= 0:
        return ABSENT
    unit, factor = time_unit(value)
    return f"{value * factor:.6g} {unit}"


def size(value: Any) -> str:
    """Return bytes with a decimal unit: 1.23 GB."""
    if not is_number(value):
        return ABSENT
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{digits(value)} B"


def percent(value: Any) -> str:
    """Return a share as per cent, never rounded up to 100 nor down to 0: 99.99 %, 0 %."""
    if not is_number(value):
        return ABSENT
    shown = f"{value * 100:.1f}"
    if (shown == "100.0" and value < 1) or (shown == "0.0" and value > 0):
        shown = f"{value * 100:.3g}" if value < 0.5 else ">99.9"
    return f"{shown.removesuffix('.0')} %"


def count(value: Any) -> str:
    """Return a whole number, thousands apart."""
    return f"{value:,.0f}" if is_number(value) else ABSENT


def counted(value: int, one: str, many: str | None = None) -> str:
    """Return how many there are of what: 1 move, 1,200 moves."""
    return f"{count(value)} {one if value == 1 else many or f'{one}s'}"


def system_name(system: str) -> str:
    """Return a system as its paper writes it: slora -> S-LoRA, slora_bmm -> S-LoRA (bmm)."""
    for known in sorted(SYSTEM_NAMES, key=len, reverse=True):
        if system == known or system.startswith(f"{known}_"):
            rest = system[len(known) + 1 :].replace("_", " ")
            return SYSTEM_NAMES[known] + (f" ({rest})" if rest else "")
    return system


WHOLE = ("speculation.",)
"""Sections whose keys say little by themselves."""


def with_changes(system: str, changes: Mapping[str, Any]) -> str:
    """Return what a system is called of which keys were changed: `slora + scheduler=lcfs + max_loras=8`.

    This is the one rule for terminals, tables, legends and pages. `changes` are by dotted keys, as
    `simlora.config.changed` finds them; of those in WHOLE the section is told, too.
    """
    names = {key: key if key.startswith(WHOLE) else key.rpartition(".")[2] for key in changes}
    return " + ".join([system, *(f"{names[key]}={plain(value)}" for key, value in changes.items())])


def plain(value: Any) -> str:
    """Return a value as a reader would write it, the same for 1 and 1.0."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(plain, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{plain(one)}' for key, one in value.items())}}}"
    return digits_of(value)


def digits_of(x: Any) -> str:
    """Return a value of a key as it would be written."""
    return f"{x:g}" if isinstance(x, int | float) else str(x)


def targets_in_words(targets: dict[str, Any]) -> str:
    """Return what an SLO demands: `TTFT < 6 s and TPOT < 100 ms`."""
    words = [f"{METRIC_NAMES.get(name, name)} < {limit(target)}" for name, target in targets.items()]
    return " and ".join(words) if words else "no target set"


def headline(summary: dict[str, Any]) -> tuple[str, str]:
    """Return what ran and on what: (`S-LoRA`, `llama_7b on 2 × a10g`); tells what the summary knows."""
    run, calibration = summary.get("run") or {}, summary.get("calibration") or {}
    replicas = run.get("replicas") or len(summary.get("replicas") or [])
    gpu, tp = run.get("gpu") or calibration.get("gpu"), run.get("tp") or calibration.get("tp") or 1
    model = run.get("model") or calibration.get("model") or "unknown model"
    others = run.get("others") or []
    kinds = [
        {"gpu": gpu, "tp": tp, "replicas": (replicas or 0) - sum(kind["replicas"] for kind in others)},
        *others,
    ]
    where = " and ".join(f"{kind['replicas']} × {_gpu(kind)}{_own_keys(kind)}" for kind in kinds)
    where = f" on {where}" if gpu and replicas else ""
    name = system_name(str(run.get("system") or "simlora"))
    return with_changes(name, run.get("changed") or {}), f"{model}{where}"


def device_in_words(summary: Mapping[str, Any]) -> str:
    """Return the model and the kinds of GPU, however many of them: `llama_7b on a10g`."""
    run = summary.get("run") or {}
    kinds = [{"gpu": run.get("gpu", ABSENT), "tp": run.get("tp") or 1}, *(run.get("others") or [])]
    return f"{run.get('model', ABSENT)} on {' and '.join(dict.fromkeys(map(_gpu, kinds)))}"


def _gpu(kind: Mapping[str, Any]) -> str:
    return f"{kind['gpu']} (TP {kind['tp']})" if kind["tp"] != 1 else str(kind["gpu"])


def _own_keys(kind: Mapping[str, Any]) -> str:
    """Return the keys of the section `replica` that a kind of replica has of its own: ` with max_loras=4`."""
    own = kind.get("replica") or {}
    return f" with {', '.join(f'{key}={digits_of(value)}' for key, value in own.items())}" if own else ""


def workload_in_words(summary: dict[str, Any]) -> str:
    """Return where the requests came from, how many there were and the seed."""
    workload = summary.get("workload") or {}
    source = workload.get("description") or workload.get("name")
    facts = [str(source)] if source else []
    facts.append(f"{count((summary.get('requests') or {}).get('submitted', 0))} requests")
    if is_number(workload.get("adapters")):
        facts.append(f"{count(workload['adapters'])} adapters")
    if is_number(workload.get("rate_rps")):
        facts.append(f"{digits(workload['rate_rps'])} requests/s")
    return " · ".join([*facts, f"seed {summary.get('seed', ABSENT)}"])


def window_in_words(window: Mapping[str, Any]) -> str:
    """Return which requests figures are of: `requests that arrive from 60 s to 540 s`."""
    return f"requests that arrive from {clock(window['from_s'])} to {clock(window['until_s'])}"
