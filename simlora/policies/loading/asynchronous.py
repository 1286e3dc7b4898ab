"""Load adapters beside the running batch."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


class Asynchronous(Loader):
    """The request waits for its weights with its seat and its memory, and the batch goes on. Source: Punica §5.2."""

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.WAIT
