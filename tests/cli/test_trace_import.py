"""simlora-trace import, as a user types it: what each tool's log becomes, and every fault of a bad one in one table."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simlora.cli.trace import main
from simlora.core.trace import Trace
from simlora.workload.file import File

Capture = pytest.CaptureFixture[str]
Row = dict[str, Any]
BASE = "meta-llama/Llama-3.1-8B"
T = 1_769_860_800
"""Seconds since 1970."""
RANKS = "adapter,rank\nsql,16\nlegal,64\n"


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ranks.csv").write_text(RANKS)


def lines(rows: Sequence[Any]) -> str:
    """JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def requests(trace: Trace) -> list[tuple[Any, ...]]:
    """Each request of a trace: arrival_s, adapter or None, rank or None, prompt, answer."""
    named = [*((each.name, each.rank) for each in trace.adapters), (None, None)]
    return [
        (round(arrival_s, 6), *named[adapter], prompt, output)
        for arrival_s, adapter, prompt, output in zip(
            trace.arrival_s.tolist(),
            trace.adapter.tolist(),
            trace.prompt_tokens.tolist(),
            trace.output_tokens.tolist(),
            strict=True,
        )
    ]


def imported(log: str, *options: str) -> Trace:
    """The trace that a log becomes, read back from the file that is written."""
    assert main(["import", log, "out.parquet", *options]) == 0
    return File("out.parquet").build(0)


# One good log of each tool -------------------------------------------------------------------


def test_vllm_bench_serve(capsys: Capture) -> None:
    """Arrays of all requests; the clock has some start, and the run's model is not in its rows."""
    result = {
        "model_id": BASE,
        "request_rate": 4.0,
        "request_throughput": 3.9,
        "total_input_tokens": 30,
        "input_lens": [10, 20, 30, 7],
        "output_lens": [4, 5, 6, 0],
        "ttfts": [0.1, 0.1, 0.2, 0.0],
        "itls": [[0.01] * 3, [0.01] * 4, [0.01] * 5, []],
        "start_times": [5000.5, 5000.25, 5001.5, 5001.75],
        "generated_texts": ["a", "b", "c", ""],
        "errors": ["", "", "", "Service Unavailable"],
    }
    Path("vllm.json").write_text(json.dumps(result, indent=2))
    trace = imported("vllm.json")
    assert requests(trace) == [(0, None, None, 20, 5), (0.25, None, None, 10, 4), (1.25, None, None, 30, 6)]
    captured = capsys.readouterr()
    assert "4 rows, a result of vllm bench serve" in captured.out
    assert "no column names an adapter or a model: every request is for the base model" in captured.err
    assert "1 of 4 requests failed and were left out: errors in 1" in captured.err
    assert "row 2 came before the row above it; the rows were sorted" in captured.err


def test_sglang_bench_serving() -> None:
    """It does not say when each request was sent: --rate draws that, or says that all came at once."""
    result = {
        "request_rate": 2.0,
        "input_lens": [10, 20],
        "output_lens": [4, 5],
        "ttfts": [0.1, 0.1],
        "errors": ["", ""],
    }
    Path("sglang.jsonl").write_text(lines([result]))
    assert requests(imported("sglang.jsonl", "--rate", "inf")) == [
        (0, None, None, 10, 4),
        (0, None, None, 20, 5),
    ]
    first, second = requests(imported("sglang.jsonl", "--rate", "2"))
    assert first == (0, None, None, 10, 4)
    assert 0 < second[0] < 10


def test_guidellm() -> None:
    """A report of benchmarks with the requests that went well, that failed, and that were not finished."""

    def request(start: float, prompt: int, output: int, model: str, status: str) -> Row:
        return {
            "request_id": "x",
            "request_args": json.dumps({"body": {"model": model, "max_tokens": 100}}),
            "info": {"status": status, "error": None, "timings": {"request_start": start}},
            "request_start_time": start,
            "prompt_tokens": prompt,
            "output_tokens": output,
        }

    report = {
        "metadata": {"version": 1},
        "benchmarks": [
            {
                "requests": {
                    "successful": [
                        request(1.7e9 + 1, 10, 4, "sql", "completed"),
                        request(1.7e9, 20, 5, BASE, "completed"),
                    ],
                    "errored": [request(1.7e9 + 2, 30, 0, "sql", "errored")],
                    "incomplete": [],
                }
            }
        ],
    }
    Path("guidellm.json").write_text(json.dumps(report))
    trace = imported("guidellm.json", "--rank", "8", "--base-model", BASE)
    assert requests(trace) == [(0, None, None, 20, 5), (1, "sql", 8, 10, 4)]
    assert trace.max_output_tokens.tolist() == [100, 100]


