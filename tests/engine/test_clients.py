"""Clients that wait for a turn, leave and try again: against the run of the trace, and by hand."""

import math
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.engine.clients import Clients
from simlora.engine.cluster.client_simulation import ClientSimulation
from simlora.engine.cluster.simulation import Simulation
from tests.engine.by_hand import prefill_s, steps_s
from tests.engine.cases import Case, Row, apart, cases, family
from tests.engine.observing import assert_identical
from tests.engine.test_driven import CASE, CHANGING, ROWS
from tests.engine.test_fast_forward import assert_same
from tests.engine.test_queueing import ONE_SERVER, SEATS, TOKEN_S, answers, arrivals, exponential, prompts
from tests.examples import share

MANY = Clients(outstanding=10**6)


def played(case: Case, clients: Clients, fast_forward: bool = True) -> ClientSimulation:
    simulation = ClientSimulation(replace(case.scenario(fast_forward=fast_forward), clients=clients))
    simulation.run()
    return simulation


def calls(simulation: ClientSimulation) -> pd.DataFrame:
    return pd.DataFrame(simulation.calls())


def played_again(ours: ClientSimulation, case: Case) -> None:
    """What was sent gives the same run again."""
    again = Simulation(replace(case.scenario(), trace=ours.trace()))
    again.run()
    assert_identical(ours, again)


# Against the run of the trace ---------------------------------------------------------------


@given(
    case=st.one_of(cases(max_outstanding=(None, 1, 2)), apart(max_outstanding=(None, 1, 2))),
    outstanding=st.integers(1, 4),
    think_s=st.sampled_from((0.0, 0.25)),
    retries=st.integers(0, 2),
)
@share(1 / 3)
def test_what_was_sent_gives_the_same_run_again(case, outstanding, think_s, retries):
    """And clients without limits send the trace."""
    assert_identical(played(case, MANY), case.simulation())
    played_again(played(case, Clients(outstanding=outstanding, think_s=think_s, retries=retries)), case)


def test_no_forecast_loads_an_adapter_after_the_last_request():
    case = CASE.but(rows=(Row(0.0, 0, 1, 1, 1),), loader="predictive", prefill_replicas=1, replicas=2)
    ours = played(case, MANY)
    assert_identical(ours, case.simulation())
    assert (ours.recorder.adapter_loads, ours.fleet.replicas[0].kv.adapters.ready_s) == (1, {})


@pytest.mark.parametrize(
    "changes",
    [*CHANGING[::2], {"scheduler": "early_abort", "ttft_targets_s": (0.3, 0.3, 0.3)}],
    ids=", ".join,
)
def test_so_it_does_where_the_cluster_changes_meanwhile(changes):
    case = CASE.but(rows=ROWS, **changes)
    ours = played(case, Clients(outstanding=3, think_s=0.125, retries=2))
    played_again(ours, case)
    assert set(calls(ours)["status"]) <= {"answered", "gave up"}


@given(
    case=family(loaders=("blocking", "cached", "asynchronous")),
    patience_s=st.sampled_from((0.01, 0.1, 0.5, 2.0)),
    retries=st.integers(0, 2),
    outstanding=st.sampled_from((None, 3)),
)
@share(1 / 3)
def test_iterations_taken_together_change_nothing(case, patience_s, retries, outstanding):
    clients = Clients(patience_s=patience_s, retries=retries, outstanding=outstanding)
    fast, plain = played(case, clients), played(case, clients, fast_forward=False)
    assert_same(fast, plain)
    pd.testing.assert_frame_equal(calls(fast), calls(plain), check_exact=True)
    pd.testing.assert_frame_equal(fast.requests(), plain.requests(), check_exact=True)


# Laws ---------------------------------------------------------------------------------------


