"""What is said of base_engine/: a serving engine without LoRA, every request's time stamps.

A file GPU_MODEL.requests.jsonl has a request a line, GPU_MODEL.meta.json beside it the engine's arguments. No
coefficient is fitted to any of them: the kernels are of that GPU and model, the host's time of another GPU.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from experiments.fidelity.cells import hashed, kept
from experiments.fidelity.compare import Section, errors_of, section
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.scenarios import scenario
from simlora.config.composing import choices
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation

T = TypeVar("T")
FILE = "base_engine"
ENDING = ".requests.jsonl"
STAMPS = ("queued_ts", "first_token_ts", "last_token_ts")
KEYS = ("input_toks", "output_toks", *STAMPS)
FIGURES = {"ttft_s": "first token", "tpot_s": "time per output token", "latency_s": "latency"}
HASHED = hashed(__file__)
HEAD = "without LoRA: error of a request, of the mean"
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
    requests: pd.DataFrame

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
        first, last = (self.requests[name] - self.requests["queued_ts"] for name in STAMPS[1:])
        return self._figures(first, last)

    def simulated(self) -> dict[str, list[float]]:
        """Return the same figures as simulated. Raises InputError if they cannot be."""
        tp = int(self.engine.get("tensor_parallel_size", 1))
        overrides = [
            *("system=vllm", f"gpu={self.gpu}", f"model={self.model}", f"replica.tp={tp}", "timeline=false"),
            f"replica.max_num_seqs={int(self.engine['max_num_seqs'])}",
            f"scheduler.max_batched_tokens={int(self.engine['max_num_batched_tokens'])}",
            "workload=file",
        ]
        trace = pd.DataFrame(
            {
                "arrival_s": self.requests["queued_ts"] - self.requests["queued_ts"].iloc[0],
                **dict.fromkeys(("adapter", "rank"), ""),
                "prompt_tokens": self.requests["input_toks"].astype(int),
                "output_tokens": self.requests["output_toks"].astype(int),
            }
        )
        with TemporaryDirectory() as folder:
            path = Path(folder, "trace.csv")
            trace.to_csv(path, index=False)
            run = scenario([*overrides, f"workload.path={path}"])
        found = Simulation(run).run().requests().sort_values("request_id")
        unfinished = int((found["status"] != "finished").sum())
        if unfinished:
            raise InputError(f"{self.name}: {unfinished} requests cannot be served as simulated")
        return self._figures(found["ttft_s"], found["latency_s"])

    def _figures(self, first: pd.Series, whole: pd.Series) -> dict[str, list[float]]:
        others = self.requests["output_toks"].to_numpy().astype(int) - 1
        several = others > 0
        each = (whole - first).to_numpy()[several] / others[several]
        return {"ttft_s": first.tolist(), "tpot_s": each.tolist(), "latency_s": whole.tolist()}


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
    table = pd.DataFrame(requests).sort_values("queued_ts", kind="stable", ignore_index=True)
    return Log(path.name.removesuffix(ENDING), engine, table)


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of one run, or of a folder of them; `jobs` is for others. Raises InputError for bad input."""
    logs = [read(each) for each in (sorted(path.glob(f"*{ENDING}")) if path.is_dir() else [path])]
    skipped = Counter(log.missing for log in logs if log.missing)
    logs = [log for log in logs if not log.missing]
    sides = {log.name: (log.measured(), _simulated(log)) for log in logs}
    errors = _by_run(sides, lambda theirs, ours: (ours / theirs - 1).tolist())
    medians = _by_run(sides, lambda theirs, ours: float(np.median(np.abs(ours / theirs - 1))))
    means = _by_run(sides, lambda theirs, ours: float(ours.mean() / theirs.mean() - 1))
    lines = [_line(HEAD, "requests", FIGURES.values())]
    for name, own in errors.items():
        cells = (f"{100 * medians[name][key]:.1f} %, {100 * means[name][key]:+.1f} %" for key in FIGURES)
        lines.append(_line(name, len(own["ttft_s"]), cells))
    lines += [f"not simulated: {count} runs, {reason}" for reason, count in sorted(skipped.items())]
    return section(
        path,
        lines,
        [{"run": name, "measured": one, "simulated": other} for name, (one, other) in sides.items()],
        medians,
        means=means,
        skipped=dict(sorted(skipped.items())),
        plot=Plot("base_engine", "vLLM without LoRA, every request", _panels(sides)) if sides else None,
        errors=[
            line
            for key, label in FIGURES.items()
            for line in errors_of(
                f"vLLM without LoRA, a request's {label}",
                [one for own in errors.values() for one in own[key]],
            )
        ],
    )


Sides = tuple[Mapping[str, list[float]], Mapping[str, list[float]]]
"""Measured and simulated figures of one run, by name."""


def _simulated(log: Log) -> dict[str, list[float]]:
    question = [log.name, dict(log.engine), log.requests.to_dict("records"), HASHED]
    return kept(question, log.simulated)


def _by_run(sides: Mapping[str, Sides], of: Callable[[Any, Any], T]) -> dict[str, dict[str, T]]:
    """Return what a function of both sides gives, by run and figure."""
    return {
        name: {key: of(np.array(theirs[key]), np.array(ours[key])) for key in FIGURES}
        for name, (theirs, ours) in sides.items()
    }


def _line(name: str, requests: int | str, cells: Iterable[str]) -> str:
    return f"{name:<44} {requests:>8}" + "".join(f" {cell:>22}" for cell in cells)


def _panels(sides: Mapping[str, Sides]) -> list[Panel]:
    dots = {
        key: [
            Dot(*dot, name, False)
            for name, (theirs, ours) in sides.items()
            for dot in zip(theirs[key], ours[key], strict=True)
        ]
        for key in FIGURES
    }
    return [Panel(label.capitalize(), "s", dots[key]) for key, label in FIGURES.items()]


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
