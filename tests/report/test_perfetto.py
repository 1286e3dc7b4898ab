"""timeline.json.gz: Chrome's trace event format, and the same run that the other files tell of."""

import gzip
import json
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

import simlora
from simlora.core.adapter import Adapter
from simlora.metrics.tracing import TO_GPU, Came, Copied, Left, Ran, ReplicaFailed, Switched, Traced
from simlora.report.perfetto import trace_events, write_perfetto
from simlora.results.result import Result
from tests.report.traced import SYSTEMS

A, B = Adapter(0, "a", 8, 64, 32), Adapter(1, "<b>", 16, 128, 64)
Event = dict[str, Any]


@cache
def traced(system: str) -> tuple[Result, list[Event]]:
    found = simlora.simulate([*SYSTEMS[system], "perfetto=true"])
    assert found.traced is not None
    return found, list(trace_events(found.traced))


def of(*happened: Any, until_s: float = 10.0, cut: bool = False) -> list[Event]:
    return list(trace_events(Traced(list(happened), until_s, cut)))


def lanes(events: list[Event]) -> dict[tuple[int, str], list[Event]]:
    """Slices by replica and lane; lanes of HBM begin with "slot"."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[(event["pid"] - 1) // 2, names[event["pid"], event["tid"]]].append(event)
    return found


def ends_ns(event: Event) -> tuple[int, int]:
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def seconds(events: list[Event]) -> float:
    return sum(event["dur"] for event in events) / 1e6


# The format -----------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_event_has_what_its_phase_demands(system):
    events = traced(system)[1]
    begun = False
    last = -1.0
    for event in events:
        assert isinstance(event["name"], str)
        assert event["name"]
        assert type(event["pid"]) is type(event["tid"]) is int
        if event["ph"] == "M":
            assert not begun, "names come first"
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            continue
        begun = True
        assert event["ts"] >= max(last, 0.0), "in order of time"
        last = event["ts"]
        assert event["ph"] in ("X", "C")
        if event["ph"] == "X":
            assert event["dur"] >= 0.0
        else:
            assert all(type(value) is int and value >= 0 for value in event["args"].values())
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert named == {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert {e["pid"] for e in events} == {e["pid"] for e in events if e["name"] == "process_name"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_slices_of_a_lane_nest_and_never_overlap(system):
    for (_, lane), events in lanes(traced(system)[1]).items():
        open_until: list[int] = []
        for event in events:
            begin, end = ends_ns(event)
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or (end <= open_until[-1] and lane.startswith("slot")), f"{lane}: {event}"
            open_until.append(end)


def test_the_same_run_gives_the_same_bytes(tmp_path):
    found = traced("dlora")[0].traced
    again = simlora.simulate([*SYSTEMS["dlora"], "perfetto=true"]).traced
    assert found is not None
    assert again is not None
    write_perfetto(tmp_path / "a.json.gz", found)
    write_perfetto(tmp_path / "b.json.gz", again)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    written = json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))
    assert set(written) == {"displayTimeUnit", "traceEvents"}
    assert written["traceEvents"] == list(trace_events(found))


def test_it_is_written_with_the_run_when_asked_for(tmp_path):
    traced("slora")[0].save(tmp_path, report=False)
    assert json.loads(gzip.decompress((tmp_path / "timeline.json.gz").read_bytes()))["traceEvents"]
    simlora.simulate([*SYSTEMS["slora"]]).save(tmp_path, report=False)
    assert not (tmp_path / "timeline.json.gz").exists(), "that of an earlier run"


# The same run ---------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_lanes_add_up_to_what_the_summary_says(system):
    found, events = traced(system)
    by_lane = lanes(events)
    for replica in found.summary["replicas"]:
        id = replica["replica"]
        assert seconds(by_lane[id, "iterations"]) == pytest.approx(replica["busy_s"], abs=1e-6)
        copied_s = seconds(by_lane[id, "PCIe, host to GPU"])
        if system == "stopped":  # what was still to come is drawn to its end
            assert copied_s >= replica["link_busy_s"] - 1e-6
        else:
            assert copied_s == pytest.approx(replica["link_busy_s"], abs=1e-6)
    merged_s = sum(seconds(slices) for (_, lane), slices in by_lane.items() if lane == "merged adapter")
    share = found.summary["adapters"]["merged_share"] * len(found.summary["replicas"])
    assert merged_s == pytest.approx(share * found.summary["makespan_s"], abs=1e-4)
    switches = [s for (_, lane), own in by_lane.items() if lane == "iterations" for s in own]
    switch_s = seconds([s for s in switches if s["name"] == "merges or unmerges"])
    assert switch_s == pytest.approx(found.summary["adapters"]["switch_s"], abs=1e-6)


@pytest.mark.parametrize("system", sorted(set(SYSTEMS) - {"stopped", "failure"}))
def test_every_token_and_iteration_is_in_some_slice(system):
    found, events = traced(system)
    ran = [s for (_, lane), own in lanes(events).items() if lane == "iterations" for s in own if s["args"]]
    tokens = sum(s["args"]["batch"] * s["args"]["steps"] for s in ran)
    assert tokens == found.summary["simulation"]["token_steps"]
    iterations = sum(s["args"]["steps"] or 1 for s in ran)
    assert iterations == found.summary["simulation"]["iterations"]
    for slice in ran:
        args = slice["args"]
        assert {"prefill": (True, False), "decode": (False, True), "mixed": (True, True)}[slice["name"]] == (
            args["requests prefilled"] > 0,
            args["batch"] > 0,
        )


@pytest.mark.parametrize("system", sorted(set(SYSTEMS) - {"pool", "swap", "tree"}))
def test_every_load_is_a_copy(system):
    found, events = traced(system)
    copies = [s for (_, lane), own in lanes(events).items() if lane.startswith("PCIe") for s in own]
    loads = [s for s in copies if s["name"] not in ("KV", "adapters in use, again")]
    expected = found.summary["adapters"]["loads"] - found.summary["adapters"]["reloads"]
    assert len(loads) == expected if system != "failure" else len(loads) <= expected
    assert (len(loads) < len(copies)) == (found.summary["adapters"]["reloads"] > 0)


def test_kv_goes_both_ways():
    for system in ("swap", "tree"):
        found, events = traced(system)
        by_lane = lanes(events)
        tokens = {
            link: sum(s["args"]["tokens"] for s in by_lane[0, f"PCIe, {link}"] if s["name"] == "KV")
            for link in ("host to GPU", "GPU to host")
        }
        assert 0 < tokens["host to GPU"] <= tokens["GPU to host"] + found.summary["kv"]["tokens_ahead"]
        if system == "tree":
            assert tokens["GPU to host"] == found.summary["kv"]["tokens_to_host"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_adapters_in_hbm_never_exceed_it_and_are_what_the_counter_says(system):
    found, events = traced(system)
    changes = defaultdict(list)
    for (replica, lane), slices in lanes(events).items():
        for slice in slices if lane.startswith("slot") else []:
            if slice["name"] != "loads":
                begin, end = ends_ns(slice)
                if begin == end:
                    continue
                tokens = slice["args"]["token slots"]
                changes[replica] += [(begin, tokens), (end, -tokens)]
    capacity = {r["replica"]: r["kv_token_budget"] for r in found.summary["replicas"]}
    divided = found.timeline["region_capacity_tokens"].any() or found.timeline["capacity_tokens"].max() > max(
        capacity.values()
    )
    assert changes
    for replica, own in changes.items():
        held = 0
        for _, tokens in sorted(own):
            held += tokens
            assert held >= 0
            assert divided or held <= capacity[replica]
    for event in events:
        if event["ph"] == "C" and event["name"] == "HBM (token slots)":
            at = round(event["ts"] * 1000)
            own = changes[(event["pid"] - 1) // 2]
            held = sum(tokens for time, tokens in own if time <= at)
            later = sum(tokens for time, tokens in own if time < at)
            assert event["args"]["adapters"] in (held, later) or system in ("failure", "tree")


@pytest.mark.parametrize("system", SYSTEMS)
def test_counters_agree_with_the_timeline(system):
    found, events = traced(system)
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[(event["pid"] - 1) // 2, event["name"]].append((event["ts"], event["args"]))
    for row in found.timeline.to_dict("records"):
        for name, expected in {
            "requests running": {"requests": row["running"]},
            "requests waiting": {"requests": row["waiting"]},
            "HBM (token slots)": {"KV": row["kv_tokens"], "adapters": row["adapter_tokens"]},
            "cached KV (token slots)": {
                "in HBM, held by no request": row["idle_kv_tokens"],
                "on the host": row["host_kv_tokens"],
            },
        }.items():
            before = [args for ts, args in counters[row["replica"], name] if ts <= row["time_s"] * 1e6 + 1e-3]
            assert (before[-1] if before else dict.fromkeys(expected, 0)) == expected


# By hand --------------------------------------------------------------------------------


def test_adapters_take_the_first_free_lane_and_load_inside_their_stay():
    stays = (Came(0, 0.0, A, 1.0), Came(0, 0.5, B, 0.5), Left(0, 2.0, 0), Came(0, 2.0, A, 2.5))
    found = lanes(of(*stays, Ran(0, 0, 0, 3.0, 1, 1, 0, 0)))
    assert [(s["name"], s["ts"] / 1e6, s["dur"] / 1e6) for s in found[0, "slot 1"]] == [
        ("a", 0.0, 2.0),
        ("loads", 0.0, 1.0),
        ("a", 2.0, 8.0),
        ("loads", 2.0, 0.5),
    ]
    assert [s["name"] for s in found[0, "slot 2"]] == ["<b>"]
    assert found[0, "slot 2"][0]["args"] == {"rank": 16, "token slots": 64, "bytes": 128}


def test_what_a_replica_had_when_it_failed_ends_there():
    events = of(
        Came(0, 0.0, A, 1.0),
        Switched(0, 0.0, 0.0, A),
        Copied(0, TO_GPU, 0.0, 1.0, A),
        Copied(0, TO_GPU, 1.0, 9.0, B),
        Copied(0, TO_GPU, 9.0, 10.0, 17),
        ReplicaFailed(0, 4.0, 3.0),
        Came(0, 5.0, A, 5.0),
        Copied(0, TO_GPU, 6.0, 7.0, None),
        Ran(0, 5.0, 5.0, 8.0, 0, 0, 1, 1),
    )
    found = lanes(events)
    copies = [(s["name"], s["ts"] / 1e6, s["dur"] / 1e6) for s in found[0, "PCIe, host to GPU"]]
    assert copies == [("a", 0.0, 1.0), ("<b>", 1.0, 3.0), ("adapters in use, again", 6.0, 1.0)]
    stays = [(s["ts"] / 1e6, s["dur"] / 1e6) for s in found[0, "slot 1"] if s["name"] == "a"]
    assert stays == [(0, 4), (5, 5)]
    assert [(s["ts"] / 1e6, s["dur"] / 1e6) for s in found[0, "merged adapter"]] == [(0.0, 4.0)]
    assert [(s["name"], s["dur"]) for s in found[0, "iterations"]] == [("broken off", 1e6), ("decode", 3e6)]


def test_a_cut_is_marked_and_ends_what_lasts():
    events = of(Came(0, 0.0, A, 0.0), Ran(0, 0.0, 0.0, 1.0, 1, 4, 0, 0), until_s=1.5, cut=True)
    (mark,) = [event for event in events if event["ph"] == "i"]
    assert (mark["s"], mark["ts"], mark["name"]) == ("g", 1.5e6, "cut: the first 2 events are kept")
    assert lanes(events)[0, "slot 1"][0]["dur"] == 1.5e6
