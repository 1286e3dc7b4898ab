"""Formulas of the papers against simlora's: `python -m experiments.claims.formulas [NAME …]`; numbers of no study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.claims.spots import Comparison
from experiments.studies.command import option, program
from experiments.studies.reading import known, load

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
    from experiments.dlora.slower import EXAMPLE_MS, example_ms

    for system, published_ms in EXAMPLE_MS.items():
        ours_ms = example_ms(system)
        yield Comparison(f"{system}: {ours_ms:g} ms, {published_ms} in the paper", ours_ms == published_ms)


def dlora_ilp() -> Iterator[Comparison]:
    """A plan takes milliseconds. Source: dLoRA (OSDI'24) §5.2."""
    from experiments.dlora.replicas import solved_within_milliseconds

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


COMPUTED = load(Path(__file__).with_name("computed.yaml"))
NUMBERS: dict[str, Callable[[], list[float]]] = {
    name: partial(found_by, *how) for name, how in COMPUTED["numbers"].items()
}
"""What computes numbers that no study has, of single replicas for example: by the name that claims have for it."""


COMMANDS = {name: f"experiments.{COMPUTED['numbers'][name][0]}" for name in COMPUTED["printed"]}
"""What prints, or draws, numbers that are of no point of a study."""


def printed_by(formula: str, computed: str) -> str:
    """Return the command that prints a formula's comparisons or a computed number; empty for neither."""
    if formula:
        return f"python -m experiments.claims.formulas {formula}"
    return f"python -m {COMMANDS[computed]}" if computed in COMMANDS else ""


@program(
    option("names", nargs="*", metavar="NAME", help=f"{', '.join(FORMULAS)} (default: all)"),
    about="Compare formulas of the papers with simlora's.",
)
def main(names: Sequence[str]) -> None:
    """Print the comparisons of formulas."""
    for name in [known(name, FORMULAS, "formula") for name in names or FORMULAS]:
        print(name)
        for comparison in FORMULAS[name]():
            print(f"  {'so' if comparison.passed else 'NOT SO'}: {comparison.says}")