def test_aiperf(capsys: Capture) -> None:
    """A record a line, with nanoseconds since 1970 and values beside their units; the warm-up does not count."""

    def record(start_ns: int, prompt: int, output: int, error: Row | None = None) -> Row:
        metrics = {
            "input_sequence_length": {"value": prompt, "unit": "tokens"},
            "output_sequence_length": {"value": output, "unit": "tokens"},
        }
        return {
            "metadata": {
                "x_correlation_id": "s1",
                "request_start_ns": start_ns,
                "benchmark_phase": "profiling",
            },
            "metrics": {"error_isl": {"value": 550}} if error else metrics,
            "error": error,
        }

    start_ns = 1_759_813_207_532_900_363
    rows = [
        record(start_ns, 550, 9),
        record(start_ns + 1_500_000_000, 600, 12),
        record(start_ns, 1, 1, {"code": 499}),
    ]
    warm_up = record(start_ns - 10**10, 5, 5)
    warm_up["metadata"]["benchmark_phase"] = "warmup"
    Path("profile_export.jsonl").write_text(lines([warm_up, *rows]))
    trace = imported("profile_export.jsonl")
    assert requests(trace) == [(0, None, None, 550, 9), (1.5, None, None, 600, 12)]
    assert list(trace.session or ()) == ["s1", "s1"]
    err = capsys.readouterr().err
    assert "1 of 4 requests were sent to warm up and were left out" in err
    assert "1 of 3 requests failed and were left out: error in 1" in err


@pytest.mark.parametrize("nested", [False, True])
def test_inference_perf(nested: bool) -> None:
    """A list of requests, as it has been written before and since its metrics were nested."""

    def info(prompt: int, output: int) -> Row:
        if nested:
            return {
                "request_metrics": {"text": {"input_tokens": prompt}},
                "response_metrics": {"output_tokens": output, "server_usage": {"completion_tokens": output}},
                "lora_adapter": "sql",
            }
        return {
            "input_tokens": prompt,
            "output_tokens": output,
            "output_token_times": [1.0],
            "lora_adapter": "sql",
        }

    rows = [
        {
            "start_time": 100.5,
            "end_time": 101.0,
            "request": "{}",
            "response": "",
            "info": info(10, 4),
            "error": None,
        },
        {
            "start_time": 102.5,
            "end_time": 103.0,
            "request": "{}",
            "response": "",
            "info": info(11, 5),
            "error": None,
        },
        {
            "start_time": 103.0,
            "end_time": 103.0,
            "info": info(9, 0),
            "error": {"error_type": "HTTP Error 429"},
        },
    ]
    Path("per_request_lifecycle_metrics.json").write_text(json.dumps(rows, indent=1))
    trace = imported("per_request_lifecycle_metrics.json", "--ranks", "few.csv") if few("sql,16") else None
    assert trace is not None
    assert requests(trace) == [(0, "sql", 16, 10, 4), (2, "sql", 16, 11, 5)]


def few(*rows: str) -> bool:
    """Write few.csv, ranks of these rows."""
    return bool(Path("few.csv").write_text("\n".join(["adapter,rank", *rows])))


LITELLM = [
    {
        "request_id": "1",
        "model": "hosted_vllm/sql",
        "model_group": "sql",
        "startTime": "2026-01-31T12:00:00.250Z",
        "endTime": "2026-01-31T12:00:02Z",
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "status": "success",
        "session_id": "a",
        "metadata": {"usage_object": {"prompt_tokens": 99}},
    },
    {
        "request_id": "2",
        "model": "",
        "model_group": "sql",
        "startTime": "2026-01-31T12:00:01Z",
        "endTime": "2026-01-31T12:00:01Z",
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "status": "failure",
        "session_id": "b",
        "metadata": {"error_information": {"error_code": "429"}},
    },
    {
        "request_id": "3",
        "model": "hosted_vllm/legal",
        "model_group": "legal",
        "startTime": "2026-01-31T13:00:00.500+01:00",
        "endTime": "2026-01-31T13:00:09+01:00",
        "prompt_tokens": 20,
        "completion_tokens": 5,
        "status": "success",
        "session_id": "a",
        "metadata": {},
    },
]


def test_litellm_spend_logs(capsys: Capture) -> None:
    """An answer of its API; model_group is the name that users ask for."""
    Path("spend.json").write_text(json.dumps({"data": LITELLM, "total": 3, "page": 1}))
    trace = imported("spend.json", "--ranks", "ranks.csv")
    assert requests(trace) == [(0, "sql", 16, 10, 4), (0.25, "legal", 64, 20, 5)]
    assert list(trace.session or ()) == ["a", "a"]
    assert "1 of 3 requests failed and were left out: status failure in 1" in capsys.readouterr().err


def test_litellm_as_a_table_of_its_database() -> None:
    frame = pd.DataFrame(LITELLM)[
        ["request_id", "model_group", "startTime", "endTime", "prompt_tokens", "completion_tokens", "status"]
    ]
    frame["startTime"] = frame["startTime"].str.replace("T", " ")
    frame.to_csv("spend.csv", index=False)
    want = [(0, "sql", 16, 10, 4), (0.25, "legal", 64, 20, 5)]
    assert requests(imported("spend.csv", "--ranks", "ranks.csv")) == want


def test_answers_of_litellm_s_cache_are_left_out(capsys: Capture) -> None:
    rows = [{**LITELLM[0], "cache_hit": hit} for hit in ("True", "False", "None", True, None)]
    Path("spend.json").write_text(json.dumps(rows))
    assert len(imported("spend.json", "--rank", "8")) == 3
    assert (
        "2 of 5 requests were answered from a cache, by no engine, and were left out"
        in capsys.readouterr().err
    )
    assert len(imported("spend.json", "--rank", "8", "--map", "cache_hit=")) == 5


