"""Holds calibrations against each other and against runs: `python -m experiments.profiles.compare`.

Five questions. Do sums of kernels and whole runs of S-LoRA agree? How far off is scaling from one GPU or model to
another? And a straight line for all-reduces? What do sums of kernels miss of an engine's iterations? And of S-LoRA
on eight GPUs?
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.profiles import build, sums, tables
from experiments.profiles.scaling import Setting, model, pass_s, scaled, setting
from experiments.studies import markdown
from experiments.studies.command import program
from experiments.studies.reading import measured_dir
from simlora.latency.calibration import load
from simlora.latency.collectives import folded
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, Mbgmv

CONTEXT = 512
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PROMPTS = (128, 256, 512, 1024, 2048, 4096)
SCALINGS = (
    (("a100_80g", "llama_2_7b"), ("a100_80g", "llama_2_70b")),
    (("a100_80g", "llama_2_70b"), ("a100_80g", "llama_2_7b")),
    (("a100_80g", "llama_2_7b"), ("h100_80g", "llama_2_7b")),
    (("a100_80g", "llama_2_7b"), ("a40", "llama_2_7b")),
)


def kernels_and_runs() -> Iterator[str]:
    """Compare a step's time as a sum of kernels with what S-LoRA's runs on the same GPU and shape say."""
    summed, fitted = (
        IterationModel(load(name)) for name in ("a100_80g-llama_2_7b-tp1", "a100_80g-llama_7b-tp1")
    )
    yield "Llama-7B on an A100 80 GB: kernels = a100_80g-llama_2_7b-tp1, runs = a100_80g-llama_7b-tp1"
    rows = []
    for batch in BATCHES:
        ours, theirs = (1e3 * one.decode_s(batch, batch * CONTEXT) for one in (summed, fitted))
        rows.append([str(batch), *(f"{ms:.1f}" for ms in (ours, theirs, theirs - ours))])
    head = [f"decode of ({CONTEXT} tokens each)", "kernels, ms", "runs, ms", "runs less kernels, ms"]
    yield markdown.table(head, rows)
    yield ""
    rows = []
    for tokens in PROMPTS:
        ours, theirs = (1e3 * one.prefill_s(tokens, tokens**2) for one in (summed, fitted))
        rows.append([f"{tokens} tokens", f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.3f}"])
    yield markdown.table(["prefill of", "kernels, ms", "runs, ms", "kernels / runs"], rows)


def scalings(folder: Path) -> Iterator[str]:
    """Compare operators scaled from one setting to another with those measured there."""
    head = ["operators of", "scaled to", "tp", "mean error", "bias to 512 tokens", "bias above"]
    rows = []
    for source, target in SCALINGS:
        for tp in (1, 2, 4, 8):
            here, there = (setting(*names, tp) for names in (source, target))
            measured = pass_s(_operators(there, folder), there)
            errors = pass_s(scaled(_operators(here, folder), here, there), there) / measured - 1
            small = errors.index <= 512
            biases = (f"{100 * bias:+.1f} %" for bias in (errors[small].mean(), errors[~small].mean()))
            mean = markdown.percent(errors.abs().mean())
            rows.append([" ".join(source), " ".join(target), str(tp), mean, *biases])
    yield markdown.table(head, rows)


def all_reduces(folder: Path) -> Iterator[str]:
    """Compare latency + bytes sent / bandwidth with the all-reduces that were measured."""
    named = ("latency, µs", "bandwidth, GB/s", "mean error to 1 MB", "mean error above")
    rows = []
    for name, measured in build.plan()["all_reduces"].items():
        for gpus in (2, 4, 8):
            table = tables.all_reduce(folder / measured["file"], gpus)
            one = sums.all_reduce(table, gpus)
            sent = 2 * (gpus - 1) / gpus * table["size"]
            errors = ((one["latency_s"] + one["s_per_byte"] * sent) / table.seconds - 1).abs()
            small = table["size"] <= 2**20
            figures = [f"{1e6 * one['latency_s']:.1f}", f"{1e-9 / one['s_per_byte']:.0f}"]
            means = [f"{errors[small].mean():.0%}", f"{errors[~small].mean():.0%}"]
            rows.append([name, str(gpus), *figures, *means])
    yield markdown.table(["all-reduce on", "GPUs", *named], rows)


def engines(folder: Path) -> Iterator[str]:
    """Compare sums of kernels and collectives with an engine's whole iterations, Llama-2-70B."""
    prefill = "prefill: sums / measured, 512 to 4096 tokens"
    rows = []
    for name, entry in build.entries().items():
        if not entry.iterations or not entry.measured:
            continue
        table = tables.iterations(folder / entry.iterations, *entry.rows, entry.target.tp)
        one = IterationModel(folded(build.summed(entry, folder).calibration, entry.target.model))
        single = table[(table.batch == 1) & table.prompt.between(512, 4096)].drop_duplicates("prompt")
        ratios = [one.prefill_s(p, p * p) / s for p, s in zip(single.prompt, single.prompt_s, strict=True)]
        steps = table[(table.prompt == 512) & (table.output == 128)].set_index("batch").token_s
        cells = [f"{1e3 * one.decode_s(n, n * 576):.1f}, {1e3 * steps[n]:.1f}" for n in (1, 32)]
        rows.append([name, f"{min(ratios):.2f} to {max(ratios):.2f}", *cells])
    yield markdown.table(["iterations of", prefill, "decode at 1, ms: sums, measured", "at 32"], rows)


