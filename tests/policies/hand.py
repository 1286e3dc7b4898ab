"""A replica made by hand: what a scheduler sees of it, and which requests fit."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.cluster.load_tracker import LoadTracker
from simlora.engine.replica.request_queue import RequestQueue
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel, Merged
from simlora.policies.scheduling.base import Abort, Pause, Resume, SchedulerOutput
from simlora.policies.views import Refusal

RETRY_STEPS = 7
STEP_S, TOKEN_S = 2**-5, 2**-8
"""What a pass takes with a batch that decodes, and for each token that it prefills."""
COEFFICIENTS = {
    "prefill.intercept_s": 0.03,
    "prefill.per_token_s": 0.0003,
    "decode.intercept_s": 0.03,
    "decode.per_sequence_s": 0.0,
    "decode.per_context_token_s": 1e-6,
}
CALIBRATION = Calibration("by hand", "gpu", "model", 1, {}, COEFFICIENTS)
A, B, C = (Adapter(i, name, 2, 128, 8) for i, name in enumerate("abc"))


def requests(*adapters: Adapter | None, start: int = 0, prompt_tokens: int = 10) -> tuple[Request, ...]:
    """Requests that arrive a second apart, the first of them number `start` at second `start`."""
    return tuple(
        Request(id, adapter, float(id), prompt_tokens, 10) for id, adapter in enumerate(adapters, start)
    )


def paused(output: SchedulerOutput) -> tuple[Request, ...]:
    """The requests that a scheduler pauses, in this order."""
    return tuple(action.request for action in output.actions if isinstance(action, Pause))


def resumed(output: SchedulerOutput) -> tuple[Request, ...]:
    """The requests that a scheduler resumes, in this order."""
    return tuple(action.request for action in output.actions if isinstance(action, Resume))


def aborted(output: SchedulerOutput) -> tuple[tuple[Request, str], ...]:
    """The requests that a scheduler aborts, each with its reason, in this order."""
    return tuple((each.request, each.reason) for each in output.actions if isinstance(each, Abort))


class Trial:
    """Admits all requests but those with a refusal of their own, as long as there are seats."""

    def __init__(self, seats: int, refuses: Mapping[Request, Refusal], in_use: Collection[Adapter]) -> None:
        self.seats = seats
        self.adapters = {adapter.id for adapter in in_use}
        self.refuses = refuses
        self.tried: list[Request] = []
        self.refusal: Refusal | None = None

    def admit(self, request: Request) -> bool:
        self.tried.append(request)
        refusal = Refusal.SEATS if self.seats < 1 else self.refuses.get(request)
        if refusal is not None:
            self.refusal = refusal
            return False
        self.seats -= 1
        if request.adapter is not None:
            self.adapters.add(request.adapter.id)
        return True

    def retry_steps(self) -> int:
        return RETRY_STEPS


class Cluster:
    """Replicas with so many requests each; `requests` says which, for those that ask, of each replica first all, then
    those of them that wait. `at` are the replicas that have an adapter in HBM, by its id; left out, all have."""

    now_s = 0.0

    def __init__(
        self,
        outstanding: Sequence[int] = (0, 0, 0, 0),
        requests: Mapping[int, tuple[Sequence[Request], Sequence[Request]]] | None = None,
        *,
        kernel: Kernel | None = None,
        iteration: IterationModel | Sequence[IterationModel] | None = None,
        budgets: Sequence[int] | None = None,
        max_num_seqs: int = 1000,
        at: Mapping[int, Collection[int]] | None = None,
        adapter_load_s: float = 0.0,
        executions_s: float | None = None,
        history_rps: Sequence[float] | None = None,
        asked_tokens: Sequence[int] = (),
        asked_requests: Sequence[int] = (0, 0, 0),
        adapters: Sequence[Adapter] = (A, B, C),
        shares: Mapping[int, Sequence[float]] | None = None,
        max_loras: int | None = None,
        max_lora_ranks: Sequence[int] | None = None,
        resident_adapters: Sequence[int] | None = None,
        cached_tokens: Sequence[int] | None = None,
        used_tokens: Sequence[int] | None = None,
        sent: LoadTracker | None = None,
    ) -> None:
        nothing = [0] * len(outstanding)
        slots = np.inf if max_loras is None else max_loras
        self.max_loras = np.full(len(outstanding), slots, dtype=np.float64)
        self.max_lora_ranks = np.array(max_lora_ranks or [1 << 30] * len(outstanding), dtype=np.int64)
        self.resident_adapters = np.array(resident_adapters or nothing, dtype=np.int64)
        self.used_tokens = np.array(used_tokens or nothing, dtype=np.int64)
        self._cached_tokens = np.array(cached_tokens or nothing, dtype=np.int64)
        self.asked_tokens = np.array(asked_tokens, dtype=np.int64)
        self.asked_requests = np.array(asked_requests, dtype=np.int64)
        self.adapters = adapters
        self._shares = shares or {}
        self.outstanding = np.array(outstanding, dtype=np.int64)
        self.open = np.ones(len(outstanding), dtype=np.bool_)
        self.rng = np.random.default_rng(0)
        self.max_num_seqs = np.full(len(outstanding), max_num_seqs, dtype=np.int64)
        self.loads = LoadTracker([max_num_seqs] * len(outstanding))
        self.history_rps = None if history_rps is None else np.array(history_rps, dtype=np.float64)
        self._at, self._load_s, self._execution_s = at or {}, adapter_load_s, executions_s
        alike = isinstance(iteration, IterationModel | None)
        iterations = [iteration or IterationModel(CALIBRATION)] * len(outstanding) if alike else iteration
        self.models = [(each, kernel or Merged(CALIBRATION)) for each in iterations]
        self.kv_token_budgets = np.array(budgets or [10_000] * len(outstanding), dtype=np.int64)
        self._requests = {replica: list(found) for replica, (found, _) in (requests or {}).items()}
        for replica, (found, waiting) in (requests or {}).items():
            self.outstanding[replica] = len(found)
            for request in found:
                self.loads.arrive(replica, request)
            for request in waiting:
                self.loads.waiting.add(replica, request)
        self.sent = sent or self.loads

    def cached_tokens(self, request: Request) -> np.ndarray:
        return self._cached_tokens

    def shares(self, adapter: Adapter | None, candidates: np.ndarray) -> np.ndarray | None:
        known = None if adapter is None else self._shares.get(adapter.id)
        return None if known is None else np.array(known)

    def requests_of(self, replica: int) -> list[Request]:
        return self._requests.get(replica, [])

    def resident(self, adapter: Adapter) -> np.ndarray:
        everywhere = range(len(self.outstanding))
        return np.isin(everywhere, list(self._at.get(adapter.id, everywhere)))

    def holders(self, adapter: Adapter) -> set[int]:
        return set(self._at.get(adapter.id, range(len(self.outstanding))))

    def load_s(self, adapter: Adapter) -> float:
        return self._load_s

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        return self._execution_s


class View:
    """A replica at a boundary; `in_use` are the adapters of the batch.

    The batch has these `members`, or so many `running` requests of the base model, about which a test says nothing.
    """

    loading = 0

    def __init__(
        self,
        waiting: Sequence[Request] = (),
        *,
        now_s: float = 9.0,
        running: int = 0,
        steps: int = 0,
        max_wait_tokens: int = 0,
        in_use: Collection[Adapter] = (),
        prefilling: Sequence[Request] = (),
        merged: Adapter | None = None,
        seats: int = 1000,
        refuses: Mapping[Request, Refusal] | None = None,
        preempted: bool = False,
        members: Sequence[Request] = (),
        paused: Sequence[Request] = (),
        iterations: int = 0,
        max_num_seqs: int = 1000,
        served_adapters: int = 3,
    ) -> None:
        self.members = members or requests(*(None,) * running, start=-running)
        self.paused, self.iterations = paused, iterations
        self.max_num_seqs, self.served_adapters = max_num_seqs, served_adapters
        self.waiting = RequestQueue()
        for request in waiting:
            self.waiting.add(request)
        self.now_s = now_s
        self.running = self.step_tokens = len(self.members)
        self.steps_since_prefill = steps
        self.max_wait_tokens = max_wait_tokens
        self.adapters = len(in_use)
        self.prefilling = prefilling
        self.merged = merged
        self.preempted = preempted
        self.last_trial = Trial(seats, refuses or {}, in_use)
        self._in_use = in_use

    def pass_s(self, requests: Sequence[Request], chunks: Sequence[int]) -> float:
        return STEP_S * (self.running > 0) + TOKEN_S * sum(chunks)

    def in_use(self, adapter: Adapter) -> bool:
        return adapter in self._in_use

    def trial(self, beside: Collection[Request] | None = None) -> Trial:
        self.beside = beside
        return self.last_trial

    @property
    def tried(self) -> tuple[Request, ...]:
        """The requests that the scheduler tried, in this order."""
        return tuple(self.last_trial.tried)


class Idle:
    """Idle adapters, least recently used first: of each its uses, last use, seconds to load and waiting requests."""

    def __init__(self, *known: tuple[Adapter, int, float, float, int], now_s: float = 9.0) -> None:
        self.now_s = now_s
        self.adapters = [adapter for adapter, *_ in known]
        self._known = {
            adapter.id: (uses, last_s, load_s, waiting) for adapter, uses, last_s, load_s, waiting in known
        }

    def __iter__(self) -> Iterator[Adapter]:
        return iter(self.adapters)

    def __len__(self) -> int:
        return len(self.adapters)

    def uses(self, adapter: Adapter) -> int:
        return self._known[adapter.id][0]

    def last_use_s(self, adapter: Adapter) -> float:
        return self._known[adapter.id][1]

    def load_s(self, adapter: Adapter) -> float:
        return self._known[adapter.id][2]

    def waiting(self, adapter: Adapter) -> int:
        return self._known[adapter.id][3]
