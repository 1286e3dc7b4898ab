"""Every adapter is always resident: the oracle that cold starts are measured against."""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


@mypyc_attr(allow_interpreted_subclasses=True)
class Cached(Loader):
    """Loads take no time. Source: CaraServe §7.1, Cached."""

    answers: ClassVar[tuple[Miss, ...]] = (Miss.FREE,)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.FREE
