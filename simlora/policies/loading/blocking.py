"""Load adapters one after the other before the prefill that needs them."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


class Blocking(Loader):
    """The whole replica waits for each load. Source: S-LoRA's released router; CaraServe's OnDmd."""

    answers = (Miss.STALL,)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.STALL
