"""The rows of a file in the schema of vLLM's measured runs with LoRA, and one of them simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar
from zlib import crc32

import pandas as pd

from experiments.fidelity.cells import Cells, number, one_of, parsed, read_cells
from experiments.fidelity.compare import Figure, figures_of
from experiments.fidelity.vllm.scrapes import scrapes
from experiments.scenarios import scenario
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.latency.calibration import Calibration

GPU = "h100_64g"
MODELS = {"llama-3.1-8b-instruct": "llama_3_1_8b", "qwen-2.5-7b-instruct": "qwen_2_5_7b"}
SERVER = ("max_loras", "max_cpu_loras", "max_lora_rank")
COUNTS = (*SERVER, "adapters")
LISTS = ("module_ranks", "rate_values", "rate_counts")
NAMES = ("model", *COUNTS, "kv_tokens", *LISTS, "duration_s")
FIGURES = figures_of("vllm")
MEASURED = ("completed", *(figure.column for figure in FIGURES))
SATURATED_MS = 2000.0
"""Mean time to first token from which on a run counts as saturated: its queue grows as long as it lasts."""


def saturated(figures: Mapping[str, float]) -> bool | None:
    """Whether a run was past saturation; None where that was not measured."""
    if figures.get("completed") == 0:
        return True
    return figures["ttft_mean_ms"] >= SATURATED_MS if "ttft_mean_ms" in figures else None


@dataclass(frozen=True)
class Row:
    """One measured run: its columns as they are, and as numbers its server, its workload and its figures.

    `kv_tokens` is None where it is not on record. `place` is its file and line.
    """

    columns: Mapping[str, str]
    counts: Mapping[str, int]
    kv_tokens: int | None
    ranks: tuple[int, ...]
    rates_rps: tuple[float, ...]
    rate_counts: tuple[int, ...]
    duration_s: float
    measured: Mapping[str, float]
    place: str
    figures: ClassVar[Sequence[Figure]] = FIGURES

    @property
    def model(self) -> str:
        """Our name of the base model."""
        return MODELS[self.columns["model"]]

    @property
    def series(self) -> str:
        """Its model as the file calls it."""
        return self.columns["model"]

    @property
    def load(self) -> str:
        """Where the measured run was: below or past saturation."""
        past = saturated(self.measured)
        return "unknown" if past is None else "past" if past else "below"

    @property
    def calibration(self) -> str:
        """The name of the calibration that the row is simulated with."""
        return f"{GPU}-{self.model}-tp1-vllm"

    @property
    def key(self) -> str:
        """What was run: model, server and workload, in one line."""
        parts = [self.columns["model"], *(f"{name}={count}" for name, count in self.counts.items())]
        parts += [f"{name}={','.join(self.columns[name].split())}" for name in LISTS]
        return " ".join([*parts, f"duration_s={self.duration_s:g}"])

    @property
    def line(self) -> int:
        """Its line in the file."""
        return int(self.place.rpartition(" ")[2])

    @property
    def seed(self) -> int:
        """The seed of the row's workload: its own, and the same every time."""
        return crc32(self.key.encode())


def read(path: Path) -> list[Row]:
    """Read all rows. Raises InputError, naming file, line and column, for what is not in the schema."""
    return [_row(cells, place) for place, cells in read_cells(path, NAMES)]


def _row(cells: Cells, place: str) -> Row:
    one_of(MODELS, cells, "model", place)
    rates, counts = _list(cells, "rate_values", place), _whole_list(cells, "rate_counts", place)
    if len(rates) != len(counts):
        raise InputError(
            f"{place} has {len(counts)} rate_counts, must be one for each of its {len(rates)} rate_values"
        )
    return Row(
        columns=cells,
        counts={name: _whole(number(cells, name, place), f"{place} has {name}") for name in COUNTS},
        kv_tokens=int(number(cells, "kv_tokens", place)) if cells["kv_tokens"] else None,
        ranks=_whole_list(cells, "module_ranks", place),
        rates_rps=rates,
        rate_counts=counts,
        duration_s=number(cells, "duration_s", place),
        # A figure that is missing is not compared; the others are.
        measured={name: number(cells, name, place) for name in MEASURED if cells.get(name)},
        place=place,
    )


