"""Whether simlora-serve leaks memory or connections: `python -m experiments.serving.soak [--minutes M]`.

Clients ask, leave in the middle of an answer, load and unload adapters, and send bodies that are broken or huge. They
are more than the cluster takes (`cluster.max_outstanding`), so that some get 503.
Printed are statuses by kind of client, the server's resident memory over time, and what is left when all have gone.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp

from experiments.serving.__main__ import metrics, serving
from experiments.studies.command import option, program

CONFIGURATION = (
    *("system=vllm", "gpu=h100_64g", "model=llama_3_1_8b", "workload=per_adapter", "replica.max_loras=8"),
    *("cluster.replicas=4", "cluster.max_outstanding=80", "replica.prefix_caching=true", "report=false"),
)
Seen = Counter[tuple[str, int]]


class Clients:
    """Clients of each kind, until the time is over; `seen` counts the statuses that they get."""

    def __init__(self, session: aiohttp.ClientSession, address: str, ends_s: float) -> None:
        self._session, self._address, self._ends_s = session, address, ends_s
        self.seen: Seen = Counter()
        self._numbers = 0

    async def run(self) -> None:
        """Ask until the time is over."""
        kinds: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.asks, 60),
            (self.leaves, 30),
            (self.loads, 4),
            (self.breaks, 4),
            (self.floods, 1),
        ]
        await asyncio.gather(*(self._again(each) for each, number in kinds for _ in range(number)))

    async def _again(self, client: Callable[[], Awaitable[None]]) -> None:
        while time.monotonic() < self._ends_s:
            try:
                await client()
            except (aiohttp.ClientError, ConnectionError):
                self.seen[client.__name__, 0] += 1
            await asyncio.sleep(0.01)

    async def _post(self, kind: str, path: str, body: bytes) -> None:
        async with self._session.post(f"{self._address}{path}", data=body) as response:
            await response.read()
            self.seen[kind, response.status] += 1

    def _body(self, tokens: int) -> bytes:
        self._numbers += 1
        model = f"adapter_{self._numbers % 90}"
        prompt = f"{self._numbers % 7} " * 200
        fields = {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
        return json.dumps(fields).encode()

    async def asks(self) -> None:
        """A client that reads all of its answer."""
        await self._post("asks", "/v1/completions", self._body(30))

    async def leaves(self) -> None:
        """A client that leaves after some of its answer, or before."""
        wait_s = (self._numbers % 10) / 10
        try:
            await asyncio.wait_for(self._post("leaves", "/v1/completions", self._body(2000)), wait_s)
        except TimeoutError:
            self.seen["leaves", -1] += 1

    async def loads(self) -> None:
        """An operator that loads an adapter, asks it and unloads it."""
        self._numbers += 1
        name = f"load-{self._numbers % 500}-r8"
        named = json.dumps({"lora_name": name}).encode()
        await self._post("loads", "/v1/load_lora_adapter", named)
        asked = json.dumps({"model": name, "prompt": "x", "max_tokens": 3}).encode()
        await self._post("loads", "/v1/completions", asked)
        await self._post("loads", "/v1/unload_lora_adapter", named)

    async def breaks(self) -> None:
        """A client whose bodies are none."""
        for body in (b"", b"{", b"\x00\xff" * 50, b"[" * 3000, b'{"prompt": 5}', b'{"prompt": "x", "n": 0}'):
            await self._post("breaks", "/v1/completions", body)
        await asyncio.sleep(0.1)

    async def floods(self) -> None:
        """A client whose bodies are huge."""
        await self._post("floods", "/v1/chat/completions", b"x" * (9 << 20))
        await asyncio.sleep(2)


async def soaked(address: str, minutes: float) -> Seen:
    """Let clients ask for so long, and print memory meanwhile."""
    ends_s = time.monotonic() + 60 * minutes
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        clients = Clients(session, address, ends_s)
        running = asyncio.ensure_future(clients.run())
        while not running.done():
            now = await asyncio.to_thread(metrics, address)
            answers = sum(clients.seen.values())
            megabytes = now["process_resident_memory_bytes", ""] / 1e6
            print(
                f"{answers:9,} answers  {megabytes:7.1f} MB  {now['simlora:open_requests', '']:4.0f} open",
                flush=True,
            )
            await asyncio.wait([running], timeout=6 * minutes)
        await running
    return clients.seen


async def left(address: str) -> str:
    """Return what is left of requests and KV, once they have had time to end."""
    await asyncio.sleep(3)
    async with aiohttp.ClientSession() as session, session.get(f"{address}/simlora/state") as response:
        state = await response.json()
    running = [each["running"] + each["waiting"] for each in state["replicas"]]
    used = [each["kv_usage"] for each in state["replicas"]]
    return (
        f"open {state['open_requests']}, in replicas {running}, KV in use {used}, crashed {state['crashed']}"
    )


@program(option("--minutes", type=float, default=60.0), about=__doc__)
def main(minutes: float) -> None:
    """Soak and print."""
    with serving([*CONFIGURATION]) as (address, _):
        seen = asyncio.run(soaked(address, minutes))
        print(asyncio.run(left(address)))
    for (kind, status), number in sorted(seen.items()):
        print(f"{kind:8} {status or 'broken off' if status >= 0 else 'left'}: {number:,}")
