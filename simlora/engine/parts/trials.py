"""What starts a replica's trials of admission: beside all admitted requests, or beside some of them only."""

from __future__ import annotations

from collections.abc import Collection

from simlora.core.request import Request
from simlora.engine.parts.kv_offload import PrefixAdmission
from simlora.engine.replica.admission import Admission, TrialLimits
from simlora.engine.replica.request_table import RequestStatus, RequestTable
from simlora.engine.replica_config import ReplicaConfig
from simlora.memory.adapter_region import AdapterRegion
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.reservation import Pausable


class TrialsBeside:
    """Starts trials where adapters have a `region` of their own, KV a `tree`, or requests are paused.

    Beside some requests, the other running and paused ones count as if they had given up their memory; None: beside
    all.
    """

    def __init__(
        self,
        table: RequestTable,
        config: ReplicaConfig,
        limits: TrialLimits,
        region: AdapterRegion | None = None,
        tree: PrefixTree | None = None,
    ) -> None:
        self._table, self._limits, self._region, self._tree = table, limits, region, tree
        self._most: int = config.max_num_seqs

    def __call__(self, beside: Collection[Request] | None = None) -> Admission:
        table, rule = self._table, self._limits.reservation
        paused = table.held[RequestStatus.PAUSED]
        paused_tokens = rule.paused_tokens if isinstance(rule, Pausable) else 0
        seats = self._most - (table.held_count - len(paused))
        if beside is None:
            trial = self._start(seats - len(table.batch.members))
            trial.occupy(paused_tokens)
            return trial
        if len(beside) == len(table.batch.members) + len(paused):  # all of them: what they take is known
            trial = self._start(seats - len(beside))
            trial.occupy(paused_tokens)
            return trial
        stay = {request.id for request in beside}
        freed_tokens = 0
        for request in (*table.batch, *paused.values()):
            if request.id not in stay:
                freed_tokens += table.kv.own_tokens(request, table.batch.step)
        trial = self._start(seats - len(beside))
        trial.beside((*beside, *table.growing()))
        trial.occupy(paused_tokens - freed_tokens)
        return trial

    def _start(self, seats: int) -> Admission:
        batch, limits = self._table.batch, self._limits
        limits.reservation.begin(batch.step)
        if self._region is not None:
            self._region.begin(batch)
        return Admission(limits, seats) if self._tree is None else PrefixAdmission(self._tree, limits, seats)


class PlainTrials(TrialsBeside):
    """Starts trials where none of this is so, for less."""

    def __call__(self, beside: Collection[Request] | None = None) -> Admission:
        if beside is not None:
            return super().__call__(beside)
        table, limits = self._table, self._limits
        limits.reservation.begin(table.batch.step)
        return Admission(limits, self._most - table.held_count - len(table.batch.members))