@given(
    case=cases(max_outstanding=(None, 1)),
    outstanding=st.integers(1, 3),
    patience_s=st.sampled_from((None, 0.1)),
    retries=st.integers(0, 2),
)
@share(1 / 3)
def test_every_call_ends_and_no_more_are_under_way_than_may_be(case, outstanding, patience_s, retries):
    clients = Clients(outstanding=outstanding, patience_s=patience_s, retries=retries)
    simulation = played(case, clients)
    found, attempts = calls(simulation), simulation.requests()
    assert len(found) == len(case.rows)
    assert set(found["status"]) <= {"answered", "gave up"}
    assert found["attempts"].sum() == len(attempts)
    assert found["attempts"].between(1, retries + 1).all()
    answered = found[found["status"] == "answered"]
    assert (attempts.loc[answered["request_id"], "status"] == "finished").all()
    assert (answered["ttft_s"] <= answered["latency_s"]).all()
    assert (found["sent_s"] >= found["arrival_s"]).all()
    assert found["sent_s"].is_monotonic_increasing, "in the order of the workload"
    if patience_s is None:
        ends = attempts["finish_s"].fillna(attempts["arrival_s"]).to_numpy()
        for at_s in attempts["arrival_s"]:
            assert ((attempts["arrival_s"] <= at_s) & (ends > at_s)).sum() <= outstanding
    else:
        begun = answered["ttft_s"][answered["attempts"] == 1]
        assert (begun <= patience_s * (1 + 1e-12)).all()


# By hand ------------------------------------------------------------------------------------


def test_a_client_that_waits_in_vain_leaves_and_the_next_one_has_its_turn():
    """One seat: the second request waits for it for half of the first's time, and the third for the rest of it."""
    first_s = prefill_s(4) + steps_s(49, 5)
    later = (Row(0.0, None, 4, 5, 5), Row(0.75 * first_s, None, 4, 5, 5))
    case = CASE.but(rows=(Row(0.0, None, 4, 50, 50), *later), max_num_seqs=1)
    simulation = played(case, Clients(patience_s=0.5 * first_s))
    found, attempts = calls(simulation), simulation.requests()
    assert found["status"].tolist() == ["answered", "gave up", "answered"]
    assert found["abandoned"].tolist() == [0, 1, 0]
    assert found["ttft_s"][2] == pytest.approx(0.25 * first_s + prefill_s(4))
    assert attempts["status"].tolist() == ["finished", "aborted", "finished"]
    assert attempts["reason"][1] == "the client has gone"


def test_a_prompt_that_is_being_processed_when_its_client_leaves_is_aborted_too():
    """The GPU goes on to its end, so that the other request waits for that."""
    case = CASE.but(rows=(Row(0.0, None, 40, 5, 5), Row(0.0, None, 4, 2, 2)), max_num_batched_tokens=40)
    simulation = played(case, Clients(patience_s=0.5 * prefill_s(40)))
    assert simulation.requests()["status"].tolist() == ["aborted", "aborted"]
    assert simulation.recorder.requests()["output_tokens"][0] == 1
    assert math.isnan(simulation.requests()["ttft_s"][0])
    assert simulation.clock.now == pytest.approx(prefill_s(40))


@pytest.mark.parametrize(("retries", "sent_s"), [(2, [0.0, 0.5, 1.5]), (9, [0.0, 0.5, 1.5, 3.5])])
def test_waits_between_retries_double(retries, sent_s):
    """A cluster that takes one request is busy for 3 s: the other client comes back after 0.5, 1 and 2 s."""
    per_token_s = 3.0 / 1000
    case = ONE_SERVER.but(
        rows=(Row(0.0, None, 1000, 1, 1), Row(0.0, None, 1, 1, 1)),
        max_outstanding=1,
        coefficients={**ONE_SERVER.coefficients, "prefill.per_token_s": per_token_s},
    )
    simulation = played(case, Clients(retries=retries, backoff_jitter=0.0))
    found, attempts = calls(simulation), simulation.requests()
    assert attempts["arrival_s"].tolist()[1:] == pytest.approx(sent_s)
    assert found["status"].tolist() == ["answered", "answered" if retries == 9 else "gave up"]


