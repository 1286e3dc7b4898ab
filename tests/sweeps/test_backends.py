"""A sweep on a Ray cluster of two nodes and on two Dask workers, one of which is killed in the middle."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from joblib.externals.loky import get_reusable_executor

from simlora import Sweep, sweep
from simlora.core.errors import InputError
from simlora.sweeps import backends, running
from simlora.sweeps.backends import backend
from tests.sweeps.dying import died
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
    "system=slora",
    "scheduler._target_=tests.sweeps.dying.KillsItsProcess",
    "workload.rate_rps=2,1.9",
    "workload.duration_s=30",
    "replica.kv_token_budget=14500",
)
SEEDS = 4


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    get_reusable_executor().shutdown(wait=True)  # processes of earlier tests have the folder of those
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    cache = tmp_path_factory.mktemp("alone")
    died(cache).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMLORA_CACHE_DIR", str(cache))
        return sweep(GRID, seeds=SEEDS, jobs=1)


@pytest.fixture
def dask() -> Iterator[None]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert len(client.run(os.getpid)) == 2
        yield


def test_two_dask_workers_one_of_which_is_killed(dask, own_cache, alone):
    found = sweep(GRID, seeds=SEEDS, backend="dask")
    assert died(own_cache).exists()
    assert of(found.table).equals(of(alone.table))


@pytest.fixture
def ray_cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    yield
    ray.shutdown()
    cluster.shutdown()


def test_two_ray_nodes_with_a_worker_killed(ray_cluster, own_cache, alone, monkeypatch):
    monkeypatch.setattr(running, "AT_ONCE", 2)  # so that half of the runs are kept when the worker is killed
    found = sweep(GRID, seeds=SEEDS, backend="ray")
    assert died(own_cache).exists()
    assert of(found.table).equals(of(alone.table))


def test_a_process_of_this_machine_that_is_killed(own_cache, alone):
    found = sweep(GRID, seeds=SEEDS, jobs=2)
    assert died(own_cache).read_text() != str(os.getpid())
    assert of(found.table).equals(of(alone.table))


def test_processes_that_always_die_end_in_a_sentence(monkeypatch):
    tried = []

    def dies(runs: list[tuple[str, ...]], jobs: int, keep_going: bool) -> Iterator[None]:
        tried.append(len(runs))
        raise running.BrokenExecutor("gone")
        yield

    monkeypatch.setattr(running, "_spread", dies)
    with pytest.raises(InputError, match="processes that simulate died 3 times without a run that ended"):
        sweep(GRID, seeds=1)
    assert tried == [2, 2, 2]


def test_a_backend_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(backends, "DASK_ANSWERS_S", 0.1)
    for words, said in (("slurm",), "choose one of dask, loky, ray"), (("loky", "x"), "runs on this machine"):
        with pytest.raises(InputError, match=said), backend(*words):
            pass
    with pytest.raises(InputError, match=r"there is no Dask scheduler at tcp://127.0.0.1:9"):
        sweep(GRID, backend="dask", address="tcp://127.0.0.1:9")
