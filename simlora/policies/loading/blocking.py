"""Load adapters one after the other before the prefill that needs them."""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


@mypyc_attr(allow_interpreted_subclasses=True)
class Blocking(Loader):
    """The whole replica waits for each load. Source: S-LoRA's released router; CaraServe's OnDmd."""

    answers: ClassVar[tuple[Miss, ...]] = (Miss.STALL,)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.STALL
