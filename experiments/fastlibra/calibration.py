"""FastLibra's NPU: `python -m experiments.fastlibra.calibration [--peer-link LINK] [--out FOLDER]`.

No measurement of it is published. The paper gives its peak, its memory's size and its bus, and no time of a single
iteration; what it measured, TTFT under load, is not fitted here. So these are an A100's kernels by roofline: what is
arithmetic by peak FLOP/s, what is memory by bandwidth, at the shares of both that an A100 reaches. An A100 has 153 FLOP
a byte, the NPU 160, so what bounds a kernel on the one bounds it on the other. The host is the one that dLoRA's 15 ms
leave: vLLM's, on which FastLibra is built. Loads go at what the bus gives a copy.

It prints what comes out. With `--peer-link` the cards of a replica are joined by another link: a what-if, to be
written to a folder of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.dlora import calibration as dlora
from experiments.profiles import scaling
from experiments.profiles.scaling import Setting, Single, described, gpu, model
from experiments.studies.command import into, option, program
from experiments.studies.markdown import by_column
from experiments.studies.provenance import provenance, write
from simlora.calibrate.calibration_file import CALIBRATIONS
from simlora.core.errors import InputError
from simlora.hardware.budget import kv_token_budget
from simlora.hardware.link import LINKS
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork

FOLDER = Path(__file__).parent
COMMAND = "python -m experiments.fastlibra.calibration"
GPU = "npu_64g"
SOURCES = {
    ("llama_7b", 1): "a100_80g-llama_2_7b-tp1",
    ("llama_13b", 2): "a100_80g-llama_2_7b-tp2",
    ("llama_34b", 4): "a100_80g-llama_2_70b_mha-tp4",
    ("llama_30b", 4): "a100_80g-llama_2_70b_mha-tp4",
}
"""What each is scaled from: sums of kernels of a shape near it, at the same degree. The 34B is as wide as the 70B. The
30B is no model of theirs, but the one of that size whose KV heads are not grouped: a what-if."""
KERNELS = "a100_80g-llama_7b-tp1"
"""Fitted to S-LoRA's runs: its LoRA kernels, copies and merges."""
UNUSED = ("kernels.padded_bmm.", "adapter_load.flush_s")
"""S-LoRA without its kernels and without its pool, which was not run here."""
LINK_SHARE = 0.8
"""What a copy reaches of the rate of PCIe."""
RANKS = (32, 64)
PROMPTS, BATCHES, CONTEXT_TOKENS = (512, 2048), (1, 16, 64), 1000
TURN = (100, 4000)
"""A later turn of a conversation: its own tokens, and those that are cached."""


def setting(shape: str, tp: int, peer_link: str | None = None) -> Setting:
    """Return what a calibration is for; `peer_link` is another link between its cards."""
    plain = scaling.setting(GPU, shape, tp)
    return replace(plain, gpu=replace(plain.gpu, peer_link=LINKS[peer_link])) if peer_link else plain


def coefficients(shape: str, tp: int, peer_link: str | None = None) -> dict[str, float]:
    """Return the coefficients of a calibration by dotted name."""
    target = setting(shape, tp, peer_link)
    lora = scaling.lora(calibrations.load(KERNELS), target)
    found = {name: value for name, value in lora.items() if not name.startswith(UNUSED)}
    for copied in ("bytes_per_s", "kv_bytes_per_s"):
        found[f"adapter_load.{copied}"] = LINK_SHARE * target.gpu.host_link.bytes_per_s
    return iterations(calibrations.load(SOURCES[shape, tp]), target) | found


def iterations(measured: Calibration, target: Setting) -> dict[str, float]:
    """Return prefill, decode and collectives of `target`: kernels by roofline, and a host by layers."""
    source = described(measured)
    slower = source.gpu.fp16_flops / target.gpu.fp16_flops
    narrower = source.gpu.memory_bandwidth_bytes_per_s / target.gpu.memory_bandwidth_bytes_per_s
    larger = weights(target) / weights(source)
    with_head = weights(target, head=True) / weights(source, head=True)
    factors = {
        "prefill.intercept_s": narrower * larger,
        "prefill.per_token_s": slower * larger,
        "decode.intercept_s": narrower * with_head,
        "decode.per_sequence_s": slower * with_head,
        "decode.per_sequence_sq_s": slower * with_head,
    }
    found = {name: measured.need(name) * factor for name, factor in factors.items()}
    attention = ("prefill.per_token_sq_s", "decode.per_context_token_s")
    found |= scaling.attention({name: measured.need(name) for name in attention}, source, target)
    for phase in ("prefill", "decode"):
        found[f"{phase}.intercept_s"] += host_s(target.model.layers)
    return found | collectives(measured, source, target)


