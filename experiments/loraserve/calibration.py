"""LoRAServe's A100s: `python -m experiments.loraserve.calibration [--out FOLDER]`.

Its authors ran S-LoRA on eight A100 40 GB and published single requests at tensor parallelism 8: time to first token
and latency of Llama-7B and of a Llama-70B without grouped heads, ranks 8 and 128. A decode step takes 112 and 173 ms
there, of which kernels and collectives are a tenth and a quarter: the rest is taken for the host. A prompt's tokens
and their ranks are fitted, and so is what a first token takes before its pass. Every other length of prompt is fitted,
the rest judges.

A single request's prefill costs what reading a rank's weights takes, once for each token. So S-LoRA's code has it: one
prompt alone, or ranks below 64, or prompts below 200 tokens go through BGMV, which reads the weights of a token's
adapter for that token. Several prompts with a rank of 64 or more among them go through tiled kernels, and cost a
hundredth (S-LoRA's own runs). These calibrations know the first only.

Other degrees and models are kernels that were measured, the same share of the memory's bandwidth for the adapters,
and a host that grows with GPUs and layers. It needs the measured runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.loraserve.fitting import (
    ALONE,
    CPU_LORA,
    GPU,
    KERNELS,
    MEASURED,
    RUNS,
    SLORA,
    Fit,
    Single,
    available,
    between,
    fit,
    kernels,
    name,
    read_s,
    runs,
    setting,
)
from experiments.profiles import scaling
from experiments.profiles.scaling import model
from experiments.studies.command import into, program
from experiments.studies.markdown import by_column
from experiments.studies.provenance import provenance, write
from experiments.studies.reading import measured_dir
from simlora.calibrate.calibration_file import CALIBRATIONS
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel

DERIVED = (("llama_7b", 1), ("llama_7b", 2), ("llama_7b", 4), ("llama_30b", 4), ("llama_30b_m", 8))
"""LLaMA's 30B has 52 heads, which eight GPUs do not divide; S-LoRA's has 56."""
ALL = (*DERIVED[:3], MEASURED[0], *DERIVED[3:], MEASURED[1])
RANKS, PROMPTS, BATCHES, CONTEXT_TOKENS = (8, 128), (512, 2000), (1, 16, 64), 1000
PAPER = "LoRAServe's authors, single requests on 8 x A100 40 GB"
TOKEN_RANKS = ("kernels.mbgmv.prefill.per_token_rank_s", "kernels.bgmv.prefill.per_token_max_rank_s")


def slora_host_s() -> float:
    """Return the host of S-LoRA's decode step on one GPU, of 32 layers: what its runs take beyond kernels."""
    runs_s, kernels_s = (IterationModel(calibrations.load(one)).decode_s(1, 512) for one in (SLORA, ALONE))
    return runs_s - kernels_s


def host_s(shape: str, tp: int, fitted: Fit) -> float:
    """Return the host of a decode step: by layers, and as much again for each further GPU and its layers.

    host = h * layers / 32 + (tp - 1) * (x + y * layers). Three are known: one GPU, and eight with two numbers of
    layers. That it is linear in the GPUs is an assumption: a process each, and the router calls one after the other.
    """
    layers = [model(each).layers for each, _ in MEASURED]
    alone_s = [slora_host_s() * count / 32 for count in layers]
    further_s = [(fitted.host_s[each] - s) / 7 for (each, _), s in zip(MEASURED, alone_s, strict=True)]
    per_layer_s = (further_s[1] - further_s[0]) / (layers[1] - layers[0])
    constant_s = further_s[0] - per_layer_s * layers[0]
    count = model(shape).layers
    return slora_host_s() * count / 32 + (tp - 1) * (constant_s + per_layer_s * count)


def prefill_host_s(shape: str, tp: int, fitted: Fit) -> float:
    """Return the host of a prefill: a step's, but none on one GPU, where kernels alone take what S-LoRA's runs do."""
    return host_s(shape, tp, fitted) if tp > 1 else 0.0


def coefficients(shape: str, tp: int) -> dict[str, float]:
    """Return the coefficients of a calibration by dotted name.

    What was fitted end to end has collectives in it, which a run adds: they are taken out first.
    """
    own = fit()
    found = dict(kernels(shape, tp).coefficients)
    found["prefill.intercept_s"] += prefill_host_s(shape, tp, own)
    found["decode.intercept_s"] += host_s(shape, tp, own)
    measured = (shape, tp) in MEASURED
    if measured:
        found["prefill.per_token_s"] = own.token_s[shape] - between(shape, tp, "prefill.per_token_s")
    reads = own.reads[shape] if measured else fit(together=True).reads[MEASURED[0][0]]
    for coefficient in TOKEN_RANKS:
        found[coefficient] = reads * read_s(setting(shape, tp)) - between(shape, tp, coefficient)
    found["front_end.per_request_s"] = own.front_end_s
    return found


