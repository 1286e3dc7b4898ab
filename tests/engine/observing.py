"""Simulations whose replicas have one part more, which listens and changes nothing."""

from collections.abc import Callable
from dataclasses import replace

from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario


def observed(scenario: Scenario, make: Callable[[Replica], Part]) -> Simulation:
    """Return the simulation of a scenario, after its run, in which each replica also has the part that `make` makes."""
    simulation = Simulation(replace(scenario, parts=(*scenario.parts, make)))
    simulation.run()
    return simulation


def holds_nothing(replica: Replica) -> bool:
    """Whether a replica has no request, and none of its KV and no adapter is held."""
    table, kv = replica.table, replica.kv
    return not (
        table.requests() or table.held_count or kv.running_tokens(table.batch.step) or kv.adapters.pins
    )
