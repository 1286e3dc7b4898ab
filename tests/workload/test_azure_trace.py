"""The Azure LLM trace, as published."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL
from simlora.workload.azure import AzureLlm
from simlora.workload.by_rank import ShiftingSkew
from simlora.workload.popularity import Power, Uniform

ROWS = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51,879,0
2023-11-16 18:16:46.6805900,91,16
2023-11-16 18:17:46.6805901,2000,1000
"""
PUBLISHED = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces")) / "azure_llm_2023_conv.csv"


@pytest.fixture
def azure(tmp_path):
    file = tmp_path / "azure.csv"
    file.write_text(ROWS)
    return AzureLlm(str(file), Uniform(), adapters=10, ranks=[8, 16])


def test_arrivals_count_from_the_first_row_to_the_100_nanoseconds(azure):
    assert azure.build(0).arrival_s.tolist() == [0.0, 4.314579, 60.0, 120.0000001]


def test_lengths_are_the_trace_s(azure):
    trace = azure.build(0)
    assert trace.prompt_tokens.tolist() == [374, 396, 91, 2000]
    assert trace.output_tokens.tolist() == trace.max_output_tokens.tolist() == [44, 109, 16, 1000]


def test_rows_without_tokens_are_dropped_with_a_notice(azure):
    assert azure.build(0).notices == (
        f"{azure.path}: 1 of 5 rows have no prompt or no output tokens and were dropped.",
    )


def test_longer_rows_are_dropped_with_a_notice(azure):
    trace = replace(azure, prompt_tokens_max=1024, output_tokens_max=50).build(0)
    assert trace.prompt_tokens.tolist() == [374, 91]
    assert trace.notices[1] == (
        f"{azure.path}: 2 of 5 rows exceed workload.prompt_tokens_max or workload.output_tokens_max and were dropped."
    )


def test_a_window_starts_the_clock(azure):
    trace = replace(azure, start_s=4, duration_s=100).build(0)
    assert trace.arrival_s == pytest.approx([0.314579, 56.0])


def test_speedup_squeezes_time_and_nothing_else(azure):
    plain, fast = azure.build(0), replace(azure, speedup=2).build(0)
    assert np.array_equal(fast.arrival_s, plain.arrival_s / 2)
    assert np.array_equal(fast.output_tokens, plain.output_tokens)


def test_unsorted_rows_are_sorted_with_a_notice(azure):
    lines = ROWS.splitlines()
    Path(azure.path).write_text("\n".join([lines[0], lines[2], lines[1]]))
    trace = azure.build(0)
    assert trace.output_tokens.tolist() == [44, 109]
    assert trace.notices == (
        f"{azure.path}, row 3: TIMESTAMP goes back, once in the file; the rows were sorted by it.",
    )


def test_popularity_drifts_from_the_window_s_start_to_its_last_request(azure):
    drifting = replace(azure, popularity=ShiftingSkew(azure.ranks, 1.0))
    trace = drifting.build(0)
    assert [trace.adapters[i].rank for i in trace.adapter[[0, -1]]] == [16, 8]
    fast = replace(drifting, speedup=3).build(0)
    assert np.array_equal(fast.adapter, trace.adapter)
    assert len(replace(drifting, duration_s=1).build(0)) == 1


def test_adapters_are_drawn_with_the_run_s_seed(azure):
    assert azure.build(1).adapter.tolist() == azure.build(1).adapter.tolist()
    assert len({tuple(azure.build(seed).adapter.tolist()) for seed in range(20)}) > 10
    assert set(replace(azure, popularity=Power(0.001)).build(1).adapter.tolist()) == {0}
    assert [spec.rank for spec in azure.build(1).adapters[:3]] == [8, 16, 8]


def test_no_adapters_is_the_base_model(azure):
    trace = replace(azure, adapters=0).build(1)
    assert (trace.adapters, set(trace.adapter.tolist())) == ((), {BASE_MODEL})


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published trace is not here; set SIMLORA_TRACE_DIR")
def test_the_published_file():
    whole = AzureLlm(str(PUBLISHED), Uniform())
    trace = whole.build(0)
    assert len(trace) == 19_366
    assert trace.notices == ()
    assert trace.duration_s == pytest.approx(3501.72, abs=0.01)
    assert trace.prompt_tokens.mean() == pytest.approx(1154.7, abs=0.05)
    assert trace.output_tokens.mean() == pytest.approx(211.1, abs=0.05)
    # LoRAServe's filter leaves what it says
    assert len(replace(whole, prompt_tokens_max=1024, output_tokens_max=256).build(0)) == 8_246


def test_a_missing_file_says_how_to_get_it():
    with pytest.raises(InputError) as error:
        AzureLlm("traces/gone.csv", Uniform()).build(0)
    assert str(error.value) == (
        "traces/gone.csv does not exist; get AzureLLMInferenceTrace_conv.csv from Azure/AzurePublicDataset on GitHub, "
        "save it under that name, and set SIMLORA_TRACE_DIR to its folder or workload.path to the file"
    )


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            "2023-11-16 18:15:51,",
            "yesterday,",
            "row 4: TIMESTAMP is 'yesterday', must be a time such as 2023-11-16",
        ),
        ("2023-11-16 18:15:51,", ",", "row 4: TIMESTAMP is empty, must be a time"),
        (",879,0", ",-879,0", "row 4: ContextTokens is -879, must be a whole number of tokens, at least 0"),
        (",879,0", ",879,0.5", "row 4: GeneratedTokens is 0.5, must be a whole number"),
        (
            "ContextTokens",
            "ContextToken",
            "has a column 'ContextToken', which is unknown; did you mean ContextTokens",
        ),
    ],
)
def test_a_bad_file_is_refused(azure, old, new, message):
    Path(azure.path).write_text(ROWS.replace(old, new))
    with pytest.raises(InputError, match=message):
        azure.build(0)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"speedup": 0}, "workload.speedup is 0, must be greater than 0"),
        ({"start_s": -1}, "workload.start_s is -1, must be at least 0 seconds"),
        ({"duration_s": 0}, "workload.duration_s is 0, must be greater than 0 seconds"),
        ({"prompt_tokens_max": 0}, "workload.prompt_tokens_max is 0"),
        ({"popularity": Power(0)}, "workload.popularity.alpha is 0"),
        ({"ranks": [9999]}, r"workload.ranks\[0\] is 9999"),
        ({"adapters": None}, "workload.adapters is empty"),
        ({"path": None}, "workload.path is not set"),
        ({"start_s": 500}, "has no requests left after workload.start_s.* it covers 120 seconds"),
        ({"output_tokens_max": 1}, "has no requests left after"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(azure, setting, message):
    with pytest.raises(InputError, match=message):
        replace(azure, **setting).build(0)
