"""Load adapters in the background, beside the running batch."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


class Asynchronous(Loader):
    """The admitted request alone waits for its weights and for its KV on the host; the running batch goes on.

    The request holds its seat and its memory while it waits. Source: Punica §5.2; FastLibra §4.3.
    """

    overlaps = True
    answers = (Miss.WAIT,)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.WAIT
