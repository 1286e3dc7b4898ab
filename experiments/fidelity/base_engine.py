"""What is said of base_engine/: a serving engine without LoRA, every request's time stamps.

A file GPU_MODEL.requests.jsonl has a request a line, GPU_MODEL.meta.json beside it the engine's arguments. No
coefficient is fitted to any of them: the kernels are of that GPU and model, the host's time of another GPU.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from experiments.fidelity.keeping import hashed, kept
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Section, errors_of, fenced
from experiments.scenarios import scenario
from simlora.config.composing import choices
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation

FILE = "base_engine"
ENDING = ".requests.jsonl"
STAMPS = ("queued_ts", "first_token_ts", "last_token_ts")
KEYS = ("input_toks", "output_toks", *STAMPS)
FIGURES = {"ttft_s": "first token", "tpot_s": "time per output token", "latency_s": "latency"}
HASHED = hashed(__file__)
GPUS = {
    "A100": "a100_80g",
    "B200": "b200_180g",
    "H100": "h100_80g",
    "H200": "h200_141g",
    "L40S": "l40s",
    "RTXPRO6000": "rtx_pro_6000",
}


@dataclass(frozen=True)
class Log:
    """One measured run: its name, the engine's arguments, and its requests by the time at which they were queued."""

    name: str
    engine: Mapping[str, Any]
    requests: Sequence[Mapping[str, float]]

    @property
    def gpu(self) -> str:
        """Our name of the GPU, or theirs where we have none."""
        found = self.name.partition("_")[0]
        return GPUS.get(found, found)

    @property
    def model(self) -> str:
        """Our name of the model."""
        text = self.name.partition("_")[2].lower().replace("-instruct", "").replace("meta-", "")
        found = "".join(letter if letter.isalnum() else "_" for letter in text)
        return found.replace("qwen2_5", "qwen_2_5").removesuffix("_v0_1")

    @property
    def missing(self) -> str:
        """Say what simlora lacks of this run; empty if nothing."""
        for group, name in (("gpu", self.gpu), ("model", self.model)):
            if name not in choices(group):
                return f"there is no {group} {name}"
        return ""

    def measured(self) -> dict[str, list[float]]:
        """Return the figures of all requests; a single token has no time per output token."""
        first = [request["first_token_ts"] - request["queued_ts"] for request in self.requests]
        whole = [request["last_token_ts"] - request["queued_ts"] for request in self.requests]
        return self._figures(first, whole)

    def simulated(self) -> dict[str, list[float]]:
        """Return the same figures as simulated. Raises InputError if they cannot be."""
        tp = int(self.engine.get("tensor_parallel_size", 1))
        overrides = [
            *("system=vllm", f"gpu={self.gpu}", f"model={self.model}", f"replica.tp={tp}", "timeline=false"),
            f"replica.max_num_seqs={int(self.engine['max_num_seqs'])}",
            f"scheduler.max_batched_tokens={int(self.engine['max_num_batched_tokens'])}",
            "workload=file",
        ]
        with TemporaryDirectory() as folder:
            path = Path(folder, "trace.csv")
            with path.open("w", newline="", encoding="utf-8") as file:
                table = csv.writer(file)
                table.writerow(("arrival_s", "adapter", "rank", "prompt_tokens", "output_tokens"))
                start_s = self.requests[0]["queued_ts"]
                for request in self.requests:
                    tokens = int(request["input_toks"]), int(request["output_toks"])
                    table.writerow((request["queued_ts"] - start_s, "", "", *tokens))
            run = scenario([*overrides, f"workload.path={path}"])
        found = Simulation(run).run().requests().sort_values("request_id")
        unfinished = int((found["status"] != "finished").sum())
        if unfinished:
            raise InputError(f"{self.name}: {unfinished} requests cannot be served as simulated")
        return self._figures(found["ttft_s"].tolist(), found["latency_s"].tolist())

    def _figures(self, first: Sequence[float], whole: Sequence[float]) -> dict[str, list[float]]:
        counts = [int(request["output_toks"]) for request in self.requests]
        each = [
            (last_s - first_s) / (count - 1)
            for first_s, last_s, count in zip(first, whole, counts, strict=True)
            if count > 1
        ]
        return {"ttft_s": list(first), "tpot_s": each, "latency_s": list(whole)}