def test_waits_grow_no_longer_than_the_most_and_are_shorter_by_chance_at_most_by_the_jitter():
    clients = Clients(retries=10_000, backoff_s=0.5, backoff_most_s=8.0, backoff_jitter=0.25)
    assert [clients.backoff(retry, 0.0) for retry in (1, 2, 5, 6, 10_000)] == [0.5, 1.0, 8.0, 8.0, 8.0]
    assert clients.backoff(3, 1.0) == 1.5


@pytest.mark.parametrize(
    ("adapter_rps", "sent_s", "status"),
    [
        (0.25, [0.0, 4.0], "answered"),
        (0.4, [0.0, 3.0], "answered"),
        (16.0, [0.0, 1.0], "answered"),
        (1 / 121, [0.0], "gave up"),
    ],
    ids=["as long as it was told", "in whole seconds", "one at least", "not for more than two minutes"],
)
def test_a_client_beyond_the_rate_limit_comes_back_when_it_was_told_to(adapter_rps, sent_s, status):
    """Not after its own backoff; beside it a request takes the only token."""
    case = CASE.but(
        rows=(Row(0.0, 0, 4, 1, 1), Row(0.0, 0, 4, 1, 1)), adapter_rps=adapter_rps, adapter_burst=1
    )
    simulation = played(case, Clients(retries=3))
    assert simulation.requests()["arrival_s"].tolist()[1:] == pytest.approx(sent_s)
    assert calls(simulation)["status"].tolist() == ["answered", status]


def test_what_no_replica_could_serve_is_not_sent_again():
    case = CASE.but(rows=(Row(0.0, None, 100, 5, 5), Row(0.0, None, 4, 2, 2)), capacity=60)
    found = calls(played(case, Clients(retries=5)))
    assert found["attempts"].tolist() == [1, 1]
    assert found["status"].tolist() == ["gave up", "answered"]


def test_a_run_that_ends_before_leaves_calls_unfinished():
    found = calls(played(CASE.but(rows=ROWS, until_s=0.3), Clients(outstanding=1)))
    assert found["status"].tolist()[-1] == "unfinished"
    assert found["attempts"].tolist()[-1] == 0
    assert math.isnan(found["sent_s"].tolist()[-1])


def test_the_run_of_a_trace_has_no_clients_that_react():
    with pytest.raises(AssertionError, match="clients that react need a ClientSimulation"):
        Simulation(replace(CASE.scenario(), clients=Clients(retries=1))).run()


# A server with a queue, request by request --------------------------------------------------


@pytest.mark.parametrize(("outstanding", "think_s"), [(1, 2.0), (8, 3.0)])
def test_a_closed_loop_sends_each_request_when_a_client_has_thought(outstanding, think_s):
    """Before one server, as many clients as may be outstanding: the client that has thought for longest sends next."""
    services, free_s, expected_s = exponential(np.random.default_rng(1), 1000), 0.0, []
    thought_s = [0.0] * outstanding
    for tokens in services:
        expected_s.append(heappop(thought_s))
        free_s = max(free_s, expected_s[-1]) + tokens * TOKEN_S
        heappush(thought_s, free_s + think_s)
    case = prompts([0.0] * len(services), services)
    sent_s = calls(played(case, Clients(outstanding=outstanding, think_s=think_s)))["sent_s"]
    np.testing.assert_allclose(sent_s, expected_s, rtol=0, atol=1e-6)


def test_those_leave_a_queue_who_would_wait_for_longer_than_their_patience():
    """One seat, of which requests ask for half as much time again as there is; a client that leaves takes none."""
    rng, patience_s = np.random.default_rng(1), 2.0
    services, arrival_s = exponential(rng, 2000), arrivals(rng, 1.5, 2000)
    free_s, leaves = 0.0, []
    for at_s, tokens in zip(arrival_s, services, strict=True):
        leaves.append(int(free_s - at_s > patience_s))
        free_s = max(free_s, at_s) + tokens * TOKEN_S * (1 - leaves[-1])
    case = SEATS.but(rows=answers(arrival_s, services), max_num_seqs=1)
    assert calls(played(case, Clients(patience_s=patience_s)))["abandoned"].tolist() == leaves
    assert 500 < sum(leaves) < 1000
