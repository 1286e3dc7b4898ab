"""Equal seeds give equal bytes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.command import Command

RUN = (
    "workload=synthetic",
    "workload.duration_s=60",
    "cluster.replicas=3",
    "router=random",
    "eviction=lru",
    "seed=5",
)


def test_the_hash_seed_changes_nothing(simlora: Command):
    for folder, hash_seed in (("one", "1"), ("two", "2")):
        ended = simlora.apart(
            *RUN,
            "report=false",
            f"hydra.run.dir={folder}",
            **(dict(os.environ) | {"PYTHONHASHSEED": hash_seed}),
        )
        assert ended.status == 0, ended.err
    for name in ("requests.parquet", "timeline.parquet", "config.yaml"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes(), name
    one, two = (simlora.summary(folder) for folder in ("one", "two"))
    for summary in (one, two):
        del summary["simulation"]["wall_s"], summary["simulation"]["requests_per_wall_s"]
    assert one == two
    assert list(one) == list(two)


def test_another_seed_changes_the_results(simlora: Command):
    for seed in (5, 6):
        simlora(*RUN[:-1], "report=false", f"seed={seed}", f"hydra.run.dir={seed}")
    assert Path("5/requests.parquet").read_bytes() != Path("6/requests.parquet").read_bytes()


def test_the_plain_loop_gives_the_same_requests(simlora: Command):
    for choice in ("true", "false"):
        simlora(*RUN, "report=false", f"fast_forward={choice}", f"hydra.run.dir=run_{choice}")
    assert Path("run_true/requests.parquet").read_bytes() == Path("run_false/requests.parquet").read_bytes()
