"""simlora-trace import, as a user types it: what each tool's log becomes, and every fault of a bad one in one table."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from simlora.cli.trace import main
from simlora.core.trace import Trace
from simlora.workload.file import File

Row = dict[str, Any]
BASE = "meta-llama/Llama-3.1-8B"
T = 1_769_860_800
"""Seconds since 1970."""
RANKS = "adapter,rank\nsql,16\nlegal,64\n"


@pytest.fixture(autouse=True)
def ranks(at_home):
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


def guidellm(start: float, prompt: int, output: int, model: str, status: str) -> Row:
    return {
        "request_args": json.dumps({"body": {"model": model, "max_tokens": 100}}),
        "info": {"status": status, "error": None, "timings": {"request_start": start}},
        "request_start_time": start,
        "prompt_tokens": prompt,
        "output_tokens": output,
    }


def aiperf(
    start_ns: int, prompt: int, output: int, error: Row | None = None, phase: str = "profiling"
) -> Row:
    lengths = {"input_sequence_length": prompt, "output_sequence_length": output}
    metrics = {name: {"value": value, "unit": "tokens"} for name, value in lengths.items()}
    about = {"x_correlation_id": "s1", "request_start_ns": start_ns, "benchmark_phase": phase}
    return {"metadata": about, "metrics": {"error_isl": {"value": 550}} if error else metrics, "error": error}


def inference_perf(info: Row) -> list[Row]:
    """Two requests, and one that failed."""
    failed = {"info": {}, "error": {"error_type": "HTTP Error 429"}}
    went_well = {"end_time": 103.0, "request": "{}", "response": "", "info": info, "error": None}
    return [{"start_time": 100.5 + at, **how} for at, how in ((0, went_well), (2, went_well), (2.5, failed))]


def litellm(at: str, group: str, prompt: int, output: int, session: str, status: str = "success") -> Row:
    return {
        "request_id": at,
        "model": f"hosted_vllm/{group}",
        "model_group": group,
        "startTime": at,
        "endTime": at,
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "status": status,
        "session_id": session,
        "metadata": {"usage_object": {"prompt_tokens": 99}},
    }


VLLM = {
    "model_id": BASE,
    "request_rate": 4.0,
    "total_input_tokens": 30,
    "input_lens": [10, 20, 30, 7],
    "output_lens": [4, 5, 6, 0],
    "ttfts": [0.1, 0.1, 0.2, 0.0],
    "itls": [[0.01] * 3, [0.01] * 4, [0.01] * 5, []],
    "start_times": [5000.5, 5000.25, 5001.5, 5001.75],
    "generated_texts": ["a", "b", "c", ""],
    "errors": ["", "", "", "Service Unavailable"],
}
SGLANG = {"request_rate": 2.0, "input_lens": [10, 20], "output_lens": [4, 5], "errors": ["", ""]}
GUIDELLM = {
    "successful": [guidellm(1.7e9 + 1, 10, 4, "sql", "completed"), guidellm(1.7e9, 20, 5, BASE, "completed")],
    "errored": [guidellm(1.7e9 + 2, 30, 0, "sql", "errored")],
    "incomplete": [],
}
NS = 1_759_813_207_532_900_363
AIPERF = [aiperf(NS - 10**10, 5, 5, phase="warmup"), aiperf(NS, 550, 9), aiperf(NS + 3 * 10**9 // 2, 600, 12)]
AIPERF.append(aiperf(NS, 1, 1, {"code": 499}))
FLAT = {"input_tokens": 10, "output_tokens": 4, "output_token_times": [1.0], "lora_adapter": "sql"}
NESTED = {
    "request_metrics": {"text": {"input_tokens": 10}},
    "response_metrics": {"output_tokens": 4, "server_usage": {"completion_tokens": 4}},
    "lora_adapter": "sql",
}
OF_PERF = [(0, "sql", 16, 10, 4), (2, "sql", 16, 10, 4)]
LITELLM = [
    litellm("2026-01-31T12:00:00.250Z", "sql", 10, 4, "a"),
    litellm("2026-01-31T12:00:01Z", "sql", 0, 0, "b", "failure"),
    litellm("2026-01-31T13:00:00.500+01:00", "legal", 20, 5, "a"),
]
OF_LITELLM = [(0, "sql", 16, 10, 4), (0.25, "legal", 64, 20, 5)]
TABLE = pd.DataFrame(LITELLM).drop(columns=["model", "metadata", "session_id"])
ENVOY = (
    '{"start_time": "2026-01-31T12:00:00Z", "response_code": 200, "genai_model_name": "sql", '
    '"genai_tokens_input": 10, "genai_tokens_output": 4}'
)
KONG = (
    f'{{"started_at": {T * 1000}, "response": {{"status": 200}}, "ai": {{"proxy": {{"usage": {{"prompt_tokens": 10, '
    '"completion_tokens": 4}, "meta": {"request_model": "sql", "response_model": "x"}}}}'
)
OPENROUTER = (
    '{"created_at": "2026-01-31 12:00:00.1", "model_permaslug": "sql", "tokens_prompt": 10, '
    '"tokens_completion": 4, "cancelled": false}'
)
OWN_COUNT = f'{{"timestamp": {T}, "model": "sql", "num_prompt_tokens": 9, "num_generation_tokens": 4}}\n'
Log = tuple[str, list[str], list[tuple[Any, ...]], list[str]]
LOGS: dict[str, Log] = {
    # Arrays of all requests, on a clock of its own; the model of the run is in no row.
    "vllm bench serve": (
        json.dumps(VLLM, indent=2),
        [],
        [(0, None, None, 20, 5), (0.25, None, None, 10, 4), (1.25, None, None, 30, 6)],
        [
            "4 rows, a result of vllm bench serve",
            "no column names an adapter or a model: every request is for the base model",
            "1 of 4 requests failed and were left out: errors in 1",
            "row 2 came before the row above it; the rows were sorted",
        ],
    ),
    # It does not say when each request was sent: --rate says that all came at once, or draws that.
    "sglang": (lines([SGLANG]), ["--rate=inf"], [(0, None, None, 10, 4), (0, None, None, 20, 5)], []),
    # A report of benchmarks with the requests that went well, that failed, and that were not finished.
    "guidellm": (
        json.dumps({"metadata": {"version": 1}, "benchmarks": [{"requests": GUIDELLM}]}),
        ["--rank=8", "--base-model", BASE],
        [(0, None, None, 20, 5), (1, "sql", 8, 10, 4)],
        [],
    ),
    # Nanoseconds since 1970, and values beside their units; the warm-up does not count.
    "aiperf": (
        lines(AIPERF),
        [],
        [(0, None, None, 550, 9), (1.5, None, None, 600, 12)],
        [
            "1 of 4 requests were sent to warm up and were left out",
            "1 of 3 requests failed and were left out: error in 1",
        ],
    ),
    # As it has been written before and since its metrics were nested.
    "inference-perf, flat": (json.dumps(inference_perf(FLAT), indent=1), ["--rank=16"], OF_PERF, []),
    "inference-perf, nested": (json.dumps(inference_perf(NESTED), indent=1), ["--rank=16"], OF_PERF, []),
    # An answer of its API, and a table of its database; model_group is the name that users ask for.
    "litellm": (
        json.dumps({"data": LITELLM, "total": 3, "page": 1}),
        ["--ranks=ranks.csv"],
        OF_LITELLM,
        ["1 of 3 requests failed and were left out: status failure in 1"],
    ),
    "litellm, csv": (TABLE.to_csv(index=False).replace("T1", " 1"), ["--ranks=ranks.csv"], OF_LITELLM, []),
    "azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n",
        [],
        [(0, None, None, 374, 44), (4.314579, None, None, 396, 109)],
        [],
    ),
    "envoy": (ENVOY, ["--rank=8"], [(0, "sql", 8, 10, 4)], ["1 rows, Envoy AI Gateway's log"]),
    "kong": (KONG, ["--rank=8"], [(0, "sql", 8, 10, 4)], ["1 rows, Kong AI Gateway's log"]),
    "openrouter": (OPENROUTER, ["--rank=8"], [(0, "sql", 8, 10, 4)], ["1 rows, OpenRouter's log"]),
    "our own schema": (
        "arrival_s,adapter,rank,prompt_tokens,output_tokens,session\n0,a,8,100,20,s\n70,a,8,150,20,s\n80,,,50,5,\n",
        [],
        [(0, "a", 8, 100, 20), (70, "a", 8, 150, 20), (80, None, None, 50, 5)],
        [],
    ),
    "vllm's own count of tokens": (OWN_COUNT * 2, ["--rank=8"], [(0, "sql", 8, 9, 4)] * 2, []),
}


def import_of(name: str) -> Trace:
    """The trace that one of these logs becomes."""
    text, options, *_ = LOGS[name]
    log = Path("log.jsonl" if text[0] in "{[" else "log.csv")
    log.write_text(text)
    return imported(str(log), *options)


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_every_tool_becomes_a_trace(name, capsys):
    assert requests(import_of(name)) == LOGS[name][2]
    captured = capsys.readouterr()
    for sentence in LOGS[name][3]:
        assert sentence in captured.out + captured.err
    assert name not in ("envoy", "kong", "openrouter") or not captured.err, "no notice: all is known"


def test_what_else_a_log_says_of_its_requests_is_kept():
    assert import_of("guidellm").max_output_tokens.tolist() == [100, 100]
    for name in ("aiperf", "litellm"):
        assert len(set(import_of(name).session or ())) == 1


def test_times_that_a_log_does_not_have_are_drawn_at_a_rate():
    Path("sglang.jsonl").write_text(lines([SGLANG]))
    first, second = requests(imported("sglang.jsonl", "--rate", "2"))
    assert first == (0, None, None, 10, 4)
    assert 0 < second[0] < 10


def test_answers_of_litellm_s_cache_are_left_out(capsys):
    log = as_jsonl([{**LITELLM[0], "cache_hit": hit} for hit in ("True", "False", "None", True, None)])
    assert len(imported(log, "--rank", "8")) == 3
    said = "2 of 5 requests were answered from a cache, by no engine, and were left out"
    assert said in capsys.readouterr().err
    assert len(imported(log, "--rank", "8", "--map", "cache_hit=")) == 5


def test_litellm_s_payload_has_the_request_s_own_cap():
    """Not the longest answer that the model can give, which stands beside it."""
    known = {"model_map_value": {"max_tokens": 4096, "max_output_tokens": 3}}
    caps: list[Row] = [{"max_tokens": cap} for cap in (256, 9)]
    log = as_jsonl([{**LITELLM[0], "model_map_information": known, "model_parameters": cap} for cap in caps])
    assert imported(log, "--rank", "8").max_output_tokens.tolist() == [256, 9]


DATES = "dates without a zone"
TIMES: list[tuple[list[Any], str]] = [
    (["2026-01-31T12:00:00Z", "2026-01-31T14:00:01.5+02:00", "2026-01-31T12:00:02Z"], "dates "),
    (["2026-01-31 12:00:00", "2026-01-31 12:00:01.5", "2026-01-31 12:00:02"], f"{DATES}: all UTC"),
    (["2026-01-31 12:00:00,0", "2026-01-31 12:00:01,5", "2026-01-31 12:00:02,0"], DATES),
    (["2026-01-31 12:00:00 UTC", "2026-01-31 12:00:01.5 UTC", "2026-01-31 12:00:02+00"], "dates "),
    ([T, T + 1.5, T + 2], "s since 1970"),
    ([T * 1000, T * 1000 + 1500, T * 1000 + 2000], "ms since 1970"),
    ([T * 10**6, T * 10**6 + 1_500_000, T * 10**6 + 2_000_000], "us since 1970"),
    ([T * 10**9, T * 10**9 + 1_500_000_000, T * 10**9 + 2_000_000_000], "ns since 1970"),
    ([0.25, 1.75, 2.25], "s since some start"),
    ([f"31/Jan/2026:12:00:0{second} +0000" for second in range(3)], "dates "),
]


@pytest.mark.parametrize(
    ("written", "times", "unit"),
    [
        *((as_jsonl, *each) for each in TIMES),
        *((written, *each) for written in (as_csv, as_parquet) for each in (TIMES[1], TIMES[4])),
        *((written, *TIMES[0]) for written in (as_jsonl_gz, as_a_log_without_suffix)),
    ],
)
def test_a_gateways_log(written, times, unit, capsys):
    """As JSON lines, CSV or Parquet, with times of any unit; the base model has no adapter, a 429 is left out."""
    rows = [gateway(times[0]), gateway(times[1], BASE, 20, 5), gateway(times[2], "legal", 30, 6)]
    rows.append(gateway(times[0], "sql", None, None, 429))
    trace = imported(written(rows), "--ranks", "ranks.csv", "--base-model", BASE)
    second = 1.0 if "Jan" in str(times[0]) else 1.5
    assert requests(trace) == [(0, "sql", 16, 10, 4), (second, None, None, 20, 5), (2, "legal", 64, 30, 6)]
    captured = capsys.readouterr()
    assert unit in captured.out
    assert "1 of 4 requests failed and were left out: status 429 in 1" in captured.err


def test_mooncakes_trace():
    """Small times are milliseconds, and the blocks' size is seen from how many hashes a prompt has."""
    rows = [
        {"timestamp": 3000, "input_length": 1025, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 6000, "input_length": 600, "output_length": 9, "hash_ids": [0, 7]},
    ]
    assert main(["import", as_jsonl(rows), "out.parquet"]) == 0
    trace = File("out.parquet", 512).build(0)
    assert requests(trace) == [(0, None, None, 1025, 5), (3, None, None, 600, 9)]
    assert list(trace.block_hashes or ()) == [(0, 1, 2), (0, 7)]


