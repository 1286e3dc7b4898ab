"""report.html: one page, whole, that loads nothing and believes nothing a trace says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from simlora.core.errors import InputError
from simlora.metrics.journal import Journal, Planned
from simlora.metrics.slo import SloTargets
from simlora.report import html
from simlora.report.html import render
from simlora.report.results import RunResults
from simlora.results.files import load_results, write_whole
from tests.metrics.frames import finished, lost, table
from tests.report.make_results import (
    HOSTS,
    make_journal,
    make_outages,
    make_plans,
    make_requests,
    make_summary,
    make_timeline,
    write_results,
)

ATTACKS = ("<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", '"><b onclick="x">', "<!--")


class Page(HTMLParser):
    """The elements, attributes, text and scripts of a page, as a browser would see them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.words, self._open = [], [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)

    @property
    def data(self):
        return json.loads(self.scripts[0])

    def policy(self):
        return next(a["content"] for _, a in self.elements if a.get("http-equiv"))


def page_of(requests, timeline=None, config="", journal=None, **summary):
    replicas = 0 if timeline is None else timeline["replica"].nunique()
    found = {**make_summary(requests, replicas), **summary}
    timeline, journal = pd.DataFrame() if timeline is None else timeline, journal or Journal()
    decided = journal.decisions(), journal.moves(), journal.plans(), journal.placements()
    return Page(render(RunResults(found, requests, timeline, config, *decided)))


@pytest.fixture(scope="module")
def page():
    journal = make_journal()
    return page_of(
        make_requests(1_000),
        make_timeline(2, rows=200),
        config="seed: 0\n",
        journal=journal,
        migration=journal.migration_facts(),
        adapters={"switches": 80, "switch_s": 1.6, "merged_share": 0.42},
    )


def save(run_folder, folder):
    results = load_results(run_folder)
    requests = pd.read_parquet(run_folder / "requests.parquet")
    tables = {"requests": requests, "timeline": results.timeline}
    write_whole(folder, results.summary, tables, results.config, report=True)


def test_it_is_written_beside_the_results(run_folder, tmp_path):
    save(run_folder, tmp_path)
    written = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert written.startswith("<!doctype html>")
    assert written == render(load_results(tmp_path))
    assert (tmp_path / "summary.json").exists()


def test_equal_results_give_equal_pages(run_folder):
    assert render(load_results(run_folder)) == render(load_results(run_folder))


def test_it_is_small_enough_to_send(run_folder):
    assert len(render(load_results(run_folder)).encode()) < 1_500_000


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"summary\.json"):
        load_results(tmp_path)