def test_litellm_s_payload_has_the_request_s_own_cap() -> None:
    """Not the longest answer that the model can give, which stands beside it."""
    known = {"model_map_value": {"max_tokens": 4096, "max_output_tokens": 3}}
    rows = [
        {**LITELLM[0], "model_map_information": known, "model_parameters": {"max_tokens": cap}}
        for cap in (256, 9)
    ]
    Path("payload.jsonl").write_text(lines(rows))
    assert imported("payload.jsonl", "--rank", "8").max_output_tokens.tolist() == [256, 9]


@pytest.mark.parametrize(
    ("tool", "row"),
    [
        (
            "Envoy AI Gateway's log",
            {
                "start_time": "2026-01-31T12:00:00Z",
                "response_code": 200,
                "genai_model_name": "sql",
                "genai_tokens_input": 10,
                "genai_tokens_output": 4,
            },
        ),
        (
            "Kong AI Gateway's log",
            {
                "started_at": T * 1000,
                "response": {"status": 200},
                "ai": {
                    "proxy": {
                        "usage": {"prompt_tokens": 10, "completion_tokens": 4},
                        "meta": {"request_model": "sql", "response_model": "x"},
                    }
                },
            },
        ),
        (
            "OpenRouter's log",
            {
                "created_at": "2026-01-31 12:00:00.1",
                "model_permaslug": "sql",
                "tokens_prompt": 10,
                "tokens_completion": 4,
                "cancelled": False,
            },
        ),
    ],
)
def test_gateways_with_names_of_their_own(tool: str, row: Row, capsys: Capture) -> None:
    trace = imported(as_jsonl([row]), "--rank", "8")
    assert requests(trace) == [(0, "sql", 8, 10, 4)]
    captured = capsys.readouterr()
    assert f"1 rows, {tool}" in captured.out
    assert not captured.err, "no notice: all is known"


def gateway(
    at: Any, model: str = "sql", prompt: Any = 10, output: Any = 4, status: int = 200, **more: Any
) -> Row:
    """A line of an OpenAI-compatible gateway's log."""
    usage = {"prompt_tokens": prompt, "completion_tokens": output}
    return {"time": at, "request": {"model": model}, "status": status, "response": {"usage": usage}, **more}


def as_jsonl(rows: list[Row]) -> str:
    Path("log.jsonl").write_text(lines(rows))
    return "log.jsonl"


def as_jsonl_gz(rows: list[Row]) -> str:
    Path("log.jsonl.gz").write_bytes(gzip.compress(lines(rows).encode(), mtime=0))
    return "log.jsonl.gz"


def as_a_log_without_suffix(rows: list[Row]) -> str:
    Path("access").write_text(lines(rows))
    return "access"


def as_csv(rows: list[Row]) -> str:
    pd.json_normalize(rows).to_csv("log.csv", index=False)
    return "log.csv"


def as_parquet(rows: list[Row]) -> str:
    pd.DataFrame(rows).to_parquet("log.parquet")
    return "log.parquet"


@pytest.mark.parametrize("written", [as_jsonl, as_jsonl_gz, as_a_log_without_suffix, as_csv, as_parquet])
@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (["2026-01-31T12:00:00Z", "2026-01-31T14:00:01.5+02:00", "2026-01-31T12:00:02Z"], "dates "),
        (
            ["2026-01-31 12:00:00", "2026-01-31 12:00:01.5", "2026-01-31 12:00:02"],
            "dates without a zone: all UTC",
        ),
        (["2026-01-31 12:00:00,0", "2026-01-31 12:00:01,5", "2026-01-31 12:00:02,0"], "dates without a zone"),
        (["2026-01-31 12:00:00 UTC", "2026-01-31 12:00:01.5 UTC", "2026-01-31 12:00:02+00"], "dates "),
        ([1_769_860_800, 1_769_860_801.5, 1_769_860_802], "s since 1970"),
        ([1_769_860_800_000, 1_769_860_801_500, 1_769_860_802_000], "ms since 1970"),
        ([1_769_860_800_000_000, 1_769_860_801_500_000, 1_769_860_802_000_000], "us since 1970"),
        ([1_769_860_800_000_000_000, 1_769_860_801_500_000_000, 1_769_860_802_000_000_000], "ns since 1970"),
        ([0.25, 1.75, 2.25], "s since some start"),
        (
            ["31/Jan/2026:12:00:00 +0000", "31/Jan/2026:12:00:01 +0000", "31/Jan/2026:12:00:02 +0000"],
            "dates ",
        ),
    ],
)
def test_a_gateways_log(
    times: list[Any], unit: str, written: Callable[[list[Row]], str], capsys: Capture
) -> None:
    """As JSON lines, CSV or Parquet, with times of any unit; the base model has no adapter, a 429 is left out."""
    rows = [gateway(times[0]), gateway(times[1], BASE, 20, 5), gateway(times[2], "legal", 30, 6)]
    rows.append(gateway(times[0], "sql", None, None, 429))
    trace = imported(written(rows), "--ranks", "ranks.csv", "--base-model", BASE)
    second = 1.0 if "Jan" in str(times[0]) else 1.5
    assert requests(trace) == [(0, "sql", 16, 10, 4), (second, None, None, 20, 5), (2, "legal", 64, 30, 6)]
    captured = capsys.readouterr()
    assert unit in captured.out
    assert "1 of 4 requests failed and were left out: status 429 in 1" in captured.err


