"""The live page in a real browser: it draws the state of each replica, without an error and without another host."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from simlora.serving.live import Wishes
from tests.report.test_in_a_browser import BROWSER, opened
from tests.serving.conftest import listens, live

ROUTED = ("gpu=a10g", "model=llama_7b", "cluster.replicas=3", "router=adapter_affinity", "report=false")
ANSWER = {"prompt": "Hello " * 20, "max_tokens": 2000, "ignore_eos": True, "stream": True}

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser is installed here")


def test_the_page_shows_each_replica_its_adapters_and_its_load(tmp_path: Path) -> None:
    with (
        listens(live(*ROUTED, wishes=Wishes(speed=2.0))) as (address,),
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        answers = [
            client.send(
                client.build_request("POST", "/v1/completions", json={**ANSWER, "model": f"adapter_{at}"}),
                stream=True,
            )
            for at in range(6)
        ]
        streams = [answer.iter_lines() for answer in answers]
        for stream in streams:
            next(stream)
        state = client.get("/simlora/state").json()
        page, asked, console = opened(f"{address}/simlora/", tmp_path, ", EXCLUDE 127.0.0.1")
        for answer in answers:
            answer.close()
    rows = re.findall(r'<tr(?: class="")? data-replica="(\d)">(.*?)</tr>', page)
    assert [name for name, _ in rows] == ["0", "1", "2"]
    shown = {int(name): set(re.findall(r"adapter_\d", row)) for name, row in rows}
    known = {each["replica"]: {one["name"] for one in each["adapters"]} for each in state["replicas"]}
    assert {name for names in shown.values() for name in names} == {f"adapter_{at}" for at in range(6)}
    assert all(known[replica] <= names for replica, names in shown.items())
    assert "router AdapterAffinity" in page
    for each in state["replicas"]:
        first_tokens = each["ttft_last_minute_s"]
        assert first_tokens["requests"] == 2
        assert 0 < first_tokens["p50"] <= first_tokens["p95"]
    assert not console
    assert asked
    assert all(url.startswith(address) for url in asked if not url.endswith("favicon.ico"))


def test_it_says_when_the_server_does_not_answer(tmp_path: Path) -> None:
    with listens(live(*ROUTED)) as (address,):
        page = tmp_path / "page.html"
        page.write_text(
            httpx.get(f"{address}/simlora/").text.replace('fetch("state"', f'fetch("{address}/gone"')
        )
        dom, _, _ = opened(page.as_uri(), tmp_path)
    assert "the server does not answer" in dom
