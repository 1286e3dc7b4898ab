"""Adapters of one rank together, on as many replicas as their tokens need."""

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
"""Shares and loads below this are rounding."""


class RankDemand(Placement):
    """LoRAServe's placement, Algorithm 1, every `period_s` seconds.

    1. The demand of an adapter is the tokens per second that it was asked for in the last period, prompts and what was
       generated, continued by a straight line through the last `trend_periods`. A rank's utilisation is its
       demand over its operating point: what a replica processes of that rank within the SLO, `operating_points` in
       tokens per second by rank (None: found before the run), those between them by straight lines. All of it over the
       replicas is the target.
    2. A rank has a budget of replicas of its own: its utilisation over the target, rounded.
    3. Its adapters fill them one after the other up to the target, the busiest first; one that does not fit whole is
       parted, and gets the shares of its requests that fit.
    4. What is left goes, the highest rank first, to replicas below the target.
    5. The plan's replicas are matched with real ones so that the most bytes stay where they are.
    6. The routing table: who serves an adapter, and which share of its requests.

    Source: LoRAServe §IV-A. It leaves open, and we chose:
    - Budgets may add up to more than there are replicas: then those that were rounded up most lose one.
    - Step 4 reads "highest max rank and least utilization". Of the replicas below the target those come first that
      have an adapter of this rank or a higher one, which so is not slowed down; of these the one with the highest
      rank, of equals the one with the least to do.
    - Replicas that have failed are left out of the next plan.
    - Before anything is known of demand all adapters are alike, unless the days before are (`view.history_rps`); an
      adapter that nobody asks for stays with its rank, or where step 4 puts it. While nobody asks for any the plan
      stays.
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
        """Return the tokens per second of every adapter that the next period is expected to ask for `[adapters]`."""
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
    """Return what follows `[periods, adapters]` by a least-squares line each, at least 0; a single one goes on."""
    count = len(tps)
    if count == 1:
        return np.array(tps[0])
    at = np.arange(count) - (count - 1) / 2
    slope = at @ tps / (at @ at)
    return np.asarray(np.maximum(tps.mean(axis=0) + slope * (count - (count - 1) / 2), 0.0))


def budgets(needs: Floats, replicas: int) -> NDArray[np.int64]:
    """Return how many replicas each rank has for itself, of those that it needs on average."""
    found = np.floor(needs + 0.5).astype(np.int64)
    while found.sum() > replicas:
        over = np.where(found > 0, found - needs, -np.inf)
        found[over.argmax()] -= 1
    return found


def assigned(ranks: NDArray[np.int64], load: Floats, replicas: int) -> list[dict[int, float]]:
    """Return steps 1 to 4: which share of each adapter's requests every replica gets.

    `ranks`, `load`: of each adapter `[adapters]`, the load in replicas' worth. Adapters are known by their place.
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
    """Return step 5: the plan in the order of replicas in which the most bytes `[adapters]` stay where they were."""
    adapters = len(sizes)
    new, old = (np.zeros((len(plan), adapters)) for _ in range(2))
    for replica in range(len(plan)):
        new[replica, list(plan[replica])] = 1.0
        old[replica, list(last[replica])] = 1.0
    stays = (new * sizes) @ old.T
    # Of permutations that move as many bytes the one that renames the fewest.
    tie = np.eye(len(plan)) * (0.5 / len(plan))
    rows, columns = linear_sum_assignment(stays + tie, maximize=True)
    found: list[dict[int, float]] = [{} for _ in plan]
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        found[column] = plan[row]
    return found


def _table(plan: Mapping[int, dict[int, float]], adapters: Sequence[Adapter]) -> Placed:
    """Return step 6, of a plan by replica."""
    homes: dict[int, list[int]] = {}
    parts: dict[int, list[float]] = {}
    for replica, held in plan.items():
        for place, share in held.items():
            homes.setdefault(place, []).append(replica)
            parts.setdefault(place, []).append(share)
    serves = {adapters[place].id: np.array(found, dtype=np.int64) for place, found in homes.items()}
    shares = {adapters[place].id: np.array(found) / sum(found) for place, found in parts.items()}
    return Placed(serves, shares=shares)
