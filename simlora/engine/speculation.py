"""Speculative decoding: what a draft proposes, and how much of it the adapted model accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simlora.core.checks import number, whole
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.request import Request
from simlora.latency.calibration import Calibration

MASK: Final = (1 << 32) - 1
NGRAM: Final = "ngram"
EAGLE: Final = "eagle"
TOKENS_MOST: Final = 64


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """A draft proposes `tokens` tokens of each running request in a step, which the adapted model verifies in one pass.

    0 tokens: there is no speculation. The `draft` has no adapters and is shared by all: ngram looks proposals up in the
    text, which takes no time of the GPU; eagle is a head on the target; else it is the name of a model, which has a
    `calibration` of its own. A proposed token is accepted with probability `acceptance` if all before it were:
    the base model's; that of an adapter is drawn once, uniformly from `adapter_acceptance`; None: it is the base
    model's. Steps with more than `most_running` requests propose nothing; None: all steps do.
    Source: Leviathan et al. (ICML'23) §3, tokens that are accepted independently of each other; vLLM's
    `num_speculative_tokens`; SGLang, pull request 34337, for a draft without adapters.
    """

    tokens: int = 0
    draft: str = NGRAM
    calibration: Calibration | None = None
    acceptance: float = 0.7
    adapter_acceptance: tuple[float, float] | Mapping[int, float] | None = None
    most_running: int | None = None

    def __post_init__(self) -> None:
        whole("speculation.tokens", self.tokens, "tokens", least=0, most=TOKENS_MOST)
        number("speculation.acceptance", self.acceptance, least=0, most=1)
        self._check_adapters()
        if self.most_running is not None:
            whole("speculation.most_running", self.most_running, "requests", least=1)

    def _check_adapters(self) -> None:
        given = self.adapter_acceptance
        if given is None:
            return
        for one in given.values() if isinstance(given, Mapping) else given:
            number("speculation.adapter_acceptance", one, least=0, most=1)
        if isinstance(given, Mapping):
            if not given:
                raise InputError(
                    "speculation.adapter_acceptance is {}, must have a probability for each rank"
                )
        elif given[1] < given[0]:
            raise InputError(
                f"speculation.adapter_acceptance is [{given[0]:g}, {given[1]:g}], must have the lower one first"
            )

    def check_ranks(self, ranks: Sequence[int]) -> None:
        """Raise InputError for the first rank of an adapter whose acceptance is not said."""
        given = self.adapter_acceptance
        if not isinstance(given, Mapping):
            return
        for rank in ranks:
            if rank not in given:
                known = ", ".join(map(str, sorted(given)))
                raise InputError(
                    f"speculation.adapter_acceptance has no rank {rank}, which an adapter has; it has {known}"
                )

    def accepted(self, ranks: Sequence[int], seed: int) -> Acceptance:
        """Return what is accepted in a run of adapters of these ranks `[adapters]`."""
        given = self.adapter_acceptance
        if isinstance(given, Mapping):
            each = [given[rank] for rank in ranks]
            mean = sum(each) / len(each) if each else self.acceptance
            return Acceptance(self.tokens, self.acceptance, each, mean, seed, given)
        low, high = given or (self.acceptance, self.acceptance)
        drawn: list[float] = stream(seed, "acceptance").uniform(low, high, len(ranks)).tolist()
        return Acceptance(self.tokens, self.acceptance, drawn, (low + high) / 2, seed)


class Acceptance:
    """Draws how many of the proposed tokens are accepted, by request and by how many tokens it has.

    So a request has the same luck under every policy. (A preemption shifts it: the prefill that computes its KV again
    gives a token without a proposal.)
    `by_adapter` is each adapter's probability; one that joins a run later has that of its rank in `by_rank`, or else
    `of_others`.
    """

    def __init__(
        self,
        tokens: int,
        base: float,
        by_adapter: list[float],
        of_others: float,
        seed: int,
        by_rank: Mapping[int, float] | None = None,
    ) -> None:
        self.by_adapter = by_adapter
        self._base, self._others = _least(base, tokens), _least(of_others, tokens)
        self._least = [_least(each, tokens) for each in by_adapter]
        self._by_rank = {rank: _least(each, tokens) for rank, each in (by_rank or {}).items()}
        self._key = seed * 0x9E3779B9

    def draw(self, request: Request, generated: int) -> int:
        """Return how many tokens of a proposal are accepted for a request that has generated so many."""
        id = request.adapter_id
        if id < 0:
            least = self._base
        else:
            known = id < len(self._least)
            least = self._least[id] if known else self._by_rank.get(request.rank, self._others)
        drawn = mixed(self._key + request.id * 0x85EBCA6B + generated * 0xC2B2AE35)
        accepted = 0
        for bound in least:
            if drawn >= bound:
                break
            accepted += 1
        return accepted


def _least(acceptance: float, tokens: int) -> list[float]:
    """Return the bounds below which a number from 0 to 2^32 has to be for 1, 2, … tokens to be accepted."""
    bounds, bound = [], float(1 << 32)
    for _ in range(tokens):
        bound *= acceptance
        bounds.append(bound)
    return bounds


def mixed(value: int) -> int:
    """Return a number whose 32 bits look random: each bit of the argument changes half of them.

    Source: the constants of `triple32`, whose author measured its bias (github.com/skeeto/hash-prospector).
    """
    value &= MASK
    value ^= value >> 17
    value = (value * 0xED5AD4BB) & MASK
    value ^= value >> 11
    value = (value * 0xAC4C1B51) & MASK
    value ^= value >> 15
    value = (value * 0x31848BAB) & MASK
    return value ^ (value >> 14)