# What is printed -----------------------------------------------------------------------------


def test_the_guess_is_printed_and_then_what_info_prints(capsys):
    log = as_jsonl([gateway(T + at, prompt=10 + at) for at in range(3)])
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


# What the user may say -----------------------------------------------------------------------


OPTIONS: list[tuple[list[Row], str, str, int]] = [
    # As max_tokens, which some gateways log before they raise it.
    ([gateway(T, max_tokens=2)], "--rank=8", "--rank=8 --map=max_output_tokens=", 0),
    ([gateway(T), gateway(T + 1, "legal")], "", "--ranks=ranks.csv", 0),
    # Failed requests are left out, or kept if they have tokens.
    ([gateway(T), gateway(T + 1, status=504)], "--rank=8 --failed=refuse", "--rank=8 --failed=keep", 0),
    ([gateway(T), gateway(T + 1, status=504)], "--rank=8 --failed=refuse", "--rank=8", 1),
]


@pytest.mark.parametrize(("rows", "without", "with_it", "left_out"), OPTIONS)
def test_what_an_option_says_of_a_log_makes_a_trace_of_it(rows, without, with_it, left_out, tmp_path, capsys):
    log = as_jsonl(rows)
    assert main(["import", log, *without.split()]) == 2
    before = set(tmp_path.iterdir())
    assert main(["import", log, *with_it.split()]) == 0
    assert "Nothing was written; name a file to write it" in capsys.readouterr().out
    assert set(tmp_path.iterdir()) == before
    assert len(imported(log, *with_it.split())) == len(rows) - left_out


