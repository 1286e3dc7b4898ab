"""High ranks on fast GPUs."""

from simlora.core.adapter import Adapter
from simlora.latency.iteration import IterationModel
from simlora.policies.placement.by_speed import BySpeed
from tests.engine.cases import slower
from tests.policies.hand import CALIBRATION, Cluster

RANKS = (8, 64, 16, 32, 128, 8)
ADAPTERS = tuple(Adapter(i, f"a{i}", rank, 16 * rank, rank) for i, rank in enumerate(RANKS))


def mixed(*kind_of: int, history_rps: tuple[float, ...] | None = None) -> Cluster:
    """Replicas of two kinds: 0 is half as fast again as 1."""
    models = [IterationModel(CALIBRATION), IterationModel(slower(CALIBRATION))]
    return Cluster((0,) * len(kind_of), iteration=[models[kind] for kind in kind_of], history_rps=history_rps)


def served(view: Cluster, **arguments: float) -> dict[int, list[int]]:
    serves = BySpeed(**arguments).place(ADAPTERS, view).serves
    return {
        adapter.rank if i else -adapter.rank: serves[adapter.id].tolist()
        for i, adapter in enumerate(ADAPTERS)
    }


def test_where_all_are_alike_every_one_serves_all():
    assert not BySpeed().place(ADAPTERS, Cluster((0,) * 3)).serves
    assert not BySpeed().place(ADAPTERS, mixed(1, 1)).serves


def test_the_fast_kind_serves_the_highest_ranks_up_to_its_share_of_the_speed():
    """One fast and one slow replica have 0.6 and 0.4 of the speed: of six adapters four and two."""
    assert served(mixed(1, 0)) == {128: [1], 64: [1], 32: [1], 16: [1], -8: [0], 8: [0]}
    assert served(mixed(0, 1, 1, 1)) == {
        128: [0],
        64: [0],
        32: [1, 2, 3],
        16: [1, 2, 3],
        -8: [1, 2, 3],
        8: [1, 2, 3],
    }


def test_demand_of_the_days_before_counts():
    """Rank 128 has as much demand as all others together, which is nearly what the fast one can take."""
    history_rps = (1.0, 1.0, 1.0, 1.0, 5.0, 1.0)
    assert served(mixed(1, 0, history_rps=history_rps)) == {
        128: [1],
        64: [1],
        32: [0],
        16: [0],
        -8: [0],
        8: [0],
    }
