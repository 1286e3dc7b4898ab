"""S-LoRA's synthetic workload, bit for bit as its authors generated it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simlora.core.checks import listed, number, whole
from simlora.core.errors import InputError
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs, base_model, check_adapters
from simlora.workload.arrivals import CV_MAX, CV_MIN, REQUESTS_MAX
from simlora.workload.columns import TOKENS_MAX
from simlora.workload.lengths import check_range
from simlora.workload.popularity import power_index

SEED_MAX = 2**32 - 1


@dataclass(frozen=True)
class SLora:
    """int(rate_rps * duration_s) requests over `adapters` adapters (0: the base model alone).

    Ranges of tokens are [lo, hi), hi not included. The output length is declared exactly, as S-LoRA's
    benchmark does. `seed` is 42, the published runs' own, whatever the run's seed is; None takes the run's.
    `bos_tokens` is added to every prompt: 1 for what Llama's tokenizer puts in front, 0 for the generator's
    own numbers. Source: S-LoRA's benchmarks/trace.py; legacy NumPy generator, in this order of draws.
    """

    adapters: int = 200
    alpha: float = 1.0
    rate_rps: float = 2.0
    cv: float = 1.0
    duration_s: float = 300.0
    prompt_tokens: Sequence[int] = (8, 512)
    output_tokens: Sequence[int] = (8, 512)
    ranks: Sequence[int] = (64, 32, 16, 8)
    seed: int | None = 42
    bos_tokens: int = 0

    def __post_init__(self) -> None:
        check_adapters(self.adapters, self.ranks, least=0)
        number("workload.alpha", self.alpha, above=0)
        number("workload.rate_rps", self.rate_rps, "requests per second", above=0)
        number("workload.cv", self.cv, least=CV_MIN, most=CV_MAX)
        number("workload.duration_s", self.duration_s, "seconds", above=0)
        whole("workload.bos_tokens", self.bos_tokens, "tokens", least=0, most=TOKENS_MAX)
        if self.seed is not None:
            whole("workload.seed", self.seed, least=0, most=SEED_MAX)
        check_bounds("workload.prompt_tokens", self.prompt_tokens)
        check_bounds("workload.output_tokens", self.output_tokens)
        expected = self.rate_rps * self.duration_s
        number("workload.rate_rps x workload.duration_s", expected, "requests", least=1, most=REQUESTS_MAX)

    @property
    def lasts(self) -> dict[str, float]:
        """The key that says how long it goes on."""
        return {"duration_s": self.duration_s}

    def build(self, seed: int) -> Trace:
        """Return the trace. `seed` counts only when the workload's own is None."""
        used = whole("seed", seed, least=0, most=SEED_MAX) if self.seed is None else int(self.seed)
        rng = np.random.RandomState(used)
        n = int(self.rate_rps * self.duration_s)
        shares = rng.power(self.alpha, n)
        prompts = rng.randint(int(self.prompt_tokens[0]), int(self.prompt_tokens[1]), n, dtype=np.int64)
        outputs = rng.randint(int(self.output_tokens[0]), int(self.output_tokens[1]), n, dtype=np.int64)
        gaps_s = rng.gamma(1 / (self.cv * self.cv), self.cv * self.cv / self.rate_rps, n)
        adapters = int(self.adapters)
        return Trace(
            arrival_s=np.cumsum(gaps_s),
            adapter=power_index(shares, adapters) if adapters else base_model(n),
            prompt_tokens=prompts + int(self.bos_tokens),
            output_tokens=outputs,
            max_output_tokens=outputs,
            adapters=adapter_specs(adapters, self.ranks),
            source=f"S-LoRA's generator, seed {used}",
        )


def check_bounds(key: str, bounds: Any) -> None:
    """Raise InputError unless `bounds` is [lo, hi] with 1 <= lo < hi."""
    if len(listed(key, bounds, "[8,512]")) != 2:
        raise InputError(f"{key} is {list(bounds)}, must be [lo, hi], such as [8,512]")
    check_range(f"{key}[0]", bounds[0], f"{key}[1]", bounds[1])
