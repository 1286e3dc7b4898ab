"""LoRAServe's placement: adapters of one rank together, on as many replicas as their tokens need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from simlora.core.adapter import Adapter
from simlora.core.checks import number, period, whole
from simlora.core.errors import InputError
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView

Floats = NDArray[np.float64]
EVEN = 1e-9
"""Shares and loads below this are rounding errors."""


class RankDemand(Placement):
    """LoRAServe's placement, Algorithm 1, every `period_s` seconds.

    1. An adapter's demand is its tokens per second, prompts and outputs, extrapolated from the last `trend_periods`
       periods by a straight line. A rank's utilisation is its demand over its operating point: the tokens per second
       of that rank that a replica processes within the SLO (`operating_points` by rank, interpolated linearly; None:
       found before the run). The total utilisation over the number of replicas is the target.
    2. Each rank has a budget of replicas of its own: its utilisation over the target, rounded.
    3. The rank's adapters, busiest first, fill these replicas one after another up to the target. An adapter that does
       not fit whole is split into the shares of its requests that fit.
    4. The rest goes, highest rank first, to replicas below the target.
    5. The plan's replicas are matched with real ones so that the most bytes stay where they are.
    6. The routing table lists the replicas of each adapter and their shares of its requests.

    Source: LoRAServe §IV-A. It leaves open, and we chose:
    - If the budgets add up to more than there are replicas, those that were rounded up most lose one.
    - Step 4 reads "highest max rank and least utilization". Of the replicas below the target, those that already have
      an adapter of this rank or a higher one come first, because it does not slow them down; of these the one with the
      highest rank, of equals the least utilised one.
    - Replicas that have failed are left out of the next plan.
    - Before any demand is known, all adapters have equal demand, or that of earlier days if known
      (`view.history_rps`). An adapter without demand stays with its rank, or where step 4 puts it. While no adapter has
      demand, the plan stays.
    """

    assumes_alike = True

    def __init__(
        self,
        operating_points: Mapping[int, float] | None = None,
        period_s: float = 60.0,
        trend_periods: int = 5,
    ) -> None:
        if operating_points is not None and not (isinstance(operating_points, Mapping) and operating_points):
            raise InputError(
                f"placement.operating_points is {operating_points!r}, must be tokens per second by rank, "
                "such as {8: 5500, 128: 4500}, or null, to have them found"
            )
        for rank, tps in (operating_points or {}).items():
            whole("a rank of placement.operating_points", rank, least=1)
            number(f"placement.operating_points[{rank}]", tps, "tokens per second", above=0)
        self.operating_points = {
            int(rank): float(tps) for rank, tps in sorted((operating_points or {}).items())
        }
        self.period_s = self._lasts_s = period("placement.period_s", period_s)
        self.trend_periods = whole("placement.trend_periods", trend_periods, "periods", least=1)
        self._asked: NDArray[np.int64] | None = None
        self._tps: list[Floats] = []
        self._last: dict[int, dict[int, float]] = {}  # by replica

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        assert self.operating_points, (
            "operating points are found before a run (simlora/api/operating_points.py)"
        )
        alive = np.flatnonzero(view.open)
        demand = self._demand(adapters, view)
        last = [self._last.get(id, {}) for id in alive.tolist()]
        if (not demand.any() and self._last.keys() == set(alive.tolist())) or not len(alive):
            plan = last
        else:
            ranks = np.array([adapter.rank for adapter in adapters], dtype=np.int64)
            load = demand / np.interp(
                ranks, list(self.operating_points), list(self.operating_points.values())
            )
            sizes = np.array([adapter.size_bytes for adapter in adapters], dtype=np.float64)
            plan = permuted(assigned(ranks, load, len(alive)), last, sizes)
        self._last = dict(zip(alive.tolist(), plan, strict=True))
        return _table(self._last, adapters)

    def _demand(self, adapters: Sequence[Adapter], view: ClusterView) -> Floats:
        """Return each adapter's expected tokens per second in the next period `[adapters]`."""
        asked = view.asked_tokens
        if view.now_s == 0.0 or self._asked is None:
            self._asked, self._tps, self._last = asked.copy(), [], {}
            known = view.history_rps
            return np.ones(len(adapters)) if known is None or not known.any() else known.astype(np.float64)
        self._tps.append((asked - self._asked) / self._lasts_s)
        del self._tps[: -self.trend_periods]
        self._asked = asked.copy()
        return continued(np.array(self._tps))


