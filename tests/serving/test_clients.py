"""Real clients on the loopback address: OpenAI's own, ones that leave, and ones of a replica that fails."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest

from simlora.serving.filler import text_of
from simlora.serving.front import Front
from simlora.serving.live import Wishes
from tests.serving.conftest import SLORA, listens, live

LONG = {"prompt": "Hello", "max_tokens": 2000, "ignore_eos": True, "stream": True}


def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes soon."""
    ends_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < ends_s, "it does not come"
        time.sleep(0.01)


def ended(front: Front) -> bool:
    return front.cluster.open_requests == 0


def test_openais_client_is_served() -> None:
    openai = pytest.importorskip("openai")
    with listens(live()) as (address,):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        assert len(client.models.list().data) == 201
        whole = client.completions.create(
            model="adapter_1", prompt="Hello", max_tokens=5, extra_body={"ignore_eos": True}
        )
        assert whole.choices[0].text == text_of(5)
        assert whole.usage.completion_tokens == 5
        stream = client.chat.completions.create(
            model="llama_7b",
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=6,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        *chunks, usage = list(stream)
        assert "".join(each.choices[0].delta.content or "" for each in chunks) == text_of(6)
        assert usage.usage.completion_tokens == 6
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.completions.create(model="unknown", prompt="Hello")
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            client.completions.create(model="llama_7b", prompt="Hello", max_tokens=0)


@pytest.mark.parametrize("stream", [True, False])
def test_the_request_of_a_client_that_leaves_ends(stream: bool) -> None:
    found = live(wishes=Wishes(speed=2.0))
    front = found.fronts[0]
    with listens(found) as (address,):
        if stream:
            with httpx.stream("POST", f"{address}/v1/completions", json=LONG) as response:
                next(response.iter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{address}/v1/completions", json=LONG | {"stream": False}, timeout=0.5)
        until(lambda: ended(front))
        replica = front.cluster.simulation.fleet.replicas[0]
        assert replica.kv.tokens() == 0
        assert front.cluster.tallies[0].ended == {"stop": 0, "length": 0, "abort": 1}
    rows = front.cluster.simulation.close().requests()
    assert rows.output_tokens[0] < 4000


def test_a_replica_behind_its_own_port_dies_and_comes_back() -> None:
    found = live(*SLORA, "cluster.replicas=2", wishes=Wishes(speed=10.0, per_replica=True))
    with listens(found) as (first, second):
        with httpx.stream("POST", f"{first}/v1/completions", json=LONG) as response:
            lines = response.iter_lines()
            next(lines)
            fault = {"kind": "fail", "replica": 0}
            assert httpx.post(f"{first}/simlora/faults", json=fault).status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
        assert httpx.get(f"{first}/health").status_code == 503
        every = httpx.get(f"{second}/simlora/state", params={"ports": "all"}).json()["replicas"]
        assert [(each["replica"], each["alive"]) for each in every] == [(0, False), (1, True)]
        assert 'engine="0"' in httpx.get(f"{second}/metrics").text, "as of a server of its own"
        assert httpx.get(f"{second}/health").status_code == 200
        refused = httpx.post(f"{first}/v1/completions", json={"prompt": "Hello"})
        assert refused.status_code == 503
        assert httpx.post(f"{second}/v1/completions", json={"prompt": "Hello"}).status_code == 200
        assert httpx.post(f"{first}/simlora/faults", json=fault).status_code == 400, "it has failed already"
        assert httpx.post(f"{first}/simlora/faults", json={"kind": "recover"}).status_code == 200
        assert httpx.get(f"{first}/health").status_code == 200
        assert httpx.post(f"{first}/v1/completions", json={"prompt": "Hello"}).status_code == 200


def test_requests_go_on_elsewhere_where_a_replica_of_several_dies() -> None:
    found = live(*SLORA, "cluster.replicas=2", wishes=Wishes(speed=2.0))
    body = LONG | {"max_tokens": 100}
    with (
        listens(found) as (address,),
        httpx.stream("POST", f"{address}/v1/completions", json=body) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        replicas = httpx.get(f"{address}/simlora/state").json()["replicas"]
        serves = next(each["replica"] for each in replicas if each["running"])
        httpx.post(f"{address}/simlora/faults", json={"kind": "fail", "replica": serves})
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert httpx.get(f"{address}/health").status_code == 200
        replicas = httpx.get(f"{address}/simlora/state").json()["replicas"]
        assert [each["alive"] for each in replicas] == [serves != 0, serves != 1]
    rows = found.fronts[0].cluster.close().requests()
    assert (rows.status[0], rows.replica[0], rows.migrations[0]) == ("finished", 1 - serves, 1)
    assert rows.output_tokens[0] == 100
