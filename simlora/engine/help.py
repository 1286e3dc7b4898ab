"""CPU cores that stand in for weights on their way, while their requests are prefilled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from simlora.core.request import Request
from simlora.engine.cores import Cores
from simlora.latency.cpu_lora import Assisted, CpuLora


class Helped(NamedTuple):
    """A prefill with the CPU's help: when it begins, its seconds, who is `helped`, and for whom it waits: `alone`."""

    begin_s: float
    pass_s: float
    helped: tuple[Request, ...]
    alone: tuple[Request, ...]


class CpuHelp:
    """The cores of a replica's host, and what they can do. Source: CaraServe (arXiv 2401.11240) §4.1."""

    __slots__ = ("_cores", "_cpu_lora", "_lands_s")

    def __init__(self, cores: Cores, cpu_lora: CpuLora, lands_s: Callable[[Request], float]) -> None:
        self._cores, self._cpu_lora, self._lands_s = cores, cpu_lora, lands_s

    def prefill(
        self, tokens: Sequence[tuple[Request, int]], now_s: float, start_s: float, gpu_s: float
    ) -> Helped:
        """Help those whose weights have not landed when the prefill starts; `tokens` are those it processes.

        Cores go to requests in the order of the prefill; for those that get none the replica waits.
        """
        cpu_lora, lands_s = self._cpu_lora, self._lands_s
        free, begin_s = self._cores.free(now_s), start_s
        helped: list[tuple[Request, int]] = []
        alone: list[Request] = []
        for request, count in tokens:
            if lands_s(request) <= start_s:
                continue
            if cpu_lora.cores(count) <= free:
                free -= cpu_lora.cores(count)
                helped.append((request, count))
            else:
                begin_s = max(begin_s, lands_s(request))
                alone.append(request)
        pending = [(request, count) for request, count in helped if lands_s(request) > begin_s]
        pass_s = gpu_s
        if pending:
            slices = [Assisted(count, r.rank, lands_s(r) - begin_s) for r, count in pending]
            pass_s = cpu_lora.pass_s(gpu_s, slices)
            for request, count in pending:
                self._cores.hold(cpu_lora.cores(count), now_s, min(lands_s(request), begin_s + pass_s))
        return Helped(begin_s, pass_s, tuple(request for request, _ in helped), tuple(alone))