def read(path: Path) -> Log:
    """Read one run. Raises InputError, naming file and line, for what is not in the schema."""
    beside = path.with_name(path.name.removesuffix(ENDING) + ".meta.json")
    engine = _tree(beside, _text(beside)).get("engine_kwargs")
    if not isinstance(engine, dict) or not {"max_num_seqs", "max_num_batched_tokens"} <= engine.keys():
        raise InputError(f"{beside} has no engine_kwargs with max_num_seqs and max_num_batched_tokens")
    requests = []
    for line, text in enumerate(_text(path).splitlines(), 1):
        place = f"{path} line {line}"
        tree = _tree(place, text)
        for key in KEYS:
            value = tree.get(key)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{place} has {key} {value!r}, must be a number")
        requests.append({key: float(tree[key]) for key in KEYS})
    if not requests:
        raise InputError(f"{path} has no requests")
    requests.sort(key=lambda request: request["queued_ts"])
    return Log(path.name.removesuffix(ENDING), engine, requests)


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of one run, or of a folder of them; `jobs` is for others. Raises InputError for bad input."""
    logs = [read(each) for each in (sorted(path.glob(f"*{ENDING}")) if path.is_dir() else [path])]
    skipped = Counter(log.missing for log in logs if log.missing)
    logs = [log for log in logs if not log.missing]
    pairs = {log.name: (log.measured(), _simulated(log)) for log in logs}
    lines = [_head(), *(_line(name, *pair) for name, pair in pairs.items())]
    lines += [f"not simulated: {count} runs, {reason}" for reason, count in sorted(skipped.items())]
    panels = [
        Panel(
            label.capitalize(),
            "s",
            [Dot(*dot, name, False) for name, pair in pairs.items() for dot in _dots(pair, key)],
        )
        for key, label in FIGURES.items()
    ]
    return Section(
        printed="\n".join(lines),
        tree={
            "runs": str(path),
            "rows": [
                {"run": name, "measured": one, "simulated": other} for name, (one, other) in pairs.items()
            ],
            "medians": {
                name: {key: float(np.median(np.abs(_errors(pair, key)))) for key in FIGURES}
                for name, pair in pairs.items()
            },
            "means": {name: {key: _of_means(pair, key) for key in FIGURES} for name, pair in pairs.items()},
            "skipped": dict(sorted(skipped.items())),
        },
        parts={"table": fenced("\n".join(lines))},
        plots=[Plot("base_engine", "vLLM without LoRA, every request", panels)] if pairs else [],
        errors=[
            line
            for key, label in FIGURES.items()
            for line in errors_of(
                f"vLLM without LoRA, a request's {label}",
                [error for pair in pairs.values() for error in _errors(pair, key)],
            )
        ],
    )


Pair = tuple[Mapping[str, Sequence[float]], Mapping[str, Sequence[float]]]
"""Measured and simulated figures of one run, by name."""


def _simulated(log: Log) -> dict[str, list[float]]:
    question = [log.name, dict(log.engine), list(map(dict, log.requests)), HASHED]
    return kept(question, log.simulated)


def _dots(pair: Pair, key: str) -> list[tuple[float, float]]:
    return list(zip(pair[0][key], pair[1][key], strict=True))


def _errors(pair: Pair, key: str) -> list[float]:
    return [simulated / measured - 1 for measured, simulated in _dots(pair, key)]


def _of_means(pair: Pair, key: str) -> float:
    return float(np.mean(pair[1][key]) / np.mean(pair[0][key]) - 1)


def _head() -> str:
    return f"{'without LoRA: error of a request, of the mean':<44} {'requests':>8}" + "".join(
        f" {label:>22}" for label in FIGURES.values()
    )


def _line(
    name: str, measured: Mapping[str, Sequence[float]], simulated: Mapping[str, Sequence[float]]
) -> str:
    pair = (measured, simulated)
    cells = (
        f"{100 * np.median(np.abs(_errors(pair, key))):.1f} %, {100 * _of_means(pair, key):+.1f} %"
        for key in FIGURES
    )
    return f"{name:<44} {len(measured['ttft_s']):>8}" + "".join(f" {cell:>22}" for cell in cells)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
        ) from None


def _tree(place: Path | str, text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except ValueError:
        raise InputError(f"{place} is not JSON") from None
    if not isinstance(tree, dict):
        raise InputError(f"{place} is not a mapping")
    return tree
