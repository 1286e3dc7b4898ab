"""Adapters and KV in one order: the least recently used leaves HBM, the most recently used comes back."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from simlora.policies.eviction.swapper import Swapper


@mypyc_attr(allow_interpreted_subclasses=True)
class BandedLru(Swapper):
    """The swapper without its cost model: FastLibra-WOS. Source: FastLibra §6.7."""

    def key(self, cost_s: float, visits: int, used_s: float) -> float:
        return used_s
