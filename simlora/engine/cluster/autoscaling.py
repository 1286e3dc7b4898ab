"""Replicas that are added and removed while the cluster runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import SCALING, STORE, Moment, Process
from simlora.engine.cluster.dispatcher import Dispatcher
from simlora.engine.cluster.fleet import Fleet
from simlora.engine.parts.handoff import handing_over
from simlora.engine.scenario import ScalingConfig
from simlora.metrics.journal import Scaled
from simlora.metrics.recorder import Recorder
from simlora.policies.views import FleetView


class Autoscaling:
    """Asks the autoscaler, boots replicas and drains them. `on_s` `[replicas]`: for how long each is paid.

    Replicas are added in order of their numbers and removed in reverse, but booting ones before open ones. A replica
    that drains takes no more requests, and is off when it has none; until then it can be taken back at once. A replica
    that has been off comes back with nothing in its memory. A replica whose host has failed is replaced at the next
    decision, whatever limits the policy has: the desired number is the same. When the host returns, it is one too many.
    Source: Kubernetes' ReplicaSet controller, which keeps as many pods as desired. It removes pods that are not ready
    before ready ones (then by the cost of deletion and by age, here by number), and lets a pod end its requests
    (terminationGracePeriodSeconds, here without end). Differs: there a pod that ends is never taken back.
    """

    def __init__(
        self, config: ScalingConfig, fleet: Fleet, dispatcher: Dispatcher, view: FleetView, recorder: Recorder
    ) -> None:
        self._config, self._clock, self._fleet = config, fleet.clock, fleet
        self._dispatcher, self._view, self._recorder = dispatcher, view, recorder
        self.on_s: NDArray[np.float64] = np.zeros(len(fleet.on))
        self._since_s = dict.fromkeys(range(len(fleet.on)), 0.0)  # replicas that are paid now, and since when
        self._spans: list[tuple[int, float, float]] = []  # replica, begin and end of a time that is paid
        self._booting, self._draining = fleet.booting, set[int]()
        self.boots = 0
        self._asked: Counter[Adapter] = Counter()  # requests so far
        self.active = config.autoscaler.period_s is not None
        self._to_zero = self.active and not config.least_replicas

    def arrive(self, request: Request) -> None:
        """A request arrives, for an adapter that may be worth having in memory."""
        self._fleet.arrived = True
        if request.adapter is not None:
            self._asked[request.adapter] += 1

    def activate(self) -> None:
        """A request has found no replica: one boots, unless one does already or the autoscaler never has none."""
        if self._to_zero:  # once the request's dispatch is over
            self._clock.call(self._clock.now, SCALING, 0, self._leave_zero)

    def _leave_zero(self) -> None:
        if self._fleet.unassigned and not self._fleet.provisioned:
            self._fleet.desired = max(self._fleet.desired, 1)
            self._adjust()

    def leave(self, replica: int, request: Request) -> None:
        """A request has ended, which may have been the last of a replica that drains."""
        if replica in self._draining and not self._fleet.outstanding[replica]:
            self._switch_off(replica)

    def fail(self, ids: Sequence[int]) -> None:
        """The host of these replicas has failed: those that boot or drain are off."""
        for id in ids:
            if id in self._booting or id in self._draining:
                self._stop(id)
        self._note("a host has failed")
        if self._fleet.unassigned:
            self.activate()

    def recover(self, ids: Sequence[int]) -> None:
        """The host of these replicas is back."""
        self._note("a host is back")

    def begin(self) -> None:
        """Switch on as many replicas as the autoscaler wants before anything runs; they need not boot."""
        fleet, everywhere = self._fleet, list(range(len(self.on_s)))
        fleet.grows = True
        fleet.desired = self._config.least_replicas
        fleet.desired = self._wanted()
        fleet.set_on(everywhere[fleet.desired :], False)
        self._since_s = dict.fromkeys(np.flatnonzero(fleet.on).tolist(), 0.0)
        self._note("before anything runs")

    def run(self) -> Process:
        """Ask every period, until all requests have ended."""
        period_s = self._config.autoscaler.period_s
        assert period_s is not None, "an autoscaler without a period is not asked"
        for moment in self._clock.every(period_s, SCALING, self._recorder.all_ended):
            yield moment
            if not self._recorder.all_ended():
                self._decide()

    def _decide(self) -> None:
        fleet, wanted = self._fleet, self._wanted()
        if wanted != fleet.desired:
            fleet.scaled.append((self._clock.now, wanted - fleet.desired))
            fleet.desired = wanted
        self._adjust()

    def finalize(self, now_s: float) -> None:
        """The run was over at that time: count for how long replicas are paid."""
        self.on_s[:] = 0.0
        running = [(id, since_s, now_s) for id, since_s in self._since_s.items()]
        for id, since_s, until_s in self._spans + running:
            self.on_s[id] += max(min(until_s, now_s) - since_s, 0.0)

    def _wanted(self) -> int:
        wanted = self._config.autoscaler.replicas(self._view)
        least = self._config.least_replicas or int(self._view.active)
        self._fleet.arrived = False
        return min(max(wanted, least), len(self.on_s))

    def _adjust(self) -> None:
        """Add or remove replicas until as many as desired are on or booting, as far as there are hosts."""
        fleet = self._fleet
        before = fleet.provisioned
        while fleet.provisioned < fleet.desired:
            back = sorted(id for id in self._draining if fleet.alive[id])
            off = np.flatnonzero(fleet.alive & ~fleet.on)
            fresh = [id for id in off.tolist() if id not in self._booting]
            if back:
                self._draining.discard(back[0])
                fleet.set_on(back[:1], True)
                self._dispatcher.dispatch_pending()
            elif fresh:
                self._boot(fresh[0])
            else:
                break
        removed = []
        while fleet.provisioned > fleet.desired:
            removed.append(self._remove_last())
        if fleet.provisioned != before:
            self._note(f"{fleet.desired} wanted")
        for id in removed:
            if id in self._draining and not fleet.outstanding[id]:
                self._switch_off(id)

    def _remove_last(self) -> int:
        """Call off the last boot, or let the last open replica drain; return which."""
        fleet = self._fleet
        if self._booting:
            last = max(self._booting)
            self._stop(last)
            self._empty(last)  # of what it has loaded
            return last
        last = int(np.flatnonzero(fleet.open)[-1])
        fleet.set_on([last], False)
        self._draining.add(last)
        return last

    def _boot(self, id: int) -> None:
        self.boots += 1
        self._booting[id] = self.boots
        self._since_s[id] = self._clock.now
        self._clock.process(self._come_up(id, self.boots))

    def _come_up(self, id: int, boot: int) -> Process:
        """Boot, load the adapters that are asked for most, and open, unless the boot is called off meanwhile."""
        clock = self._clock
        yield Moment(clock.now + self._config.boot_s, SCALING, 1 + id)
        if self._booting.get(id) != boot or self._recorder.all_ended():
            return
        often = sorted(self._asked, key=lambda adapter: (-self._asked[adapter], adapter.id))
        replica, cache = self._fleet.replicas[id], self._fleet.caches[id]
        fit = [adapter for adapter in often if replica.config.holds(adapter.rank)]
        wanted = [self._fleet.adapters[id][adapter.id] for adapter in fit[: self._config.warm_up_adapters]]
        if wanted:
            handing_over(replica).load(wanted, clock.now)
            ready_s = max((cache.ready_s[each.id] for each in wanted if each in cache), default=clock.now)
            yield Moment(ready_s, SCALING, 1 + id)
            if self._booting.get(id) != boot or self._recorder.all_ended():
                return
        del self._booting[id]
        self._fleet.set_on([id], True)
        self._fleet.start([id])
        self._note(f"replica {id} is there")
        self._dispatcher.dispatch_pending()

    def _switch_off(self, id: int) -> None:
        """A replica has no requests left: it is paid no longer, and loses what it has in memory."""
        self._stop(id)
        self._note(f"replica {id} is off")
        # Its own last boundary, at which this may be, is over first.
        self._clock.call(self._clock.now, STORE, 0, lambda: self._empty(id))

    def _empty(self, id: int) -> None:
        lost = self._fleet.replace(id)
        assert not lost, f"replica {id} was switched off with requests"

    def _stop(self, id: int) -> None:
        """A replica neither boots nor drains any more, and is paid no longer."""
        self._booting.pop(id, None)
        self._draining.discard(id)
        self._spans.append((id, self._since_s.pop(id), self._clock.now))

    def _note(self, reason: str) -> None:
        """Record how many replicas there are, unless that is what was recorded last."""
        fleet, rows = self._fleet, self._recorder.journal.scaled
        counts = (fleet.provisioned, int(fleet.open.sum()), len(self._booting), len(self._draining))
        if not rows or rows[-1][1:5] != counts:
            rows.append(Scaled(self._clock.now, *counts, reason))