def single_requests(path: Path) -> Iterator[str]:
    """Compare one request at a time on S-LoRA on eight A100 with what the calibrations say."""
    runs = pd.read_csv(path)
    prefill = "prefill, ms a 1000 tokens: calibration, measured"
    rows = []
    for (name, rank), group in runs.groupby(["model", "rank"]):
        shape = {"llama_7b": "llama_2_7b", "llama_2_70b": "llama_2_70b_mha"}[str(name)]
        whole = folded(load(f"a100_80g-{shape}-tp8"), model(shape))
        iteration, kernel = IterationModel(whole), Mbgmv(whole)
        slope, start = np.polyfit(group.prompt_tokens, group.ttft_s, 1)

        def ours(tokens: int, rank: int = int(rank)) -> float:
            lora = LoraWork(tokens, tokens * rank, rank, 1)
            return iteration.prefill_s(tokens, tokens**2) + kernel.prefill_s(lora)  # noqa: B023

        step_s = ((group.latency_s - group.ttft_s) / (group.output_tokens - 1)).mean()
        decode_s = iteration.decode_s(1, 1064) + kernel.decode_s(LoraWork(1, int(rank), int(rank), 1))
        cells = (
            f"{1e6 * (ours(2000) - ours(200)) / 1800:.1f}, {1e6 * slope:.1f}",
            f"{1e3 * ours(1000):.0f}, {1e3 * (start + 1000 * slope):.0f}",
            f"{1e3 * decode_s:.0f}, {1e3 * step_s:.0f}",
        )
        rows.append([f"{name}, tp 8", str(rank), *cells])
    yield markdown.table(["runs", "rank", prefill, "at 1000 tokens, ms", "decode step, ms"], rows)


def _operators(setting: Setting, folder: Path) -> pd.DataFrame:
    """Return the operators measured on this GPU and model, at this degree."""
    own = setting.gpu.name, setting.model.name
    files = {(row["gpu"], row["model"]): row["file"] for row in build.plan()["operators"].values()}
    return tables.operators(folder / files[own]).xs(setting.tp, level="tp")


@program()
def main() -> None:
    """Print the comparisons, or say which cannot be made."""
    folder = measured_dir()
    print("\n".join(kernels_and_runs()))
    if not (folder / "profiles").is_dir():
        print(f"\nskipped: there are no profiles in {folder}; SIMLORA_MEASURED_DIR says where they are")
        return
    for part in (
        scalings(folder / "profiles"),
        all_reduces(folder / "profiles"),
        engines(folder / "profiles"),
        single_requests(folder / "loraserve_single_request.csv"),
    ):
        print("", *part, sep="\n")