def host_s(layers: int) -> float:
    """Return what the host of dLoRA's engine takes for an iteration of so many layers."""
    shape, _ = dlora.MEASURED
    return dlora.host_s() * layers / model(shape).layers


def collectives(measured: Calibration, source: Setting, target: Setting) -> dict[str, float]:
    """Return all-reduces of `target`: calls as on `source`, the bandwidth by that of the links."""
    if target.tp == 1:
        return {}
    names = ("base_all_reduces_per_layer", "latency_s", "bytes_per_s")
    found = {f"collectives.{name}": measured.need(f"collectives.{name}") for name in names}
    found["collectives.bytes_per_s"] *= target.gpu.peer_link.bytes_per_s / source.gpu.peer_link.bytes_per_s
    return found


def weights(target: Setting, head: bool = False) -> float:
    """Return the weights that each card multiplies with, with or without those of the output head."""
    return target.all_weights + head * target.model.hidden * target.model.vocab / target.tp


def calibration(shape: str, tp: int, peer_link: str | None = None) -> Calibration:
    """Return a calibration as it is made."""
    source, target = SOURCES[shape, tp], setting(shape, tp, peer_link)
    found = coefficients(shape, tp, peer_link)
    said = provenance(
        FOLDER,
        "scaled",
        found,
        source=source,
        kernels=KERNELS,
        seven=dlora.name(*dlora.MEASURED),
        ours=target.gpu.peer_link.name,
        theirs=described(calibrations.load(source)).gpu.peer_link.name,
        bus=target.gpu.host_link.name,
        says=scaling.SAYS,
        command=COMMAND + (f" --peer-link {peer_link}" if peer_link else ""),
    )
    return Calibration(target.name, GPU, shape, tp, said, found)


def column(calibration: Calibration) -> dict[str, str]:
    """Return a column of the table, in ms, collectives in all, without adapters unless they are named."""
    one, alone = Single(calibration), IterationModel(calibration)
    shape, (own, cached), rank = one.model, TURN, max(RANKS)

    def prefill_ms(tokens: int, before: int = 0) -> float:
        return 1e3 * one.iteration.prefill_s(tokens, tokens * (tokens + 2 * before))

    def load_ms(size_bytes: int) -> float:
        """Return a copy to all cards at once; each has its part and its own bus."""
        return 1e3 * one.load.load_s(size_bytes // calibration.tp)

    found = {
        "keys and values of a token, kB": f"{shape.kv_bytes_per_token / 1e3:.1f}",
        "pool, tokens": f"{kv_token_budget(shape, gpu(calibration.gpu), calibration.tp):,}",
    }
    for each in RANKS:
        size, slots = shape.adapter_bytes(each), shape.adapter_kv_tokens(each)
        label = f"adapter of rank {each}: MB, tokens of the pool, ms to load"
        found[label] = f"{size / 1e6:.0f}, {slots}, {load_ms(size):.1f}"
    for tokens in PROMPTS:
        sent_ms = prefill_ms(tokens) - 1e3 * alone.prefill_s(tokens, tokens**2)
        label = f"prefill of {tokens:,} tokens, and of it between cards"
        found[label] = f"{prefill_ms(tokens):.0f}, {sent_ms:.0f}"
    found |= {
        f"prefill of {own + cached:,}": f"{prefill_ms(own + cached):.0f}",
        f"prefill of {own} after {cached:,} in the cache": f"{prefill_ms(own, cached):.0f}",
        f"to load these {cached:,} from the host": f"{load_ms(cached * shape.kv_bytes_per_token):.0f}",
    }
    for batch in BATCHES:
        step_ms = 1e3 * one.iteration.decode_s(batch, batch * CONTEXT_TOKENS)
        lora_ms = 1e3 * one.kernel.decode_s(LoraWork(batch, batch * rank, rank, batch))
        found[f"decode step of {batch}, and adapters of rank {rank}"] = f"{step_ms:.1f} + {lora_ms:.1f}"
    return found


def table(made: Sequence[Calibration]) -> str:
    """Return what comes out, as a table in Markdown: a column a model."""
    columns = {f"{one.model}, {one.tp} card{'s' * (one.tp > 1)}": column(one) for one in made}
    return by_column("ms, unless it says otherwise", columns)


@program(
    option("--peer-link", choices=LINKS, help="another link between the cards of a replica"),
    into(CALIBRATIONS),
)
def main(peer_link: str | None, folder: Path) -> None:
    """Write the files; print what comes out."""
    if peer_link and folder == CALIBRATIONS:
        raise InputError("--peer-link is a what-if: give it a folder with --out")
    print(table(write(folder, [calibration(*each, peer_link) for each in SOURCES])))
