"""Empty the least loaded replica, if the others have room for its requests."""

from __future__ import annotations

from simlora.core.checks import period, whole
from simlora.core.request import Request
from simlora.policies.migration.base import Migration, Move, Plan
from simlora.policies.views import ClusterView


class Consolidate(Migration):
    """Every `period_s` seconds, empties the replica with the fewest requests, so that it can be released.

    This happens only if the others, fullest first, can take all of its requests. Each has room for `most_requests`
    (None: replica.max_num_seqs) and memory for prompts and declared outputs, and holds their adapters' ranks. Replicas
    without requests get none.
    Source: Punica (MLSys'24) §5.1.
    """

    def __init__(self, period_s: float = 10.0, most_requests: int | None = None) -> None:
        self.period_s = period("migration.period_s", period_s)
        if most_requests is not None:
            whole("migration.most_requests", most_requests, "requests", least=1)
        self.most_requests = most_requests

    def plan(self, view: ClusterView) -> Plan:
        busy = [replica for replica, count in enumerate(view.outstanding.tolist()) if count]
        if len(busy) < 2:
            return Plan()
        # Of replicas with equally few requests the highest id is emptied; of equally full ones the lowest fills first.
        source = min(busy, key=lambda replica: (view.outstanding[replica], -replica))
        targets = sorted((r for r in busy if r != source), key=lambda replica: -view.outstanding[replica])
        seats = {
            replica: (self.most_requests or int(view.max_num_seqs[replica])) - int(view.outstanding[replica])
            for replica in targets
        }
        room = {
            replica: int(view.kv_token_budgets[replica]) - sum(map(_held_tokens, view.requests_of(replica)))
            for replica in targets
        }
        found = []
        for request in view.requests_of(source):
            need = _held_tokens(request)
            holding = (r for r in targets if view.max_lora_ranks[r] >= request.rank)
            target = next((r for r in holding if seats[r] > 0 and room[r] >= need), None)
            if target is None:
                return Plan()
            seats[target] -= 1
            room[target] -= need
            found.append(Move(request, source, target))
        return Plan(
            tuple(found), f"replica {source} has the fewest requests, and the others have room for them"
        )


def _held_tokens(request: Request) -> int:
    """Return the slots for prompt, declared output and adapter, as if no other request shared the adapter."""
    adapter_tokens = request.adapter.kv_tokens if request.adapter is not None else 0
    return request.declared_tokens + adapter_tokens
