"""Plans: what points a YAML file stands for, and what is wrong with it."""

from pathlib import Path

import pytest

from profiler.points import PLANS, Plan, Point, read
from simlora.core.errors import InputError

KERNELS, MEMORIES = ("bgmv", "mbgmv"), ("pinned", "pageable")


def plan(folder: Path, text: str, cores: int = 2) -> Plan:
    path = folder / "plan.yaml"
    path.write_text(text)
    return read(str(path), KERNELS, MEMORIES, cores)


def test_a_grid_is_every_combination_and_lora_is_measured_with_every_kernel(tmp_path):
    found = plan(
        tmp_path, "rounds: 2\ndecode:\n- {requests: [1, 4], tokens: [32]}\n- {requests: [2], ranks: [8]}"
    )
    assert found.rounds == 2
    assert found.points == (
        Point("decode", requests=1, tokens=32),
        Point("decode", requests=4, tokens=32),
        Point("decode", "bgmv", requests=2, ranks=(8,)),
        Point("decode", "mbgmv", requests=2, ranks=(8,)),
    )


def test_adapters_are_loaded_from_every_kind_of_memory_and_merged_by_one_way(tmp_path):
    found = plan(tmp_path, "rounds: 1\nadapter_load:\n- {ranks: [8]}\nmerge:\n- {ranks: [8]}\ncpu_sync:\n")
    assert [(point.section, point.kernel) for point in found.points] == [
        ("adapter_load", "pinned"),
        ("adapter_load", "pageable"),
        ("merge", ""),
        ("cpu_sync", ""),
    ]


@pytest.mark.parametrize(
    "text, says",
    [
        ("decode:\n- {requests: [1]}", r"plan\.yaml must be a mapping with rounds, a whole number of at"),
        ("rounds: 1\ndecoding:\n- {}", r"unknown section 'decoding'; .*decode"),
        ("rounds: 1\ndecode:\n- {request: [1]}", r"decode has an unknown key request; .*requests"),
        ("rounds: 1\ndecode:\n- {requests: 4}", r"decode: requests is 4, must be a list of whole numbers"),
        ("rounds: 1\ndecode:\n- [1, 2]", r"decode must be a list of mappings"),
    ],
)
def test_what_is_wrong_with_a_plan_is_named(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        plan(tmp_path, text)


def test_an_unknown_plan_is_named():
    with pytest.raises(InputError, match=r"there is no plan 'quik'; .*quick"):
        read("quik", KERNELS, MEMORIES, 2)


@pytest.mark.parametrize("name", [path.stem for path in PLANS.glob("*.yaml")])
def test_our_own_plans_measure_every_section_or_the_part_that_they_are_about(name):
    sections = {point.section for point in read(name, KERNELS, MEMORIES, 2).points}
    of_the_device, of_the_host = {"prefill", "decode", "adapter_load", "merge"}, {"cpu_lora", "cpu_sync"}
    parts = {"cpu_lora": of_the_host, "long": {"prefill", "decode"}}
    assert sections == parts.get(name, of_the_device | of_the_host)
