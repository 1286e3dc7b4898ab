"""Llama-2 on the A800 as dLoRA ran it: `python -m experiments.dlora.calibration [--out FOLDER]`.

Its artifact carries three numbers that its authors profiled on Llama-2-7B: an iteration takes 15 ms merged and 27 ms
unmerged, a switch 20 ms. They fix the level. How an iteration grows with sequences, contexts and prompts is from the
plain calibrations of this GPU; what these leave of the 15 ms is the host of an engine of 2023: Python, Ray, and
a launch for every operator. Llama-2-13B and 70B are scaled from 7B.

One number does not go with the others: Figure 5 has BA x at 38.9 % of W x, and (27 - 15) / 15 is 80 %. It is another
thing that it measures, by the artifact's figure5.py: two plain products against one of 4096 x 4096, in single
precision, on up to 16 rows, each waited for. There is no einsum in it, no layer, no host that launches 128 einsums, of
which 12 ms would be 94 us each. So here 38.9 % is what the products take when the GPU is the bottleneck, which it is
in a prefill, and the 12 ms, whatever the batch, are launches; in a prefill these hide behind the GPU's work.
38.9 % of how many adapters? Of 16, a full batch's: 1.4 us for a token and an adapter. To write and read the one-hot
inputs of all projections, tokens x adapters x width, takes 1.5 us at the data sheet's bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.profiles.scaling import Setting, model, setting
from experiments.studies.command import into, program
from experiments.studies.provenance import provenance, write
from simlora.calibrate.calibration_file import CALIBRATIONS
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, OneHotEinsum
from simlora.latency.transfer import Merge

FOLDER = Path(__file__).parent
GPU, ENGINE = "a800_80g", "dlora"
MEASURED = ("llama_2_7b", 1)
DERIVED = (("llama_2_13b", 1), ("llama_2_70b", 4))
MERGED_S, UNMERGED_S, SWITCH_S = 15e-3, 27e-3, 20e-3
"""The artifact's scheduler: "profiling results from llama-7b". A switch is one adapter merged, or one taken out."""
BATCH = 16
"""Its most sequences. They are taken to be full batches, of as many adapters where that counts."""
CONTEXT_TOKENS = 472
"""Mean context of a decode step of `workload=functions`, ShareGPT's lengths in Llama-2's tokens: a mean prompt and half
of an answer, where an answer counts by its steps. At which contexts the 15 ms were profiled is not said."""
ARTIFACT = "dLoRA's artifact (github.com/LLMServe/dLoRA-artifact, Apache-2.0), vllm/core/scheduler.py"
RANK = 8
CALL_S = 1 / 2225
"""Ray 2.3's own benchmark makes so many calls a second of one actor, each waited for (`1_1_actor_calls_sync`)."""
FIGURE_5 = 0.389
"""BA x over W x."""


def name(shape: str, tp: int, engine: str = ENGINE) -> str:
    """Return the name of a calibration of this GPU; without an engine that of the plain one."""
    return "-".join(part for part in (GPU, shape, f"tp{tp}", engine) if part)


def host_s() -> float:
    """Return what a merged iteration of Llama-2-7B takes beyond its kernels."""
    plain = IterationModel(calibrations.load(name(*MEASURED, "")))
    return MERGED_S - plain.decode_s(BATCH, BATCH * CONTEXT_TOKENS)


def einsum(shape: str, tp: int) -> dict[str, float]:
    """Return the kernel's coefficients: launches by layers, products by the bytes of their one-hot inputs."""
    source, target = setting(GPU, *MEASURED), setting(GPU, shape, tp)
    prefill_token_s = calibrations.load(name(*MEASURED, "")).need("prefill.per_token_s")
    product_s = FIGURE_5 * prefill_token_s / (BATCH * RANK)
    launches_s = UNMERGED_S - MERGED_S - product_s * BATCH * BATCH * RANK
    product_s *= one_hot_bytes(target) / one_hot_bytes(source)
    prefix = "kernels.one_hot_einsum"
    return {
        f"{prefix}.decode.intercept_s": launches_s * target.model.layers / source.model.layers,
        f"{prefix}.decode.per_sequence_adapter_max_rank_s": product_s,
        f"{prefix}.prefill.intercept_s": 0.0,
        f"{prefix}.prefill.per_token_adapter_max_rank_s": product_s,
    }


