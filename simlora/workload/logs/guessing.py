"""Which column of a log is which of ours: the names that serving tools and gateways use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from simlora.core.checks import shown
from simlora.core.errors import InputError, nearest
from simlora.workload.logs.faults import Fault

NAMES = {
    ours: tuple(names.split())
    for ours, names in {
        "arrival": """
            arrival_s arrival_time arrived_at arrival start_times request_start_time
            timings.request_start request_start_ns start_time started_at received_at request_timestamp
            timestamp ts time datetime date created_at created
        """,
        "adapter": """
            adapter adapter_name adapter_id lora lora_adapter lora_name lora_names lora_id model_group
            model model_name genai_model_name request_model model_permaslug model_id
        """,
        "rank": "rank lora_rank adapter_rank",
        "prompt_tokens": """
            prompt_tokens input_tokens prompt_token_count input_token_count context_tokens input_length
            prompt_length input_lens input_len prompt_len input_sequence_length.value request_tokens
            num_prompt_tokens num_input_tokens tokens_in tokens_prompt genai_tokens_input input_toks isl
        """,
        "output_tokens": """
            output_tokens completion_tokens generated_tokens output_token_count completion_token_count
            output_length output_lens output_len completion_length output_sequence_length.value
            response_tokens generation_tokens num_generation_tokens num_output_tokens num_generated_tokens
            tokens_out tokens_completion genai_tokens_output output_toks osl
        """,
        "max_output_tokens": "max_output_tokens max_completion_tokens max_tokens max_new_tokens",
        "session": "session session_id x_correlation_id conversation_id chat_id thread_id",
        "block_hashes": "block_hashes hash_ids",
        "status": "status_code http_status response_status response_code status success",
        "error": "error errors error_message error_code exception cancelled",
        "phase": "benchmark_phase",
        "cache_hit": "cache_hit",
    }.items()
}
"""For each of ours the names that others use, the surest first. A path ends with one: usage.prompt_tokens."""
OF_MODELS = ("modelmapinformation", "modelinfo")
"""Where LiteLLM writes what it knows of a model, such as its longest answer: nothing below is of the request."""
MEASURED = {
    ours: tuple(names.split())
    for ours, names in {
        "ttft": """
            ttfts ttft_s ttft_ms ttft time_to_first_token_ms time_to_first_token_s time_to_first_token.value
            time_to_first_token first_token_latency_ms first_token_latency
        """,
        "latency": """
            latency_s latency_ms e2e_latency_s e2e_latency_ms e2e_latency request_latency.value request_latency
            duration_ms response_time_ms latencies latency
        """,
        "first_token": "completionstarttime first_token_time first_token_at first_token_timestamp first_token_ts",
        "end": "end_time request_end_ns ended_at finished_at completed_at last_token_ts",
        "gaps": "itls inter_token_latencies",
        "token_times": "output_token_times token_timestamps",
    }.items()
}
"""What a server did with a request: two durations, two moments, the times between tokens, and the moments of tokens."""
Rates = tuple[float | None, float | None]
OURS = tuple(NAMES)
REQUIRED = ("arrival", "prompt_tokens", "output_tokens")
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds in each unit of time."""
TOOLS = (
    ("a result of vllm bench serve", ("input_lens", "output_lens", "queue_times")),
    ("a result of vllm bench serve", ("input_lens", "output_lens", "start_times")),
    ("a result of sglang.bench_serving or vllm bench serve", ("input_lens", "output_lens")),
    ("a report of GuideLLM", ("request_start_time", "info.timings.request_start")),
    ("AIPerf's records", ("metadata.request_start_ns",)),
    ("inference-perf's requests", ("start_time", "end_time", "info.input_tokens")),
    ("inference-perf's requests", ("start_time", "end_time", "info.request_metrics.text.input_tokens")),
    ("LiteLLM's log", ("startTime", "endTime", "prompt_tokens", "completion_tokens")),
    ("Envoy AI Gateway's log", ("genai_model_name", "genai_tokens_input", "genai_tokens_output")),
    ("Kong AI Gateway's log", ("ai.proxy.meta.request_model", "ai.proxy.usage.prompt_tokens")),
    ("OpenRouter's log", ("model_permaslug", "tokens_prompt", "tokens_completion")),
    ("an Azure LLM inference trace", ("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    ("a Mooncake trace", ("timestamp", "input_length", "output_length", "hash_ids")),
    ("our own schema", ("arrival_s", "adapter", "rank", "prompt_tokens", "output_tokens")),
)
"""What a log is called, by columns that it has."""


@dataclass(frozen=True)
class Source:
    """The column of a log that is one of ours; `unit`, of a time: as the user has said it, None where it is guessed."""

    column: str
    unit: str | None = None


def tool_of(names: Sequence[str]) -> str:
    """Return what wrote a log, as far as its columns tell."""
    has = set(names)
    return next((tool for tool, columns in TOOLS if has.issuperset(columns)), "a log of requests")


@cache
def may_be_ours(name: str, measured: bool = False) -> bool:
    """Return whether a column's name is one of those that are looked for; `measured`: those of MEASURED, too."""
    looked_for = [*NAMES.values(), *(MEASURED.values() if measured else ())]
    return any(_fits(name, alias) for aliases in looked_for for alias in aliases)


def given_map(
    texts: Sequence[str], known: Sequence[str] = OURS
) -> tuple[dict[str, Source | None], list[Fault]]:
    """Return what --map says, `arrival=timestamp:ms,adapter=model`; None: no column, by an empty name.

    `known` are the columns of ours that may be named. Raises InputError for a text of another form or a column of ours
    that there is not. A fault is one of ours that is named twice, or one of theirs that is to be
    two of ours.
    """
    found: dict[str, Source | None] = {}
    faults: list[Fault] = []
    for part in (part for text in texts for part in text.split(",")):
        ours, equals, column = (word.strip() for word in part.partition("="))
        ours = "arrival" if ours == "arrival_s" else ours
        if not equals:
            raise InputError(f"--map has {shown(part)}, must be ours=theirs, such as arrival=timestamp")
        if ours not in known:
            raise InputError(f"--map has no column {shown(ours)} of ours; {nearest(ours, known)}")
        name, colon, unit = column.rpartition(":")
        source = Source(name, unit) if colon and unit in UNITS else Source(column)
        if ours in found:
            faults.append(Fault(f"--map {ours}", f"named twice, again as {shown(column)}", "named once"))
        for other, taken in found.items():
            if other != ours and taken and taken.column == source.column:
                both = f"both {other} and {ours}"
                faults.append(Fault(source.column, f"mapped to {both}", "one of ours; name another column"))
        found[ours] = source if column else None
    return found, faults


def guess(
    names: Sequence[str],
    has_cells: Callable[[str], bool],
    given: Mapping[str, Source | None],
    looked_for: Mapping[str, Sequence[str]] = NAMES,
) -> tuple[dict[str, Source], list[Fault]]:
    """Return the column of the log for each of ours that it has, and what is wrong about that.

    `looked_for` has the names that others use for ours. `names` are the log's columns; one in which no cell `has_cells`
    is passed over, unless it is `given`. Where a `given` one is not there, that which it looks like is found, so that
    its own faults are, too.
    """
    found: dict[str, Source] = {}
    faults: list[Fault] = []
    taken = {source.column for source in given.values() if source}
    free = [name for name in names if name not in taken and has_cells(name)]
    for ours, aliases in looked_for.items():
        if ours in given:
            source = given[ours]
            if source and names and source.column not in names:
                faults.append(
                    Fault(
                        source.column,
                        "no such column",
                        f"a column for {ours}; {nearest(source.column, names)}",
                    )
                )
                alike = get_close_matches(source.column, names, n=1)
                source = Source(alike[0], source.unit) if alike and alike[0] in free else None
            if source and names:
                found[ours] = source
            continue
        fitting = next(filter(None, (_nearest_to_top(free, alias) for alias in aliases)), [])
        if len(fitting) > 1:
            both = " and ".join(map(shown, fitting))
            faults.append(Fault(ours, f"{both} fit alike", f"one column: --map {ours}={fitting[0]}"))
        if fitting:
            found[ours] = Source(fitting[0])
    return found, faults


def missing(
    names: Sequence[str], found: Mapping[str, Source], given: Mapping[str, Source | None], rates: Rates
) -> list[Fault]:
    """Return a fault for each of the REQUIRED columns that is neither found nor given.

    `rates` are the rate of requests by which arrivals are drawn, and that which the log says it has had.
    """
    drawn_rps, own_rps = rates
    own = f"{own_rps:g}, as the log says of itself," if own_rps else "RPS"
    has = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    says = {
        "arrival": f"when each request came: --map arrival=COLUMN, or --rate {own} to draw it",
        "prompt_tokens": "the prompt's tokens: --map prompt_tokens=COLUMN",
        "output_tokens": "the answer's tokens: --map output_tokens=COLUMN",
    }
    return [
        Fault(ours, f"no column for it among {has}", says[ours])
        for ours in REQUIRED
        if ours not in found and not given.get(ours) and not (ours == "arrival" and drawn_rps)
    ]


def _nearest_to_top(names: Sequence[str], alias: str) -> list[str]:
    """Return the columns that end with a name, of those the least nested ones, a request's before others."""
    fitting = [name for name in names if _fits(name, alias)]
    least = min((name.count(".") for name in fitting), default=0)
    top = [name for name in fitting if name.count(".") == least]
    return [name for name in top if "request" in name.lower()] or top if len(top) > 1 else top


def _fits(name: str, alias: str) -> bool:
    """Return whether a path ends with a name; case and all but letters and digits do not count."""
    plain, end = _plain(name), _plain(alias)
    above = plain.split(".")[:-1]
    return (plain == end or plain.endswith(f".{end}")) and not any(part in OF_MODELS for part in above)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())