def test_ranks_of_a_column_count_unless_others_are_given():
    log = as_jsonl([gateway(T, lora_rank=32), gateway(T + 1, lora_rank=32)])
    assert [each.rank for each in imported(log).adapters] == [32]
    assert [each.rank for each in imported(log, "--rank", "8").adapters] == [8]


def test_columns_are_mapped_with_units():
    log = as_jsonl([{"a": 1000 + 500 * at, "b": "sql", "c": 10, "d": 4, "e": 9} for at in range(2)])
    asked = ("--map", "arrival=a:ms,adapter=b,prompt_tokens=c", "--map=output_tokens=d", "--map=rank=e")
    assert requests(imported(log, *asked)) == [(0, "sql", 9, 10, 4), (0.5, "sql", 9, 10, 4)]


@pytest.mark.parametrize(
    ("written", "prompt"), [(as_jsonl, None), (as_jsonl, 10), (as_csv, None), (as_parquet, 10)]
)
def test_streamed_requests_without_usage_are_left_out(written, prompt, capsys):
    log = written([gateway(T), gateway(T + 1, prompt=prompt, output=None), gateway(T + 2)])
    assert [arrival_s for arrival_s, *_ in requests(imported(log, "--rank=8"))] == [0, 2]
    said = (
        "1 of 3 requests went well, but lack a count of tokens, and were left out; streamed answers have them"
    )
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("written", [as_jsonl, as_csv, as_parquet])
def test_columns_may_hold_json_as_text(written):
    """As an export of a database has it: {"usage": {...}} in a cell of its own, and text that is none beside it."""
    rows = [gateway(T), gateway(T + 1, "legal"), gateway(T + 2)]
    plain = requests(imported(as_jsonl(rows), "--rank=8"))
    text = [
        {name: json.dumps(cell) if isinstance(cell, dict) else cell for name, cell in row.items()}
        for row in rows
    ]
    assert text[0]["request"] == '{"model": "sql"}'
    assert requests(imported(written([row | {"note": "{not json"} for row in text]), "--rank=8")) == plain


