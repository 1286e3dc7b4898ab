"""More copies for the adapters that are least prepared for a burst."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.checks import choice, switch, whole
from simlora.policies.placement.base import Placed, Placement
from simlora.policies.views import ClusterView

Counts = NDArray[np.int64]
EXTRA = ("rotate", "one")


class BurstTolerance(Placement):
    """dLoRA's preloading: copy the adapter with the lowest burst tolerance until a copy would lower the lowest one.

    An adapter's burst tolerance is its peak capacity over its mean load. The capacity is the number of requests of
    `request_tokens` slots that fit beside the adapters in the pools that have a copy; the load is its requests per
    second on earlier days. If that is unknown or not used (`history` false, as in their code), all adapters have equal
    load. An adapter without load tolerates any burst. No pool gets more than it can hold, nor more than `most_adapters`
    adapters (None: no limit). With `binding` only replicas with a copy may serve the adapter (their round robin);
    otherwise any may, and loads it (their own router).

    Source: dLoRA (OSDI'24) §5.1. It leaves open:
    - Where the first copies go: heaviest load first, onto the replica with the most unallocated memory, of equals the
      one with the least expected load, of equals the lowest id. An adapter that fits nowhere is not preloaded and has
      tolerance 0, so that no adapter gets a second copy; with `binding` the replica with the least expected load
      serves it.
    - Which replica gets a further copy: of those where the lowest tolerance does not decrease, chosen as above; it must
      have room for a request beside the copy. Copying ends when there is none. Their code tries all replicas too,
      those with the fewest adapters first.
    - Whether memory for part of a request counts: not here. Adapters of equal load therefore get copies in space that
      no request fits into. If every slot counted (request_tokens=1), a second copy would take from equals, and all
      would have one. Their code counts bytes.

    In the end their code makes copies until there are adapters + replicas - 1, whatever they displace. `extra` rotate,
    as where requests do not migrate: replica after replica gets the next adapter that it has not got. `extra` one, as
    where they do: all are of one adapter, drawn at random. None: no such copies, as the paper describes none.
    """

    def __init__(
        self,
        binding: bool = False,
        request_tokens: int = 512,
        most_adapters: int | None = None,
        history: bool = True,
        extra: str | None = None,
    ) -> None:
        self.extra = None if extra is None else choice("placement.extra", extra, EXTRA)
        self.binding = switch("placement.binding", binding)
        self.history = switch("placement.history", history)
        self.request_tokens = whole("placement.request_tokens", request_tokens, "token slots", least=1)
        if most_adapters is not None:
            whole("placement.most_adapters", most_adapters, "adapters", least=1)
        self.most_adapters = most_adapters

    def place(self, adapters: Sequence[Adapter], view: ClusterView) -> Placed:
        if not adapters:
            return Placed()
        ids = np.array([adapter.id for adapter in adapters], dtype=np.int64)
        known = view.history_rps if self.history else None
        loads_rps = np.ones(len(ids)) if known is None else known[ids]
        heaviest_first = np.argsort(-loads_rps, kind="stable")
        tokens = np.array([adapter.kv_tokens for adapter in adapters], dtype=np.int64)
        copies = _Copies(
            tokens[heaviest_first],
            loads_rps[heaviest_first],
            view.kv_token_budgets,
            self.request_tokens,
            self.most_adapters or len(ids),
        )
        unplaced = copies.first()
        copies.further()
        names = ids[heaviest_first].tolist()
        if self.extra == "one":
            copies.extra([names.index(int(ids[view.rng.integers(len(ids))]))])
        elif self.extra == "rotate":
            copies.extra([names.index(id) for id in sorted(names)])
        preloads = {names[row]: replicas for row, replicas in copies.replicas()}
        if not self.binding:
            return Placed(preloads=preloads)
        left_out = {names[row]: np.array([home], dtype=np.int64) for row, home in unplaced.items()}
        return Placed(preloads | left_out, preloads)


class _Copies:
    """The copies `at` `[adapters, replicas]`: which adapters, heaviest load first, are in which pools."""

    def __init__(
        self, tokens: Counts, loads_rps: NDArray[np.float64], budgets: Counts, request_tokens: int, most: int
    ) -> None:
        self.tokens, self.loads_rps = tokens, loads_rps
        self.request_tokens, self.most = request_tokens, most
        self.at = np.zeros((len(tokens), len(budgets)), dtype=np.bool_)
        self.free = budgets.copy()
        self.held: Counts = np.zeros(len(budgets), dtype=np.int64)
        self.expected_rps = np.zeros(len(budgets))

    def first(self) -> dict[int, int]:
        """Copy every adapter to one replica; return those that fit nowhere, each with the replica to serve it."""
        unplaced: dict[int, int] = {}
        guests = np.zeros_like(self.held)
        for adapter in range(len(self.tokens)):
            room = self._room(adapter)
            if room.any():
                self._copy(adapter, self._emptiest(room))
            else:
                home = int(np.lexsort((self.held + guests, self.expected_rps))[0])
                unplaced[adapter] = home
                guests[home] += 1
                self.expected_rps[home] += self.loads_rps[adapter]
        return unplaced

    def further(self) -> None:
        """Copy the adapter with the lowest burst tolerance while some replica can take a copy without lowering it."""
        loads_rps = self.loads_rps[self.loads_rps > 0]
        at = self.at[: len(loads_rps)]
        capacity = at @ (self.free // self.request_tokens)
        while len(loads_rps):
            tolerance = capacity / loads_rps
            adapter = int(tolerance.argmin())
            now = self.free // self.request_tokens
            then = (self.free - self.tokens[adapter]) // self.request_tokens
            suits = self._room(adapter) & (then > 0)
            for fewer in set((now - then)[suits].tolist()) - {0}:
                lower = (capacity - fewer) / loads_rps < tolerance[adapter]
                suits &= (now - then != fewer) | ~at[lower].any(axis=0)
            if not suits.any():
                return
            replica = self._emptiest(suits)
            self._copy(adapter, replica)
            capacity[adapter] += now[replica]
            capacity[at[:, replica]] -= now[replica] - then[replica]

    def extra(self, among: Sequence[int]) -> None:
        """Copy some adapters in turn, each to the next replica without it, until there are adapters + replicas - 1."""
        adapters, replicas = self.at.shape
        turns, replica = deque(among), 0
        while self.at.sum() < adapters + replicas - 1 and not self.at[among].all():
            adapter = next((each for each in turns if not self.at[each, replica]), None)
            if adapter is not None:
                self._copy(adapter, replica)
                turns.rotate(-1 - turns.index(adapter))
            replica = (replica + 1) % replicas

    def replicas(self) -> list[tuple[int, Counts]]:
        """Return (adapter, replicas) for every adapter that has a copy."""
        rows, columns = self.at.nonzero()
        adapters, starts = np.unique(rows, return_index=True)
        return list(zip(adapters.tolist(), np.split(columns, starts[1:]), strict=True)) if len(rows) else []

    def _room(self, adapter: int) -> NDArray[np.bool_]:
        """Return which replicas could take a copy `[replicas]`."""
        room: NDArray[np.bool_] = (
            ~self.at[adapter] & (self.free >= self.tokens[adapter]) & (self.held < self.most)
        )
        return room

    def _emptiest(self, among: NDArray[np.bool_]) -> int:
        """Return the replica with the most unallocated memory, of equals the one with the least expected load."""
        ids = among.nonzero()[0]
        return int(ids[np.lexsort((self.expected_rps[ids], -self.free[ids]))[0]])

    def _copy(self, adapter: int, replica: int) -> None:
        others = self.at[adapter]
        share_rps = self.loads_rps[adapter] / (others.sum() + 1)
        self.expected_rps[others] -= share_rps / max(others.sum(), 1)
        self.expected_rps[replica] += share_rps
        others[replica] = True
        self.free[replica] -= self.tokens[adapter]
        self.held[replica] += 1
