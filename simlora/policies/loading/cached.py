"""Every adapter is always resident: the oracle that cold starts are measured against."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


class Cached(Loader):
    """Loads take no time. Source: CaraServe §7.1, Cached."""

    answers = (Miss.FREE,)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.FREE