def coefficients(shape: str, tp: int) -> dict[str, float]:
    """Return the coefficients of a calibration by dotted name."""
    source, target = setting(GPU, *MEASURED), setting(GPU, shape, tp)
    found = dict(calibrations.load(name(shape, tp, "")).coefficients)
    del found["adapter_load.flush_s"]  # of S-LoRA without its unified pool
    if not whole_iterations(found):
        for phase in ("prefill", "decode"):
            found[f"{phase}.intercept_s"] += host_s() * target.model.layers / source.model.layers
    return found | {
        **einsum(shape, tp),
        "adapter_load.bytes_per_s": target.gpu.host_link.bytes_per_s,
        # Each GPU rewrites all of them: dLoRA adapts q, k, v; o; gate and up; down.
        "merge.intercept_s": SWITCH_S * target.all_weights / source.all_weights,
        "merge.per_byte_s": 0.0,
        "front_end.per_call_s": CALL_S,
    }


def whole_iterations(found: Mapping[str, float]) -> bool:
    """Return whether a plain calibration is of whole iterations, host and all, as its collectives say."""
    return found.get("collectives.base_all_reduces_per_layer") == 0


def one_hot_bytes(target: Setting) -> float:
    """Return the bytes that each GPU writes and reads for a token beside an adapter: the inputs of all projections.

    Under tensor parallelism those of o and down are cut, the others are not.
    """
    shape = target.model
    cut = (shape.heads * shape.head_dim + shape.intermediate) / target.tp
    return 2 * shape.layers * (2 * shape.hidden + cut) * shape.dtype_bytes


def iteration_s(calibration: Calibration, merged: bool) -> float:
    """Return a decode step of a full batch in which each has an adapter of its own."""
    work = LoraWork(BATCH, BATCH * RANK, RANK, BATCH)
    lora_s = 0.0 if merged else OneHotEinsum(calibration).decode_s(work)
    return IterationModel(calibration).decode_s(BATCH, BATCH * CONTEXT_TOKENS) + lora_s


def prefill_share(calibration: Calibration, adapters: int) -> float:
    """Return BA x over W x for a token of a prefill with so many adapters."""
    work = LoraWork(1, RANK, RANK, adapters)
    return OneHotEinsum(calibration).prefill_s(work) / calibration.need("prefill.per_token_s")


def lora_cost() -> list[float]:
    """Return BA x over W x of Llama-2-7B where the GPU is the bottleneck: a prefill of 16 adapters."""
    return [prefill_share(calibrations.load(name(*MEASURED)), BATCH)]


def switch_s(calibration: Calibration) -> float:
    """Return what it takes to merge an adapter, or to take one out."""
    return Merge(calibration).merge_s(model(calibration.model).adapter_bytes(RANK) // calibration.tp)


def calibration(shape: str, tp: int) -> Calibration:
    """Return a calibration as it is made."""
    found, plain = coefficients(shape, tp), name(shape, tp, "")
    part = "measured" if (shape, tp) == MEASURED else "scaled"
    said = provenance(
        FOLDER,
        part,
        found,
        plain=plain,
        seven=name(*MEASURED),
        artifact=ARTIFACT,
        batch=BATCH,
        rank=RANK,
        context=CONTEXT_TOKENS,
    )
    if whole_iterations(found):
        del said["coefficients"]["prefill.intercept_s"], said["coefficients"]["decode.intercept_s"]
    return Calibration(name(shape, tp), GPU, shape, tp, said, found)


def line(calibration: Calibration) -> str:
    """Return what a calibration gives for dLoRA's numbers, in milliseconds."""
    merged_ms, unmerged_ms = (1e3 * iteration_s(calibration, merged) for merged in (True, False))
    return (
        f"merged {merged_ms:.1f}, unmerged {unmerged_ms:.1f}, switch {1e3 * switch_s(calibration):.1f}; "
        f"BAx / Wx in a prefill of {BATCH} adapters {prefill_share(calibration, BATCH):.3f}"
    )


@program(into(CALIBRATIONS))
def main(folder: Path) -> None:
    """Write the files; print what they give for dLoRA's numbers."""
    for one in write(folder, [calibration(*each) for each in (MEASURED, *DERIVED)]):
        print(f"{name(one.model, one.tp)}: {line(one)}")