def test_python_s_own_text_of_a_dict_is_read_and_what_is_none_is_a_fault_of_its_row(capsys):
    usage = str({"prompt_tokens": 9, "completion_tokens": 4})
    rows = [{"timestamp": T + at, "model": "sql", "usage": usage} for at in range(3)]
    assert requests(imported(as_csv(rows), "--rank=8"))[0] == (0, "sql", 8, 9, 4)
    rows[1]["usage"] = "not json"
    assert main(["import", as_csv(rows), "--rank=8"]) == 2
    assert "3    usage   'not json'  a JSON object such as {...}" in capsys.readouterr().out


def test_adapters_without_requests_and_adapters_that_look_like_a_base_model_are_noticed(capsys):
    trace = imported(as_jsonl([gateway(T)]), "--ranks=ranks.csv")
    assert [each.rank for each in trace.adapters] == [16]
    assert "ranks.csv has 1 adapters that no request is for: 'legal'" in capsys.readouterr().err
    log = as_jsonl([gateway(T), gateway(T + 1, BASE), gateway(T + 2)])
    assert main(["import", log, "--rank", "8"]) == 0
    assert f"if it is the base model: --base-model {BASE}" in capsys.readouterr().err
    assert main(["import", log, "--rank", "8", "--base-model", BASE]) == 0
    assert "--base-model" not in capsys.readouterr().err