def _list(cells: Cells, name: str, place: str) -> tuple[float, ...]:
    """Return numbers that stand with blanks between them, at least one."""
    texts = (cells[name] or "").split()
    if not texts:
        raise InputError(f"{place} has no {name}, must be numbers with blanks between them")
    return tuple(parsed(text, f"{place} has {name}") for text in texts)


def _whole_list(cells: Cells, name: str, place: str) -> tuple[int, ...]:
    return tuple(_whole(value, f"{place} has {name}") for value in _list(cells, name, place))


def _whole(value: float, where: str) -> int:
    if value != int(value):
        raise InputError(f"{where} = {value}, must be a whole number")
    return int(value)


SEQUENCES = 2048
"""Their max_num_seqs."""
STEP_TOKENS = 2048
"""Their max_num_batched_tokens."""
OUTSTANDING = 26_000
"""Requests that their client had open at once, however many it was to send.

In runs far past saturation the 99th percentile of first-token times, times the throughput, is 24,500 to 25,900
requests at any rate; 500 to 900 run besides. Linux lets a client open 28,232 connections to one address, of which
those closed within the last minute, 600 to 1,500, cannot be used again.
"""
ANSWERS = {"qwen_2_5_7b": 0.9835}
"""How long answers are in the model's own tokens, as against Llama-3.1's: 191.4 and 194.6 at the mean."""


def overrides(row: Row) -> list[str]:
    """Return the row as arguments of simlora's command line."""
    found = ["system=vllm", f"gpu={GPU}", f"model={row.model}"]
    found += [f"replica.max_loras={row.counts['max_loras']}"]
    found += [f"replica.max_cpu_loras={row.counts['max_cpu_loras']}"]
    found += [f"replica.max_lora_rank={row.counts['max_lora_rank']}"]
    found += [f"replica.max_num_seqs={SEQUENCES}", f"scheduler.max_batched_tokens={STEP_TOKENS}"]
    if row.kv_tokens is not None:
        found.append(f"replica.kv_token_budget={row.kv_tokens}")
    found += [f"cluster.max_outstanding={OUTSTANDING}"]
    found += ["workload=per_adapter", f"workload.adapters={row.counts['adapters']}"]
    found += [f"workload.ranks={list(row.ranks)}", f"workload.rates_rps={list(row.rates_rps)}"]
    found += [f"workload.counts={list(row.rate_counts)}", f"workload.duration_s={row.duration_s}"]
    if row.model in ANSWERS:
        found.append(f"workload.output_tokens.scale={ANSWERS[row.model]}")
    return [*found, f"seed={row.seed}", f"until_s={row.duration_s}", "timeline=false"]


def simulate(row: Row, calibration: Calibration | None = None) -> dict[str, float]:
    """Return the row's figures as simulated, under its own calibration or exactly another one.

    Raises InputError, naming file and line, for a row that cannot be simulated.
    """
    try:
        run = scenario(overrides(row))
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None
    run = run if calibration is None else replace(run, calibration=calibration)
    return figures(Simulation(run).run().requests(), row.duration_s)


def figures(requests: pd.DataFrame, duration_s: float) -> dict[str, float]:
    """Return what vLLM's client reports of the requests that were answered in the first `duration_s` seconds.

    The mean inter-token latency is over all chunks but the first ones; what a scrape merged is one (scrapes.py).
    """
    during = scrapes(requests, duration_s)
    done = requests[(requests["status"] == "finished") & (requests["finish_s"] <= duration_s)]
    output_tokens = int(done["output_tokens"].sum())
    found = {"completed": float(len(done)), "output_tokens_per_s": output_tokens / duration_s}
    if output_tokens > len(done):
        streaming_s = float((done["finish_s"] - done["first_token_s"]).sum())
        found["itl_mean_ms"] = 1000 * streaming_s / (output_tokens - len(done) - during.merged_tokens(done))
    if len(done):
        ttft_s = done["ttft_s"] + during.first_token_late_s(done)
        found["ttft_mean_ms"] = 1000 * float(ttft_s.mean())
        found["ttft_p50_ms"] = 1000 * float(ttft_s.median())
    return found
