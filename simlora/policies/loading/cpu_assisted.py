"""Prefill with the CPU's help while the weights travel."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.policies.loading.base import Loader, Miss


class CpuAssisted(Loader):
    """CPU cores multiply the prompt by A and B, layer by layer in step with the GPU, until the weights land.

    Who is prefilled before they do joins the batch when they do. Cores belong to the host, which several
    replicas may share; a request for which there are too few waits as with `blocking`. Source: CaraServe §4.
    """

    assists = True

    def on_miss(self, adapter: Adapter) -> Miss:
        return Miss.ASSIST
