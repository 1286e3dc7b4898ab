"""What became of cached KV, and how full HBM was, in the results of a run."""

import pytest

import simlora

TALKS = (
    "workload=agent",
    "workload/first_tokens=fixed",
    "workload.first_tokens.tokens=1500",
    "workload.rate_rps=4",
    "workload.duration_s=60",
)
STATIC = ("system=vllm_static", *TALKS, "replica.adapter_region_share=0.03")
"""A small part for adapters, so that some leave while their KV stays."""
SWAPPED = ("system=fastlibra", *TALKS)
CACHED = ["idle_kv_tokens", "invalid_kv_tokens", "host_kv_tokens"]


@pytest.fixture(scope="module")
def static() -> simlora.Result:
    return simlora.simulate(STATIC)


@pytest.fixture(scope="module")
def swapped() -> simlora.Result:
    return simlora.simulate(SWAPPED)


def held(result: simlora.Result, column: str) -> float:
    """The mean over time of a column of the timeline of one replica, as far as it was not thinned."""
    timeline, end_s = result.timeline, result.summary["makespan_s"]
    lasted_s = timeline["time_s"].shift(-1, fill_value=end_s) - timeline["time_s"]
    return float((timeline[column] * lasted_s).sum()) / end_s


def test_idle_kv_is_a_part_of_kv_and_invalid_kv_of_that(static):
    timeline = static.timeline
    assert (timeline["idle_kv_tokens"] <= timeline["kv_tokens"]).all()
    assert (timeline["invalid_kv_tokens"] <= timeline["idle_kv_tokens"]).all()
    assert (timeline["kv_tokens"] + timeline["adapter_tokens"] <= timeline["capacity_tokens"]).all()
    assert (timeline[CACHED].max() > 0).all()


def test_where_adapters_do_not_leave_before_their_kv_none_is_invalid(swapped):
    assert swapped.timeline["idle_kv_tokens"].any()
    assert not swapped.timeline["invalid_kv_tokens"].any()
    assert swapped.summary["kv"]["invalid_share"] == 0.0


def test_shares_are_means_over_time_of_what_the_timeline_shows(static):
    kv, capacity = static.summary["kv"], static.timeline["capacity_tokens"].max()
    idle = held(static, "idle_kv_tokens")
    assert kv["idle_share"] == pytest.approx(idle / capacity, rel=0.01)
    assert kv["invalid_share"] == pytest.approx(held(static, "invalid_kv_tokens") / idle, rel=0.01)
    assert kv["host_tokens"] == pytest.approx(held(static, "host_kv_tokens"), rel=0.01)
    used = held(static, "kv_tokens") + held(static, "adapter_tokens")
    assert kv["hbm_share"] == pytest.approx(used / capacity, rel=0.01)


def test_how_full_hbm_is_depends_neither_on_how_many_steps_are_one_event_nor_on_the_timeline(swapped):
    fast = swapped.summary["kv"]
    plain, bare = (
        simlora.simulate([*SWAPPED, key]).summary["kv"] for key in ("fast_forward=false", "timeline=false")
    )
    assert bare == fast
    assert fast["hbm_share"] == pytest.approx(plain["hbm_share"], rel=1e-3)


def test_a_system_without_a_cache_has_no_cached_kv_but_hbm_that_is_in_use():
    result = simlora.simulate(["system=slora", "workload.duration_s=20", "cluster.replicas=2"])
    kv = result.summary["kv"]
    assert 0 < kv["hbm_share"] < 1
    names = ("hit_rate", "hbm_hit_rate", "idle_share", "invalid_share", "host_tokens")
    assert [kv[name] for name in names] == [None] * len(names)
    assert not result.timeline[CACHED].to_numpy().any()
    assert (result.requests["kv_cold_start_s"] == 0).all()
