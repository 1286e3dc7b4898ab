"""The cluster: which requests are rejected and why, where they may go, what an interrupt leaves behind."""

import subprocess
import sys

import numpy as np
import pytest

from simlora.engine.cluster.simulation import Simulation
from tests.engine.cases import Case, Row

FULL = "prompt, output and adapter do not fit replica.kv_token_budget 100"


@pytest.mark.parametrize(
    "changes, prompt, says",
    [
        ({"max_num_batched_tokens": 9}, 9, ""),
        ({"max_num_batched_tokens": 9}, 10, "the prompt is longer than replica.max_num_batched_tokens 9"),
        ({"reserve": "full"}, 72, ""),
        ({"reserve": "full"}, 73, FULL),
        ({"reserve": "padded"}, 72, ""),
        ({"reserve": "padded"}, 73, FULL),
        ({"reserve": "peak"}, 71, ""),
        ({"reserve": "peak"}, 72, FULL),
        ({"reserve": "paged", "block_size": 16}, 72, ""),
        ({"reserve": "paged", "block_size": 20}, 57, FULL),
    ],
)
def test_what_could_never_run_is_rejected_at_arrival_with_the_reason(changes: dict, prompt: int, says: str):
    row = Case(rows=(Row(3.0, 0, prompt, 20, 24),), capacity=100).but(**changes).table().loc[0]
    assert (row.status, row.reason) == ("rejected" if says else "finished", says)
    assert (row.finish_s == 3.0) == np.isnan(row.admitted_s) == bool(says)


def test_an_interrupt_leaves_the_finished_and_marks_the_rest_unfinished() -> None:
    rows = tuple(Row(float(i), None, 5, 5, 5) for i in range(2000))
    simulation = Simulation(Case(rows=rows).scenario())

    def interrupt(ended: int) -> None:
        if ended:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulation.run(progress=interrupt)
    status = simulation.recorder.requests().status
    assert set(status) == {"finished", "unfinished"}
    assert (status == "finished").sum() == simulation.recorder.ended == 1024


HASH = """
import hashlib
from tests.engine.cases import Case, Row
rows = tuple(Row(i / 50, i % 7, 5 + i % 30, 1 + i % 20, 40) for i in range(200))
table = Case(rows=rows, ranks=(1, 2, 4, 8, 1, 2, 4), capacity=200, eviction="lru", replicas=2).table()
print(hashlib.sha256(table.to_csv().encode()).hexdigest())
"""


def test_the_hash_seed_of_the_interpreter_changes_nothing() -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", HASH],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            stdout=subprocess.PIPE,
        )
        for seed in ("1", "2")
    ]
    one, other = (process.communicate()[0] for process in started)
    assert one == other != b""
