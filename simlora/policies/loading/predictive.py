"""Prefetch the adapters that are likely to be asked for soon, by how often they were asked for lately."""

from __future__ import annotations

from collections.abc import Sequence

from mypy_extensions import mypyc_attr

from simlora.core import libm
from simlora.core.adapter import Adapter
from simlora.core.checks import GivenFloat, GivenInt, number
from simlora.policies.loading.prefetching import Prefetching

RARE = 1e-3
"""Requests a period below which an adapter is forgotten, so that a forecast costs what the adapters in demand cost."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Predictive(Prefetching):
    """Prefetch for the next `depth` requests, and every `period_s` the adapters that a request is likely to need.

    The replica counts the requests for each adapter by period. The forecast is their exponentially weighted mean over
    about `window` periods, and an adapter is prefetched if at least one request for it comes in the next period with a
    probability of `threshold` or more, as of a Poisson process of that mean.
    Source: P-LoRA (arXiv 2512.20210): a predictor on the CPU reads each adapter's counts in a sliding window of
    intervals, and hot adapters are copied from the host ahead of their requests. Differs: its predictor is an LSTM of
    two layers of 64 units, whose weights, interval and threshold are not known to us. Its pages of 2 MB for adapters of
    different ranks are `replica.adapter_memory=unified` here, S-LoRA's.
    """

    def __init__(
        self,
        depth: GivenInt = 8,
        period_s: GivenFloat = 10.0,
        window: GivenFloat = 6,
        threshold: GivenFloat = 0.5,
    ) -> None:
        super().__init__(depth)
        self.forecast_s = number("loader.period_s", period_s, "seconds", above=0)
        self.window = number("loader.window", window, "periods", least=1)
        self.threshold = number("loader.threshold", threshold, above=0, most=0.9999)
        self._least = float(-libm.log(1.0 - self.threshold))  # mean requests a period that make it so likely
        self._adapters: dict[int, Adapter] = {}
        self._counts: dict[int, int] = {}  # requests of the period under way
        # Requests a period, each weighted, and not yet divided by the sum of the weights.
        self._means: dict[int, float] = {}
        self._weight = 0.0

    def asked(self, adapter: Adapter) -> None:
        self._adapters[adapter.id] = adapter
        self._counts[adapter.id] = self._counts.get(adapter.id, 0) + 1

    def forecast(self, periods: int) -> Sequence[Adapter]:
        if not self._counts and not self._means:
            self._weight = 0.0  # the time before a first request says nothing about the time after it
            return []
        kept = (1.0 - 1.0 / self.window) ** periods
        share = self.window * (1.0 - kept)  # the sum of these periods' weights; requests came evenly in them
        self._weight = kept * self._weight + share
        means = {id: kept * mean for id, mean in self._means.items()}
        for id, count in self._counts.items():
            means[id] = means.get(id, 0.0) + count * share / periods
        self._means = {id: mean for id, mean in means.items() if mean > RARE * self._weight}
        self._adapters = {id: self._adapters[id] for id in self._means}
        self._counts = {}
        least = self._least * self._weight
        hot = [id for id, mean in self._means.items() if mean >= least]
        return [self._adapters[id] for id in sorted(hot, key=lambda id: (-self._means[id], id))]
