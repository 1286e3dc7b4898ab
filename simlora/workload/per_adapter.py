"""Many adapters, each with a rate of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import listed, number, weights, whole
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs, check_adapters
from simlora.workload.arrivals import Poisson, before
from simlora.workload.lengths import Lengths
from simlora.workload.pairs import CORRELATION_MAX, check_length
from simlora.workload.popularity import weighted_index


@dataclass(frozen=True)
class PerAdapter:
    """Every adapter has Poisson arrivals of its own for `duration_s` seconds, at one of `rates_rps`.

    `counts` says how many adapters have which rate (None: as many each as can be); which ones is drawn from
    the run's seed. A prompt and its answer have at most `context_tokens` together: the answer is cut.
    `correlation` is that of the normal scores of the two lengths; 0 draws them apart.
    Poisson processes put together are one of the summed rate, each of whose arrivals belongs to one of them
    with a probability proportional to its rate, independent of all others: so the requests are drawn.
    Source: the workloads of arXiv 2508.08343.
    """

    prompt_tokens: Lengths
    output_tokens: Lengths
    adapters: int = 96
    ranks: Sequence[int] = (8, 16)
    rates_rps: Sequence[float] = (0.05, 0.0125, 0.003125)
    counts: Sequence[int] | None = None
    duration_s: float = 3600.0
    context_tokens: int | None = 2048
    correlation: float = 0.0

    def __post_init__(self) -> None:
        check_adapters(self.adapters, self.ranks)
        weights("workload.rates_rps", self.rates_rps, "[0.4,0.1]", "requests per second")
        number("workload.duration_s", self.duration_s, "seconds", above=0)
        if self.context_tokens is not None:
            whole("workload.context_tokens", self.context_tokens, "tokens", least=2)
        number("workload.correlation", self.correlation, least=-CORRELATION_MAX, most=CORRELATION_MAX)
        check_length("prompt_tokens", self.prompt_tokens)
        check_length("output_tokens", self.output_tokens)
        if self.counts is not None:
            self._check_counts()
        if not self._rates_rps.sum():
            raise InputError(
                f"workload.rates_rps gives all of the {self.adapters:,} adapters a rate of 0, must give at least one "
                "of them more"
            )

    def _check_counts(self) -> None:
        counts = listed("workload.counts", self.counts, "[48,48]")
        for i, count in enumerate(counts):
            whole(f"workload.counts[{i}]", count, "adapters", least=0)
        if len(counts) != len(self.rates_rps):
            raise InputError(
                f"workload.counts has {len(counts)} entries, must have one for each of the "
                f"{len(self.rates_rps)} rates of workload.rates_rps"
            )
        if sum(counts) != self.adapters:
            raise InputError(
                f"workload.counts are {sum(counts):,} adapters together, must be the {self.adapters:,} of "
                "workload.adapters"
            )

    @property
    def _rates_rps(self) -> Floats:
        """Return the rates of all adapters [adapters], in the order of `rates_rps`."""
        rates = np.array(list(self.rates_rps), dtype=np.float64)
        if self.counts is None:
            return rates[np.arange(int(self.adapters)) * len(rates) // int(self.adapters)]
        return np.repeat(rates, [int(count) for count in self.counts])

    @property
    def lasts(self) -> dict[str, float]:
        """The key that says how long it goes on."""
        return {"duration_s": self.duration_s}

    def build(self, seed: int) -> Trace:
        """Return the trace for the run's seed."""
        rng = stream(seed, "adapters")
        rates_rps = rng.permutation(self._rates_rps)
        all_together = Poisson(float(rates_rps.sum()))
        arrival_s = before(self.duration_s, all_together, stream(seed, "arrivals"), "workload.rates_rps")
        n = len(arrival_s)
        prompts, outputs = self._lengths(seed, n)
        rates = f"{len(self.rates_rps)} rates" if len(self.rates_rps) > 1 else "one rate"
        return Trace(
            arrival_s=arrival_s,
            adapter=weighted_index(rng, rates_rps, n),
            prompt_tokens=prompts,
            output_tokens=outputs,
            max_output_tokens=outputs,
            adapters=adapter_specs(self.adapters, self.ranks),
            source=f"Poisson arrivals, {rates} over {self.adapters:,} adapters",
        )

    def _lengths(self, seed: int, n: int) -> tuple[Ints, Ints]:
        """Return prompts and answers [n]."""
        prompts = self.prompt_tokens.draw(stream(seed, "prompt_lengths"), n)
        rng = stream(seed, "output_lengths")
        outputs = self.output_tokens.draw(rng, n)
        if self.correlation:
            outputs = correlated(rng, prompts, outputs, self.correlation)
        if self.context_tokens is None:
            return prompts, outputs
        left = int(self.context_tokens) - prompts
        if left.min() < 1:
            raise InputError(
                f"workload.context_tokens is {self.context_tokens:,}, must be more than the longest prompt of "
                f"workload.prompt_tokens, here {prompts.max():,} tokens"
            )
        return prompts, np.minimum(outputs, left)


def correlated(rng: np.random.Generator, first: Ints, second: Ints, correlation: float) -> Ints:
    """Return `second` in an order in which its normal scores correlate with those of `first`.

    Source: Iman and Conover (1982), "A distribution-free approach to inducing rank correlation".
    """
    n = len(first)
    scores = np.empty(n)
    scores[np.lexsort((rng.random(n), first))] = np.sort(rng.standard_normal(n))
    wanted = correlation * scores + np.sqrt(1 - correlation**2) * rng.standard_normal(n)
    result = np.empty_like(second)
    result[np.argsort(wanted)] = np.sort(second)
    return result
