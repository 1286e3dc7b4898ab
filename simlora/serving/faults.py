"""Faults on request: a replica that dies, is slow, or refuses to load adapters; and their end."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from simlora.core.errors import InputError
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.serving.errors import ApiError
from simlora.serving.front import Front
from simlora.serving.schemas import Fault

KINDS = ("fail", "slow", "slow_link", "refuse_loads", "recover")


def begin(front: Front, fault: Fault) -> None:
    """Let something go wrong from now on. Raises ApiError 400 for a fault that cannot be.

    fail: the replica's host loses all that it has, and requests go on at other replicas with the tokens that they have;
    behind a port of its own their streams break, and other answers are a 503. slow, slow_link: what it computes, or
    copies, takes `factor` times as long. refuse_loads: /v1/load_lora_adapter answers 500; weights that requests need
    are loaded as ever. recover ends the faults of the replica and of its host, or without `replica` all of the port.
    """
    cluster = front.cluster
    last = cluster.number + cluster.scenario.cluster.replicas - 1
    if fault.replica is not None and not cluster.number <= fault.replica <= last:
        behind = f"{cluster.number} to {last}" if last > cluster.number else str(last)
        raise ApiError(400, f"replica is {fault.replica}, must be {behind}, behind this port", "replica")
    if fault.kind == "recover" and fault.for_s is not None:
        raise ApiError(400, "for_s is how long a fault lasts, and recover ends faults; leave it out", "for_s")
    if fault.kind not in KINDS:
        raise ApiError(400, f"kind is {fault.kind!r}, must be one of {', '.join(KINDS)}", "kind")
    per_host = cluster.scenario.cluster.replicas_per_host
    replica = 0 if fault.replica is None else fault.replica - cluster.number
    if fault.kind == "recover":
        _recover(front, range(last - cluster.number + 1) if fault.replica is None else [replica])
        return
    if fault.kind == "refuse_loads":
        cluster.clock.start()
        cluster.step()
        until_s = inf if fault.for_s is None else cluster.simulation.clock.now + fault.for_s
        front.adapters.refuses_until_s = until_s
        return
    try:
        if fault.kind == "fail":
            cluster.begin(Failure, replica // per_host, fault.for_s)
        elif fault.kind == "slow":
            cluster.begin(Straggler, replica, fault.for_s, factor=fault.factor)
        else:
            cluster.begin(SlowLink, replica // per_host, fault.for_s, factor=fault.factor)
    except InputError as error:
        raise ApiError(400, str(error)) from None


def _recover(front: Front, replicas: Sequence[int]) -> None:
    """End what is under way at some replicas of a port, and, if these are all of it, the refusal of loads."""
    cluster = front.cluster
    if len(replicas) == cluster.scenario.cluster.replicas:
        front.adapters.refuses_until_s = 0.0
    cluster.step()
    for replica in replicas:
        host = replica // cluster.scenario.cluster.replicas_per_host
        for kind, of in ((Failure, host), (Straggler, replica), (SlowLink, host)):
            cluster.end(kind, of)
