"""Formulas of the papers, each against the function that has it in simlora."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from experiments.claims.checks import Comparison
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


FORMULAS: dict[str, Callable[[], Iterator[Comparison]]] = {"slora_communication": slora_communication}


def compare_formula(name: str) -> list[Comparison] | None:
    """Return the comparisons of a formula, None if simlora does not have its function yet."""
    if name not in FORMULAS:
        raise InputError(f"formula is {name!r}; {nearest(name, FORMULAS)}")
    try:
        return list(FORMULAS[name]())
    except ImportError:
        return None
