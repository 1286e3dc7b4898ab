"""A run that is driven from outside: requests are submitted as they come, and time is advanced step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, nextafter
from typing import ClassVar, NamedTuple

import numpy as np

from simlora.core.checks import number, whole
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL, Trace
from simlora.engine.clock import ARRIVAL
from simlora.engine.cluster.front_end import FrontEnd
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.reporting import OnToken, TokenStream
from simlora.engine.scenario import Scenario
from simlora.metrics.recorder import Recorder


class Submitted(NamedTuple):
    """A request from outside: as a row of a trace. `adapter` is an index of the scenario's adapters, or BASE_MODEL."""

    prompt_tokens: int
    output_tokens: int
    adapter: int = BASE_MODEL
    max_output_tokens: int | None = None
    session: str | None = None
    block_hashes: tuple[int, ...] = ()


class DrivenSimulation(Simulation):
    """Serves requests that are submitted, as a live server does.

    `submit` requests, `advance` the clock, and `close` after the last one: the result is that of a run of their trace.
    Of the scenario's trace only the adapters, their history and the size of hashed blocks count. `on_token` is called
    with every token at its time, and may submit. Until `close`, periodic policies and parts go on without requests too.
    """

    driven: ClassVar[bool] = True

    def __init__(self, scenario: Scenario, on_token: OnToken | None = None) -> None:
        if scenario.until_missed is not None:
            raise InputError(
                "until_missed counts the requests of a trace, and these are submitted; leave it out"
            )
        if on_token is not None:
            stream = partial(TokenStream, on_token=on_token)
            scenario = replace(scenario, parts=(stream, *scenario.parts))
        super().__init__(scenario)
        self._arrivals_s: list[float] = []
        self._requests: list[Request] = []
        self._front_end = FrontEnd(scenario)
        self._closed = self._advancing = False
        self._start(())

    def _true_outputs(self) -> Sequence[int]:
        self._lengths: list[int] = []  # of those that were submitted
        return self._lengths

    def submit(self, submitted: Submitted, arrival_s: float | None = None) -> Request:
        """A request arrives at that time, or now; return it.

        Submitted by a listener, while events of this moment are processed, it arrives at the next larger number: the
        boundary that caused it is over, as it is when the trace is played. Raises InputError for an arrival in the
        past, for tokens, an adapter or hashes that cannot be, and after `close`.
        """
        now_s = nextafter(self.clock.now, inf) if self._advancing else self.clock.now
        least_s = max([now_s, *self._arrivals_s[-1:]])
        at_s = number("arrival_s", now_s if arrival_s is None else arrival_s, "s", least=least_s)
        if self._closed:
            raise InputError("a request is submitted to a run that is closed, must come before close")
        if submitted.block_hashes and not self.scenario.trace.has_hashes:
            raise InputError(
                "block_hashes need a scenario whose trace has some, which sets the tokens of a block"
            )
        whole("prompt_tokens", submitted.prompt_tokens, "tokens", least=1)
        whole("output_tokens", submitted.output_tokens, "tokens", least=1)
        whole("adapter", submitted.adapter, least=BASE_MODEL, most=len(self.adapters) - 1)
        most = submitted.output_tokens if submitted.max_output_tokens is None else submitted.max_output_tokens
        whole("max_output_tokens", most, "tokens", least=submitted.output_tokens)
        adapter = None if submitted.adapter == BASE_MODEL else self.adapters[submitted.adapter]
        request = Request(
            len(self._requests),
            adapter,
            self._front_end.enter(at_s, adapter),
            submitted.prompt_tokens,
            most,
            submitted.session,
            submitted.block_hashes,
        )
        self._arrivals_s.append(at_s)
        self._requests.append(request)
        self._lengths.append(submitted.output_tokens)
        self.clock.call(request.arrival_s, ARRIVAL, request.id, lambda: self.dispatcher.arrive(request))
        return request

    def advance(self, to_s: float) -> None:
        """Let everything happen that happens before that time, which is the time then."""
        self._advance(number("to_s", to_s, "s", least=self.clock.now, most=self.scenario.until_s))

    def _advance(self, until_s: float | None) -> None:
        self._advancing = True
        try:
            super()._advance(until_s)
        finally:
            self._advancing = False

    def run(self, progress: Callable[[int], None] = lambda ended: None, cores: int = 1) -> Recorder:
        """Raise InputError: there is no trace to play."""
        raise InputError("a driven run has no trace to play: submit requests, advance, and close")

    def close(self) -> Recorder:
        """No more requests come: serve those that are there, up to the scenario's until_s; return what was recorded.

        Raises InputError for a run that is closed.
        """
        if self._closed:
            raise InputError("a run is closed twice, must be closed once")
        self._closed = True
        self.recorder.close(self._trace())
        self._advance(self.scenario.until_s)
        return self._end()

    def _trace(self) -> Trace:
        """Return the submitted requests as a trace."""
        requests = self._requests
        return replace(
            self.scenario.trace,
            arrival_s=np.array(self._arrivals_s, dtype=np.float64),
            adapter=np.array([request.adapter_id for request in requests], dtype=np.int64),
            prompt_tokens=np.array([request.prompt_tokens for request in requests], dtype=np.int64),
            output_tokens=np.array(self._lengths, dtype=np.int64),
            max_output_tokens=np.array([request.max_output_tokens for request in requests], dtype=np.int64),
            session=[request.session for request in requests],
            block_hashes=[request.block_hashes for request in requests],
        )