def calibration(shape: str, tp: int) -> Calibration:
    """Return a calibration as it is made."""
    found, source, eight = (
        coefficients(shape, tp),
        KERNELS[shape, tp],
        ", ".join(name(*each) for each in MEASURED),
    )
    same_card = source.startswith(GPU)
    plain = source if same_card else f"{source}: by roofline"
    elsewhere = {
        "kernels": f"{SLORA}: {scaling.SAYS['kernels']}",
        "latency": f"{SLORA}: by layers, as many copies",
        "flush": f"{SLORA}: by layers",
        "merge": f"{SLORA}: {scaling.SAYS['merge']}",
        "cpu_lora": f"{CPU_LORA}: {scaling.SAYS['cpu_lora']}",
    }
    host = f"{SLORA} less {ALONE} by layers on one GPU, and for each further one what {eight} have; linear in GPUs"
    hosted = f"{plain}, and a host: {host}"
    said = provenance(
        Path(__file__).parent,
        "measured" if (shape, tp) in MEASURED else "scaled",
        found,
        **(dict.fromkeys(elsewhere, plain) if same_card else elsewhere),
        paper=PAPER,
        source=source,
        plain=plain,
        eight=eight,
        hosted=hosted,
        prefilled=hosted
        if tp > 1
        else f"{plain}; no host, as S-LoRA's prefills on one GPU take what kernels do",
    )
    if (shape, tp) in MEASURED:
        said |= errors(shape) | {"coefficients": said.pop("coefficients")}
    return Calibration(name(shape, tp), GPU, shape, tp, said, found)


def errors(shape: str) -> dict[str, dict[str, float]]:
    """Return the mean errors of what was fitted and of what judges, and the largest of these."""
    by_label = {"ttft": fit().ttft_errors, "decode_step": fit().step_errors}
    found = {label: _judged(values, shape) for label, values in by_label.items()}
    return {
        key: {label: float(f"{figures[place]:.3g}") for label, figures in found.items()}
        for place, key in enumerate(("mape", "held_out_mape", "held_out_worst"))
    }


def _judged(values: NDArray[np.float64], shape: str) -> tuple[float, float, float]:
    """Return the mean of a model's errors of what was fitted, that of what was held out, and the worst of these."""
    data = runs()
    fitted, held = (values[(data.shape == shape) & (data.held == judges)] for judges in (False, True))
    return fitted.mean(), held.mean(), held.max()


def fits() -> str:
    """Return what was fitted, as a table in Markdown: a column a model."""
    data, own, both = runs(), fit(), fit(together=True)
    slow = fit(bytes_per_s=calibrations.load(SLORA).need("adapter_load.bytes_per_s"))

    def percent(values: NDArray[np.float64], shape: str) -> str:
        return ", ".join(f"{100 * error:.1f}" for error in _judged(values, shape))

    columns = {}
    for shape, tp in MEASURED:
        one = Single(kernels(shape, tp))
        for_tokens_ms, by_kernels_ms = 1e6 * own.token_s[shape], 1e6 * one.iteration.prefill_token
        step_ms = 1e3 * data.step_s[data.shape == shape].mean()
        read_ns = 1e9 * read_s(setting(shape, tp))
        columns[f"{shape}, {tp} GPUs"] = {
            "TTFT, error of what was fitted, held out, worst of these, %": percent(own.ttft_errors, shape),
            "with as many reads in both models": percent(both.ttft_errors, shape),
            "with loads at S-LoRA's own 4.0 GB/s": percent(slow.ttft_errors, shape),
            "decode step, the same errors, %": percent(own.step_errors, shape),
            "decode step, ms; of it the host": f"{step_ms:.1f}, {1e3 * own.host_s[shape]:.1f}",
            "ms for 1,000 tokens; by kernels and collectives": f"{for_tokens_ms:.1f}, {by_kernels_ms:.1f}",
            "ns to read a rank's weights on each GPU": f"{read_ns:.0f}",
            "ns a token and rank; reads": f"{own.reads[shape] * read_ns:.0f}, {own.reads[shape]:.2f}",
            "reads, both models alike": f"{both.reads[shape]:.2f}",
            "front end, both models alike, ms": f"{1e3 * own.front_end_s:.1f}",
        }
    return by_column("what was fitted", columns)


def sheets(made: Sequence[Calibration]) -> str:
    """Return what the calibrations say, as a table in Markdown: a column a calibration. Milliseconds."""
    low, high = RANKS
    columns = {}
    for calibration in made:
        one = Single(calibration)
        rows = {}
        for prompt in PROMPTS:
            label = f"prefill of {prompt:,} tokens, rank {low}, rank {high}"
            rows[label] = ", ".join(f"{1e3 * one.pass_s(prompt, rank):.0f}" for rank in RANKS)
        longest = [one.ttft_s(max(PROMPTS), rank) for rank in RANKS]
        passes = [one.pass_s(max(PROMPTS), rank) for rank in RANKS]
        rows[f"rank {high} over rank {low} there: prefill, TTFT"] = (
            f"{passes[1] / passes[0]:.2f}, {longest[1] / longest[0]:.2f}"
        )
        for batch in BATCHES:
            low_ms, high_ms = (1e3 * one.step_s(batch, batch * CONTEXT_TOKENS, rank) for rank in RANKS)
            rows[f"decode step of {batch}, rank {low}, rank {high}"] = f"{low_ms:.1f}, {high_ms:.1f}"
        columns[f"{calibration.model} tp{calibration.tp}"] = rows
    return by_column("what comes out, ms", columns)


@program(into(CALIBRATIONS))
def main(folder: Path) -> None:
    """Write the files; print what was fitted and what comes out."""
    if not available():
        raise InputError(f"there is no {RUNS} in {measured_dir()}; SIMLORA_MEASURED_DIR says where it is")
    print(fits(), sheets(write(folder, [calibration(*each) for each in ALL])), sep="\n\n")
