"""Adapters that a driven run gets to know while it goes on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import RANK_MAX
from simlora.core.checks import shown, whole
from simlora.core.errors import InputError
from simlora.core.trace import AdapterSpec
from simlora.engine import building
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.unified_swapper import UnifiedSwapper


class FurtherAdapters:
    """Adds adapters behind those of the scenario; every replica serves them.

    The lists of adapters are shared by all that look adapters up by number, so that each sees what is added.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._names = {each.name for each in simulation.adapters}
        self._added = 0
        simulation.fleet.on_replace += (self._tell,)

    def add(self, spec: AdapterSpec) -> int:
        """Add an adapter; return its number. Raises InputError as `DrivenSimulation.add_adapter` says."""
        simulation = self._simulation
        scenario, fleet = simulation.scenario, simulation.fleet
        whole("rank", spec.rank, least=1, most=min(RANK_MAX, int(scenario.highest_ranks.max())))
        if spec.name in self._names:
            raise InputError(f"adapter {shown(spec.name)} is known already, must have another name")
        if reason := self._fixed():
            raise InputError(f"adapter {shown(spec.name)} comes while the run goes on, {reason}")
        made = [
            building.further_adapter(scenario, scenario.config_of(id), spec, adapters)
            for id, adapters in enumerate(fleet.adapters)
        ]
        lists = {id(adapters): (adapters, one) for adapters, one in zip(fleet.adapters, made, strict=True)}
        lists.setdefault(id(simulation.adapters), (simulation.adapters, made[0]))
        for adapters, one in lists.values():
            adapters.append(one)
        simulation.placement.asked.append(0)
        simulation.placement.asked_requests.append(0)
        self._names.add(spec.name)
        self._added += 1
        for replica in fleet.replicas:
            replica.view.add_adapter()
        return len(simulation.adapters) - 1

    def history_rps(self) -> NDArray[np.float64] | None:
        """Return the mean requests per second of each adapter on earlier days; none of those that were added."""
        known = self._simulation.scenario.trace.history_rps
        return None if known is None else np.concatenate((known, np.zeros(self._added)))

    def _fixed(self) -> str:
        """Return why no adapter can be added: what was divided among those known at the start; "": nothing was."""
        simulation = self._simulation
        if simulation.store is not None:
            return "which needs cluster.adapter_pool=replicated"
        if simulation.placement.serves or simulation.placement.replans:
            return "which needs placement=replicate_all"
        if simulation.scenario.policies.migration.brings:
            return "which needs a migration that brings no adapters"
        if any(replica.part(UnifiedSwapper) is not None for replica in simulation.fleet.replicas):
            return "which needs an eviction that is no swapper"
        return ""

    def _tell(self, replica: int) -> None:
        """An empty replica was put in the place of one that failed."""
        for _ in range(self._added):
            self._simulation.fleet.replicas[replica].view.add_adapter()
