"""CPU cores that compute LoRA in the place of weights on their way, while their requests are prefilled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from simlora.core.request import Request
from simlora.engine.parts.async_loading import Deferring
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.engine.scenario import Scenario
from simlora.latency.cpu_lora import Assisted, CpuLora


class HostCores:
    """The CPU cores of a host, `all` of them. Each is held until a time known from the start."""

    def __init__(self, cores: int) -> None:
        self.all = cores
        self.most_busy = 0
        self._held: list[tuple[float, int]] = []  # until when, how many

    def free(self, now_s: float) -> int:
        """Return the cores that are free at this moment."""
        return self.all - sum(cores for until_s, cores in self._held if until_s > now_s)

    def hold(self, cores: int, now_s: float, until_s: float) -> None:
        """Take so many cores until then; the caller has asked whether they are free."""
        busy = self.all - self.free(now_s) + cores
        assert busy <= self.all, f"{busy} cores are held of {self.all}"
        self.most_busy = max(self.most_busy, busy)
        self._held = [*(held for held in self._held if held[0] > now_s), (until_s, cores)]


class CpuAssist(Deferring):
    """Computes x A B of a prompt on CPU cores until its weights are there. Source: CaraServe (arXiv 2401.11240) §4.1.

    A request that is prefilled before its weights are there joins the batch when they are (ASSISTED). A replica that
    only prefills (`decodes` is false) hands it over at once: the replica that decodes loads weights of its own.
    """

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        if scenario.policies.assists and scenario.cluster.adapter_pool == "distributed":
            yield (
                "loader=cpu_assisted computes with adapters in host memory, which needs "
                "cluster.adapter_pool=replicated"
            )

    def __init__(self, replica: Replica, cores: HostCores, cpu_lora: CpuLora, decodes: bool = True) -> None:
        super().__init__(replica, RequestStatus.ASSISTED)
        self._decodes = decodes
        self._loader, self._cores, self._cpu_lora = replica.loader, cores, cpu_lora

    def assist(
        self, requests: Sequence[Request], tokens: Sequence[int], start_s: float, pass_s: float
    ) -> tuple[float, float]:
        """Return when the prefill begins, and its seconds, with the help of the host's free cores.

        Cores go to requests in the order of the prefill; the replica waits for the weights of those that get none.
        """
        cpu_lora, loader, stats = self._cpu_lora, self._loader, self._table.stats
        now_s, weights_s = self._replica.clock.now, self._loader.weights_s
        free, begin_s = self._cores.free(now_s), start_s
        assisted: list[tuple[Request, int]] = []
        for request, count in zip(requests, tokens, strict=True):
            ready_s = weights_s(request)
            if ready_s <= start_s:
                continue
            if cpu_lora.cores(count) <= free:
                free -= cpu_lora.cores(count)
                assisted.append((request, count))
            else:
                begin_s = max(begin_s, ready_s)
                stats.waited(request, ready_s - start_s, inf, ready_s, loader.ready_s(request))
        if begin_s > start_s:
            delayed = [request for request, _ in assisted]
            others = [request for request in requests if request not in delayed]
            stats.stall(others, [weights_s(request) for request in others], start_s, begin_s)
            stats.delayed(delayed, begin_s - start_s)
        alone_s = pass_s
        pending = [(request, count) for request, count in assisted if weights_s(request) > begin_s]
        if pending:
            slices = [Assisted(count, r.rank, weights_s(r) - begin_s) for r, count in pending]
            pass_s = cpu_lora.pass_s(alone_s, slices)
            for request, count in pending:
                until_s = min(weights_s(request), begin_s + pass_s)
                self._cores.hold(cpu_lora.cores(count), now_s, until_s)
        stats.lengthened(requests, pass_s - alone_s)
        return begin_s, pass_s

    def hold_back(self, request: Request, now_s: float) -> bool:
        weights_s = self._loader.weights_s(request)
        if weights_s <= now_s or not self._decodes:
            return False
        self.add(request, now_s, weights_s)
        request.token_s = now_s
        return True

    def take_ready(self, now_s: float) -> tuple[Request, ...]:
        """Let the requests decode whose weights are there now."""
        while self.next_ready_s <= now_s and (request := self.next_ready(now_s)) is not None:
            request.blocked_s += self.take(request, now_s)
            self._table.rejoin(request)
            self._replica.record_running()
        return ()

    def stop(self, request: Request, now_s: float) -> bool:
        request.blocked_s += self.take(request, now_s)
        return True
