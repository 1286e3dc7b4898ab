"""Load adapters beside the running batch."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


class Asynchronous(Loader):
    """The request waits for its weights, and for its KV on the host, with its seat and its memory; the batch goes on.

    Source: Punica §5.2; FastLibra §4.3.
    """

    overlaps = True

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.WAIT
