"""Keys that are set and have no effect are noticed."""

import pytest

from simlora.config.composing import compose
from simlora.config.idle_keys import NEEDS
from simlora.config.setup import prepare

SHORT = ("system=slora", "gpu=a10g", "model=llama_7b", "workload.duration_s=1")
SET = {
    "cluster.least_replicas=0": "an autoscaler other than fixed",
    "cluster.kv_handover=by_layer": "cluster.prefill_replicas",
    "cluster.kv_store_servers=2": "cluster.kv_store_bytes",
    "cluster.kv_fetch=always": "host.kv_disk_bytes or cluster.kv_store_bytes",
    "cluster.adapter_burst=3": "cluster.adapter_rps",
    "host.disk=pcie_4_x16": "host.kv_disk_bytes",
    "host.memory_bytes=1e9": "cluster.adapter_pool=distributed",
    "speculation.acceptance=0.5": "speculation.tokens",
    "clients.backoff_s=2": "clients.retries",
}
WITH = {
    "cluster.least_replicas=0": ("autoscaler=by_queue",),
    "cluster.adapter_burst=3": ("cluster.adapter_rps=1",),
    "speculation.acceptance=0.5": ("speculation.tokens=2",),
    "clients.backoff_s=2": ("clients.retries=1",),
}


def notices(*overrides: str) -> list[str]:
    return [notice for notice in prepare(*compose([*SHORT, *overrides])).notices if "no effect" in notice]


def test_every_section_of_idle_keys_is_tried():
    assert sorted(SET.values()) == sorted(needed for *_, needed in NEEDS)


@pytest.mark.parametrize("override", SET)
def test_a_key_without_effect_is_noticed(override):
    key = override.partition("=")[0]
    assert notices(override) == [f"{key} has no effect without {SET[override]}."]


@pytest.mark.parametrize("override", WITH)
def test_where_it_has_one_nothing_is_said(override):
    assert notices(override, *WITH[override]) == []


def test_several_are_one_notice():
    assert notices("clients.backoff_s=2", "clients.backoff_jitter=0") == [
        "clients.backoff_s and clients.backoff_jitter have no effect without clients.retries."
    ]
    assert notices() == []
