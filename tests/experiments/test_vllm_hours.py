"""What hours say of their steps, and what their clients saw of an API server whose metrics were read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.fidelity.vllm import hours, misses, predict
from experiments.fidelity.vllm.predict import Row, overrides
from experiments.fidelity.vllm.scrapes import MERGED, NAME_S, SERIES_S, Scrapes, scrapes, series
from experiments.scenarios import scenario
from simlora.latency import calibration as calibrations
from tests.experiments.test_fidelity_vllm import a_row

BASE = {
    "decode.intercept_s": 0.0115,
    "decode.per_sequence_s": 2.5e-5,
    "decode.per_context_token_s": 8e-8,
    "prefill.pass_s_by_tokens.512": 0.0115,
    "prefill.pass_s_by_tokens.2048": 0.054,
    "host.per_sequence_s": 1.6e-5,
    "adapter_load.latency_s": 0.005,
    "adapter_load.bytes_per_s": 5.5e10,
    "adapter_load.disk_latency_s": 0.018,
}
LORA = {
    "kernels.vllm.intercept_s": 1.5e-3,
    "kernels.vllm.per_token_s": 1.2e-5,
    "kernels.vllm.per_slot_s": 1.1e-5,
    "kernels.vllm.per_slot_rank_s": 7e-7,
    "kernels.vllm.per_adapter_s": 3.5e-4,
    "kernels.vllm.few_tokens.per_adapter_s": 1.8e-4,
    "kernels.vllm.few_tokens.per_adapter_rank_s": 1e-5,
    "lora_manager.per_listed_adapter_s": 1.5e-7,
}


def with_columns(row: Row, **columns: float) -> Row:
    """A row that has these columns, too."""
    return replace(
        row, columns={**row.columns, **{name: repr(float(value)) for name, value in columns.items()}}
    )


def an_hour(
    folder: Path, running: float, slots: int, rank: int, adapters: int | None = None, **figures: str
) -> Row:
    """A row in which so many requests run, each token of which takes the step of BASE and LORA.

    None: there are as many adapters as slots.
    """
    adapters = adapters or slots
    own = a_row(
        folder,
        max_loras=str(slots),
        max_cpu_loras=str(adapters),
        max_lora_rank=str(rank),
        adapters=str(adapters),
        rate_counts=f"{adapters - adapters // 3} {adapters // 3}",
        **figures,
    )

    def row(token_s: float) -> Row:
        figures = {"output_tokens_per_s": running / token_s, "itl_mean_ms": 1000 * token_s}
        totals = {"prompt_tokens": 22000, "output_tokens": 20000}
        return replace(
            with_columns(own, tpot_mean_ms=1000 * token_s, **totals), measured=own.measured | figures
        )

    steps = hours.drawn(row(0.05))
    lora_s = sum(each_s * hours.added_s(steps, row(0.05), name) for name, each_s in LORA.items())
    return row((hours.base_s(steps, BASE) + lora_s) / (1 - hours.loading(row(0.05), BASE)))


def test_the_coefficients_of_a_machine_are_found_again_in_its_hours(tmp_path: Path) -> None:
    cases = [
        (2, 6, 16),
        (20, 30, 16),
        (20, 30, 32),
        (30, 90, 16, 270),
        (60, 96, 32),
        (110, 24, 16),
        (300, 48, 32),
        (600, 96, 16),
    ]
    past = {"ttft_mean_ms": "9000"}
    rows = [an_hour(tmp_path, *case, **(past if case[0] > 128 else {})) for case in cases]
    found = hours.coefficients({"llama_3_1_8b": rows}, {"llama_3_1_8b": BASE})
    assert found["llama_3_1_8b"] == pytest.approx(LORA, rel=0.02)


def test_models_share_what_a_launch_costs_in_each_layer(tmp_path: Path) -> None:
    cases = ((2, 6, 16), (20, 30, 32), (30, 90, 16, 270), (60, 96, 32), (110, 24, 16))
    rows = [an_hour(tmp_path, *case) for case in cases]
    other = [replace(row, columns={**row.columns, "model": "qwen-2.5-7b-instruct"}) for row in rows]
    found = hours.coefficients(
        {"llama_3_1_8b": rows, "qwen_2_5_7b": other}, {"llama_3_1_8b": BASE, "qwen_2_5_7b": BASE}
    )
    for name in LORA.keys() - {*hours.OWN, hours.LISTS}:
        assert found["qwen_2_5_7b"][name] / 28 == pytest.approx(found["llama_3_1_8b"][name] / 32)
    assert found["qwen_2_5_7b"][hours.LISTS] == found["llama_3_1_8b"][hours.LISTS] > 0


def test_an_adapter_is_loaded_when_as_many_others_as_there_are_slots_came_since_its_last_request(
    tmp_path: Path,
) -> None:
    row = an_hour(tmp_path, 3, 4, 16, 12)
    trace = scenario(overrides(row)).trace.adapter.tolist()
    last: dict[int, int] = {}
    loads = 0
    for at, adapter in enumerate(trace):
        loads += adapter not in last or len(set(trace[last[adapter] + 1 : at])) >= 4
        last[adapter] = at
    assert len(set(trace)) < loads < len(trace)
    load = {
        "adapter_load.latency_s": 0.25,
        "adapter_load.bytes_per_s": np.inf,
        "adapter_load.disk_latency_s": 0.5,
    }
    assert hours.loading(row, load) == pytest.approx((0.25 * loads + 0.5 * len(set(trace))) / row.duration_s)


def test_all_adapters_are_listed_for_each_one_of_a_step(tmp_path: Path) -> None:
    steps = [
        hours.Step(running=1, context_tokens=100, prompt_tokens=0, adapters=adapters) for adapters in (1, 4)
    ]
    assert hours.added_s(steps, an_hour(tmp_path, 3, 4, 16, 12), hours.LISTS) == pytest.approx(2.5 * 12)


def test_hours_whose_adapters_take_turns_in_idle_slots_are_read_too(tmp_path: Path) -> None:
    turns, full = (an_hour(tmp_path, running, 40, 16, 60) for running in (20, 200))
    assert (hours.takes_turns(turns), hours.takes_turns(full)) == (True, False)
    plan = {"hours": {"llama_3_1_8b": [{"max_loras": 40}]}}
    assert hours.chosen([turns, full], "llama_3_1_8b", plan) == [turns]


def test_a_step_holds_what_littles_law_and_the_totals_of_the_row_say(tmp_path: Path) -> None:
    row = an_hour(tmp_path, 40.0, 12, 16)
    steps = hours.drawn(row)
    assert hours.running(row) == pytest.approx(40)
    assert np.mean([step.running for step in steps]) == pytest.approx(40, rel=0.03)
    prompt_tokens = np.mean([step.prompt_tokens for step in steps])
    assert prompt_tokens == pytest.approx(40 * 22 / 20, rel=0.15), "as many for a token as in the row"
    assert max(step.running + step.prompt_tokens for step in steps) <= predict.STEP_TOKENS
    assert all(1 <= step.adapters <= 12 for step in steps)
    assert hours.drawn(row) == steps


def test_the_time_of_a_token_is_the_client_s_mean_where_scrapes_merge_no_chunks(tmp_path: Path) -> None:
    row = with_columns(a_row(tmp_path, itl_mean_ms="50", output_tokens_per_s="1000"), tpot_mean_ms=40)
    assert hours.token_s(row) == 0.04
    assert hours.token_s(replace(row, measured=row.measured | {"output_tokens_per_s": 4000.0})) == 0.05


def test_hours_that_simlora_simulates_have_the_steps_of_its_calibration(tmp_path: Path) -> None:
    """The content that the figures imply is that of the simulated steps: to 4 % of a step."""
    row = a_row(tmp_path, max_loras="6", rate_values="0.5 2", duration_s="600")
    requests = predict.Simulation(predict.scenario(predict.overrides(row))).run().requests()
    done = requests[requests["status"] == "finished"]
    token_ms = 1000 * float(done["tpot_s"].mean())
    rates = {"output_tokens_per_s": float(done["output_tokens"].sum()) / 600, "itl_mean_ms": token_ms}
    totals = {name: float(done[name].sum()) for name in ("prompt_tokens", "output_tokens")}
    measured = replace(with_columns(row, tpot_mean_ms=token_ms, **totals), measured=row.measured | rates)
    assert hours.errors([measured], calibrations.load(row.calibration)) == pytest.approx([0], abs=0.04)


def test_hours_of_a_plan_have_a_slot_for_each_adapter_in_use_and_the_pool_that_they_name(
    tmp_path: Path,
) -> None:
    full, few = a_row(tmp_path, max_loras="6"), a_row(tmp_path, max_loras="4")
    plan = {"hours": {"llama_3_1_8b": [{"module_ranks": "8 8 16"}]}}
    assert hours.chosen([full, few], "llama_3_1_8b", plan) == [full]
    assert hours.chosen([full], "qwen_2_5_7b", {"hours": {"qwen_2_5_7b": [{"module_ranks": "8 8 16"}]}}) == []
    smaller = replace(full, place=f"runs.csv line {hours.LINES[0]}")
    assert hours.chosen([smaller], "llama_3_1_8b", plan) == []


def requests(*rows: tuple[str, float, float, float, float, int]) -> pd.DataFrame:
    """Requests: adapter, arrival, admission, first token, finish, output tokens."""
    names = ["adapter", "arrival_s", "admitted_s", "first_token_s", "finish_s", "output_tokens"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(tpot_s=(table["finish_s"] - table["first_token_s"]) / (table["output_tokens"] - 1))


def test_a_series_is_a_pair_of_sets_that_was_not_there_before() -> None:
    run = requests(
        ("a", 0.0, 0.1, 0.2, 1.0, 9),  # a waits, a runs
        ("b", 0.5, 0.6, 0.7, 1.5, 9),  # b waits while a runs, both run, then b alone
        ("a", 1.1, 1.2, 1.3, 2.0, 9),  # a waits while b runs, both run again: known; then a alone: known, too
        ("a", 1.8, 1.9, 2.1, 2.2, 9),  # a waits while a runs; the last finish leaves none
    )
    seen_s, running = series(run)
    assert seen_s.tolist() == [0.1, 0.2, 0.6, 0.7, 1.0, 1.2, 1.9, 2.2]
    assert running.tolist() == [0, 1, 1, 2, 1, 1, 1, 0]


def test_a_scrape_takes_as_long_as_the_series_that_there_are() -> None:
    run = requests(("a", 0.0, 0.1, 0.2, 1.0, 9), ("b", 0.5, 0.6, 0.7, 1.5, 9))
    found = scrapes(run, duration_s=3.0, interval_s=0.5)
    assert found.begin_s.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert found.end_s[0] - 0.5 == pytest.approx(2 * SERIES_S + NAME_S)


def test_what_comes_during_a_scrape_waits_for_its_end() -> None:
    during = Scrapes(np.array([1.0, 2.0]), np.array([1.4, 2.5]))
    assert during.late_s(np.array([0.5, 1.0, 1.3, 1.5, 2.1])) == pytest.approx([0, 0.4, 0.1, 0, 0.4])
    run = requests(("a", 1.3, 1.4, 2.0, 3.0, 9))
    assert during.first_token_late_s(run) == pytest.approx([0.1 + 0.4]), (
        "0.1 s late, so that 2.1 is in the next"
    )


def test_tokens_of_a_scrape_are_one_chunk_unless_steps_have_too_many_outputs() -> None:
    during = Scrapes(np.array([1.0]), np.array([1.5]))
    each = ("a", 0.0, 0.0, 0.5, 2.5, 21)  # a token each 0.1 s
    assert during.merged_tokens(requests(each, each)) == pytest.approx(2 * (5 - 1))
    assert during.merged_tokens(requests(*[each] * MERGED)) == pytest.approx(MERGED * 4)
    assert during.merged_tokens(requests(*[each] * (MERGED + 1))) == 0
    slow = ("a", 0.0, 0.0, 0.5, 2.5, 3)  # a token each second: the scrape has none of them, or one
    assert during.merged_tokens(requests(slow)) == 0
    assert during.merged_tokens(requests(("a", 0.0, 0.0, 0.5, 0.9, 5))) == 0, "finished before"


def test_loads_and_lists_are_told_apart() -> None:
    loads, lists = np.array([0.5, 1.0, 3.0]), np.array([9e4, 2e4, 5e4])
    assert misses.both_s(loads, lists, 0.007 * loads + 2e-7 * lists) == pytest.approx((0.007, 2e-7))
    assert misses.alone_s(loads, 0.02 * loads) == pytest.approx((0.02, 0.0))
    assert misses.alone_s(np.ones(2), np.array([0.03, 0.01])) == pytest.approx((0.02, 0.01))