def test_what_comes_next_is_for_the_model_of_the_log(capsys):
    log = as_jsonl([gateway(T), gateway(T + 1), gateway(T + 2, model=BASE)])
    assert main(["import", log, "out.csv", "--rank", "48", "--base-model", BASE]) == 0
    run, plan = capsys.readouterr().out.splitlines()[-2:]
    assert run.startswith("Run it: simlora system=vllm gpu=h100_80g model=llama_3_1_8b ")
    assert "replica.max_lora_rank=64 " in run
    assert plan.startswith("Plan for it: simlora-plan model=llama_3_1_8b workload=file")


@pytest.mark.parametrize("written", [as_jsonl, as_parquet])
def test_an_error_whose_fields_are_all_empty_is_none(written):
    errors = [{"code": None, "message": ""}, {"code": 500, "message": ""}, None]
    rows = [gateway(T + at, error=error) for at, error in enumerate(errors)]
    assert [arrival_s for arrival_s, *_ in requests(imported(written(rows), "--rank=8"))] == [0, 2]


# Bad logs: every fault in one table ----------------------------------------------------------


class Bad(NamedTuple):
    """What is in a log, which faults are listed as `row | column | there is | must be`, and what was asked for."""

    content: str | bytes | list[Row]
    faults: list[str]
    options: tuple[str, ...] = ("--rank=8",)


