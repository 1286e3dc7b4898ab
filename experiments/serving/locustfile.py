"""What Locust's users do: each asks an adapter for a streamed answer, and times its tokens."""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import Any

import gevent
from locust import HttpUser, constant_throughput, events, task

ASKED = json.loads(os.environ["LOCUST_ASKED"])
NUMBERS = itertools.count()
SAID: dict[str, Any] = {"first_token_s": [], "time_per_token_s": [], "failed": 0, "seconds": 0.0}
BEGAN_S = time.perf_counter()


class Asks(HttpUser):
    """A user that asks at its rate; the last of all requests ends the run, when all answers are there."""

    wait_time = constant_throughput(ASKED["user_rps"])

    @task
    def ask(self) -> None:
        """Ask for one answer."""
        number = next(NUMBERS)
        if number >= ASKED["requests"]:
            if number == ASKED["requests"]:
                gevent.spawn(self.environment.runner.quit)  # which stops each user when it waits
            return
        body = {
            "model": ASKED["adapters"][number % len(ASKED["adapters"])],
            "prompt": ASKED["prompt"],
            "max_tokens": ASKED["output_tokens"],
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        whole = f'"completion_tokens":{ASKED["output_tokens"]}'.encode()
        began_s, times_s, ended = time.perf_counter(), [], b""
        # A user is idle for longer than the five seconds after which the server, as vLLM's, closes a connection.
        asks = {"json": body, "headers": {"Connection": "close"}}
        with self.client.post("/v1/completions", stream=True, catch_response=True, **asks) as response:
            connected = response.status_code > 0
            for chunk in response.iter_content(chunk_size=None) if connected else ():
                # An event has a token or several.
                times_s += [time.perf_counter()] * chunk.count(b'"text"')
                ended = ended[-1000:] + chunk
            if response.status_code == 200 and whole in ended:
                response.success()
                SAID["first_token_s"].append(times_s[0] - began_s)
                SAID["time_per_token_s"].append((times_s[-1] - times_s[0]) / (ASKED["output_tokens"] - 1))
                SAID["seconds"] = times_s[-1] - BEGAN_S
            else:
                response.failure(f"status {response.status_code}, {len(times_s)} events")
                SAID["failed"] += 1


@events.quitting.add_listener
def say(environment: object, **more: object) -> None:
    """Write what was measured."""
    with open(os.environ["LOCUST_SAID"], "w", encoding="utf-8") as file:
        json.dump(SAID, file)
