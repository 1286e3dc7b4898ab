"""A grid is every combination of what keys are given, each with the same seeds."""

import pytest

from simlora.core.errors import InputError
from simlora.sweeps.grid import grid, seeded


def test_values_are_written_as_for_hydra():
    found = grid(
        ["system=slora,dlora", "cluster.replicas=range(1,4)", "gpu=a10g", "workload.ranks=[8,16],[64]"]
    )
    assert found.fixed == ("gpu=a10g",)
    assert found.axes == {
        "system": ("slora", "dlora"),
        "cluster.replicas": ("1", "2", "3"),
        "workload.ranks": ("[8,16]", "[64]"),
    }
    assert len(found) == 12


def test_cells_are_all_combinations_with_all_seeds():
    found = grid(["system=slora,vllm", "slo.ttft_s=1,null", "seed=5"], seeds=3)
    cells = list(found.cells())
    assert len(cells) == len(found) == 12
    assert [cell.seed for cell in cells[:4]] == [5, 6, 7, 5]
    assert cells[0].values == {"system": "slora", "slo.ttft_s": 1}
    assert cells[3].values == {"system": "slora", "slo.ttft_s": None}
    assert len({cell.overrides for cell in cells}) == 12


def test_a_workload_with_a_seed_of_its_own_gets_it_too():
    assert "workload.seed=4" in seeded(("workload=slora",), 4)
    assert not any(word.startswith("workload.seed") for word in seeded(("workload=synthetic",), 4))
    mixed = [cell.overrides for cell in grid(["workload=slora,synthetic"]).cells()]
    assert ["workload.seed=0" in overrides for overrides in mixed] == [True, False]


@pytest.mark.parametrize(
    ("overrides", "seeds", "sentence"),
    [
        (["seed=1,2,3"], 1, "seed=1,2,3 is given as a number of seeds, such as seeds=3"),
        ([], 0, "seeds is 0, must be a whole number, at least 1"),
        (["cluster.replicas=1,2,1.0"], 1, "cluster.replicas has the same value twice, 1 and 1.0"),
        (["timeline=true,false"], 1, "timeline cannot be varied: every run of a sweep has timeline=false"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(overrides, seeds, sentence):
    with pytest.raises(InputError) as error:
        list(grid(overrides, seeds).cells())
    assert sentence in str(error.value)