def test_azures_trace() -> None:
    rows = ["2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109"]
    Path("azure.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    assert requests(imported("azure.csv")) == [(0, None, None, 374, 44), (4.314579, None, None, 396, 109)]


def test_mooncakes_trace() -> None:
    """Small times are milliseconds, and the blocks' size is seen from how many hashes a prompt has."""
    rows = [
        {"timestamp": 3000, "input_length": 1025, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 6000, "input_length": 600, "output_length": 9, "hash_ids": [0, 7]},
    ]
    Path("mooncake.jsonl").write_text(lines(rows))
    assert main(["import", "mooncake.jsonl", "out.parquet"]) == 0
    trace = File("out.parquet", 512).build(0)
    assert requests(trace) == [(0, None, None, 1025, 5), (3, None, None, 600, 9)]
    assert list(trace.block_hashes or ()) == [(0, 1, 2), (0, 7)]


def test_our_own_schema_stays_what_it_is() -> None:
    text = "arrival_s,adapter,rank,prompt_tokens,output_tokens,session\n0,a,8,100,20,s\n70,a,8,150,20,s\n80,,,50,5,\n"
    Path("own.csv").write_text(text)
    trace = imported("own.csv")
    assert requests(trace) == requests(File("own.csv").build(0))
    assert list(trace.session or ()) == ["s", "s", None]


# What is printed -----------------------------------------------------------------------------


def test_the_guess_is_printed_and_then_what_info_prints(capsys: Capture) -> None:
    log = as_jsonl([gateway(1_769_860_800 + at, prompt=10 + at) for at in range(3)])
    assert main(["import", log, "out.csv", "--rank", "16"]) == 0
    out = capsys.readouterr().out
    guess, _, rest = out.partition("\n\nout.csv\n")
    assert guess.splitlines() == [
        "log.jsonl: 3 rows, a log of requests",
        "",
        "ours           theirs                            unit          such as",
        "arrival        time                              s since 1970  1769860800",
        "adapter        request.model                     name          sql",
        "rank           --rank 16",
        "prompt_tokens  response.usage.prompt_tokens      tokens        10",
        "output_tokens  response.usage.completion_tokens  tokens        4",
        "status         status                                          200",
    ]
    facts, _, run = rest.rpartition("\n\n")
    assert run == "Run it: simlora gpu=a10g model=llama_7b workload=file workload.path=out.csv\n"
    assert main(["info", "out.csv"]) == 0
    assert facts in capsys.readouterr().out


def test_without_a_file_to_write_the_log_is_only_checked(tmp_path: Path, capsys: Capture) -> None:
    log = as_jsonl([gateway(1_769_860_800)])
    before = set(tmp_path.iterdir())
    assert main(["import", log, "--rank", "16"]) == 0
    assert "Nothing was written; name a file to write it" in capsys.readouterr().out
    assert set(tmp_path.iterdir()) == before


# What the user may say -----------------------------------------------------------------------


def test_columns_are_mapped_with_units() -> None:
    rows = [{"a": 1000 + 500 * at, "b": "sql", "c": 10, "d": 4, "e": 9} for at in range(2)]
    log = as_jsonl(rows)
    trace = imported(
        log, "--map", "arrival=a:ms,adapter=b,prompt_tokens=c", "--map=output_tokens=d", "--map=rank=e"
    )
    assert requests(trace) == [(0, "sql", 9, 10, 4), (0.5, "sql", 9, 10, 4)]


def test_a_column_can_be_left_out_of_the_guess() -> None:
    """As max_tokens, which some gateways log before they raise it."""
    rows = [gateway(1_769_860_800, max_tokens=2)]
    assert main(["import", as_jsonl(rows), "--rank=8"]) == 2
    trace = imported(as_jsonl(rows), "--rank=8", "--map", "max_output_tokens=")
    assert trace.max_output_tokens.tolist() == [4]


def test_failed_requests_are_kept_if_they_have_tokens() -> None:
    rows = [gateway(1_769_860_800), gateway(1_769_860_801, status=504)]
    assert len(imported(as_jsonl(rows), "--rank=8")) == 1
    assert len(imported(as_jsonl(rows), "--rank=8", "--failed=keep")) == 2


@pytest.mark.parametrize("prompt", [None, 10])
@pytest.mark.parametrize("written", [as_jsonl, as_csv, as_parquet])
def test_streamed_requests_without_usage_are_left_out(
    written: Callable[[list[Row]], str], prompt: int | None, capsys: Capture
) -> None:
    log = written([gateway(T), gateway(T + 1, prompt=prompt, output=None), gateway(T + 2)])
    assert [arrival_s for arrival_s, *_ in requests(imported(log, "--rank=8"))] == [0, 2]
    assert (
        "1 of 3 requests went well, but lack a count of tokens, and were left out; streamed answers have them where "
        "the request has stream_options.include_usage" in capsys.readouterr().err
    )


@pytest.mark.parametrize("written", [as_jsonl, as_csv, as_parquet])
def test_columns_may_hold_json_as_text(written: Callable[[list[Row]], str]) -> None:
    """As an export of a database has it: {"usage": {...}} in a cell of its own, and text that is none beside it."""
    rows = [gateway(T), gateway(T + 1, "legal"), gateway(T + 2)]
    plain = imported(as_jsonl(rows), "--rank=8")
    text = [
        {name: json.dumps(cell) if isinstance(cell, dict) else cell for name, cell in row.items()}
        for row in rows
    ]
    assert any(isinstance(cell, str) and cell.startswith("{") for cell in text[0].values())
    assert requests(imported(written([row | {"note": "{not json"} for row in text]), "--rank=8")) == requests(
        plain
    )


def test_python_s_own_text_of_a_dict_is_read_and_what_is_none_is_a_fault_of_its_row(capsys: Capture) -> None:
    rows = [
        {"timestamp": T + at, "model": "sql", "usage": str({"prompt_tokens": 9, "completion_tokens": 4})}
        for at in range(3)
    ]
    assert requests(imported(as_csv(rows), "--rank=8"))[0] == (0, "sql", 8, 9, 4)
    rows[1]["usage"] = "not json"
    assert main(["import", as_csv(rows), "--rank=8"]) == 2
    assert "3    usage   'not json'  a JSON object such as {...}" in capsys.readouterr().out


def test_vllm_s_own_count_of_tokens_is_known() -> None:
    rows = [{"timestamp": T, "model": "sql", "num_prompt_tokens": 9, "num_generation_tokens": 4}]
    assert requests(imported(as_jsonl(rows * 2), "--rank=8"))[0] == (0, "sql", 8, 9, 4)


def test_adapters_that_no_request_is_for_are_named_in_a_notice(capsys: Capture) -> None:
    Path("ranks.csv").write_text("adapter,rank\nsql,8\nlegal,16\n")
    trace = imported(as_jsonl([gateway(T)]), "--ranks=ranks.csv")
    assert [each.rank for each in trace.adapters] == [8]
    assert "ranks.csv has 1 adapters that no request is for: 'legal'" in capsys.readouterr().err


def test_an_adapter_that_looks_like_a_base_model_is_named_in_a_notice(capsys: Capture) -> None:
    """Every other model is an adapter; so is this one, unless `--base-model` says otherwise."""
    rows = [
        {"timestamp": 1.7e9 + at, "model": model, "prompt_tokens": 5, "completion_tokens": 7}
        for at, model in enumerate(("tenant-1", "meta-llama/Llama-3.1-8B-Instruct", "tenant-2"))
    ]
    Path("log.jsonl").write_text(lines(rows))
    assert main(["import", "log.jsonl", "--rank", "8"]) == 0
    said = capsys.readouterr().err
    assert "if it is the base model: --base-model meta-llama/Llama-3.1-8B-Instruct" in said
    assert (
        main(["import", "log.jsonl", "--rank", "8", "--base-model", "meta-llama/Llama-3.1-8B-Instruct"]) == 0
    )
    printed = capsys.readouterr()
    assert "--base-model" not in printed.err
    assert "a file to write it" in printed.out


def test_what_comes_next_is_for_the_model_of_the_log(capsys: Capture) -> None:
    base = "meta-llama/Llama-3.1-8B"
    log = as_jsonl([gateway(1_769_860_800), gateway(1_769_860_801), gateway(1_769_860_802, model=base)])
    named = ["--rank", "48", "--base-model", base]
    assert main(["import", log, "out.csv", *named]) == 0
    run, plan = capsys.readouterr().out.splitlines()[-2:]
    assert run.startswith(
        "Run it: simlora system=vllm gpu=h100_80g model=llama_3_1_8b replica.max_lora_rank=64 "
    )
    assert plan.startswith(
        "Plan for it: simlora-plan model=llama_3_1_8b workload=file workload.path=out.csv "
    )


def test_ranks_of_a_column_count_unless_others_are_given() -> None:
    log = as_jsonl([gateway(1_769_860_800, lora_rank=32), gateway(1_769_860_801, lora_rank=32)])
    assert [each.rank for each in imported(log).adapters] == [32]
    assert [each.rank for each in imported(log, "--rank", "8").adapters] == [8]


@pytest.mark.parametrize("written", [as_jsonl, as_parquet])
def test_an_error_whose_fields_are_all_empty_is_none(written: Callable[[list[Row]], str]) -> None:
    errors = [{"code": None, "message": ""}, {"code": 500, "message": ""}, None]
    rows = [gateway(T + at, error=error) for at, error in enumerate(errors)]
    assert [arrival_s for arrival_s, *_ in requests(imported(written(rows), "--rank=8"))] == [0, 2]


# Bad logs: every fault in one table ----------------------------------------------------------

Bad = tuple[str | bytes | list[Row], list[str], list[tuple[str, str, str, str]]]
BAD: dict[str, Bad] = {
    "dates with and without zones": (
        [
            gateway("2026-01-31T12:00:00Z"),
            gateway("2026-01-31T12:00:01"),
            gateway("2026-01-31T12:00:02+01:00"),
        ],
        ["--rank=8"],
        [
            (
                "2",
                "time",
                "'2026-01-31T12:00:01'",
                "a date with its zone, as in 2 rows; this is a date without a zone",
            )
        ],
    ),
    "seconds and milliseconds": (
        [gateway(T * 1000), gateway(T + 1), gateway(T * 1000 + 7), gateway("soon")],
        ["--rank=8"],
        [
            ("2", "time", f"{T + 1}", "ms since 1970, as in 2 rows; this is s since 1970"),
            ("4", "time", "'soon'", "a time: a date such as 2026-01-31T12:00:00Z, or a number"),
        ],
    ),
    "no ranks at all": (
        [gateway(T), gateway(T + 1, "legal")],
        [],
        [
            (
                "-",
                "request.model",
                "every one of 2 adapters without a rank: 'sql', 'legal'",
                "a rank each: --ranks FILE (a CSV with adapter,rank), or --rank 16 for all; "
                "--base-model NAME has none",
            )
        ],
    ),
    "models that ranks.csv and the log do not share": (
        [gateway(T), gateway(T + 1, "sqk"), gateway(T + 2, "sqk")],
        ["--ranks=ranks.csv", "--base-model", "lama"],
        [
            ("-", "--base-model", "'lama'", "a model of the log; choose one of sqk, sql"),
            ("2", "request.model", "'sqk'", "an adapter of ranks.csv; did you mean sql?"),
            ("...", "request.model", "1 more like it", ""),
        ],
    ),
    "failed requests that are to be refused": (
        [
            gateway(T),
            gateway(T, status=429),
            gateway(T, status=503),
            gateway(T, error={"code": 1}),
            gateway(T, status=7),
        ],
        ["--rank=8", "--failed=refuse"],
        [
            ("2", "status", "429", "that of a request that went well (--failed drop leaves such rows out)"),
            ("3", "status", "503", "that of a request that went well (--failed drop leaves such rows out)"),
            ("4", "error", "{'code': 1}", "empty (--failed drop leaves such rows out)"),
            ("5", "status", "7", "a code such as 200 or 429, or one of "),
        ],
    ),
    "failed requests that are to be kept but have no tokens": (
        [gateway(T), gateway(T, prompt=None, output=None, status=429)],
        ["--rank=8", "--failed=keep"],
        [
            ("2", "response.usage.prompt_tokens", "empty", "a whole number of tokens, at least 1"),
            ("2", "response.usage.completion_tokens", "empty", "a whole number of tokens, at least 1"),
        ],
    ),
    "tokens that are none, and a row that came before the others": (
        [
            gateway(T + 9, prompt=-5),
            gateway(T, output="many"),
            gateway(T + 1, prompt=1.5),
            gateway(T + 2, prompt=True, output=[7]),
            gateway(T + 3, prompt=float("nan")),
            gateway(T + 4, output=10**30),
        ],
        ["--rank=8"],
        [
            ("1", "response.usage.prompt_tokens", "-5", "a whole number of tokens, at least 1"),
            ("2", "response.usage.completion_tokens", "'many'", "a whole number of tokens, at least 1"),
            ("3", "response.usage.prompt_tokens", "1.5", "a whole number of tokens, at least 1"),
            ("4", "response.usage.prompt_tokens", "True", "a whole number of tokens, at least 1"),
            ("...", "response.usage.prompt_tokens", "1 more like it", ""),
            ("4", "response.usage.completion_tokens", "[7]", "a whole number of tokens, at least 1"),
            ("6", "response.usage.completion_tokens", f"{10**30}", "a whole number of tokens, at least 1"),
        ],
    ),
    "tokens that are NaN in a table": (
        "ts,model,prompt_tokens,completion_tokens\n1769860800,sql,NaN,4\n1769860801,,10,4\n",
        ["--rank=8"],
        [
            ("2", "prompt_tokens", "'NaN'", "a whole number of tokens, at least 1"),
            ("3", "model", "empty", "a model's name; or --failed drop, where it failed"),
        ],
    ),
    "more than half of the requests without usage": (
        [gateway(T, status=500), gateway(T + 1, prompt=-1), *[gateway(T, prompt=None, output=None)] * 2],
        ["--rank=8"],
        [
            (
                "-",
                "(the file)",
                "2 of 4 requests that went well, but lack a count of tokens,",
                "fewer; streamed answers have them where the request has stream_options.include_usage",
            ),
            ("2", "response.usage.prompt_tokens", "-1", "a whole number of tokens, at least 1"),
        ],
    ),
    "a mistyped column, and what is wrong with the one that is meant": (
        [gateway(T, tenant="a"), gateway(T + 1, tenant="b")],
        ["--map=adapter=tennant"],
        [
            ("-", "tennant", "no such column", "a column for adapter; did you mean tenant?"),
            ("-", "tenant", "every one of 2 adapters without a rank: 'a', 'b'", "a rank each: "),
        ],
    ),
    "no column that says when": (
        [{"model": "sql", "usage": {"prompt_tokens": 1, "completion_tokens": 0.5}}],
        ["--rank=8"],
        [
            (
                "-",
                "arrival",
                "no column for it among model, usage.prompt_tokens, usage.completion_tokens",
                "when each request came: --map arrival=COLUMN, or --rate RPS to draw it",
            ),
            ("1", "usage.completion_tokens", "0.5", "a whole number of tokens, at least 1"),
        ],
    ),
    "none of our columns": (
        "when,who\n1,2\n",
        [],
        [
            (
                "-",
                "arrival",
                "no column for it among when, who",
                "when each request came: --map arrival=COLUMN",
            ),
            (
                "-",
                "prompt_tokens",
                "no column for it among when, who",
                "the prompt's tokens: --map prompt_tokens=COLUMN",
            ),
            (
                "-",
                "output_tokens",
                "no column for it among when, who",
                "the answer's tokens: --map output_tokens=COLUMN",
            ),
        ],
    ),
    "nothing in the file": (
        "",
        ["--map=status=code"],
        [("-", "(the file)", "empty", "at least one request")],
    ),
    "blank lines only": ("\n\n", [], [("-", "(the file)", "empty", "at least one request")]),
    "broken lines below a blank one": (
        "\n"
        + lines([gateway(T)])
        + '{"time": 1769860801, "request"\n[1, 2]\n'
        + lines([gateway(T + 2, prompt=-1)]),
        ["--rank=8"],
        [
            ("3", "(the file)", '\'{"time": 1769860801, "request"\'', "a JSON object such as {...}"),
            ("4", "(the file)", "'[1, 2]'", "a JSON object such as {...}"),
            ("5", "response.usage.prompt_tokens", "-1", "a whole number of tokens, at least 1"),
        ],
    ),
    "one column for two of ours, and one of ours twice": (
        [gateway(T)],
        ["--rank=8", "--map=prompt_tokens=status,output_tokens=status,arrival=time,arrival=tme"],
        [
            (
                "-",
                "status",
                "mapped to both prompt_tokens and output_tokens",
                "one of ours; name another column",
            ),
            ("-", "--map arrival", "named twice, again as 'tme'", "named once"),
            ("-", "tme", "no such column", "a column for arrival; did you mean time?"),
        ],
    ),
    "two columns that fit alike": (
        "ts,Prompt Tokens,prompt_tokens,output_tokens\n1769860800,1,2,x\n",
        [],
        [
            (
                "-",
                "prompt_tokens",
                "'Prompt Tokens' and 'prompt_tokens' fit alike",
                "one column: --map prompt_tokens=",
            ),
            ("2", "output_tokens", "'x'", "a whole number of tokens, at least 1"),
        ],
    ),
    "a header that has a name twice": (
        "ts,model,model\n1,2,3\n",
        ["--rank=8"],
        [
            ("-", "(the file)", "the column 'model' 2 times", "each column once"),
            ("-", "prompt_tokens", "no column for it among ts, model", "the prompt's tokens: "),
            ("-", "output_tokens", "no column for it among ts, model", "the answer's tokens: "),
        ],
    ),
    "no header": ("\n1,2\n", [], [("-", "(the file)", "no header in line 1", "CSV, JSON lines, ")]),
    "a row with more cells than the header": (
        "ts,model,prompt_tokens,completion_tokens\n1769860800,sql,5,5\n1769860801,sql,5,5,5\n1769860802,sql,-5,7\n",
        ["--rank=8"],
        [
            ("3", "(the file)", "5 cells", "4, as many as the header"),
            ("4", "prompt_tokens", "'-5'", "a whole number of tokens, at least 1"),
        ],
    ),
    "half of a JSON report": (
        json.dumps({"input_lens": [1, 2], "output_lens": [1, 2], "start_times": [0, 1]}, indent=1)[:40],
        [],
        [
            (
                "-",
                "(the file)",
                "Unterminated string starting at: line 6 column 2 (char 33)",
                "well-formed JSON, or an object ",
            )
        ],
    ),
    "ranks that differ in a column": (
        [gateway(T, rank=8), gateway(T, rank=16), gateway(T, rank=8), gateway(T, rank=0)],
        [],
        [
            ("2", "rank", "16", "8, as 'sql' has in its first row"),
            ("4", "rank", "0", "a whole number from 1 to 1,024"),
        ],
    ),
    "caps below the answers": (
        [gateway(T, max_tokens=3), gateway(T, max_tokens=4)],
        ["--rank=8"],
        [("1", "max_tokens", "3", "at least the answer's 4; or --map max_output_tokens=")],
    ),
    "a summary of a benchmark": (
        json.dumps({"request_throughput": 3.9, "total_input_tokens": 30, "duration": 9}),
        [],
        [("-", "(the file)", "a summary of a run", "a row a request: vllm bench serve --save-detailed, ")],
    ),
    "two benchmarks in one file": (
        lines([{"input_lens": [1], "output_lens": [2], "start_times": [1.0]}] * 2),
        [],
        [("-", "(the file)", "more than one run", "one run: keep one line of the file")],
    ),
    "every request failed": (
        [gateway(T, status=500)],
        ["--rank=8"],
        [("-", "(the file)", "1 rows, and every one failed", "at least one that an engine served")],
    ),
    "text in no known coding": (
        b'{"time": "\xff"}\n',
        [],
        [("-", "(the file)", "not text in UTF-8", "text in UTF-8, or Parquet")],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_is_refused_with_all_its_faults_in_one_table(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    content, options, faults = BAD[name]
    is_csv = isinstance(content, str) and content.strip()[:1] not in ("{", "")
    log = Path("log.csv" if is_csv else "log.jsonl")
    if isinstance(content, bytes):
        log.write_bytes(content)
    else:
        log.write_text(content if isinstance(content, str) else lines(content))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["import", str(log), "out.parquet", *options]) == 2
    captured = capsys.readouterr()
    assert table_of(captured.out, faults) == faults
    (sentence,) = captured.err.splitlines()
    assert sentence.startswith(f"simlora: error: {log} has ")
    assert sentence.endswith("in the table above; nothing was written")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def table_of(out: str, wanted: list[tuple[str, str, str, str]]) -> list[tuple[str, ...]]:
    """The rows of the printed table; the last cell of each only as far as the `wanted` one goes."""
    lines = out.splitlines()
    head = max(at for at, line in enumerate(lines) if line.startswith("row "))
    begin = [lines[head].index(word) for word in ("row", "column", "there is", "must be")]
    rows = [line for line in lines[head + 1 :] if line]
    cells = [
        tuple(line[a:b].strip() for a, b in zip(begin, [*begin[1:], None], strict=True)) for line in rows
    ]
    assert len(cells) == len(wanted), out
    return [
        (*cell[:3], cell[3][: len(want[3].rstrip())] + " " * want[3].endswith(" "))
        for cell, want in zip(cells, wanted, strict=True)
    ]


@pytest.mark.parametrize("written", [as_jsonl, as_csv])
def test_a_truncated_file_is_refused_with_what_is_wrong_before_its_end(
    written: Callable[[list[Row]], str], capsys: Capture
) -> None:
    rows = [gateway(T + at, prompt=-1 if at == 5 else 10, text=f"{at * 7919}" * 9) for at in range(5000)]
    log = written(rows)
    data = gzip.compress(Path(log).read_bytes(), mtime=0)
    Path(f"{log}.gz").write_bytes(data[: len(data) // 2])
    assert main(["import", f"{log}.gz", "out.csv", "--rank=8"]) == 2
    out = capsys.readouterr().out
    assert "(the file)                    cut short: Truncated compressed stream  whole; " in out
    assert f"{6 + (written is as_csv)}    response.usage.prompt_tokens" in out
    assert not Path("out.csv").exists()


def test_of_many_rows_with_one_fault_three_are_listed_and_the_others_counted(capsys: Capture) -> None:
    log = as_jsonl([gateway(T, output=-at) for at in range(1, 101)])
    assert main(["import", log, "out.csv", "--rank=8"]) == 2
    captured = capsys.readouterr()
    assert "97 more like it" in captured.out
    assert "log.jsonl has 100 faults" in captured.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "simlora-trace import needs LOG; see simlora-trace --help"),
        (["gone.csv"], "gone.csv does not exist"),
        (["."], ". is a folder, must be a file"),
        (["log.jsonl", "a.csv", "b.csv"], "simlora-trace import takes no 'b.csv'"),
        (["log.jsonl", "out.txt"], "out.txt has the suffix '.txt', must be one of .csv, .parquet, .jsonl"),
        (["log.jsonl", "log.jsonl"], "log.jsonl is the log to be read, must be another"),
        (["log.jsonl", "--rank=x"], "--rank is 'x', must be a whole number, at least 1 and at most 1,024"),
        (["log.jsonl", "--rank="], "--rank is '', must be a whole number"),
        (["log.jsonl", "--picture=a.png"], "simlora-trace import draws no picture; simlora-trace info does"),
        (["log.jsonl", "--rate=0"], "--rate is 0, must be greater than 0 requests per second"),
        (
            ["log.jsonl", "--rank=8", "--ranks=ranks.csv"],
            "--ranks and --rank both say which rank an adapter has",
        ),
        (["log.jsonl", "--failed=drp"], "--failed is 'drp'; did you mean drop?"),
        (
            ["log.jsonl", "--map=arrival"],
            "--map has 'arrival', must be ours=theirs, such as arrival=timestamp",
        ),
        (["log.jsonl", "--map=arival=time"], "--map has no column 'arival' of ours; did you mean arrival?"),
    ],
)
def test_a_command_that_makes_no_sense_is_a_sentence(
    arguments: list[str], sentence: str, capsys: Capture
) -> None:
    as_jsonl([gateway(T)])
    assert main(["import", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("simlora: error: ")
    assert sentence in line


def test_help_teaches_import(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for word in (
        "import LOG [OUT]",
        "--map",
        "--ranks",
        "--rank ",
        "--base-model",
        "--failed",
        "--rate",
        "GuideLLM",
    ):
        assert word in out
