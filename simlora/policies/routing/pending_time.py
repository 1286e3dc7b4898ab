"""Route to the replica with the shortest estimated pending time: adapter load plus queued batches."""

from __future__ import annotations

from math import inf
from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.build import BUILD
from simlora.core.checks import GivenBool, GivenFloat, GivenStr, choice, number, switch
from simlora.core.request import Request
from simlora.policies.loads import ReplicaLoad
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView

FEW = 64
"""Up to this many replicas, plain numbers are faster than arrays. Compiled, always."""


CONSTANTS = ("paper", "released")


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingTime(Router):
    """dLoRA's dispatch: seconds to load the adapter where it is not in HBM, plus seconds of the replica's batches.

    A replica's requests, including the new one, form full batches of `max_num_seqs` for one adapter or for the base
    model, and a rest. A batch takes the mean execution time of a request (`unknown_execution_s` before any has
    finished); a full batch takes `merged_share` of that, because it can run merged. The shortest time wins, of equals
    the lowest id. With `loads` false only replicas that have the adapter are considered, unless none has it.

    Source: dLoRA (OSDI'24) §5.1; numbers from their code. The rest counts as the fraction of a batch that it fills,
    which the paper leaves open.

    With `constants` released, as in the code (`select_engine`): the rest counts in whole batches, rounded down, so that
    replicas with room are equal; the new request does not count; a batch weighs as much as a second of loading, without
    the execution time. Of equals the first to hold the adapter wins. What a replica holds is what the manager notes: at
    first what lies in HBM, and always as many adapters. Another replica gets the adapter only in the place of one
    without requests there, of which there is another copy elsewhere. With `loads` false, as once requests migrate, what
    lies in HBM counts. An adapter that no replica has goes to the one with the fewest requests.
    Differs: where requests migrate, their manager counts requests as of each replica's last iteration, here as of now.
    Without, it asks the replicas, as here with `asks`.
    """

    informed: ClassVar[bool] = True

    def __init__(
        self,
        constants: GivenStr = "paper",
        merged_share: GivenFloat = 0.6,
        unknown_execution_s: GivenFloat = 5.0,
        loads: GivenBool = True,
        asks: GivenBool = False,
    ) -> None:
        self.released = choice("router.constants", constants, CONSTANTS) == "released"
        self.loads = switch("router.loads", loads)
        self.asks = switch("router.asks", asks)
        self.merged_share = number("router.merged_share", merged_share, least=0, most=1)
        self.unknown_execution_s = number(
            "router.unknown_execution_s", unknown_execution_s, "seconds", above=0
        )
        self._noted: list[
            list[int]
        ] = []  # with `constants` released, adapters by replica, first those that came first
        self._copies: dict[int, list[int]] = {}  # the same, replicas by adapter

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        replicas: list[int] = candidates.tolist()
        if self.released:
            return self._least(request, view, replicas)
        there = set[int]() if request.adapter is None else view.holders(request.adapter)
        if there and not self.loads:
            replicas = [replica for replica in replicas if replica in there] or replicas
        if BUILD == "interpreted" and len(replicas) > FEW:
            return replicas[int(self.pending_s(request, view)[replicas].argmin())]
        return self._shortest(request, view, replicas, there)

    def _least(self, request: Request, view: ClusterView, replicas: list[int]) -> int:
        """Return the replica that the released code picks, and note what it replaces there."""
        loads, adapter = view.loads.all.replicas, request.adapter
        if adapter is None:
            there = replicas
        elif self.loads:
            there = self._holding(adapter.id, view)
        else:
            there = sorted(view.holders(adapter))
        chosen, least, given_up, may = -1, inf, -1, set(replicas)
        for replica in there:
            cost = self._batches(loads[replica])
            if replica in may and cost < least:
                chosen, least = replica, cost
        if adapter is not None and there and self.loads:
            for replica in replicas:
                spare = -1 if replica in there else self._spare(replica, loads[replica].users)
                cost = self._batches(loads[replica]) + view.load_s(adapter)
                if spare >= 0 and cost < least:
                    chosen, least, given_up = replica, cost, spare
        if chosen < 0:
            chosen = min(replicas, key=lambda replica: loads[replica].requests)
        if adapter is not None and self.loads and chosen not in there:
            if given_up >= 0:
                self._noted[chosen].remove(given_up)
                self._copies[given_up].remove(chosen)
            self._noted[chosen].append(adapter.id)
            there.append(chosen)
        return chosen

    def _batches(self, load: ReplicaLoad) -> float:
        """Return a replica's batches: those that can run merged by their share, and the rest, rounded down."""
        size = load.batch_size
        return self.merged_share * load.full_batches + (load.requests - size * load.full_batches) // size

    def _holding(self, adapter_id: int, view: ClusterView) -> list[int]:
        """Return the replicas that are noted to hold an adapter; the first call notes what lies in HBM."""
        if not self._noted:
            self._noted = [[] for _ in range(len(view.outstanding))]
            for adapter in view.adapters:
                self._copies[adapter.id] = sorted(view.holders(adapter))
                for replica in self._copies[adapter.id]:
                    self._noted[replica].append(adapter.id)
        return self._copies.setdefault(adapter_id, [])  # it may have become known since

    def _spare(self, replica: int, users: dict[int, int]) -> int:
        """Return the first adapter of a replica that no request there uses and that has another copy; -1: none."""
        for id in self._noted[replica]:
            if not users.get(id, 0) and len(self._copies[id]) > 1:
                return id
        return -1

    def _shortest(self, request: Request, view: ClusterView, replicas: list[int], there: set[int]) -> int:
        """Return the first of these replicas with the shortest pending time; `there` have the adapter."""
        loads, adapter_id = view.loads.all.replicas, request.adapter_id
        merged_saves, execution_s = 1 - self.merged_share, self._execution_s(view)
        load_s = 0.0 if request.adapter is None else view.load_s(request.adapter)
        chosen, shortest_s = replicas[0], inf
        for replica in replicas:
            load = loads[replica]
            full, size = load.full_batches, load.batch_size
            if (load.users.get(adapter_id, 0) + 1) % size == 0:
                full += 1
            seconds = ((load.requests + 1) / size - merged_saves * full) * execution_s
            if load_s > 0.0 and replica not in there:
                seconds += load_s
            if seconds < shortest_s:
                chosen, shortest_s = replica, seconds
        return chosen

    def pending_s(self, request: Request, view: ClusterView) -> NDArray[np.float64]:
        """Return the estimated pending time on every replica, in seconds `[replicas]`; bits are as in `_shortest`."""
        size, load = view.max_num_seqs, view.loads.all
        full = load.full_batches + ((load.requests_for(request.adapter) + 1) % size == 0)
        batches = (view.outstanding + 1) / size - (1 - self.merged_share) * full
        pending_s: NDArray[np.float64] = batches * self._execution_s(view)
        if request.adapter is not None:
            pending_s += view.load_s(request.adapter) * ~view.resident(request.adapter)
        return pending_s

    def _execution_s(self, view: ClusterView) -> float:
        execution_s = view.execution_s()
        return self.unknown_execution_s if execution_s is None else execution_s
