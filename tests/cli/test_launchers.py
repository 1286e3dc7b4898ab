"""A sweep whose runs a launcher of Hydra's starts in processes of their own, as it does in SLURM's jobs."""

from typing import Any

import pandas as pd
import pytest

from tests.cli.command import SHORT, Command

LOCAL = ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5")


def told(simlora: Command, folder: str) -> dict[str, Any]:
    """Return a run's summary without what the clock on the wall says."""
    summary = simlora.summary(folder)
    summary["simulation"] = {k: v for k, v in summary["simulation"].items() if "wall" not in k}
    return summary


def test_a_launchers_process_hands_a_mistake_back(simlora, monkeypatch):
    monkeypatch.setattr("simlora.cli.job._launched", lambda: True)
    ended = simlora("-m", "hydra.sweep.dir=out", "workload.rate_rps=-1,1", *SHORT)
    assert ended.status == 2
    assert "workload.rate_rps is -1" in ended.err.splitlines()[-1]
    assert simlora.summary("out/1")["complete"]  # the others go on


def test_a_launchers_process_hands_a_crash_back_as_one(simlora, monkeypatch):
    def crash(config: object) -> None:
        raise ValueError("ours")

    monkeypatch.setattr("simlora.cli.job._launched", lambda: True)
    monkeypatch.setattr("simlora.cli.job._simulate", crash)
    with pytest.raises(RuntimeError, match=r"a run has crashed:\nTraceback[\s\S]*ValueError: ours"):
        simlora("-m", "hydra.sweep.dir=out", "seed=0,1", *SHORT)


def test_runs_in_processes_of_their_own_are_the_same_also_beside_a_mistake(simlora):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs simlora[slurm]")
    assert simlora("hydra.run.dir=here", "workload.rate_rps=2", *SHORT).status == 0
    ended = simlora.apart("-m", *LOCAL, "hydra.sweep.dir=out", "workload.rate_rps=-1,2", *SHORT)
    assert ended.status == 2
    assert "simlora: error: workload.rate_rps is -1" in ended.err
    assert told(simlora, "out/1") == told(simlora, "here")
    here, there = (pd.read_parquet(f"{folder}/requests.parquet") for folder in ("here", "out/1"))
    pd.testing.assert_frame_equal(here, there)
