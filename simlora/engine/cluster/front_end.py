"""The process that takes requests in, before any replica's queue: an HTTP server and its tokenizers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.trace import BASE_MODEL, Trace
from simlora.engine.scenario import Scenario


class FrontEnd:
    """Delays every request, and is busy with the first one of each adapter: requests that arrive meanwhile wait.

    A request takes `per_request_s`, beside others. With `replica.adapter_tokenizers`, the first request of an adapter
    also occupies the front end for `per_adapter_s`, one adapter after another, while the replicas go on with what they
    have.
    Source: vLLM 0.8.5, whose AsyncLLM.get_tokenizer reads an adapter's tokenizer at its first request and keeps it
    (TokenizerGroup), within the event loop of the API server. In the table of step times of arXiv 2508.08343, 50
    requests for 50 new adapters wait for 0.23 to 0.25 s times 50 before the first of them starts, and then take 0.02 s
    longer each than requests for known ones.
    Differs: the replicas of a cluster share one front end. Tokens of running requests are not held up by a busy one.
    """

    def __init__(self, scenario: Scenario) -> None:
        coefficients = scenario.calibration.coefficients
        self._request_s = coefficients.get("front_end.per_request_s", 0.0)
        reads = scenario.replica.adapter_tokenizers
        self._adapter_s = coefficients.get("front_end.per_adapter_s", 0.0) if reads else 0.0
        self._known: set[int] = set()
        self._busy_until_s = 0.0

    def tokenizers_s(self, trace: Trace) -> NDArray[np.float64]:
        """Return how long each request of a trace waits while adapters' tokenizers are read, its own or others'."""
        waits_s: NDArray[np.float64] = self.enter_all(trace) - trace.arrival_s - self._request_s
        return waits_s

    def enter(self, arrival_s: float, adapter: Adapter | None) -> float:
        """Return when a request that arrives then, no earlier than all before it, is in the queue."""
        if self._adapter_s and adapter is not None and adapter.id not in self._known:
            self._known.add(adapter.id)
            self._busy_until_s = max(self._busy_until_s, arrival_s) + self._adapter_s
        return max(self._busy_until_s, arrival_s) + self._request_s

    def enter_all(self, trace: Trace) -> NDArray[np.float64]:
        """Return when each request of a trace is in the queue; the same as one after the other."""
        arrival_s = trace.arrival_s
        if not self._adapter_s or not len(trace):
            return arrival_s + self._request_s
        ids, first = np.unique(trace.adapter, return_index=True)
        first = np.sort(first[ids != BASE_MODEL])
        busy_until_s = [0.0]
        for at_s in arrival_s[first].tolist():
            busy_until_s.append(max(busy_until_s[-1], at_s) + self._adapter_s)
        behind = np.searchsorted(first, np.arange(len(trace)), side="right")
        entered_s: NDArray[np.float64] = np.maximum(np.array(busy_until_s)[behind], arrival_s)
        return entered_s + self._request_s
