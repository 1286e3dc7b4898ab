"""Formulas of the papers against simlora's: `python -m experiments.claims.formulas [NAME …]`; numbers of no study."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from experiments.claims.checks import Comparison
from experiments.studies.command import command, option
from experiments.studies.reading import known
from simlora.core.errors import InputError, nearest

GPUS, TOKENS, RANKS, HIDDEN = (2, 4, 8), (1, 100), (8, 64), 6656
"""At which numbers the formulas are compared; a formula that is linear in them can differ at all or none."""


def slora_communication() -> Iterator[Comparison]:
    """Bytes by elements: base 2(N-1)Bh/N an all-reduce, LoRA 5(N-1)Br/N a layer. Source: S-LoRA §6.2."""
    from simlora.latency.collectives import all_reduce_elements, lora_elements

    for n in GPUS:
        for b in TOKENS:
            base, ours = 2 * (n - 1) * b * HIDDEN / n, all_reduce_elements(n, b, HIDDEN)
            yield Comparison(
                f"base, {n} GPUs, {b} tokens: {ours:g} elements, {base:g} in the paper", base == ours
            )
            for r in RANKS:
                lora, ours = 5 * (n - 1) * b * r / n, lora_elements(n, b, r)
                says = f"LoRA, {n} GPUs, {b} tokens, rank {r}: {ours:g} elements, {lora:g} in the paper"
                yield Comparison(says, lora == ours)


def caraserve_decode(kernel: str) -> Iterator[Comparison]:
    """Decode latencies of 24 requests of rank 32 and of 16 of rank 64. Source: CaraServe, Figure 5."""
    from experiments.caraserve.calibration import FIGURE_5_S, decode_s

    for (count, rank), published_s in zip(((24, 32), (16, 64)), FIGURE_5_S[kernel], strict=True):
        ours_s = decode_s(kernel, [rank] * count)
        says = (
            f"{kernel}, {count} of rank {rank}: {1e3 * ours_s:.2f} ms, {1e3 * published_s:.1f} in the paper"
        )
        yield Comparison(says, round(1e3 * ours_s, 1) == round(1e3 * published_s, 1))


def caraserve_routes() -> Iterator[Comparison]:
    """With an SLO of 36 ms a request of rank 64 joins the 16 of rank 64 with BGMV, the 24 of rank 32 with MBGMV."""
    from experiments.caraserve.calibration import SLO_S, decode_s

    for kernel, meets in (("bgmv", (False, True)), ("mbgmv", (True, False))):
        for (count, rank), expected in zip(((24, 32), (16, 64)), meets, strict=True):
            ours_s = decode_s(kernel, [rank] * count + [64])
            says = f"{kernel}, {count} of rank {rank} and one of 64: {1e3 * ours_s:.2f} ms, SLO {1e3 * SLO_S:.0f}"
            yield Comparison(says, (ours_s <= SLO_S) == expected)


def caraserve_adapter() -> Iterator[Comparison]:
    """Rank 64 on q, k and v of Llama-2-7B is 96 MiB. Source: CaraServe §2.3, which rounds to 100."""
    from experiments.profiles.scaling import model

    found = model("llama_2_7b").adapter_bytes(64, ("q", "k", "v")) / 2**20
    yield Comparison(f"{found:g} MiB, 96 in the paper", found == 96)


def dlora_switch() -> Iterator[Comparison]:
    """Three iterations take 300 ms unmerged, and 250 ms after merging first. Source: dLoRA (OSDI'24) §4.2."""
    from experiments.dlora.example import PUBLISHED_MS, milliseconds

    for system, published_ms in PUBLISHED_MS.items():
        ours_ms = milliseconds(system)
        yield Comparison(f"{system}: {ours_ms:g} ms, {published_ms} in the paper", ours_ms == published_ms)


def dlora_ilp() -> Iterator[Comparison]:
    """A plan takes milliseconds. Source: dLoRA (OSDI'24) §5.2."""
    from experiments.dlora.overhead import solved_within_milliseconds

    yield from solved_within_milliseconds()


FORMULAS: dict[str, Callable[[], Iterator[Comparison]]] = {
    "slora_communication": slora_communication,
    "caraserve_decode_bgmv": partial(caraserve_decode, "bgmv"),
    "caraserve_decode_mbgmv": partial(caraserve_decode, "mbgmv"),
    "caraserve_routes": caraserve_routes,
    "caraserve_adapter": caraserve_adapter,
    "dlora_switch": dlora_switch,
    "dlora_ilp": dlora_ilp,
}


def found_by(module: str, name: str, *arguments: Any) -> list[float]:
    """What a function of a paper's module finds; its docstring says of which figure or section."""
    found = getattr(import_module(f"experiments.{module}"), name)(*arguments)
    return list(found) if isinstance(found, list) else [float(found)]


NUMBERS: dict[str, Callable[[], list[float]]] = {
    "dlora_lora_cost": partial(found_by, "dlora.kernels", "lora_cost"),
    "dlora_imbalance": partial(found_by, "dlora.replicas", "imbalance"),
    "dlora_inference": partial(found_by, "dlora.overhead", "least_inference"),
    "fastlibra_vllm_ttft": partial(found_by, "fastlibra.over_time", "ttft_ms"),
    "fastlibra_invalid": partial(found_by, "fastlibra.over_time", "invalid"),
    "fastlibra_ttft": partial(found_by, "fastlibra.reductions", "ttft"),
    "fastlibra_tpot": partial(found_by, "fastlibra.reductions", "tpot"),
    "fastlibra_peak": partial(found_by, "fastlibra.reductions", "peak"),
    "fastlibra_translation": partial(found_by, "fastlibra.reductions", "translation"),
    "fastlibra_agent": partial(found_by, "fastlibra.reductions", "agent"),
    "fastlibra_chatbot_ttft": partial(found_by, "fastlibra.reductions", "alone", "ttft_s", "chatbot"),
    "fastlibra_chatbot_tpot": partial(found_by, "fastlibra.reductions", "alone", "tpot_s", "chatbot"),
    "fastlibra_chatbot_peak": partial(found_by, "fastlibra.reductions", "alone_peak", "chatbot"),
    "fastlibra_translation_ttft": partial(found_by, "fastlibra.reductions", "alone", "ttft_s", "translation"),
    "fastlibra_agent_ttft": partial(found_by, "fastlibra.reductions", "alone", "ttft_s", "agent"),
    "fastlibra_chatbot_wom": partial(found_by, "fastlibra.averages", "without_in", "chatbot", "wom"),
    "fastlibra_chatbot_wos": partial(found_by, "fastlibra.averages", "without_in", "chatbot", "wos"),
    "fastlibra_hbm": partial(found_by, "fastlibra.averages", "hbm"),
    "fastlibra_hits": partial(found_by, "fastlibra.averages", "hits"),
    "fastlibra_wom": partial(found_by, "fastlibra.averages", "without", "wom"),
    "fastlibra_wos": partial(found_by, "fastlibra.averages", "without", "wos"),
    "fastlibra_wol": partial(found_by, "fastlibra.averages", "without", "wol"),
    "fastlibra_many": partial(found_by, "fastlibra.averages", "many"),
    "loraserve_beside": partial(found_by, "loraserve.co_served", "beside", 3.0),
    "loraserve_figure_3": partial(found_by, "loraserve.ranks", "figure_3"),
    "loraserve_figure_4": partial(found_by, "loraserve.ranks", "figure_4"),
    "loraserve_figure_5": partial(found_by, "loraserve.ranks", "figure_5"),
    "loraserve_throughput": partial(found_by, "loraserve.rates", "throughput"),
    "loraserve_gpus": partial(found_by, "loraserve.rates", "gpus"),
    "loraserve_ttft": partial(found_by, "loraserve.improvements", "ttft"),
    "loraserve_tbt": partial(found_by, "loraserve.improvements", "tbt"),
    "loraserve_storage": partial(found_by, "loraserve.servers", "fewest_adapters"),
    "loraserve_four_servers": partial(found_by, "loraserve.scaling", "published_rates", [4]),
    "loraserve_hundred_adapters": partial(found_by, "loraserve.rates", "throughput", [100]),
    "loraserve_poisson": partial(found_by, "loraserve.improvements", "poisson"),
    "loraserve_scaling": partial(found_by, "loraserve.scaling", "published_rates"),
    "loraserve_top": partial(found_by, "loraserve.shares", "of_the_week"),
}
"""What computes numbers that no study has, of single replicas for example: by the name that claims have for it."""


def compare_formula(name: str) -> list[Comparison] | None:
    """Return the comparisons of a formula, None if simlora does not have its function yet."""
    if name not in FORMULAS:
        raise InputError(f"formula is {name!r}; {nearest(name, FORMULAS)}")
    try:
        return list(FORMULAS[name]())
    except ImportError:
        return None


COMMANDS = {
    name: f"experiments.{NUMBERS[name].args[0]}"
    for name in (
        "dlora_lora_cost",
        "dlora_imbalance",
        "fastlibra_vllm_ttft",
        "fastlibra_invalid",
        "loraserve_beside",
        "loraserve_figure_3",
        "loraserve_figure_4",
        "loraserve_figure_5",
        "loraserve_top",
    )
}
"""What prints, or draws, numbers that are of no point of a study."""


def printed_by(formula: str, computed: str) -> str:
    """Return the command that prints a formula's comparisons or a computed number; empty for neither."""
    if formula:
        return f"python -m experiments.claims.formulas {formula}"
    return f"python -m {COMMANDS[computed]}" if computed in COMMANDS else ""


@command(
    option("names", nargs="*", metavar="NAME", help=f"{', '.join(FORMULAS)} (default: all)"),
    about="Compare formulas of the papers with simlora's.",
)
def main(names: Sequence[str]) -> None:
    """Print the comparisons of formulas."""
    for name in [known(name, FORMULAS, "formula") for name in names or FORMULAS]:
        print(name)
        for comparison in FORMULAS[name]():
            print(f"  {'so' if comparison.passed else 'NOT SO'}: {comparison.says}")


if __name__ == "__main__":
    sys.exit(main())
