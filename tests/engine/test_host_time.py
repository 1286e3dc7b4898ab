"""What an engine's host adds to its iterations: here for the list of all adapters, for each adapter of a step."""

from dataclasses import replace

import pytest

from simlora.engine.cluster.simulation import Simulation
from tests.engine.cases import COEFFICIENTS, Case, Row

LIST_S = 2**-12
ROWS = (Row(0.0, 0, 4, 5, 5), Row(2**-10, 0, 4, 3, 3))
"""Five iterations: a prefill, a pass of both, and three steps. One adapter of three."""
CASE = Case(rows=ROWS, scheduler="chunked_prefill", loader="cached", max_wait_tokens=0)
TWO_ON_HOST = CASE.but(
    adapter_memory="slots", max_loras=2, adapter_region_tokens=2 * 16, max_cpu_loras=2, eviction="lru"
)


def later_s(case: Case) -> list[float]:
    """By how many times LIST_S the requests finish later when the manager lists."""
    free, listing = (
        case.but(coefficients=COEFFICIENTS | {"lora_manager.per_listed_adapter_s": each_s}).table().finish_s
        for each_s in (0.0, LIST_S)
    )
    return ((listing - free) / LIST_S).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("case", "iterations"),
    [
        (CASE, 5),
        (CASE.but(speculative_tokens=1, acceptance=1.0), 3),
        (CASE.but(lora_server_gpus=1, network_bytes_per_s=2.0**40), 5),
        (CASE.but(stragglers=((0, 0.0, None, 1.0),)), 5),
    ],
    ids=["plain", "speculative", "LoRA server", "straggler"],
)
def test_the_list_of_three_adapters_is_made_in_every_iteration_whatever_runs_it(case, iterations):
    assert max(later_s(case)) == pytest.approx(3 * iterations, abs=1e-6)


def test_it_is_made_for_each_adapter_of_an_iteration_of_those_that_the_host_holds():
    """Three steps of one adapter; then, together, a prefill and a step of two others, when the third is known too."""
    rows = (Row(0.0, 0, 4, 3, 3), Row(50.0, 1, 4, 2, 2), Row(50.0, 2, 4, 2, 2))
    assert later_s(CASE.but(rows=rows)) == pytest.approx([3 * 3, 3 * 2 * 2, 3 * 2 * 2], abs=1e-6)
    assert later_s(TWO_ON_HOST.but(rows=rows)) == pytest.approx([2 * 3, 2 * 2 * 2, 2 * 2 * 2], abs=1e-6)


def test_an_engine_whose_manager_does_not_list_takes_no_longer():
    lists = CASE.but(coefficients=COEFFICIENTS | {"lora_manager.per_listed_adapter_s": LIST_S}).scenario()
    never = Simulation(replace(lists, listed_adapters=0)).run().requests()
    assert never.finish_s.tolist() == CASE.table().finish_s.tolist()


def test_adapters_of_requests_that_still_load_are_not_of_the_iteration():
    """A prefill and eight steps with one adapter, while the second's is on its way, and the prefill of the second."""
    rows = (Row(0.0, 0, 4, 9, 9), Row(2**-10, 2, 4, 1, 1))
    assert later_s(CASE.but(rows=rows, scheduler="fcfs", loader="asynchronous"))[0] == pytest.approx(
        3 * 10, abs=1e-6
    )


def test_it_hides_behind_what_another_engine_does_on_the_gpu():
    """Only the first engine's prefill is launched while the other one has no work."""
    rows = (Row(0.0, 0, 4, 4, 4), Row(0.0, 1, 4, 4, 4))
    case = CASE.but(rows=rows, replicas=2, engines_per_gpu=2)
    assert later_s(case) == pytest.approx([3, 0], abs=1e-6)
