"""The placement of some replicas' requests and their adapters as a problem, as an ILP, and its solution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simlora.core.checks import choice, number, whole
from simlora.core.errors import InputError
from simlora.core.request import Request, arrival_order
from simlora.core.trace import BASE_MODEL
from simlora.policies.migration.base import Move, Plan
from simlora.policies.views import ClusterView

Seconds = NDArray[np.float64]
Whole = NDArray[np.int64]

SOLVERS = {"cbc": ("pulp",), "highs": ("pulp", "highspy")}
"""Solvers and the packages that they need."""
HIGHS_FEASIBLE = 2
"""HiGHS's SolutionStatus for values that satisfy every constraint."""
NOISE = 1e-6
"""Relative tolerance below which two times are equal; the solvers' own."""


@dataclass(frozen=True)
class Terms:
    """The costs of a plan. `moved_s` None: a request that moves takes γ times as long; `relaxed`: see ilp()."""

    relaxed: bool
    unknown_execution_s: float
    eta_s: float
    moved_s: float | None
    bandwidth_bytes_per_s: float
    host_memory_bytes: float | None = None

    def __post_init__(self) -> None:
        number("migration.unknown_execution_s", self.unknown_execution_s, "seconds", least=0)
        number("migration.eta_s", self.eta_s, "seconds", least=0)
        number("migration.bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, "bytes per second", above=0)
        if self.moved_s is not None:
            number("migration.moved_s", self.moved_s, "seconds", least=0)
        if self.host_memory_bytes is not None:
            number("migration.host_memory_bytes", self.host_memory_bytes, "bytes", least=0)


@dataclass(frozen=True, eq=False)
class Comigration:
    """Requests, their replicas, and the cost of running them on each replica. Memory is in token slots of the pool.

    home            [requests]            the replica that has the request
    adapter         [requests]            its adapter's id, or BASE_MODEL, which every replica has
    execution_s     [requests]            L_i
    moved_s         [requests, replicas]  (γ_ij − 1) L_i: the extra time there because of the move; 0 at home
    request_tokens  [requests]            M_i^R
    adapter_tokens  by id                 M_k^A
    gpu_tokens      [replicas]            M_j^G
    host_tokens                           M_j^H, of each replica; None: unlimited
    swap_s                                1/B, per token slot
    eta_s                                 η, per adapter of a replica
    relaxed                               requests may be swapped in part
    Source: dLoRA (OSDI'24) §5.2.
    """

    home: Whole
    adapter: Whole
    execution_s: Seconds
    moved_s: Seconds
    request_tokens: Whole
    adapter_tokens: Mapping[int, int]
    gpu_tokens: Whole
    host_tokens: int | None
    swap_s: float
    eta_s: float
    relaxed: bool

    def seconds(self, placed: Whole) -> Seconds:
        """Return the seconds that each replica takes for the requests placed there `[replicas]`."""
        return np.array([self.replica_s(j, placed) for j in range(len(self.gpu_tokens))])

    def replica_s(self, replica: int, placed: Whole) -> float:
        """Return the seconds that a replica takes, with as little swapping as possible; inf if memory is too small."""
        there = np.flatnonzero(placed == replica)
        adapters = set(self.adapter[there].tolist()) - {BASE_MODEL}
        room = int(self.gpu_tokens[replica]) - sum(self.adapter_tokens[k] for k in adapters)
        swapped = self._swapped(self.request_tokens[there].tolist(), room)
        run_s = float(self.execution_s[there].sum() + self.moved_s[there, replica].sum())
        return run_s + self.swap_s * swapped + self.eta_s * len(adapters)

    def _swapped(self, tokens: list[int], room: int) -> float:
        if self.relaxed:
            return max(sum(tokens) - room, 0)
        swapped = sum(tokens) - fullest(tokens, room) if room >= 0 else inf
        return swapped if self.host_tokens is None or swapped <= self.host_tokens else inf

    @property
    def least_s(self) -> float:
        """A lower bound of the longest replica's seconds: the mean work per replica, or the longest request."""
        all_s = float(self.execution_s.sum()) + self.eta_s * len(set(self.adapter.tolist()) - {BASE_MODEL})
        longest_s = self.execution_s + self.eta_s * (self.adapter != BASE_MODEL)
        return max(all_s / len(self.gpu_tokens), float(longest_s.max()))

    def needed(self, found: Whole) -> Whole:
        """Return a placement that ends as soon as `found`, with only those of its moves that this requires.

        An optimum is one of many: only the last replica counts, and the others may exchange requests for no gain.
        Start with nothing moved, and make moves of `found` only from replicas that would end later than `found`. Each
        such replica has a move left, because with all leaving and some arriving requests it has no more work than in
        `found`. Then undo the moves that turn out not to be needed.
        """
        most_s = float(self.seconds(found).max()) * (1 + NOISE)
        placed, seconds = self.home.copy(), self.seconds(self.home)
        while late := self._leaving(placed, found, seconds > most_s):
            # The longest request first, so that few move; of equals the one that is cheapest to move.
            one = min(late, key=lambda i: (-self.execution_s[i], self.moved_s[i, found[i]], i))
            placed[one] = found[one]
            for replica in (self.home[one], found[one]):
                seconds[replica] = self.replica_s(replica, placed)
        while (back := next(self._returning(placed, most_s), None)) is not None:
            placed = back
        return placed

    def _leaving(self, placed: Whole, found: Whole, late: NDArray[np.bool_]) -> list[int]:
        return [int(i) for i in np.flatnonzero(placed != found) if late[self.home[i]]]

    def _returning(self, placed: Whole, most_s: float) -> Iterator[Whole]:
        """Yield placements with one move fewer that still end by `most_s`."""
        for one in np.flatnonzero(placed != self.home):
            back = placed.copy()
            back[one] = self.home[one]
            if self.replica_s(self.home[one], back) <= most_s:
                yield back


def fullest(tokens: Sequence[int], room: int) -> int:
    """Return the largest sum of a subset of `tokens` that does not exceed `room`."""
    if sum(tokens) <= room:
        return sum(tokens)
    sums = 1  # bit s is set if some subset sums to s
    for some in tokens:
        sums |= sums << some & (2 << room) - 1
    return sums.bit_length() - 1


def gather(view: ClusterView, replicas: Sequence[int], terms: Terms) -> tuple[list[Request], Comigration]:
    """Return the requests of these replicas in order of (arrival, id), and the problem, with replicas by position."""
    found = [(request, j) for j, replica in enumerate(replicas) for request in view.requests_of(replica)]
    found.sort(key=lambda pair: arrival_order(pair[0]))
    requests, home = [request for request, _ in found], np.array([j for _, j in found], dtype=np.int64)
    adapters = {request.adapter.id: request.adapter for request in requests if request.adapter is not None}
    known_s = {id: view.execution_s(adapter) for id, adapter in (*adapters.items(), (BASE_MODEL, None))}
    execution_s = {id: terms.unknown_execution_s if s is None else s for id, s in known_s.items()}
    adapter = np.array([BASE_MODEL if r.adapter is None else r.adapter.id for r in requests], dtype=np.int64)
    tokens = [view.context_tokens(request, replicas[j]) for request, j in found]
    if terms.moved_s is not None:
        moved_s = np.full((len(requests), len(replicas)), terms.moved_s)
    else:
        at = np.array(replicas, dtype=np.int64)
        load_s = {id: np.where(view.resident(a)[at], 0.0, view.load_s(a)) for id, a in adapters.items()}
        load_s[BASE_MODEL] = np.zeros(len(replicas))
        iteration, _ = view.models[0]  # the replicas are alike
        prefill_s = np.array([iteration.prefill_s(n, n * n) for n in tokens])
        moved_s = prefill_s[:, None] + np.array([load_s[id] for id in adapter.tolist()])
    moved_s[np.arange(len(requests)), home] = 0.0
    host_bytes, slot_bytes = terms.host_memory_bytes, view.kv_bytes_per_token
    return requests, Comigration(
        home=home,
        adapter=adapter,
        execution_s=np.array([execution_s[id] for id in adapter.tolist()]),
        moved_s=moved_s,
        request_tokens=np.array(tokens, dtype=np.int64),
        adapter_tokens={id: adapters[id].kv_tokens for id in sorted(adapters)},
        gpu_tokens=view.kv_token_budgets[np.array(replicas, dtype=np.int64)],
        host_tokens=None if host_bytes is None else int(host_bytes // slot_bytes),
        swap_s=slot_bytes / terms.bandwidth_bytes_per_s,
        eta_s=terms.eta_s,
        relaxed=terms.relaxed,
    )


def ilp(problem: Comigration) -> tuple[Any, list[list[list[Any]]]]:
    """Return a PuLP problem, and by request and replica the variables (parts) whose sum is x_ij.

    Not relaxed, as printed in the paper: x^G, x^H and y are 0 or 1. Relaxed: one x between 0 and 1, y is 0 or 1, and
    what does not fit into a GPU's memory is swapped. The objective is the longest replica's time, with η inside the
    maximum. The base model has no y.
    """
    import pulp

    asked = pulp.LpProblem("comigration", pulp.LpMinimize)
    most, same = pulp.LpConstraintLE, pulp.LpConstraintEQ

    def share(name: str, kind: str) -> Any:
        return asked.add_variable(name, 0, 1, kind)

    def hold(terms: list[tuple[Any, float]], sense: int, bound: float) -> None:
        asked.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, rhs=bound))

    requests, replicas = range(len(problem.home)), range(len(problem.gpu_tokens))
    held = problem.adapter_tokens
    names, kind = (("x",), "Continuous") if problem.relaxed else (("xG", "xH"), "Binary")
    x = [[[share(f"{name}_{i}_{j}", kind) for name in names] for j in replicas] for i in requests]
    y = {(k, j): share(f"y_{k}_{j}", "Binary") for k, j in product(held, replicas)}
    last_s = asked.add_variable("T", 0)
    asked.setObjective(pulp.LpAffineExpression([(last_s, 1)]))
    adapter, tokens = problem.adapter.tolist(), problem.request_tokens.tolist()
    cost_s = (problem.execution_s[:, None] + problem.moved_s).tolist()
    for i in requests:
        hold([(part, 1) for j in replicas for part in x[i][j]], same, 1)
        for j in replicas if adapter[i] != BASE_MODEL else ():
            hold([*((part, 1) for part in x[i][j]), (y[adapter[i], j], -1)], most, 0)
    for j in replicas:
        swapped = asked.add_variable(f"swapped_{j}", 0, None if problem.relaxed else problem.host_tokens)
        out = [(swapped, -1)]
        in_gpu = [(x[i][j][0], tokens[i]) for i in requests] + [(y[k, j], held[k]) for k in held]
        if not problem.relaxed:
            hold([(x[i][j][1], tokens[i]) for i in requests] + out, most, 0)
        hold(in_gpu + out * problem.relaxed, most, int(problem.gpu_tokens[j]))
        run_s = [(part, cost_s[i][j]) for i in requests for part in x[i][j]]
        run_s += [(swapped, problem.swap_s), *((y[k, j], problem.eta_s) for k in held)]
        hold([*run_s, (last_s, -1)], most, 0)
    return asked, x