TOKENS = "a whole number of tokens, at least 1"
PROMPT, OUTPUT = "response.usage.prompt_tokens", "response.usage.completion_tokens"
WELL = "that of a request that went well"
UNKNOWN = "no column for it among ts, model"
BAD = {
    "dates with and without zones": Bad(
        [gateway(f"2026-01-31T12:00:0{at}") for at in ("0Z", "1", "2+01:00")],
        ["2 | time | '2026-01-31T12:00:01' | a date with its zone, as in 2 rows"],
    ),
    "seconds and milliseconds": Bad(
        [gateway(T * 1000), gateway(T + 1), gateway(T * 1000 + 7), gateway("soon")],
        [f"2 | time | {T + 1} | ms since 1970, as in 2 rows", "4 | time | 'soon' | a time: "],
    ),
    "no ranks at all": Bad(
        [gateway(T), gateway(T + 1, "legal")],
        ["- | request.model | every one of 2 adapters without a rank: 'sql', 'legal' | a rank each: --ranks"],
        (),
    ),
    "models that ranks.csv and the log do not share": Bad(
        [gateway(T), gateway(T + 1, "sqk"), gateway(T + 2, "sqk")],
        [
            "- | --base-model | 'lama' | a model of the log; choose one of sqk, sql",
            "2 | request.model | 'sqk' | an adapter of ranks.csv; did you mean sql?",
            "... | request.model | 1 more like it | ",
        ],
        ("--ranks=ranks.csv", "--base-model", "lama"),
    ),
    "failed requests that are to be refused": Bad(
        [*(gateway(T, status=status) for status in (200, 429, 503, 7)), gateway(T, error={"code": 1})],
        [
            *(f"{row} | status | {code} | {WELL}" for row, code in ((2, 429), (3, 503))),
            "4 | status | 7 | a code such as 200 or 429",
            "5 | error | {'code': 1} | empty",
        ],
        ("--rank=8", "--failed=refuse"),
    ),
    "failed requests that are to be kept but have no tokens": Bad(
        [gateway(T), gateway(T, prompt=None, output=None, status=429)],
        [f"2 | {PROMPT} | empty | {TOKENS}", f"2 | {OUTPUT} | empty | {TOKENS}"],
        ("--rank=8", "--failed=keep"),
    ),
    "tokens that are none, and a row that came before the others": Bad(
        [
            gateway(T + 9, prompt=-5),
            gateway(T, output="many"),
            gateway(T + 1, prompt=1.5),
            gateway(T + 2, prompt=True, output=[7]),
            gateway(T + 3, prompt=float("nan")),
            gateway(T + 4, output=10**30),
        ],
        [
            f"1 | {PROMPT} | -5 | {TOKENS}",
            f"2 | {OUTPUT} | 'many' | {TOKENS}",
            f"3 | {PROMPT} | 1.5 | {TOKENS}",
            f"4 | {PROMPT} | True | {TOKENS}",
            f"... | {PROMPT} | 1 more like it | ",
            f"4 | {OUTPUT} | [7] | {TOKENS}",
            f"6 | {OUTPUT} | {10**30} | {TOKENS}",
        ],
    ),
    "tokens that are NaN in a table": Bad(
        "ts,model,prompt_tokens,completion_tokens\n1769860800,sql,NaN,4\n1769860801,,10,4\n",
        [f"2 | prompt_tokens | 'NaN' | {TOKENS}", "3 | model | empty | a model's name"],
    ),
    "more than half of the requests without usage": Bad(
        [gateway(T, status=500), gateway(T + 1, prompt=-1), *[gateway(T, prompt=None, output=None)] * 2],
        [
            "- | (the file) | 2 of 4 requests that went well, but lack a count",
            f"2 | {PROMPT} | -1 | {TOKENS}",
        ],
    ),
    "a mistyped column, and what is wrong with the one that is meant": Bad(
        [gateway(T, tenant="a"), gateway(T + 1, tenant="b")],
        [
            "- | tennant | no such column | a column for adapter; did you mean tenant?",
            "- | tenant | every one of 2 adapters without a rank: 'a', 'b' | a rank each: ",
        ],
        ("--map=adapter=tennant",),
    ),
    "no column that says when": Bad(
        [{"model": "sql", "usage": {"prompt_tokens": 1, "completion_tokens": 0.5}}],
        [
            "- | arrival | no column for it among model, usage.prompt_tokens, usage.completion_tokens | when",
            f"1 | usage.completion_tokens | 0.5 | {TOKENS}",
        ],
    ),
    "blank lines only": Bad("\n\n", ["- | (the file) | empty | at least one request"], ()),
    "broken lines below a blank one": Bad(
        f'\n{lines([gateway(T)])}{{"time": 1769860801, "request"\n[1, 2]\n{lines([gateway(T, prompt=-1)])}',
        [
            """3 | (the file) | '{"time": 1769860801, "request"' | a JSON object such as {...}""",
            "4 | (the file) | '[1, 2]' | a JSON object such as {...}",
            f"5 | {PROMPT} | -1 | {TOKENS}",
        ],
    ),
    "one column for two of ours, and one of ours twice": Bad(
        [gateway(T)],
        [
            "- | status | mapped to both prompt_tokens and output_tokens | one of ours",
            "- | --map arrival | named twice, again as 'tme' | named once",
            "- | tme | no such column | a column for arrival; did you mean time?",
        ],
        ("--rank=8", "--map=prompt_tokens=status,output_tokens=status,arrival=time,arrival=tme"),
    ),
    "two columns that fit alike": Bad(
        "ts,Prompt Tokens,prompt_tokens,output_tokens\n1769860800,1,2,x\n",
        [
            "- | prompt_tokens | 'Prompt Tokens' and 'prompt_tokens' fit alike | one column: --map",
            f"2 | output_tokens | 'x' | {TOKENS}",
        ],
        (),
    ),
    "a header that has a name twice": Bad(
        "ts,model,model\n1,2,3\n",
        [
            "- | (the file) | the column 'model' 2 times | each column once",
            f"- | prompt_tokens | {UNKNOWN} | the prompt's tokens: ",
            f"- | output_tokens | {UNKNOWN} | the answer's tokens: ",
        ],
    ),
    "no header": Bad("\n1,2\n", ["- | (the file) | no header in line 1 | CSV, JSON lines, "], ()),
    "a row with more cells than the header": Bad(
        "ts,model,prompt_tokens,completion_tokens\n1769860800,sql,5,5\n1769860801,sql,5,5,5\n1769860802,sql,-5,7\n",
        ["3 | (the file) | 5 cells | 4, as many as the header", f"4 | prompt_tokens | '-5' | {TOKENS}"],
    ),
    "half of a JSON report": Bad(
        json.dumps({"input_lens": [1, 2], "output_lens": [1, 2], "start_times": [0, 1]}, indent=1)[:40],
        ["- | (the file) | Unterminated string starting at: line 6 column 2 (char 33) | well-formed JSON"],
        (),
    ),
    "ranks that differ in a column": Bad(
        [gateway(T, rank=rank) for rank in (8, 16, 8, 0)],
        ["2 | rank | 16 | 8, as 'sql' has in its first row", "4 | rank | 0 | a whole number from 1 to 1,024"],
        (),
    ),
    "caps below the answers": Bad(
        [gateway(T, max_tokens=3), gateway(T, max_tokens=4)], ["1 | max_tokens | 3 | at least the answer's 4"]
    ),
    "a summary of a benchmark": Bad(
        json.dumps({"request_throughput": 3.9, "total_input_tokens": 30, "duration": 9}),
        ["- | (the file) | a summary of a run | a row a request: vllm bench serve --save-detailed, "],
        (),
    ),
    "two benchmarks in one file": Bad(
        lines([{"input_lens": [1], "output_lens": [2], "start_times": [1.0]}] * 2),
        ["- | (the file) | more than one run | one run: keep one line of the file"],
        (),
    ),
    "every request failed": Bad(
        [gateway(T, status=500)], ["- | (the file) | 1 rows, and every one failed | at least one that"]
    ),
    "text in no known coding": Bad(
        b'{"time": "\xff"}\n', ["- | (the file) | not text in UTF-8 | text in UTF-8, or Parquet"], ()
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_is_refused_with_all_its_faults_in_one_table(name, tmp_path, capsys):
    content, faults, options = BAD[name]
    is_csv = isinstance(content, str) and content.strip()[:1] not in ("{", "")
    log = Path("log.csv" if is_csv else "log.jsonl")
    if isinstance(content, bytes):
        log.write_bytes(content)
    else:
        log.write_text(content if isinstance(content, str) else lines(content))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["import", str(log), "out.parquet", *options]) == 2
    captured = capsys.readouterr()
    found = table_of(captured.out)
    assert len(found) == len(faults), captured.out
    assert [row[: len(fault)] for row, fault in zip(found, faults, strict=True)] == faults
    (sentence,) = captured.err.splitlines()
    assert sentence.startswith(f"simlora: error: {log} has ")
    assert sentence.endswith("in the table above; nothing was written")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def table_of(out: str) -> list[str]:
    """The rows of the printed table, their cells apart by bars."""
    lines = out.splitlines()
    head = max(at for at, line in enumerate(lines) if line.startswith("row "))
    begin = [lines[head].index(word) for word in ("row", "column", "there is", "must be")]
    pairs = list(zip(begin, [*begin[1:], None], strict=True))
    return [" | ".join(line[a:b].strip() for a, b in pairs) for line in lines[head + 1 :] if line]


@pytest.mark.parametrize("written", [as_jsonl, as_csv])
def test_a_truncated_file_is_refused_with_what_is_wrong_before_its_end(written, capsys):
    rows = [gateway(T + at, prompt=-1 if at == 5 else 10, text=f"{at * 7919}" * 9) for at in range(5000)]
    log = written(rows)
    data = gzip.compress(Path(log).read_bytes(), mtime=0)
    Path(f"{log}.gz").write_bytes(data[: len(data) // 2])
    assert main(["import", f"{log}.gz", "out.csv", "--rank=8"]) == 2
    out = capsys.readouterr().out
    assert "(the file)                    cut short: Truncated compressed stream  whole; " in out
    assert f"{6 + (written is as_csv)}    response.usage.prompt_tokens" in out
    assert not Path("out.csv").exists()
