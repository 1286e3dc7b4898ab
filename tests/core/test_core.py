"""The nouns: requests, traces, random streams."""

import numpy as np
import pytest

from simlora.core.adapter import Adapter
from simlora.core.errors import nearest
from simlora.core.random import STREAMS, stream
from simlora.core.request import Request
from simlora.core.trace import AdapterSpec, Trace


def test_a_prefill_processes_the_uncached_prompt():
    request = Request(0, None, 0.0, 100, 50)
    assert request.prefill_tokens == 100
    request.cached_tokens = 60
    assert request.prefill_tokens == 40


def test_after_a_preemption_a_prefill_also_recomputes_what_was_said():
    request = Request(0, None, 0.0, 100, 50)
    request.generated_tokens = 7
    assert request.prefill_tokens == 107
    request.host_tokens = 106
    assert request.prefill_tokens == 1, "its KV was swapped out, but for the last token"


def test_the_base_model_has_rank_zero():
    assert Request(0, None, 0.0, 1, 1).rank == 0
    assert Request(0, Adapter(3, "a", 16, 1024, 64), 0.0, 1, 1).rank == 16


def columns(**changes: list) -> dict:
    return {
        "arrival_s": np.array(changes.get("arrival_s", [0.0, 1.0])),
        "adapter": np.array(changes.get("adapter", [0, -1])),
        "prompt_tokens": np.array([5, 5]),
        "output_tokens": np.array(changes.get("output_tokens", [5, 5])),
        "max_output_tokens": np.array([9, 9]),
        "adapters": (AdapterSpec("a", 8),),
    }


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"arrival_s": [1.0, 0.0]}, "arrivals go back"),
        ({"output_tokens": [5, 10]}, "output over its cap"),
        ({"adapter": [0, 1]}, "adapter index out of range"),
        ({"adapter": [0]}, "another length"),
    ],
)
def test_a_trace_holds_together(changes, says):
    with pytest.raises(AssertionError, match=says):
        Trace(**columns(**changes))


def test_a_trace_lasts_until_its_last_arrival():
    assert Trace(**columns()).duration_s == 1.0
    assert len(Trace(**columns())) == 2


@pytest.mark.parametrize(
    "names, ordered",
    [
        ("a2 a10 a100", "a2 a10 a100"),  # numbered: not sorted at all
        ("a10 a2", "a2 a10"),
        ("a1 a01 a2", "a01 a1 a2"),  # of equal numbers by letters
        ("a2 b1 a10", "a2 a10 b1"),
        ("1a2 1a10 2a1", "1a2 1a10 2a1"),
        ("a10 a", "a a10"),
        ("a a1", "a a1"),
        ("a2 a\u0663", "a2 a\u0663"),  # a digit of other scripts is a letter
        ("a9999999999999999999 a10000000000000000000", "a9999999999999999999 a10000000000000000000"),
    ],
)
def test_adapters_are_in_the_natural_order_of_their_names(names, ordered):
    names, ordered = names.split(), ordered.split()
    numbers = range(len(names))
    trace = Trace(
        **columns()
        | {
            name: np.array([1] * len(names))
            for name in ("prompt_tokens", "output_tokens", "max_output_tokens")
        }
        | {"arrival_s": np.zeros(len(names)), "adapter": np.array(numbers)}
        | {"adapters": tuple(AdapterSpec(name, 8 + at) for name, at in zip(names, numbers, strict=True))}
    )
    assert [spec.name for spec in trace.adapters] == ordered
    assert [trace.adapters[at].name for at in trace.adapter] == names, "a request keeps its adapter"
    assert [trace.adapters[at].rank for at in trace.adapter] == [8 + at for at in numbers]


def test_whole_numbers_take_32_bits_where_they_fit():
    small = Trace(**columns(output_tokens=[9, 9]))
    assert small.prompt_tokens.dtype == small.adapter.dtype == np.int32
    assert small.max_output_tokens is small.output_tokens
    large = Trace(**(columns() | {"max_output_tokens": np.array([9, 1 << 30])}))
    assert (large.output_tokens.dtype, large.max_output_tokens.dtype) == (np.int32, np.int64)
    assert large.max_output_tokens.tolist() == [9, 1 << 30]


def test_streams_do_not_depend_on_each_other():
    draws = {name: stream(7, name).random(4).tolist() for name in STREAMS}
    assert len({tuple(draw) for draw in draws.values()}) == len(STREAMS)
    assert stream(7, "router").random(4).tolist() == draws["router"]
    assert stream(8, "router").random(4).tolist() != draws["router"]


def test_a_stream_has_a_name_from_the_list():
    with pytest.raises(ValueError, match="not in"):
        stream(7, "weather")


def test_old_streams_keep_their_place():
    """A new stream goes to the end: this draw must never change."""
    assert STREAMS[0] == "arrivals"
    assert stream(0, "arrivals").integers(10**6) == np.random.default_rng(
        np.random.SeedSequence(0).spawn(1)[0]
    ).integers(10**6)


def test_the_nearest_names_are_offered():
    assert nearest("fcsf", ["fcfs", "lcfs", "credit"]) == "did you mean fcfs or lcfs?"
    assert nearest("zzz", ["fcfs", "lcfs"]) == "choose one of fcfs, lcfs"
