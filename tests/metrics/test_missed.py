"""A run is ended once more requests have missed their SLO than may: the same ones that would miss it at its end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simlora
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.metrics.missed import Missed, MissedMost
from simlora.metrics.recorder import Recorder
from simlora.metrics.slo import SloClass, SloTargets, met
from simlora.metrics.window import Window

GOLD = SloClass("gold", frozenset({"a"}), SloTargets(ttft_s=0.5, latency_s=2.0))
TARGETS = (
    SloTargets(),
    SloTargets(ttft_s=1.0),
    SloTargets(latency_s=1.5),
    SloTargets(tpot_s=0.25, latency_per_output_token_s=0.5),
    SloTargets(ttft_s=1.0, latency_s=3.0, classes=(GOLD,)),
)


def a_trace(tokens: list[int], adapters: list[int]) -> Trace:
    count = len(tokens)
    return Trace(
        arrival_s=np.arange(count, dtype=np.float64),
        adapter=np.array(adapters, dtype=np.int64),
        prompt_tokens=np.ones(count, dtype=np.int64),
        output_tokens=np.array(tokens, dtype=np.int64),
        max_output_tokens=np.array(tokens, dtype=np.int64),
        adapters=(AdapterSpec("a", 8), AdapterSpec("b", 8)),
    )


# One request each: output tokens, adapter, time to the first token, time after that, whether it is given up.
ENDS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from([0, 1, BASE_MODEL]),
        st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.25]),
        st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(ends=ENDS, targets=st.sampled_from(TARGETS), allowed=st.integers(0, 12), late=st.booleans())
def test_it_stops_if_and_only_if_too_few_would_have_met_it(ends, targets, allowed, late):
    trace = a_trace([tokens for tokens, *_ in ends], [adapter for _, adapter, *_ in ends])
    window = Window(float(len(ends) // 2), float(len(ends))) if late else None
    counted = len(ends) if window is None else int(window.covers(trace.arrival_s).sum())
    stopped: list[None] = []
    share = min(allowed / counted, 1.0)
    missed = Missed(trace, MissedMost(share, targets, window), lambda: stopped.append(None))
    recorder = Recorder(trace, replicas=1, missed=missed)
    for id, (_, _, first_s, rest_s, given_up) in enumerate(ends):
        request = Request(id, None, float(id), 1, 1)
        request.first_token_s = id + first_s
        if given_up:
            recorder.abort(request, 0, id + first_s, "given up")
        else:
            recorder.finish(request, 0, id + first_s + rest_s)
    table = recorder.requests()
    table = table if window is None else window.of(table)
    assert bool(stopped) is (int((~met(table, targets)).sum()) > min(allowed, counted))
    assert len(stopped) <= 1


def missed(count: int, share: float, targets: SloTargets) -> tuple[Trace, Missed, list[None]]:
    """Requests of one token, what watches over them, and where it says that it stops."""
    stopped: list[None] = []
    trace = a_trace([1] * count, [0] * count)
    return trace, Missed(trace, MissedMost(share, targets), lambda: stopped.append(None)), stopped


def test_a_rejected_request_is_not_counted():
    trace, watches, stopped = missed(2, 0.0, SloTargets(ttft_s=1.0))
    recorder = Recorder(trace, replicas=1, missed=watches)
    recorder.reject(Request(0, None, 0.0, 1, 1), -1, 0.0, "too long")
    assert not stopped
    recorder.abort(Request(1, None, 1.0, 1, 1), -1, 1.0, "too late")
    assert stopped


def test_a_share_that_is_rounded_down_still_leaves_whole_requests():
    assert 1.0 - 0.9 < 0.1
    _, watches, stopped = missed(10, 1.0 - 0.9, SloTargets())
    watches.ended(0, False, 0.0, 0.0)
    assert not stopped
    watches.ended(1, False, 0.0, 0.0)
    assert stopped


# A run that is ended so

RUN = (
    "workload=synthetic",
    "workload.duration_s=null",
    "workload.requests=300",
    "workload.adapters=8",
    "slo.ttft_s=1",
)


@pytest.mark.parametrize(
    "system, rate", [("slora", 1), ("slora", 12), ("slora_early_abort", 12), ("fastlibra", 3), ("dlora", 12)]
)
def test_a_run_that_is_ended_is_the_beginning_of_the_whole_one(system, rate):
    overrides = [*RUN, f"system={system}", f"workload.arrivals.rate_rps={rate}"]
    whole, ended = simlora.simulate(overrides), simlora.simulate([*overrides, "until_missed=0.05"])
    keeps = whole.summary["slo"]["attainment"] >= 0.95
    assert (ended.summary["slo"]["attainment"] >= 0.95) is keeps
    if keeps:
        assert ended.requests.equals(whole.requests)
        return
    table = ended.requests
    assert (table["status"] == "unfinished").any()
    done = (table["status"] != "unfinished").to_numpy()
    assert table[done].equals(whole.requests[done])
    stopped_s = ended.summary["makespan_s"]
    assert (whole.requests["finish_s"][~done] > stopped_s).all()
    misses = ~met(table[done], SloTargets(ttft_s=1.0))
    assert misses.sum() > 0.05 * len(table)
    assert (misses & (table["finish_s"][done] < stopped_s)).sum() <= 0.05 * len(table)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match="until_missed is"):
        simlora.simulate([f"until_missed={share}"])
