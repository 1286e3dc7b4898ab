"""The engine is one: a run that was served live has the same times offline."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from simlora.api import simulate
from simlora.core.errors import InputError
from simlora.serving.faults import begin
from simlora.serving.live import Live, Wishes, scenarios
from simlora.serving.replay import replay
from simlora.serving.schemas import Fault
from simlora.workload.file import File, events_path
from tests.serving.conftest import SLORA, VLLM, asked, live, post, setup
from tests.traces import csv

TIMES = ["arrival_s", "admitted_s", "first_token_s", "finish_s", "cold_start_s"]
CACHED = (*VLLM, "replica.prefix_caching=true")
FOUR = (*SLORA, "cluster.replicas=4", "router=most_idle")


def traffic(found: Live, number: int = 40) -> list[httpx.Response]:
    """The answers to some requests that overlap, of several adapters, half of them streamed."""
    front = found.fronts[0]
    names = [front.adapters.base, *front.adapters.names()[:8]]

    async def one(client: httpx.AsyncClient, id: int) -> Any:
        await asyncio.sleep(0.004 * id)
        body = {
            "model": names[id % len(names)],
            "prompt": "word " * (16 * (id % 5 + 1)),
            "max_tokens": 3 + id % 17,
            "stream": bool(id % 2),
        }
        return await client.post("/v1/completions", json=body)

    async def ask(client: httpx.AsyncClient) -> Any:
        return await asyncio.gather(*(one(client, id) for id in range(number)))

    answers: list[httpx.Response] = asked(front, ask)
    return answers


def assert_same_times(served: pd.DataFrame, again: pd.DataFrame) -> None:
    assert served.status.tolist() == again.status.tolist()
    assert served.adapter.tolist() == again.adapter.tolist()
    np.testing.assert_allclose(served[TIMES], again[TIMES], rtol=0, atol=1e-6)


@pytest.mark.parametrize("overrides", [CACHED, FOUR], ids=["prefixes", "four"])
def test_a_recorded_run_has_the_same_times_offline(overrides: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    found = live(*overrides, record=path)
    assert {each.status_code for each in traffic(found)} == {200}
    found.close()
    result = found.result(found.fronts[0])
    served = result.tables["requests"]
    assert len(served) == 40
    assert (served.status == "finished").all()
    assert not events_path(path).exists()
    kept = [each for each in overrides if not each.startswith("workload")]
    known = f"replica.listed_adapters={len(found.fronts[0].adapters.names())}"
    again = simulate([*kept, known, "workload=file", f"workload.path={path}"])
    assert_same_times(served, again.tables["requests"])
    assert result.summary["requests"] == again.summary["requests"]


def test_so_has_one_with_clients_that_left_adapters_that_came_and_faults(tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    found = live(*FOUR, "replica.max_num_seqs=2", wishes=Wishes(speed=20.0), record=path)
    front = found.fronts[0]

    async def leaves(client: httpx.AsyncClient, id: int) -> None:
        body = {
            "model": "late-r8" if id % 2 else "adapter_3",
            "prompt": "x" * 80,
            "max_tokens": 2000,
            "ignore_eos": True,
        }
        task = asyncio.ensure_future(client.post("/v1/completions", json=body))
        await asyncio.sleep(0.05 + 0.01 * id)
        task.cancel()

    async def ask(client: httpx.AsyncClient) -> None:
        await client.post("/v1/load_lora_adapter", json={"lora_name": "late-r8"})
        tasks = [asyncio.ensure_future(leaves(client, id)) for id in range(24)]
        await asyncio.sleep(0.1)
        begin(front, Fault(kind="fail", replica=1, for_s=2.0))
        begin(front, Fault(kind="slow", replica=0, for_s=2.0, factor=3.0))
        begin(front, Fault(kind="slow", replica=2, factor=9.0))
        await asyncio.sleep(0.02)
        begin(front, Fault(kind="recover", replica=2))
        await asyncio.gather(*tasks)

    asked(front, ask)
    found.close()
    result = found.result(found.fronts[0])
    served = result.tables["requests"]
    assert len(served) == 24
    assert {"aborted", "finished"} == set(served.status)
    assert events_path(path).exists()
    (scenario,) = scenarios(setup(*FOUR, "replica.max_num_seqs=2").scenario, per_replica=False)
    assert_same_times(served, replay(scenario, path).recorder.requests())
    assert "seen.events.jsonl beside it has what else happened" in File(str(path)).build(0).notices[-1]


@pytest.mark.parametrize(
    ("row", "event", "message"),
    [
        ("0,late-r8,8,9,4", "", "row 2: adapter 'late-r8' is not known then"),
        ("0,late-r8,8,9,none", "", "output_tokens is 'none'"),
        ("0,adapter_0,7,9,4", "", "row 2: adapter 'adapter_0' has rank 7, must have "),
        ("0,,,9,4", '{"what": "load", "time_s": 1, "name": "a", "rank": 0}', "line 1: rank is 0"),
        (
            "0,,,9,4",
            '{"what": "failure", "time_s": 5, "host": 0, "at_s": 1, "until_s": 2}',
            "line 1: until_s of cluster.failures is 2",
        ),
        (
            "0,,,9,4",
            '{"what": "failure", "time_s": 5, "host": 9, "at_s": 5, "until_s": null}',
            "line 1: host is 9",
        ),
        ("0,,,9,4", '{"what": "melt", "time_s": 1}', "line 1: Invalid value 'melt'"),
        ("0,,,9,4", "{", "line 1: Input data was truncated; must be an event that simlora-serve recorded"),
        ("0,,,9,4", '{"what": "leave", "time_s": 1, "request": 7}', "line 1: request 7 has not come"),
        ("0,,,9,4", '{"what": "load", "time_s": 1, "name": "a"}', "missing required field `rank`"),
    ],
)
def test_what_is_no_record_is_refused(row: str, event: str, message: str, tmp_path: Path) -> None:
    path = Path(csv(tmp_path, row))
    if event:
        events_path(path).write_text(event)
    (scenario,) = scenarios(setup(*FOUR).scenario, per_replica=False)
    with pytest.raises(InputError, match=message):
        replay(scenario, path)


def test_each_replica_by_itself_is_replayed_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    found = live(*SLORA, "cluster.replicas=2", wishes=Wishes(speed=20.0, per_replica=True), record=path)
    assert len(found.fronts) == 2
    assert {each.status_code for each in traffic(found, 10)} == {200}
    found.close()
    first = found.result(found.fronts[0])
    with pytest.raises(InputError, match="no request was served"):
        found.result(found.fronts[1])
    again = simulate(
        [*SLORA[:2], "report=false", "workload=file", f"workload.path={tmp_path / 'seen-0.csv'}"]
    )
    assert_same_times(first.tables["requests"], again.tables["requests"])


def test_a_record_is_complete_where_nothing_could_be_served(tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    small = (*SLORA, "replica.kv_token_budget=4000")
    found = live(*small, wishes=Wishes(speed=20.0, max_model_len=4000), record=path)
    asks = {"model": found.fronts[0].adapters.names()[0], "prompt": "x" * 4 * 3_990, "max_tokens": 5}
    post(found.fronts[0], "/v1/completions", asks)
    found.close()
    assert len(pd.read_csv(path)) == 1
    with pytest.raises(InputError, match="is rejected"):
        found.result(found.fronts[0])
