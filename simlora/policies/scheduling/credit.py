"""dLoRA's scheduler: merge while one adapter has most of the requests, and let no other adapter starve."""

from __future__ import annotations

from collections.abc import Sequence

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.checks import GivenFloat, GivenInt, GivenStr, choice, number, whole
from simlora.core.request import Request, arrival_order
from simlora.core.trace import BASE_MODEL
from simlora.policies.scheduling.base import NEVER, Note
from simlora.policies.scheduling.picking import Picking, admitted, counted, first
from simlora.policies.scheduling.thresholds import CONSTANTS, Thresholds
from simlora.policies.views import ReplicaView

CREDIT_MAX = 1e12
RELEASED_PARTS = 1000
"""Of a displaced request's credit, where merged batches move other amounts: credits are whole numbers of them."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Credit(Picking):
    """Credit-based dynamic batching with adaptive thresholds. Source: dLoRA (OSDI'24) §4.2, A.1, Algorithms 1 to 3.

    While no adapter is merged, the adapter with the most requests is merged once it has more than alpha times as many
    requests as the FCFS batch. It is unmerged once it has fewer than beta times as many. In every iteration, each
    request of the FCFS batch that is displaced by others brings its adapter `1 / max_num_seqs` credit from theirs.
    An adapter with more than `starving` credit above the start is served first until it has less than `normal`. An
    adapter without enough credit cannot overtake. The start is `starving` times (adapters − 1).

    Where the paper is silent: requests outside the FCFS batch pay, one for one, or all picked requests if there are
    none outside it. Starving adapters run unmerged, unless all their requests are for the merged adapter. Of adapters
    with equally many requests, the one with the oldest request is merged. The base model has nothing to merge.
    Credits are per replica. Iterations in which an adapter starves, or none could be merged, do not tune thresholds.

    With `constants` released thresholds are tuned as in the code (Thresholds), and credit moves as there: for a merged
    batch as large as the FCFS batch `unmerged_s / merged_s` times as much, to the adapters of the last requests of the
    FCFS batch, as many as come from outside it; for one of another size half of that, to those of the displaced. All
    requests of an adapter that stays merged count as its batch, even if more than fit. Any adapter that is not below
    zero may overtake.
    """

    def __init__(
        self,
        constants: GivenStr = "paper",
        merged_s: GivenFloat = 0.015,
        unmerged_s: GivenFloat = 0.027,
        switch_s: GivenFloat = 0.020,
        starving: GivenFloat = 10_000.0,
        normal: GivenFloat = 5_000.0,
        tune_every: GivenInt = 1000,
        decrement: GivenFloat = 0.05,
        factor: GivenFloat = 1.1,
        alpha: GivenFloat = 1.0,
        beta: GivenFloat | None = None,
    ) -> None:
        choice("scheduler.constants", constants, CONSTANTS)
        number("scheduler.merged_s", merged_s, "seconds", above=0)
        number("scheduler.unmerged_s", unmerged_s, "seconds", above=0)
        self.thresholds = Thresholds(
            constants=constants,
            merged_s=merged_s,
            unmerged_s=unmerged_s,
            switch_s=number("scheduler.switch_s", switch_s, "seconds", least=0),
            every=whole("scheduler.tune_every", tune_every, "iterations", least=1),
            decrement=number("scheduler.decrement", decrement, least=0),
            factor=number("scheduler.factor", factor, least=1),
            alpha=number("scheduler.alpha", alpha, least=0),
            beta=merged_s / unmerged_s if beta is None else number("scheduler.beta", beta, least=0),
        )
        self.starving = number("scheduler.starving", starving, "(credit)", above=0, most=CREDIT_MAX)
        self.normal = number("scheduler.normal", normal, "(credit)", least=0, most=starving)
        self.released = constants == "released"
        self._parts = RELEASED_PARTS if self.released else 1  # of 1 / max_num_seqs
        self._merged_parts = round(self._parts * unmerged_s / merged_s)
        self.credits: dict[int, int] = {}  # above the start, by adapter id, in parts of a request's
        self._starve: set[int] = set()
        self._pay: dict[int, int] = {}  # what each iteration adds to the credits
        self._cost = self._start = 0
        self._size = 1
        self._seen = 0
        self._merged: Adapter | None = None
        self._leader: int | None = None
        self._names = {BASE_MODEL: "base"}
        self._tuned, self._switches = True, False

    def pick(self, view: ReplicaView) -> tuple[list[Request], Adapter | None]:
        self._size = view.max_num_seqs
        self._start = (view.served_adapters - 1) * self._starving
        self._batched = 0
        self._pass(view.iterations)
        here = admitted(view)
        turn = first(here, view.waiting, self._size)
        picked = self._starved(view, here)
        if picked:
            self._merged = view.merged if all(r.adapter is view.merged for r in picked) else None
            self._stands(self._merged is not None, 0, len(turn))
        else:
            picked = self._batch(view, here, turn)
        self._pay = self._transfer(picked, turn)
        if self._pay:
            for request in (*picked, *turn):
                self._names.setdefault(request.adapter_id, request.adapter.name if request.adapter else "")
        self._switches = self._merged is not view.merged
        return picked, self._merged

    def steps(self) -> int:
        """Return the steps until the period ends, or an adapter starves, stops starving, or runs out of credit."""
        if self._switches:
            return 1  # merging and staying merged have different thresholds
        left = self.thresholds.left
        found = NEVER if left >= NEVER else max(int(left), 1)
        for id, units in self._pay.items():
            credit = self.credits.get(id, 0)
            if units > 0 and id not in self._starve:
                found = min(found, (self._starving - credit) // units + 1)
            elif units < 0 and id in self._starve:
                found = min(found, (credit - self._normal) // -units + 1)
            elif units < 0:
                found = min(found, max((credit + self._start - self._cost) // -units + 1, 1))
        return found

    def notes(self) -> tuple[Note, ...]:
        """Return thresholds, credits and the number of starving adapters, if a threshold or that number has changed."""
        if not self._tuned:
            return ()
        self._tuned = False
        credits = (
            Note(f"credit:{'' if id == BASE_MODEL else self._names[id]}", units / (self._parts * self._size))
            for id, units in self.credits.items()
        )
        limits, starve = self.thresholds, float(len(self._starve))
        return Note("alpha", limits.alpha), Note("beta", limits.beta), Note("starving", starve), *credits

    @property
    def _starving(self) -> int:
        return int(self.starving * self._size * self._parts)

    @property
    def _normal(self) -> int:
        return int(self.normal * self._size * self._parts)

    def _pass(self, iterations: int) -> None:
        """Account for the iterations since the last decision: transfer credits and count them in the period."""
        passed, self._seen = iterations - self._seen, iterations
        for id, units in self._pay.items():
            self.credits[id] = self.credits.get(id, 0) + units * passed
            starves = id in self._starve
            if self.credits[id] < self._normal if starves else self.credits[id] > self._starving:
                self._starve ^= {id}
                self._tuned = True
        self.thresholds.passed(passed)
        if self.thresholds.left <= 0:
            self._tune()

    def _starved(self, view: ReplicaView, here: list[Request]) -> list[Request]:
        """Return the requests of starving adapters to run. Source: Algorithm 3, lines 12 to 15."""
        if not self._starve:
            return []
        ours = [request for request in here if request.adapter_id in self._starve]
        return first(ours, filter(lambda r: r.adapter_id in self._starve, view.waiting), self._size)

    def _batch(self, view: ReplicaView, here: list[Request], turn: list[Request]) -> list[Request]:
        """Return Algorithm 1's batch; only adapters that can pay for every other adapter's FCFS request may merge."""
        was, waiting = view.merged, view.waiting
        counts = in_turn = counted(turn)
        all_in_turn = turn is here or len(turn) == len(here) + waiting.count
        if not all_in_turn:
            counts = counted(here)
            for id, count in waiting.counts().items():
                counts[id] = counts.get(id, 0) + count
        leader = was.id if was else self._most(counts, in_turn, turn, here, view)
        if leader != self._leader:
            self._tuned |= self.thresholds.leader_changes()
        self._leader = leader
        requests = 0
        if leader is not None and self._can_pay(leader, len(turn) - in_turn.get(leader, 0)):
            requests = counts.get(leader, 0)
        ratio, limits = requests / len(turn), self.thresholds
        merges = requests > 0 and (limits.stays(ratio) if was else limits.merges(ratio))
        self._stands(merges, min(requests, self._size), len(turn))
        if leader is None or not merges:
            self._merged = None
            return turn
        self._cost = self._price(len(turn) - in_turn.get(leader, 0))
        self._batched = requests if was else min(requests, self._size)
        if all_in_turn:
            picked = [request for request in turn if request.adapter_id == leader]
        else:
            ours = [request for request in here if request.adapter_id == leader]
            picked = first(ours, waiting.of(leader), self._size)
        self._merged = picked[0].adapter
        return picked

    def _can_pay(self, id: int, requests: int) -> bool:
        """Whether an adapter has credit for so many requests; the base model has nothing to merge."""
        return id != BASE_MODEL and self.credits.get(id, 0) + self._start >= self._price(requests)

    def _price(self, displaced: int) -> int:
        """Return the credit that an adapter needs to overtake so many requests."""
        return 0 if self.released else displaced

    def _transfer(self, picked: Sequence[Request], turn: Sequence[Request]) -> dict[int, int]:
        """Return each adapter's gain in parts of a credit from running `picked` in place of the FCFS batch `turn`."""
        if not (self.released and self._batched):
            return {id: self._parts * units for id, units in transfer(picked, turn).items()}
        if self._batched == len(turn):
            outside = len(set(picked) - set(turn))
            return paid(picked[0].adapter_id, turn[len(turn) - outside :], self._merged_parts)
        displaced = [request for request in turn if request.adapter_id != picked[0].adapter_id]
        return paid(picked[0].adapter_id, displaced, self._merged_parts // 2)

    def _most(
        self,
        counts: dict[int, int],
        in_turn: dict[int, int],
        turn: list[Request],
        here: list[Request],
        view: ReplicaView,
    ) -> int | None:
        """Return the adapter with the most requests that can pay; of equals the one with the oldest request."""
        most, leaders, size = 1, set[int](), len(turn)
        for id, count in counts.items():
            if count >= most and self._can_pay(id, size - in_turn.get(id, 0)):
                if count > most:
                    most = count
                    leaders.clear()
                leaders.add(id)
        if len(leaders) < 2:
            return leaders.pop() if leaders else None
        for request in turn:
            if request.adapter_id in leaders:
                return request.adapter_id
        return _oldest([*here, *view.waiting], leaders)

    def _stands(self, merged: bool, batch: int, turn: int) -> None:
        """Set the coming iterations' mode and sizes; a switch ends the period first."""
        if merged is not self.thresholds.merged:
            self._tune()
        self.thresholds.stands(merged, batch, turn)

    def _tune(self) -> None:
        self._tuned |= self.thresholds.tune()


def _oldest(requests: list[Request], adapters: set[int]) -> int:
    """Return which of these adapters, by id, has the oldest request."""
    found = min((request for request in requests if request.adapter_id in adapters), key=arrival_order)
    return found.adapter_id


def transfer(picked: Sequence[Request], turn: Sequence[Request]) -> dict[int, int]:
    """Return each adapter's gain in credits from running `picked` in place of the FCFS batch `turn`; sums to 0."""
    if picked is turn:
        return {}
    runs, due = set(picked), set(turn)
    displaced = [request for request in turn if request not in runs]
    payers = [request for request in picked if request not in due] or picked
    found: dict[int, int] = {}
    for index, request in enumerate(displaced):
        payer = payers[index % len(payers)].adapter_id
        found[request.adapter_id] = found.get(request.adapter_id, 0) + 1
        found[payer] = found.get(payer, 0) - 1
    return {id: units for id, units in found.items() if units}


def paid(payer: int, to: Sequence[Request], parts: int) -> dict[int, int]:
    """Return each adapter's gain where one pays so many parts for each of some requests; sums to 0."""
    found = {payer: -parts * len(to)}
    for request in to:
        found[request.adapter_id] = found.get(request.adapter_id, 0) + parts
    return {id: units for id, units in found.items() if units}
