"""Prefill and decode apart: the first replicas prefill, and the others decode what these hand over."""

from __future__ import annotations

from collections.abc import Callable

from simlora.core.adapter import Adapter
from simlora.core.random import stream
from simlora.core.request import Request
from simlora.engine.cluster.cluster_view import ClusterView, routing
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.engine.cluster.fleet import Fleet, Ids
from simlora.engine.cluster.mixed_pool import MixedPool
from simlora.engine.cluster.routing import Routing
from simlora.engine.handoff import Handoff
from simlora.engine.parts.kv_transfer import KvTransfers
from simlora.engine.replica.admission import unservable
from simlora.engine.replica.ending import cached_tokens
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Scenario


class Disaggregation:
    """Sends a request to the prefill pool with one token to generate, and from there to the decode pool.

    `routing` chooses the decode replica, once the first token is there, or, where KV goes layer by layer, when its
    pass begins; `transfers` bring it the KV. With a `mixed_pool` either may be a replica of the other pool; a request
    stays, without a copy, where the decode replica is the one that has prefilled, as `stayed` did. Source: vLLM's
    proxies for prefill and decode instances, which send max_tokens=1 to the former; DistServe (OSDI'24) §3, whose
    prefill instance answers the first token.
    """

    def __init__(self, scenario: Scenario, fleet: Fleet, dispatcher: Dispatcher, routing: Routing) -> None:
        first, network, model = scenario.cluster.prefill_replicas, scenario.cluster.network, scenario.model
        limits = [scenario.config_of(replica) for replica in range(scenario.cluster.replicas)]
        kv_bytes = [model.kv_bytes_per_gpu(each.tp) for each in limits]
        self.transfers = KvTransfers(
            fleet.clock, network.transfer_s, kv_bytes, self.hand_over, self.choose_ahead, self.stays
        )
        self._fleet, self._dispatcher, self._routing = fleet, dispatcher, routing
        self._first = first  # of those that decode
        kinds = [first, *(replica for replica in scenario.firsts if replica > first)]
        self._kinds = [(replica, limits[replica]) for replica in kinds]  # of those that decode
        self._replicas_of = scenario.cluster.replicas_of
        dispatcher.on_arrive += (self.arrive,)
        dispatcher.on_end += (self.leave,)
        dispatcher.on_overflow += (self.leave,)
        dispatcher.unservable = self.unservable
        self._declared: dict[int, int] = {}  # output tokens, by request that has not been handed over
        self._ahead: dict[
            int, int
        ] = {}  # the decode replica that was chosen, by request that is being prefilled
        self._choosing: Request | None = None
        self.stayed = 0
        self.mixed_pool: MixedPool | None = None
        most_tokens = scenario.cluster.pools.mixed_pool_tokens
        if most_tokens is not None:
            budgets = [each.kv_token_budget for each in limits]
            self.mixed_pool = pool = MixedPool(first, most_tokens, budgets)
            dispatcher.on_assign += (self._assigned,)
            dispatcher.on_withdraw += (pool.leave,)

    def slow_down(self, host: int, factor: float) -> None:
        """The links of a host are slow from now on, or no longer."""
        self.transfers.slow_down(self._replicas_of(host), factor)

    def arrive(self, request: Request) -> None:
        """A request arrives: to the prefill pool it declares a single token."""
        self._declared[request.id] = request.max_output_tokens
        request.max_output_tokens = 1

    def leave(self, replica: int, request: Request) -> None:
        """A request has ended, maybe with its first token."""
        self._declared.pop(request.id, None)

    def among(self, replicas: Ids, request: Request) -> Ids:
        """Return those of some replicas that are in the pool which a request is for."""
        decodes = self._decodes(request)
        if self.mixed_pool is not None:
            return self.mixed_pool.among(replicas, request, decodes)
        return replicas[replicas >= self._first if decodes else replicas < self._first]

    def _decodes(self, request: Request) -> bool:
        """Whether a request is for a replica that decodes."""
        return request.first_token_s >= 0.0 or request is self._choosing

    def _assigned(self, replica: int, request: Request) -> None:
        if self.mixed_pool is not None:
            self.mixed_pool.enter(replica, request, self._decodes(request))

    def unservable(self, request: Request, adapter: Adapter | None, config: ReplicaConfig) -> str:
        """Return why a request could never run on a prefill replica, or on any that decodes; empty if it could.

        The former has these limits, and lays the request's adapter out as `adapter`.
        """
        reason = unservable(request, adapter, config)
        if reason:
            return reason
        # A request that its rate limit rejects has not arrived, and declares what it did.
        request.max_output_tokens = self._declared.get(request.id, request.max_output_tokens)
        reasons = [
            unservable(request, self._fleet.adapter_of(request, one), limits) for one, limits in self._kinds
        ]
        request.max_output_tokens = 1
        return "" if "" in reasons else f"no replica that decodes can serve it: {reasons[0]}"

    def hand_over(self, request: Request, source: int) -> None:
        """A prefill replica has the first token of a request that goes on."""
        dispatcher, handoff = self._dispatcher, Handoff(request, request.token_s)
        dispatcher.withdraw(source, request)
        request.max_output_tokens = self._declared.pop(request.id)
        if request.id in self._ahead:
            dispatcher.deliver(handoff, source, self._ahead.pop(request.id))
            return
        target = self._routing.choose(request, dispatcher.candidates(request))
        dispatcher.assign(handoff, source, target)

    def choose_ahead(self, request: Request, source: int) -> tuple[int, int]:
        """Return the decode replica for a request whose last pass begins, and how many of its tokens are cached there.

        It counts as one of its requests from now on. The source itself, if the request is to stay there, or has stayed
        and is computed again.
        """
        if request.id not in self._declared:
            return source, 0
        dispatcher = self._dispatcher
        self._choosing, request.max_output_tokens = request, self._declared[request.id]
        target = self._routing.choose(request, dispatcher.candidates(request))
        if target != source:
            dispatcher.promise(request, target)
            self._fleet.bind(request, source)
        self._choosing, request.max_output_tokens = None, 1
        self._ahead[request.id] = target
        return target, 0 if target == source else cached_tokens(self._fleet.replicas[target], request)

    def stays(self, request: Request, source: int) -> bool:
        """Return whether a request goes on where its prompt was computed, which is to be chosen now at the latest.

        One that was preempted where it decodes, and computed again, does.
        """
        if self.mixed_pool is None:
            return False
        if request.id not in self._declared:
            return True
        if request.id not in self._ahead:
            self.choose_ahead(request, source)
        if self._ahead[request.id] != source:
            return False
        del self._ahead[request.id]
        self.stayed += 1
        self._dispatcher.withdraw(source, request)
        request.max_output_tokens = self._declared.pop(request.id)
        self._dispatcher.promise(request, source)
        return True


def disaggregated(
    scenario: Scenario,
    fleet: Fleet,
    dispatcher: Dispatcher,
    seen: Callable[[], ClusterView],
) -> Disaggregation:
    """Return a cluster's pools; `seen` makes a view of the cluster, which the decode pool's router gets for itself."""
    view = seen()
    view.rng = stream(scenario.seed, "decode_router")
    return Disaggregation(
        scenario, fleet, dispatcher, routing(scenario.routers[1], scenario.cluster, view, seen)
    )
