"""Prefill with help from the CPU while the adapter is being loaded."""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


@mypyc_attr(allow_interpreted_subclasses=True)
class CpuAssisted(Loader):
    """CPU cores multiply the prompt by A and B, layer by layer in step with the GPU, until the load is complete.

    A request whose prefill ends before the load joins the running batch when the load is complete. Cores belong to
    the host, which several replicas may share. A request for which too few cores are free waits as with `blocking`.
    Source: CaraServe §4.
    """

    assists: ClassVar[bool] = True
    answers: ClassVar[tuple[Miss, ...]] = (Miss.ASSIST,)

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.ASSIST
