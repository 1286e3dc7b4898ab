"""Load adapters in the background, beside the running batch."""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.checks import GivenBool, switch
from simlora.policies.loading.base import Loader, Miss


@mypyc_attr(allow_interpreted_subclasses=True)
class Asynchronous(Loader):
    """The admitted request alone waits for its weights and for its KV on the host; the running batch goes on.

    The request holds its seat and its memory while it waits. The copy begins when the request is admitted or, with
    `on_arrival`, when it arrives: that of its adapter, if it fits beside all others then, and that of cached KV from
    the host, as far as slots are free. Source: Punica §5.2; FastLibra §4.2 ("when a query arrives"), §4.3.
    """

    overlaps: ClassVar[bool] = True
    answers: ClassVar[tuple[Miss, ...]] = (Miss.WAIT,)

    def __init__(self, on_arrival: GivenBool = False) -> None:
        self.on_arrival = switch("loader.on_arrival", on_arrival)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.WAIT
