"""Faults on request: a replica that dies, is slow, or refuses to load adapters; and their end."""

from __future__ import annotations

from math import inf

from simlora.core.errors import InputError
from simlora.engine.incidents import Failure, Incident, SlowLink, Straggler
from simlora.serving.errors import ApiError
from simlora.serving.front import Front
from simlora.serving.schemas import Fault

KINDS = ("fail", "slow", "slow_link", "refuse_loads", "recover")


def begin(front: Front, fault: Fault) -> None:
    """Let something go wrong from now on. Raises ApiError 400 for a fault that cannot be.

    fail: the replica's host loses all that it has, and requests go on at other replicas with the tokens that they have;
    behind a port of its own their streams break, and other answers are a 503. slow, slow_link: what it computes, or
    copies, takes `factor` times as long. refuse_loads: /v1/load_lora_adapter answers 500; weights that requests need
    are loaded as ever. recover: whatever of these is under way at the replica, its host's links or the port is over.
    """
    cluster = front.cluster
    last = cluster.number + cluster.scenario.cluster.replicas - 1
    if fault.replica is not None and not cluster.number <= fault.replica <= last:
        behind = f"{cluster.number} to {last}" if last > cluster.number else str(last)
        raise ApiError(400, f"replica is {fault.replica}, must be {behind}, behind this port", "replica")
    if fault.kind not in KINDS:
        raise ApiError(400, f"kind is {fault.kind!r}, must be one of {', '.join(KINDS)}", "kind")
    cluster.clock.start()
    cluster.step()
    now_s = cluster.simulation.clock.now
    until_s = None if fault.for_s is None else now_s + fault.for_s
    if fault.kind == "refuse_loads":
        front.adapters.refuses_until_s = inf if until_s is None else until_s
        return
    replica = 0 if fault.replica is None else fault.replica - cluster.number
    host = replica // cluster.scenario.cluster.replicas_per_host
    if fault.kind == "recover":
        front.adapters.refuses_until_s = 0.0
        for kind, of in ((Failure, host), (Straggler, replica), (SlowLink, host)):
            cluster.end(kind, of)
        return
    incident: Incident
    try:
        if fault.kind == "fail":
            incident = Failure(host=host, at_s=now_s, until_s=until_s)
        elif fault.kind == "slow":
            incident = Straggler(replica=replica, at_s=now_s, factor=fault.factor, until_s=until_s)
        else:
            incident = SlowLink(host=host, at_s=now_s, factor=fault.factor, until_s=until_s)
        cluster.begin(incident)
    except InputError as error:
        raise ApiError(400, str(error)) from None
