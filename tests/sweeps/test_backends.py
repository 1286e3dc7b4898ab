"""A sweep on a Ray cluster of two nodes and on two Dask workers, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simlora import Sweep, sweep
from simlora.core.errors import InputError
from simlora.sweeps import running
from simlora.sweeps.backends import backend
from tests.sweeps.test_sweep import of

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
GRID = (
    "system=slora,slora_lcfs",
    "workload.rate_rps=2",
    "workload.duration_s=1500",
    "replica.kv_token_budget=14500",
)
SEEDS = 8


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMLORA_CACHE_DIR", str(tmp_path_factory.mktemp("alone")))
        return sweep(GRID, seeds=SEEDS, jobs=1)


class Killer(threading.Thread):
    """Kills one of the processes once so many runs are kept; `killed` says that it did, with runs to go."""

    def __init__(self, cache: Path, processes: Callable[[], list[int]], after: int = 3) -> None:
        super().__init__(daemon=True)
        self._cache, self._processes, self._after = cache, processes, after
        self.killed = False

    def run(self) -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            kept = len(list(self._cache.glob("[0-9a-f]*.json")))
            if kept >= self._after:
                os.kill(self._processes()[0], signal.SIGKILL)
                self.killed = kept < 2 * SEEDS
                return
            time.sleep(0.01)


def processes_named(word: str) -> list[int]:
    """Return the processes of this machine whose command has this word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture
def dask() -> Iterator[Callable[[], list[int]]]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield lambda: list(client.run(os.getpid).values())


def test_two_dask_workers_one_of_which_is_killed(
    dask: Callable[[], list[int]], own_cache: Path, alone: Sweep
) -> None:
    pids = dask()
    assert len(pids) == 2
    killer = Killer(own_cache, lambda: pids)
    killer.start()
    found = sweep(GRID, seeds=SEEDS, backend="dask")
    killer.join()
    assert killer.killed
    assert of(found.table).equals(of(alone.table))


@pytest.fixture
def ray_cluster() -> Iterator[str]:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


def test_two_ray_nodes_with_a_worker_killed(ray_cluster: str, own_cache: Path, alone: Sweep) -> None:
    killer = Killer(own_cache, lambda: processes_named("ray::PoolActor"))
    killer.start()
    found = sweep(GRID, seeds=SEEDS, backend="ray")
    killer.join()
    assert killer.killed
    assert of(found.table).equals(of(alone.table))


def test_a_process_of_this_machine_that_is_killed(own_cache: Path, alone: Sweep) -> None:
    mine = os.getpid()

    def workers() -> list[int]:
        return [
            pid for pid in processes_named("joblib.externals.loky.backend.popen_loky") if parent(pid) == mine
        ]

    killer = Killer(own_cache, workers)
    killer.start()
    found = sweep(GRID, seeds=SEEDS, jobs=2)
    killer.join()
    assert killer.killed
    assert of(found.table).equals(of(alone.table))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_processes_that_always_die_end_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def dies(runs: list[tuple[str, ...]], jobs: int, keep_going: bool) -> Iterator[None]:
        tried.append(len(runs))
        raise running.BrokenExecutor("gone")
        yield

    monkeypatch.setattr(running, "_spread", dies)
    with pytest.raises(InputError, match="processes that simulate died 3 times without a run that ended"):
        sweep(GRID, seeds=1)
    assert tried == [2, 2, 2]


def test_a_backend_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(InputError, match="backend is 'slurm'; choose one of dask, loky, ray"),
        backend("slurm"),
    ):
        pass
    with (
        pytest.raises(InputError, match="backend=loky runs on this machine"),
        backend("loky", "x"),
    ):
        pass
    with pytest.raises(InputError, match=r"there is no Dask scheduler at tcp://127.0.0.1:9"):
        sweep(GRID, backend="dask", address="tcp://127.0.0.1:9")
