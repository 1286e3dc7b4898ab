"""A workload put together from an arrival process, a popularity and two lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlora.core.arrays import Floats
from simlora.core.checks import number, whole
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs, base_model, check_adapters
from simlora.workload.arrivals import REQUESTS_MAX, Arrivals, before, check_arrivals
from simlora.workload.lengths import Lengths
from simlora.workload.pairs import Pairs, check_lengths, draw_lengths
from simlora.workload.popularity import Popularity, check_popularity


@dataclass(frozen=True)
class Synthetic:
    """Requests for `duration_s` seconds, or exactly `requests` of them: one of the two is None.

    Each part draws from its own stream of the run's seed: another popularity leaves arrivals and lengths as
    they were, and a longer run begins with the shorter one, unless popularity changes over the run, as it then does
    over the longer one. `adapters` 0 is the base model alone. `lengths`, where they are given, are prompts and answers
    that belong together, and `prompt_tokens` and `output_tokens` are not used; without, the normal scores of these
    correlate by `correlation`, and 0 draws them apart.
    """

    arrivals: Arrivals
    popularity: Popularity
    prompt_tokens: Lengths
    output_tokens: Lengths
    adapters: int = 100
    ranks: Sequence[int] = (8,)
    duration_s: float | None = 300.0
    requests: int | None = None
    lengths: Pairs | None = None
    correlation: float = 0.0

    def __post_init__(self) -> None:
        check_adapters(self.adapters, self.ranks, least=0)
        check_arrivals(self.arrivals)
        check_lengths(self.prompt_tokens, self.output_tokens, self.lengths, self.correlation)
        if self.adapters:
            check_popularity(self.popularity, int(self.adapters))
        if (self.duration_s is None) == (self.requests is None):
            have = "both" if self.requests is not None else "neither"
            raise InputError(
                f"workload.duration_s and workload.requests: {have} given, must be one of the two"
            )
        if self.requests is not None:
            whole("workload.requests", self.requests, "requests", least=1, most=REQUESTS_MAX)
        else:
            number("workload.duration_s", self.duration_s, "seconds", above=0)

    @property
    def lasts(self) -> dict[str, float]:
        """The key that says how long it goes on; none where a longer one would have another rate."""
        both = {"duration_s": self.duration_s, "requests": self.requests} if self.arrivals.steady else {}
        return {key: value for key, value in both.items() if value is not None}

    def build(self, seed: int) -> Trace:
        """Return the trace for the run's seed."""
        arrival_s = self._arrival_s(stream(seed, "arrivals"))
        n, adapters = len(arrival_s), int(self.adapters)
        adapter = base_model(n)
        if adapters:
            rng = stream(seed, "adapters")
            adapter = self.popularity.draw_at(rng, adapters, self._moments(arrival_s))
        prompts, outputs = draw_lengths(
            seed, n, self.prompt_tokens, self.output_tokens, self.lengths, self.correlation
        )
        return Trace(
            arrival_s=arrival_s,
            adapter=adapter,
            prompt_tokens=prompts,
            output_tokens=outputs,
            max_output_tokens=outputs,
            adapters=adapter_specs(adapters, self.ranks),
            source=f"synthetic: {type(self.arrivals).__name__}, {type(self.popularity).__name__}",
        )

    def _arrival_s(self, rng: np.random.Generator) -> Floats:
        """Return the arrivals [requests]; by duration, those before duration_s."""
        if self.requests is not None:
            return self.arrivals.arrivals_s(self.arrivals.gaps_s(rng, int(self.requests)))
        assert self.duration_s is not None
        return before(self.duration_s, self.arrivals, rng)

    def _moments(self, arrival_s: Floats) -> Floats:
        """Return the arrivals as parts of the run [requests]: of duration_s, or of the time to the last one."""
        end_s = float(arrival_s[-1]) if self.duration_s is None else float(self.duration_s)
        return arrival_s / end_s if end_s else np.zeros_like(arrival_s)
