"""LoRAServe's single requests: what was published of them, and what was fitted to them.

Kernels were measured, hosts and reads were not. The runs are at tensor parallelism 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.fastlibra import calibration as roofline
from experiments.profiles import scaling, sums
from experiments.profiles.scaling import Setting, Single, described, model
from experiments.studies.reading import measured_dir
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded

RUNS = "loraserve_single_request.csv"
SHAPES = {"llama_7b": "llama_7b", "llama_2_70b": "llama_2_70b_mha"}
"""Models as the runs name them and as we do."""
OUTPUT_TOKENS, EVERY = 128, 400
"""Prompts are 200 tokens apart; those that are a multiple of EVERY are held out, the longest among them."""


@dataclass(frozen=True)
class Runs:
    """Single requests `[runs]` at tensor parallelism 8. `held` are those that judge."""

    shape: NDArray[np.str_]
    rank: NDArray[np.int64]
    prompt: NDArray[np.int64]
    ttft_s: NDArray[np.float64]
    step_s: NDArray[np.float64]

    @property
    def held(self) -> NDArray[np.bool_]:
        """Whether a run is held out."""
        return np.asarray(self.prompt % EVERY == 0)

    def __len__(self) -> int:
        return len(self.shape)


def available() -> bool:
    """Return whether the runs are there."""
    return (measured_dir() / RUNS).exists()


def runs() -> Runs:
    """Return the runs, as they were published."""
    table = pd.read_csv(measured_dir() / RUNS)
    steps = (table.latency_s - table.ttft_s) / (table.output_tokens - 1)
    return Runs(
        shape=np.array([SHAPES[name] for name in table.model]),
        rank=table["rank"].to_numpy(),
        prompt=table.prompt_tokens.to_numpy(),
        ttft_s=table.ttft_s.to_numpy(dtype=float),
        step_s=steps.to_numpy(dtype=float),
    )


ENGINE, GPU = "loraserve", "a100_40g"
MEASURED = (("llama_7b", 8), ("llama_2_70b_mha", 8))
KERNELS = {
    **{("llama_7b", tp): f"a100_40g-llama_2_7b-tp{tp}" for tp in (1, 2, 4, 8)},
    ("llama_30b", 4): "a100_40g-llama_30b-tp4",
    ("llama_30b_m", 8): "a100_80g-llama_2_70b_mha-tp8",
    ("llama_2_70b_mha", 8): "a100_80g-llama_2_70b_mha-tp8",
}
"""Sums of kernels without a host, of the same shape and GPU or to be scaled by roofline."""
SLORA, ALONE = "a100_80g-llama_7b-tp1", "a100_80g-llama_2_7b-tp1"
"""One GPU: S-LoRA's own runs, and their kernels; what is between them is its host."""
CPU_LORA = "a10-llama_2_7b-tp1"
LINK_SHARE = 0.8
"""What a copy reaches of the rate of PCIe. S-LoRA's own 4.0 GB/s would fit the 70B worse."""


@dataclass(frozen=True)
class Fit:
    """What was fitted, by model, and relative errors `[runs]`.

    Collectives are in what a token takes and in the reads, not in the host. `reads`: what a token and rank take, over
    what it takes to read a rank's weights.
    """

    front_end_s: float
    host_s: dict[str, float]
    token_s: dict[str, float]
    reads: dict[str, float]
    ttft_errors: NDArray[np.float64]
    step_errors: NDArray[np.float64]


def setting(shape: str, tp: int) -> Setting:
    """Return what a calibration is for."""
    return scaling.setting(GPU, shape, tp)


def name(shape: str, tp: int) -> str:
    """Return the name of a calibration."""
    return f"{setting(shape, tp).name}-{ENGINE}"


def read_s(target: Setting) -> float:
    """Return what reading one rank of an adapter's weights takes on each GPU."""
    return target.model.adapter_bytes(1) / target.tp / target.gpu.memory_bandwidth_bytes_per_s


@cache
def kernels(shape: str, tp: int) -> Calibration:
    """Return sums of kernels, without a host."""
    source, target = calibrations.load(KERNELS[shape, tp]), setting(shape, tp)
    if replace(described(source).model, name=shape) == target.model and source.gpu == GPU:
        found = dict(source.coefficients)
    else:
        found = scaled(source, target)
    found["adapter_load.bytes_per_s"] = LINK_SHARE * target.gpu.host_link.bytes_per_s
    return Calibration(name(shape, tp), GPU, shape, tp, {}, found)


def scaled(source: Calibration, target: Setting) -> dict[str, float]:
    """Return the coefficients of `source` for another shape or memory, by roofline."""
    found = roofline.iterations(source, target)
    theirs_s = roofline.host_s(target.model.layers)  # dLoRA's, which comes with them
    found |= {one: found[one] - theirs_s for one in ("prefill.intercept_s", "decode.intercept_s")}
    found |= scaling.lora(calibrations.load(SLORA), target)
    return found | scaling.cpu_lora(calibrations.load(CPU_LORA), target.model)


def between(shape: str, tp: int, coefficient: str) -> float:
    """Return what collectives add to a coefficient when a run starts."""
    plain = kernels(shape, tp)
    return folded(plain, model(shape)).coefficients[coefficient] - plain.coefficients[coefficient]


@cache
def fit(together: bool = False, bytes_per_s: float | None = None) -> Fit:
    """Fit the runs: hosts to their steps, then the rest to first tokens. Non-negative least relative squares.

    `together`: a token and rank take as many reads in both models. `bytes_per_s`: loads go at another rate.
    """
    data = runs()
    shapes, use = [shape for shape, _ in MEASURED], ~data.held
    of = {shape: data.shape == shape for shape in shapes}
    known_s, step_s, hosts = np.empty(len(data)), np.empty(len(data)), {}
    for shape, rows in of.items():
        one = Single(with_loads(kernels(shape, 8), bytes_per_s))
        pairs = list(zip(data.prompt[rows].tolist(), data.rank[rows].tolist(), strict=True))
        without_s = np.array([one.step_s(1, prompt + OUTPUT_TOKENS // 2, rank) for prompt, rank in pairs])
        hosts[shape] = float((data.step_s[rows] - without_s)[use[rows]].mean())
        step_s[rows] = without_s + hosts[shape]
        known_s[rows] = [hosts[shape] + one.without_tokens_s(prompt, rank) for prompt, rank in pairs]
    terms = {"front end": np.ones(len(data))}
    terms |= {f"tokens {shape}": np.where(rows, data.prompt, 0.0) for shape, rows in of.items()}
    read_of = {shape: "reads" if together else f"reads {shape}" for shape in shapes}
    for shape, rows in of.items():
        reads = np.where(rows, data.prompt * data.rank, 0) * read_s(setting(shape, 8))
        terms[read_of[shape]] = terms.get(read_of[shape], 0.0) + reads
    found = sums.fit(terms, data.ttft_s, held=data.held, known=known_s)
    return Fit(
        front_end_s=found["front end"],
        host_s=hosts,
        token_s={shape: found[f"tokens {shape}"] for shape in shapes},
        reads={shape: found[read_of[shape]] for shape in shapes},
        ttft_errors=found.errors,
        step_errors=np.abs(step_s / data.step_s - 1),
    )


def with_loads(plain: Calibration, bytes_per_s: float | None) -> Calibration:
    """Return a calibration whose loads go at another rate."""
    changed = {"adapter_load.bytes_per_s": bytes_per_s} if bytes_per_s else {}
    return replace(plain, coefficients={**plain.coefficients, **changed})