def rounded(shares: Seconds, home: Whole) -> Whole:
    """Return the replica with the largest of each request's shares `[requests, replicas]`; ties: home, then lowest."""
    most = shares >= shares.max(axis=1, keepdims=True) - NOISE
    return np.where(most[np.arange(len(home)), home], home, most.argmax(axis=1))


class Solution(NamedTuple):
    """The replica of every request, None if none was found; and in words how the solver ended, if not at an optimum."""

    placed: Whole | None
    ending: str = ""


@dataclass(frozen=True)
class Solver:
    """CBC or HiGHS through PuLP, on one thread. Stops within `gap` (relative) of the optimum or after `most_nodes`.

    There is no time limit, so that every run ends the same way. HiGHS counts the first node, and with 0 nodes does
    nothing; CBC always solves the first. A large problem may take long before the second node.
    """

    name: str
    gap: float
    most_nodes: int

    def __post_init__(self) -> None:
        choice("migration.solver", self.name, SOLVERS)
        for package in SOLVERS[self.name]:
            if find_spec(package) is None:
                raise InputError(
                    f"migration.solver is {self.name!r}, and its Python package {package} is not installed; "
                    f"install it with: pip install {package}"
                )
        number("migration.gap", self.gap, least=0, most=1)
        whole("migration.most_nodes", self.most_nodes, "nodes", least=0)

    def solve(self, problem: Comigration) -> Solution:
        """Return a placement if `sol_status` reports one; `status` says optimal even where the solver stopped early."""
        import pulp

        asked, x = ilp(problem)
        try:
            asked.solve(self._command())
            status = asked.sol_status
        except KeyError:  # PuLP 3.3 has no status for HiGHS's stop at a node limit
            feasible = asked.solverModel.getInfo().primal_solution_status == HIGHS_FEASIBLE
            status = pulp.LpSolutionIntegerFeasible if feasible else pulp.LpSolutionNoSolutionFound
        except (pulp.PulpError, OSError, RuntimeError) as error:
            return Solution(None, f"could not be run: {error}")
        if status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            # Only `status` reports CBC's "integer infeasible".
            impossible = pulp.LpStatusInfeasible in (status, asked.status)
            nodes = f"found no placement within {self.most_nodes:,} nodes"
            return Solution(None, "says that no placement fits into the memory" if impossible else nodes)
        shares = np.array([[sum(part.value() for part in parts) for parts in row] for row in x])
        ending = "" if status == pulp.LpSolutionOptimal else f"stopped after {self.most_nodes:,} nodes"
        return Solution(rounded(shares, problem.home), ending)

    def _command(self) -> Any:
        import pulp

        if self.name == "highs":
            return pulp.HiGHS(
                msg=False, threads=1, gapRel=float(self.gap), mip_max_nodes=int(self.most_nodes)
            )
        path = pulp.PULP_CBC_CMD.pulp_cbc_path  # PuLP's bundled one; that class warns of PuLP 4
        return pulp.COIN_CMD(path=path, msg=False, gapRel=float(self.gap), maxNodes=int(self.most_nodes))