def test_a_page_that_fails_leaves_no_page(run_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "_vega", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(run_folder, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_it_loads_nothing(page):
    loading = {"src", "href", "srcset", "action", "data", "poster", "background"}
    assert [(tag, attrs) for tag, attrs in page.elements if loading & set(attrs)] == []
    assert {"link", "iframe", "img", "object", "embed", "base"}.isdisjoint(tag for tag, _ in page.elements)
    css = html._asset("page.css")
    assert "url(" not in css
    assert "@import" not in css


def test_its_policy_forbids_the_network_and_foreign_scripts(page):
    policy = page.policy()
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    ours = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in page.scripts[1:]}
    assert allowed == ours
    assert len(ours) == 2


def test_its_own_script_asks_for_no_eval():
    assert "ast: true" in html._asset("page.js")


def test_every_chart_has_a_place_and_every_place_a_chart(page):
    places = [attrs["id"] for _, attrs in page.elements if attrs.get("class") == "chart"]
    assert sorted(places) == sorted(page.data["charts"])
    assert {"attainment-ttft_s", "cdf-ttft_s", "cdf-tpot_s", "cdf-latency_s", "timeline-running"} <= set(
        places
    )
    assert {"timeline-waiting", "timeline-hbm", "popularity"} <= set(places)
    assert {"modes", "thresholds", "credits"} <= set(places)


def test_every_chart_that_shows_one_replica_has_its_data(page):
    named = {spec["data"].get("name") for spec in page.data["charts"].values()} - {None}
    assert named == set(page.data["series"]) == {"timeline", "thresholds", "credits"}
    for series in page.data["series"].values():
        assert series["shown"] in series["levels"]
    assert len(page.data["series"]["thresholds"]["t"]) == 301
    assert len(page.data["series"]["credits"]["levels"]["0"]) == 8


def test_curves_are_thinned(page):
    drawn = [spec["data"].get("values", []) for spec in page.data["charts"].values()]
    assert max(map(len, drawn)) <= 500


def test_it_says_what_ran_how_and_from_what_numbers(page):
    assert "S-LoRA" in page.text
    assert "llama_7b on 2 × a10g" in page.text
    assert "Azure LLM conversation trace" in page.text
    assert "simlora system=slora gpu=a10g" in page.text
    assert "decode.per_context_token_s" in page.text
    assert "S-LoRA's released runs, setting S2" in page.text
    assert "seed: 0" in page.text
    assert "waited longer than SLO" in page.text


def test_each_coefficient_has_its_own_provenance(page):
    kinds = [attrs["class"] for tag, attrs in page.elements if attrs.get("class", "").startswith("kind ")]
    assert kinds[0] == "kind published"  # the calibration as a whole
    assert kinds[1:] == ["kind published"] * 6 + ["kind derived"] * 2
    assert "PCIe 4.0 x16 bandwidth ratio" in page.text


def test_a_source_that_all_coefficients_share_is_named_once():
    calibration = {"provenance": {"kind": "measured", "source": "our H200"}, "coefficients": {"a.b_s": 1.0}}
    text = page_of(make_requests(20), calibration=calibration).text
    assert text.count("our H200") == 2  # above the table and in the provenance


def test_names_from_a_trace_stay_text():
    requests = make_requests(400, names=ATTACKS)
    requests.loc[requests["status"] != "finished", "reason"] = ATTACKS[1]
    run = {"system": ATTACKS[0], "model": ATTACKS[1], "gpu": ATTACKS[2], "replicas": 2}
    evil = page_of(
        requests,
        make_timeline(2, rows=50),
        config=ATTACKS[1],
        journal=make_journal(names=ATTACKS),
        run=run,
        command=f"simlora workload.path={ATTACKS[1]}",
        workload={"description": ATTACKS[0]},
        versions={ATTACKS[0]: ATTACKS[1]},
        adapters={ATTACKS[0]: ATTACKS[1]},
        replicas=[{ATTACKS[0]: ATTACKS[1]}],
        calibration={
            "provenance": {"kind": ATTACKS[2], "source": ATTACKS[0]},
            "coefficients": {ATTACKS[1]: 1.0},
        },
    )
    tame = page_of(make_requests(400), make_timeline(2, rows=50), config="x", journal=make_journal())
    assert len(evil.scripts) == len(tame.scripts) == 3
    assert {tag for tag, _ in evil.elements} == {tag for tag, _ in tame.elements}
    assert not any(name.startswith("on") for _, attrs in evil.elements for name in attrs)
    assert all(attack in evil.text for attack in ATTACKS)
    assert ATTACKS[0] in {row["name"] for row in evil.data["charts"]["popularity"]["data"]["values"]}


def test_an_incomplete_run_has_a_banner(page):
    assert "Incomplete run" in page_of(make_requests(50), complete=False).text
    assert "Incomplete run" not in page.text


def test_one_replica_needs_no_selector(page):
    alone = page_of(make_requests(50), make_timeline(1, rows=50))
    assert "select" not in [tag for tag, _ in alone.elements]
    assert alone.data["series"]["timeline"]["shown"] == "0"
    options = [attrs["value"] for tag, attrs in page.elements if tag == "option"]
    assert options == ["all", "0", "1", *("0", "1")]
    selectors = [attrs["data-of"].split() for tag, attrs in page.elements if tag == "select"]
    assert selectors == [["timeline"], ["thresholds", "credits"]]


def test_of_many_replicas_the_busiest_and_all_together_can_be_chosen():
    many = page_of(make_requests(50), make_timeline(40, rows=20))
    assert len([tag for tag, _ in many.elements if tag == "option"]) == 9
    assert "all 40 replicas together" in many.text
    assert "the 8 busiest of 40" in many.text


def test_a_run_without_requests_has_a_page():
    empty = page_of(make_requests(0))
    assert "No request was submitted" in empty.text
    assert empty.data["charts"] == {}


def test_a_run_that_rejected_everything_has_a_page():
    rejected = page_of(table(*(lost("rejected", reason="prompt too long") for _ in range(40))))
    assert "prompt too long" in rejected.text
    assert "No request has one" in rejected.text
    lengths = {"lengths-prompt_tokens", "lengths-output_tokens"}
    assert set(rejected.data["charts"]) == {"attainment-ttft_s", "popularity", *lengths}


def test_what_loads_cost_is_shown_where_they_cost_anything():
    slow = [finished(latency_s=4.0, cold_start_s=0.5, blocked_s=0.5) for _ in range(20)]
    page = page_of(table(*slow))
    assert "On average 25" in page.text
    assert "500 ms for its own adapter and 500 ms because of others" in page.text
    assert "KV on the host" not in page.text
    waited = [finished(latency_s=4.0, cold_start_s=0.5, kv_cold_start_s=0.5) for _ in range(20)]
    words = " ".join(page_of(table(*waited)).text.split())
    assert "500 ms for its own adapter, 500 ms for its KV on the host and 0 s because of others" in words
    assert "adapter rank requests TTFT TTFT p95 latency p95 cold start KV cold start" in words
    assert "cold-starts" in page.data["charts"]
    quick = page_of(table(*(finished() for _ in range(20))))
    assert "Cold starts" not in quick.text
    assert "cold-starts" not in quick.data["charts"]


def test_cached_kv_is_told_where_there_is_any(page):
    timeline = make_timeline(2, rows=50, cache=True)
    kv = {"hit_rate": 0.5, "idle_share": 0.25, "invalid_share": 0.3, "tokens_from_host": 1_000}
    cached = page_of(make_requests(50), timeline, kv=kv)
    assert "50 % of prompt tokens were cached." in cached.text
    assert "took 25 % of HBM on average. Of that, 30 % was of no use" in cached.text
    assert "tokens from host 1,000" in " ".join(cached.text.split())
    assert "history KV without its adapter" in cached.text
    keys = [attrs.get("class") for tag, attrs in cached.elements if tag == "i"]
    assert {"bg-teal", "bg-pale"} < set(keys)
    assert all(f".{key} " in html._asset("page.css") for key in keys if key.startswith("bg-"))
    without = page_of(make_requests(50), make_timeline(2, rows=50), kv={"hit_rate": None, "hbm_share": 0.5})
    assert "history KV" not in without.text
    assert "Cached KV" not in without.text


def test_merging_and_moving_is_told_where_there_was_any(page):
    assert "Merging and moving" in page.text
    assert "An adapter was in the weights for 42 % of the time; 80 switches took 1.60 s." in page.text
    assert "Merging and moving" not in page_of(make_requests(50), make_timeline(2, rows=50)).text


def test_modes_are_drawn_of_the_replicas_that_the_timeline_shows():
    journal = make_journal(40)
    many = page_of(make_requests(50), make_timeline(40, rows=20), journal=journal)
    lanes = many.data["charts"]["modes"]["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert lanes == [key for key in many.data["series"]["timeline"]["levels"] if key != "all"]
    assert len(lanes) == 8
    assert "the 8 busiest of 40 replicas" in many.text


def test_a_scheduler_that_only_merges_has_its_modes_alone():
    journal = Journal()
    journal.switch(1.0, 0, "a", 0)
    found = page_of(make_requests(50), make_timeline(1, rows=50), journal=journal)
    assert "modes" in found.data["charts"]
    assert {"thresholds", "credits"}.isdisjoint(found.data["charts"])


def test_thresholds_that_never_led_to_a_merge_are_drawn():
    journal = Journal()
    journal.note(1.0, 0, "alpha", 0.95)
    found = page_of(make_requests(50), make_timeline(1, rows=50), journal=journal)
    assert "No adapter was merged." in found.text
    assert {"modes", "credits"}.isdisjoint(found.data["charts"])
    assert found.data["series"]["thresholds"]["levels"]["0"]["beta"][0] is None


def test_moves_stand_by_reason_with_what_they_cost(page):
    words = " ".join(page.text.split())
    assert "6 moves of 6 requests; 7 were planned, but requests that ended first stayed." in words
    assert "replica 0 has 8 requests more than the mean 20.0 s 4 406 2" in words
    assert "replica 0 has 7 requests more than the mean 30.0 s 2 209 1" in words


def test_plans_that_moved_nothing_say_why(page):
    words = " ".join(page.text.split())
    assert "2 plans of 4 moved nothing" in words
    assert "no move shortens the longest work nothing to move 40.0 s 1" in words
    assert "the solver found nothing within 10 nodes not solved 50.0 s 1" in words


def test_of_many_plans_that_moved_nothing_the_first_are_shown():
    journal = Journal()
    journal.planned += [Planned(float(i), 0, False, f"reason {i}") for i in range(50)]
    text = page_of(make_requests(50), journal=journal).text
    assert "and 30 more in plans.parquet" in text


def hosts_page(requests=50, **summary):
    frame = make_requests(requests)
    return page_of(frame, make_timeline(2, rows=50), adapters=HOSTS, makespan_s=800.0, **summary)


def words(page):
    return " ".join(page.text.split())


def test_each_host_has_a_row_where_they_hold_different_adapters():
    text = words(hosts_page())
    assert "Adapters in the memory of each host, and loads of those that it did not hold." in text
    titles = "most adapters most held at the end held at the end from other hosts from storage"
    assert f"{titles} host 0 61 2.60 GB 50 2.00 GB 30 4 host 1 40 3.10 GB 0 0 B 12 3" in text
    assert "down for" not in text


def test_hosts_that_failed_say_when_and_what_that_cost():
    page = hosts_page(failures=make_outages())
    text = words(page)
    assert "from storage down for host 0" in text
    assert "30 4 0 s" in text
    assert "12 3 11.8 min" in text, "30 s and 680 s"
    assert "host 1 60.0 s 90.0 s 10 7 4,321 3 host 1 120 s – 10 7 4,321 3" in text
    assert "Red bands: a host is down." in text


def test_of_many_failures_the_first_are_shown():
    text = words(hosts_page(failures=make_outages(25, end_s=1e6)))
    assert "and 5 more in summary.json" in text


def test_where_all_hold_all_hosts_stand_there_only_for_what_failed():
    alike = {"count": 9, "host_adapters": [9, 9], "host_bytes": [1e9, 1e9], "host_refused": 0}
    frame, timeline = make_requests(50), make_timeline(2, rows=50)
    assert "Hosts" not in page_of(frame, timeline, adapters=alike).text
    failed = page_of(frame, timeline, adapters=alike, makespan_s=800.0, failures=make_outages())
    assert "Every host holds 9 adapters in its memory." in words(failed)
    assert "from storage" not in words(failed)


def test_a_host_that_is_down_is_a_band_in_every_chart_over_time_and_ends_with_it():
    charts = hosts_page(failures=make_outages()).data["charts"]
    for name in ("timeline-running", "timeline-waiting", "timeline-hbm"):
        band = charts[name]["layer"][0]
        assert band["mark"]["type"] == "rect"
        assert [(one["from"], one["name"]) for one in band["data"]["values"]] == [
            (pytest.approx(1.0), "host 1"),
            (pytest.approx(2.0), "host 1"),
        ], "minutes"
        end = band["encoding"]["x"]["scale"]["domain"][1]
        assert [one["to"] for one in band["data"]["values"]] == pytest.approx([1.5, end], rel=1e-4)
    assert hosts_page().data["charts"]["timeline-running"]["layer"][0]["mark"]["type"] == "area"


def test_plans_say_how_much_they_gave_to_hosts_and_when():
    journal = make_plans()
    page = hosts_page(placement=journal.placement_facts(), journal=journal)
    text = words(page)
    told = (
        "4 plans, of which 3 changed something: 12 times a host was given an adapter, 6 times one was taken"
    )
    assert told in text
    assert "120 s 2 1 1.00 GB 180 s 4 2 2.00 GB 240 s 6 3 3.00 GB" in text
    drawn = page.data["charts"]["placements"]
    assert [(row["x"], row["y"]) for row in drawn["data"]["values"]] == [(2, 1), (3, 2), (4, 3)], (
        "minutes, GB"
    )


def test_where_no_bytes_have_to_move_plans_are_drawn_by_adapters():
    journal = make_plans(size_bytes=0)
    page = hosts_page(placement=journal.placement_facts(), journal=journal)
    assert "Adapters newly assigned (a plan)" in page.text
    assert [row["y"] for row in page.data["charts"]["placements"]["data"]["values"]] == [2, 4, 6]


def test_of_many_plans_those_that_moved_most_are_listed_in_order_of_time():
    journal = make_plans(41, every_s=10.0)
    text = words(hosts_page(placement=journal.placement_facts(), journal=journal))
    assert "The 20 largest plans" in text
    assert "220 s 42 21 21.0 GB 230 s" in text
    assert "210 s 40" not in text


def test_plans_that_changed_nothing_are_only_counted():
    journal = make_plans(1)
    page = hosts_page(placement=journal.placement_facts(), journal=journal)
    assert "1 plan, of which 0 changed" in words(page)
    assert "placements" not in page.data["charts"]


def test_requests_of_one_token_have_no_tpot_to_draw():
    frame = table(*(finished(output_tokens=1, ttft_s=1.0, latency_s=1.0) for _ in range(5)))
    assert "cdf-tpot_s" not in page_of(frame).data["charts"]


def test_every_target_set_has_a_curve_that_agrees_with_the_summary():
    frame = make_requests(500)
    targets = SloTargets(ttft_s=2.0, tpot_s=0.06)
    found = page_of(
        frame, slo={"targets": targets.set, "attainment": 0.5, "goodput_rps": 1.0, "satisfaction": None}
    )
    done = frame[frame["status"] == "finished"]
    share = ((done["ttft_s"] < 2.0) & ~(done["tpot_s"] >= 0.06)).sum() / len(frame)
    for metric, target in (("ttft_s", 2.0), ("tpot_s", 60.0)):  # the second is drawn in ms
        curve = found.data["charts"][f"attainment-{metric}"]["data"]["values"]
        at = next(row["y"] for row in curve if row["x"] == target)
        assert at == pytest.approx(share, rel=1e-4)


def test_a_curve_goes_on_past_its_target():
    frame = table(*(finished(ttft_s=0.1) for _ in range(9)))
    curve = page_of(frame).data["charts"]["attainment-ttft_s"]["data"]["values"]
    assert (curve[-1]["x"], curve[-1]["y"]) == (12.0, 1.0)


def test_the_summary_of_an_older_run_may_lack_what_is_not_essential():
    frame = make_requests(50)
    summary = {**make_summary(frame)}
    for name in ("load", "run", "command", "workload", "simulation", "kv", "versions", "replicas"):
        del summary[name]
    text = render(RunResults(summary, frame, pd.DataFrame(), ""))
    assert "<h1>simlora" in text
    assert np.isfinite(Page(text).data["charts"]["cdf-ttft_s"]["data"]["values"][0]["x"])


def test_a_page_can_be_written_twice(tmp_path):
    folder = write_results(tmp_path, make_requests(20))
    save(folder, tmp_path / "saved")
    save(folder, tmp_path / "saved")
    assert (tmp_path / "saved" / "report.html").exists()
