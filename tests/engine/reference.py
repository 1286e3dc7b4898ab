"""The replica's clock (docs/clock.md) once more, as a plain loop: one iteration at a time, naive sums.

Written from what the clock is to do before the engine was read, so that it can disagree with it.
Nothing is kept between two iterations but the requests and the list of resident adapters: every sum
is taken again from explicit lists, every peak from the printed formula.

Where that is silent, this follows what the engine says it does:
- paged: admission keeps int(watermark * capacity) slots free, unless the candidate would be alone;
  when KV has outgrown the pool at a boundary, idle adapters go first, then the request that was admitted
  last goes back to its place in the queue, to be prefilled with prompt and generated tokens; alone in a
  prefill, it may then exceed max_num_batched_tokens.
- paged: what could never fit is judged by prompt + declared output, in whole blocks.
- eviction: least recently used is the adapter whose last request left first; requests that leave
  together do so in order of id, those that end with their prefill in order of admission. Adapters that
  a prefill finds resident are safe before room is made for the missing ones, one by one in order of
  admission. On demand, idle adapters go whenever a request finishes, and all when slots are short.
- routing: round robin over all arrivals, those that are then rejected included.
- latency: a batch's square and, for mbgmv, its highest rank count too (docstrings of simlora.latency).
- a request's admission is the start of its first prefill, after all loads of that prefill; its cold
  start lasts until its own adapter has landed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.engine.cases import Case


@dataclass
class Job:
    """A request, from its arrival to its last token."""

    id: int
    arrival_s: float
    adapter: int | None
    prompt: int
    output: int
    declared: int
    generated: int = 0
    status: str = "unfinished"
    admitted_s: float = math.nan
    first_token_s: float = math.nan
    finish_s: float = math.nan
    cold_start_s: float = 0.0
    preemptions: int = 0

    @property
    def context(self) -> int:
        return self.prompt + self.generated


@dataclass
class Node:
    """One replica."""

    case: Case
    now: float = 0.0
    queue: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)  # those that no request uses: least recently used first
    steps_since_prefill: int = 0
    loads: int = 0
    gaps_s: list[float] = field(default_factory=list)
    last_token_s: dict[int, float] = field(default_factory=dict)

    def serve(self, jobs: Sequence[Job]) -> None:
        """Take every job to its end. `jobs` is ordered by (arrival, id)."""
        pending = list(jobs)
        while pending or self.queue or self.running:
            if not self.queue and not self.running:
                self.now = max(self.now, pending[0].arrival_s)
            while pending and pending[0].arrival_s <= self.now:
                self.arrive(pending.pop(0))
            admitted = self.admit() if self.looks() else []
            if admitted:
                self.prefill(admitted)
            elif self.running:
                self.decode()
            else:
                assert not self.queue, "an idle replica refuses a request that it accepted"

    def arrive(self, job: Job) -> None:
        could = self.fits([], [job])
        if self.case.reserve == "paged" and could:
            whole = -(-(job.prompt + job.declared) // self.case.block_size) * self.case.block_size
            could = whole <= self.case.capacity - self.slots([job])
        if could:
            self.queue.append(job)
        else:
            job.status, job.finish_s = "rejected", job.arrival_s

    def looks(self) -> bool:
        """An idle replica looks at once, a busy one `max_wait_tokens` decode steps after the last prefill."""
        return not self.running or self.steps_since_prefill >= self.case.max_wait_tokens

    def admit(self) -> list[Job]:
        """Return the requests that start now: the queue in order, up to the first that does not fit."""
        admitted: list[Job] = []
        for job in self.queue if self.case.scheduler == "fcfs" else reversed(self.queue):
            if not self.fits(self.running, [*admitted, job]):
                break
            admitted.append(job)
        return admitted

    # Memory

    def slots(self, jobs: Sequence[Job]) -> int:
        """Token slots of the distinct adapters of some jobs: 4 * rank each."""
        return sum(4 * self.case.ranks[a] for a in {job.adapter for job in jobs} if a is not None)

    def blocks(self, tokens: int) -> int:
        """Token slots of the whole blocks that hold some tokens."""
        return -(-tokens // self.case.block_size) * self.case.block_size

    def fits(self, running: Sequence[Job], candidates: Sequence[Job]) -> bool:
        """Whether the last candidate fits beside all others."""
        case = self.case
        if len(running) + len(candidates) > case.max_num_seqs:
            return False
        grown_alone = len(candidates) == 1 and candidates[0].preemptions > 0
        if sum(job.context for job in candidates) > case.max_num_batched_tokens and not grown_alone:
            return False
        pool = case.capacity - self.slots([*running, *candidates])
        if case.reserve == "full":
            return sum(job.prompt + job.declared for job in [*running, *candidates]) <= pool
        if case.reserve == "peak":
            return peak(running, candidates) < pool
        spare = int(case.watermark * case.capacity) if len(running) + len(candidates) > 1 else 0
        held = sum(self.blocks(job.context) for job in running)
        return held + sum(self.blocks(job.context + 1) for job in candidates) <= pool - spare

    def kv(self, running: Sequence[Job], candidates: Sequence[Job] = ()) -> int:
        """Token slots that KV takes, the first token of those about to be prefilled included."""
        everyone = [*running, *candidates]
        if self.case.reserve == "full":
            return sum(job.prompt + job.declared for job in everyone)
        contexts = [job.context for job in running] + [job.context + 1 for job in candidates]
        return sum(contexts) if self.case.reserve == "peak" else sum(self.blocks(c) for c in contexts)

    def make_room(self, kv: int, more: int, needed: set[int | None]) -> bool:
        """Evict idle adapters until KV, adapters and `more` slots fit; return whether they do."""

        def short() -> int:
            return kv + more + sum(4 * self.case.ranks[a] for a in self.resident) - self.case.capacity

        if short() > 0:
            for adapter in [a for a in self.resident if a not in needed]:
                if short() > 0 or self.case.eviction == "on_demand":
                    self.resident.remove(adapter)
        return short() <= 0

    def preempt(self) -> None:
        """While KV has outgrown the pool, the request admitted last goes back to the queue."""
        while not self.make_room(self.kv(self.running), 0, {job.adapter for job in self.running}):
            last = self.running.pop()
            self.released([last])
            last.preemptions += 1
            self.queue.append(last)
            self.queue.sort(key=lambda job: (job.arrival_s, job.id))

    def released(self, jobs: Sequence[Job]) -> None:
        """Adapters whose last request left become the most recently used of the idle ones."""
        used = {job.adapter for job in self.running}
        for job in jobs:
            later = jobs[jobs.index(job) + 1 :]
            if job.adapter is not None and job.adapter not in used | {other.adapter for other in later}:
                self.resident.remove(job.adapter)
                self.resident.append(job.adapter)

    # Iterations

    def prefill(self, admitted: list[Job]) -> None:
        for job in admitted:
            self.queue.remove(job)
        wanted = [a for a in dict.fromkeys(job.adapter for job in admitted) if a is not None]
        needed = {job.adapter for job in self.running} | set(wanted)
        kv = self.kv(self.running, admitted)
        landed = {}
        start = self.now
        assert self.make_room(kv, 0, needed)
        for adapter in wanted:
            if adapter not in self.resident:
                assert self.make_room(kv, 4 * self.case.ranks[adapter], needed)
                self.resident.append(adapter)
                if self.case.loader == "blocking":
                    start += self.load_s(adapter)
                    self.loads += 1
                    landed[adapter] = start
        for job in admitted:
            if math.isnan(job.admitted_s):
                job.admitted_s = start
                job.cold_start_s = landed.get(job.adapter, self.now) - self.now
        self.now = start + self.prefill_s(admitted)
        self.running += admitted
        self.token(admitted)
        self.steps_since_prefill = 0
        self.leave()

    def decode(self) -> None:
        self.now += self.decode_s(self.running)
        self.token(self.running)
        self.steps_since_prefill += 1
        self.leave()
        self.preempt()

    def token(self, jobs: Sequence[Job]) -> None:
        """Every request of this iteration has one token more."""
        for job in jobs:
            job.generated += 1
            if job.generated == 1:
                job.first_token_s = self.now
            else:
                self.gaps_s.append(self.now - self.last_token_s[job.id])
            self.last_token_s[job.id] = self.now

    def leave(self) -> None:
        """Requests with all their tokens leave; on demand, so do the adapters that no other request needs."""
        done = [job for job in self.running if job.generated == job.output]
        if self.steps_since_prefill:
            done.sort(key=lambda job: job.id)
        for job in done:
            job.status, job.finish_s = "finished", self.now
        self.running = [job for job in self.running if job.generated < job.output]
        self.released(done)
        if done and self.case.eviction == "on_demand":
            used = {job.adapter for job in self.running}
            self.resident = [a for a in self.resident if a in used]

    # Times

    def load_s(self, adapter: int) -> float:
        """64 bytes a rank in the tiny model, sharded over the GPUs of the replica."""
        c = self.case.coefficients
        size_bytes = 64 * self.case.ranks[adapter] // self.case.tp
        return c["adapter_load.latency_s"] + size_bytes / c["adapter_load.bytes_per_s"]

    def prefill_s(self, jobs: Sequence[Job]) -> float:
        c = self.case.coefficients
        base = c["prefill.intercept_s"]
        base += sum(c["prefill.per_token_s"] * job.context for job in jobs)
        base += sum(c["prefill.per_token_sq_s"] * job.context**2 for job in jobs)
        return (
            base
            + self.lists_s(jobs)
            + self.lora_s("prefill", "token", [(j.context, j.adapter) for j in jobs])
        )

    def decode_s(self, jobs: Sequence[Job]) -> float:
        c = self.case.coefficients
        base = c["decode.intercept_s"]
        base += sum(
            c["decode.per_sequence_s"] + c["decode.per_context_token_s"] * job.context for job in jobs
        )
        base += c["decode.per_sequence_sq_s"] * len(jobs) ** 2
        return (
            base + self.lists_s(jobs) + self.lora_s("decode", "sequence", [(1, job.adapter) for job in jobs])
        )

    def lists_s(self, jobs: Sequence[Job]) -> float:
        """What the engine's host takes to list all adapters for each one of an iteration."""
        used = {job.adapter for job in jobs} - {None}
        each_s = self.case.coefficients.get("lora_manager.per_listed_adapter_s", 0.0)
        return each_s * len(used) * len(self.case.ranks)

    def lora_s(self, phase: str, unit: str, work: list[tuple[int, int | None]]) -> float:
        """What the LoRA kernel adds for (tokens, adapter) of every request."""
        c, kernel = self.case.coefficients, self.case.kernel
        lora = [(tokens, self.case.ranks[adapter]) for tokens, adapter in work if adapter is not None]
        if kernel == "merged" or not lora:
            return 0.0
        prefix = f"kernels.{kernel}.{phase}"
        seconds = c[f"{prefix}.intercept_s"]
        padded = max(rank for _, rank in lora)
        for tokens, rank in lora:
            if kernel == "bgmv" or phase == "decode":
                seconds += c[f"{prefix}.per_{unit}_max_rank_s"] * tokens * padded
            if kernel == "mbgmv":
                per = "per_rank_sum_s" if phase == "decode" else "per_token_rank_s"
                seconds += c[f"{prefix}.{per}"] * tokens * rank
        return seconds


def peak(running: Sequence[Job], candidates: Sequence[Job]) -> int:
    """Return the most token slots that the batch will ever need: `reserve=peak` as docs/clock.md has it."""
    entries = [(job.declared - job.generated - 1, job.context) for job in running]
    entries += [(job.declared - 1, job.prompt + 1) for job in candidates]
    entries.sort(reverse=True)
    need, held = 0, 0
    for i, (left, holds) in enumerate(entries, 1):
        held += holds
        need = max(need, left * i + held)
    return need


def simulate(case: Case) -> tuple[list[Job], list[Node]]:
    """Return every request as it ended, in order of id, and the replicas; replicas take turns."""
    jobs = [Job(i, *row) for i, row in enumerate(case.rows)]
    nodes = [Node(case) for _ in range(case.replicas)]
    for replica, node in enumerate(nodes):
        node.serve(jobs[replica :: case.replicas])
    return jobs, nodes