def plan(view: ClusterView, replicas: Sequence[int], terms: Terms, solver: Solver, cause: str) -> Plan:
    """Return the moves between these replicas; the reason begins with `cause`."""
    if len(replicas) < 2 or not view.outstanding[np.array(replicas)].any():
        return Plan()
    requests, problem = gather(view, replicas, terms)
    now_s = float(problem.seconds(problem.home).max())
    found = Solution(problem.home)
    if now_s > problem.least_s * (1 + NOISE):
        found = solver.solve(problem)
    if found.placed is None:
        return Plan((), f"{cause}; the solver {found.ending}, so nothing moves", solved=False)
    placed = problem.needed(found.placed)
    moving = np.flatnonzero(placed != problem.home).tolist()
    moves = tuple(Move(requests[i], replicas[problem.home[i]], replicas[placed[i]]) for i in moving)
    then_s = float(problem.seconds(placed).max())
    ending = f" (the solver {found.ending})" if found.ending else ""
    return Plan(moves, f"{cause}; {_gain(len(moves), now_s, then_s)}{ending}")


def _gain(moves: int, now_s: float, then_s: float) -> str:
    now = f"{now_s:.4g} s" if now_s < inf else "more than its memory holds"
    if not moves:
        return f"no move shortens the longest replica's work of {now}"
    some = "1 move shortens" if moves == 1 else f"{moves} moves shorten"
    return f"{some} the longest replica's work from {now} to {then_s:.4g} s"
