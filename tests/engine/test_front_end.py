"""The front end: every request later, and the first one of each adapter in its way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.engine.cluster.front_end import FrontEnd
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Row
from tests.engine.test_slots import CASE

ADAPTER_S = 2**-2
REQUEST_S = 2**-7


def front_end(reads: bool = True, **coefficients: float) -> FrontEnd:
    named = {f"front_end.{name}": value for name, value in coefficients.items()}
    case = CASE.but(rows=(Row(0.0, 0, 4, 1, 1),), adapter_tokenizers=reads, coefficients=C | named)
    return FrontEnd(case.scenario())


def adapter(id: int) -> Adapter:
    return Adapter(id, str(id), 8, 64, 1)


def test_the_first_request_of_an_adapter_holds_up_those_behind_it_and_no_later_one_does():
    server = front_end(per_request_s=REQUEST_S, per_adapter_s=ADAPTER_S)
    assert server.enter(0.0, adapter(0)) == ADAPTER_S + REQUEST_S
    assert server.enter(0.125, adapter(0)) == ADAPTER_S + REQUEST_S, "waits for what it has in common"
    assert server.enter(0.125, adapter(1)) == 2 * ADAPTER_S + REQUEST_S, "one after the other"
    assert server.enter(0.25, None) == 2 * ADAPTER_S + REQUEST_S, "the base model's waits too"
    assert server.enter(1.0, adapter(1)) == 1.0 + REQUEST_S


def test_without_tokenizers_of_their_own_no_adapter_holds_up_anything():
    server = front_end(reads=False, per_request_s=REQUEST_S, per_adapter_s=ADAPTER_S)
    assert [server.enter(0.0, adapter(id)) for id in (0, 1)] == [REQUEST_S] * 2


@pytest.mark.parametrize("per_adapter_s", [0.0, ADAPTER_S])
@given(rows=st.lists(st.tuples(st.integers(0, 40), st.integers(-1, 2)), min_size=1, max_size=30))
def test_a_trace_enters_as_its_requests_do_one_after_the_other(per_adapter_s, rows):
    rows.sort(key=lambda row: row[0])
    case = CASE.but(rows=tuple(Row(at / 16, None if id < 0 else id, 4, 1, 1) for at, id in rows))
    trace = case.scenario().trace
    one_by_one = front_end(per_request_s=REQUEST_S, per_adapter_s=per_adapter_s)
    all_at_once = front_end(per_request_s=REQUEST_S, per_adapter_s=per_adapter_s)
    adapters = {id: adapter(id) for id in range(3)}
    expected = [one_by_one.enter(at / 16, adapters.get(id)) for at, id in rows]
    assert all_at_once.enter_all(trace).tolist() == expected