def continued(tps: Floats) -> Floats:
    """Return the next period's values `[adapters]`: `tps` `[periods, adapters]` extended by least-squares lines.

    Values are at least 0; a single period is repeated.
    """
    count = len(tps)
    if count == 1:
        return np.array(tps[0])
    at = np.arange(count) - (count - 1) / 2
    slope = (at[:, None] * tps).sum(axis=0) / (at * at).sum()
    return np.asarray(np.maximum(tps.mean(axis=0) + slope * (count - (count - 1) / 2), 0.0))


def budgets(needs: Floats, replicas: int) -> NDArray[np.int64]:
    """Return each rank's own number of replicas `[ranks]`: `needs` rounded, and reduced to fit into `replicas`."""
    found = np.floor(needs + 0.5).astype(np.int64)
    while found.sum() > replicas:
        over = np.where(found > 0, found - needs, -np.inf)
        found[over.argmax()] -= 1
    return found


def assigned(ranks: NDArray[np.int64], load: Floats, replicas: int) -> list[dict[int, float]]:
    """Return the result of steps 1 to 4: by replica, the share of each adapter's requests that it gets.

    `ranks` and `load` are `[adapters]`, the load in units of a replica's capacity. Adapters are named by position.
    """
    target = load.sum() / replicas
    kinds = np.unique(ranks)
    needs = np.array([load[ranks == rank].sum() for rank in kinds]) / (target or 1.0)
    own = budgets(needs, replicas)
    plan: list[dict[int, float]] = [{} for _ in range(replicas)]
    used, highest = np.zeros(replicas), np.zeros(replicas, dtype=np.int64)
    left: list[tuple[int, float]] = []
    free = 0
    for rank, count in zip(kinds.tolist(), own.tolist(), strict=True):
        mine = np.flatnonzero(ranks == rank)
        busiest_first = mine[np.argsort(-load[mine], kind="stable")].tolist()
        at, end = free, free + count
        highest[free:end] = rank
        for adapter in busiest_first:
            share = 1.0
            while at < end and share > EVEN:
                room = target - used[at]
                part = min(share, room / load[adapter]) if load[adapter] > EVEN * target else share
                if part > EVEN:
                    plan[at][adapter] = part
                    used[at] += part * load[adapter]
                    share -= part
                if share > EVEN:
                    if at + 1 == end:
                        break
                    at += 1
            if share > EVEN:
                left.append((adapter, share))
        free = end
    for adapter, share in sorted(left, key=lambda item: (-ranks[item[0]], -item[1] * load[item[0]], item[0])):
        below = used < target - EVEN * target
        open_to = np.flatnonzero(below if below.any() else used == used.min())
        suits = open_to[highest[open_to] >= ranks[adapter]]
        among = suits if len(suits) else open_to
        at = int(among[np.lexsort((used[among], -highest[among]))[0]])
        plan[at][adapter] = plan[at].get(adapter, 0.0) + share
        used[at] += share * load[adapter]
        highest[at] = max(highest[at], ranks[adapter])
    return plan


def permuted(
    plan: list[dict[int, float]], last: list[dict[int, float]], sizes: Floats
) -> list[dict[int, float]]:
    """Return the result of step 5: the plan in the order of replicas that keeps the most bytes (`sizes`) in place."""
    adapters = len(sizes)
    new, old = (np.zeros((len(plan), adapters)) for _ in range(2))
    for replica in range(len(plan)):
        new[replica, list(plan[replica])] = 1.0
        old[replica, list(last[replica])] = 1.0
    stays = (new * sizes) @ old.T
    # Of permutations that move equally many bytes, the one that renames the fewest replicas.
    tie = np.eye(len(plan)) * (0.5 / len(plan))
    rows, columns = linear_sum_assignment(stays + tie, maximize=True)
    found: list[dict[int, float]] = [{} for _ in plan]
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        found[column] = plan[row]
    return found


def _table(plan: Mapping[int, dict[int, float]], adapters: Sequence[Adapter]) -> Placed:
    """Return the result of step 6, the routing table of a plan by replica."""
    homes: dict[int, list[int]] = {}
    parts: dict[int, list[float]] = {}
    for replica, held in plan.items():
        for place, share in held.items():
            homes.setdefault(place, []).append(replica)
            parts.setdefault(place, []).append(share)
    # Most adapters have one replica, and an array for each of ten thousand takes long.
    alone = {replica: np.array([replica], dtype=np.int64) for replica in plan}
    whole = np.ones(1)
    serves = {
        adapters[place].id: alone[found[0]] if len(found) == 1 else np.array(found, dtype=np.int64)
        for place, found in homes.items()
    }
    shares = {
        adapters[place].id: whole if len(found) == 1 else np.array(found) / sum(found)
        for place, found in parts.items()
    }
    return Placed(serves, shares=shares)
