"""report.html: one page, whole, that loads nothing and believes nothing a trace says."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from simlora.core.errors import InputError
from simlora.metrics.journal import Journal
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


def test_it_is_written_beside_the_results_and_may_be_again(run_folder, tmp_path):
    for _ in range(2):
        save(run_folder, tmp_path)
        written = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert written.startswith("<!doctype html>")
        assert written == render(load_results(tmp_path)) == render(load_results(run_folder))
    assert (tmp_path / "summary.json").exists()
    assert len(written.encode()) < 1_500_000, "small enough to send"


def test_a_folder_without_a_run_is_refused_and_a_page_that_fails_leaves_none(
    run_folder, tmp_path, monkeypatch
):
    with pytest.raises(InputError, match=r"summary\.json"):
        load_results(tmp_path)
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
    assert "ast: true" in html._asset("page.js"), "its own script asks for no eval"


# Figures -------------------------------------------------------------------------------------


def test_every_chart_has_a_place_and_data_of_which_curves_are_thinned(page):
    places = [attrs["id"] for _, attrs in page.elements if attrs.get("class") == "chart"]
    assert sorted(places) == sorted(page.data["charts"])
    drawn = (
        "attainment-ttft_s cdf-ttft_s cdf-tpot_s cdf-latency_s timeline-running timeline-waiting timeline-hbm"
    )
    assert {*drawn.split(), "popularity", "modes", "thresholds", "credits"} <= set(places)
    assert max(len(spec["data"].get("values", [])) for spec in page.data["charts"].values()) <= 500
    named = {spec["data"].get("name") for spec in page.data["charts"].values()} - {None}
    assert named == set(page.data["series"]) == {"timeline", "thresholds", "credits"}
    for series in page.data["series"].values():
        assert series["shown"] in series["levels"]
    assert len(page.data["series"]["thresholds"]["t"]) == 301
    assert len(page.data["series"]["credits"]["levels"]["0"]) == 8


def test_modes_and_thresholds_may_be_alone():
    merging, deciding = Journal(), Journal()
    merging.switch(1.0, 0, "a", 0)
    deciding.note(1.0, 0, "alpha", 0.95)
    found = page_of(make_requests(50), make_timeline(1, rows=50), journal=merging)
    assert {"modes", "thresholds", "credits"} & set(found.data["charts"]) == {"modes"}
    found = page_of(make_requests(50), make_timeline(1, rows=50), journal=deciding)
    assert "No adapter was merged." in found.text
    assert {"modes", "thresholds", "credits"} & set(found.data["charts"]) == {"thresholds"}
    assert found.data["series"]["thresholds"]["levels"]["0"]["beta"][0] is None


def test_a_host_that_is_down_is_a_band_in_every_chart_over_time_and_ends_with_it():
    charts = hosts_page(failures=make_outages()).data["charts"]
    for name in ("timeline-running", "timeline-waiting", "timeline-hbm"):
        band = charts[name]["layer"][0]
        assert band["mark"]["type"] == "rect"
        values, end = band["data"]["values"], band["encoding"]["x"]["scale"]["domain"][1]
        assert [one["name"] for one in values] == ["host 1"] * 2
        assert [one["from"] for one in values] == pytest.approx([1.0, 2.0]), "minutes"
        assert [one["to"] for one in values] == pytest.approx([1.5, end], rel=1e-4)
    assert hosts_page().data["charts"]["timeline-running"]["layer"][0]["mark"]["type"] == "area"


def test_every_target_set_has_a_curve_that_agrees_with_the_summary():
    frame = make_requests(500)
    targets = SloTargets(ttft_s=2.0, tpot_s=0.06)
    slo = {"targets": targets.set, "attainment": 0.5, "goodput_rps": 1.0, "satisfaction": None}
    found = page_of(frame, slo=slo)
    done = frame[frame["status"] == "finished"]
    share = ((done["ttft_s"] < 2.0) & ~(done["tpot_s"] >= 0.06)).sum() / len(frame)
    for metric, target in (("ttft_s", 2.0), ("tpot_s", 60.0)):  # the second is drawn in ms
        curve = found.data["charts"][f"attainment-{metric}"]["data"]["values"]
        at = next(row["y"] for row in curve if row["x"] == target)
        assert at == pytest.approx(share, rel=1e-4)


# What it says --------------------------------------------------------------------------------


def hosts_page(**summary):
    return page_of(
        make_requests(50), make_timeline(2, rows=50), **{"adapters": HOSTS, "makespan_s": 800.0, **summary}
    )


def plans_page(journal):
    return hosts_page(placement=journal.placement_facts(), journal=journal)


def words(page):
    return " ".join(page.text.split())


def plain_page(**summary):
    return page_of(make_requests(50), make_timeline(2, rows=50), **summary)


def of_slow_requests(**slow):
    return page_of(table(*[finished(latency_s=4.0, cold_start_s=0.5, **slow)] * 20))


ALIKE = {"count": 9, "host_adapters": [9, 9], "host_bytes": [1e9, 1e9], "host_refused": 0}


SAYS = {
    "cut short": (lambda: plain_page(complete=False), "Incomplete run", ""),
    "what loads cost": (
        lambda: of_slow_requests(blocked_s=0.5),
        "500 ms for its own adapter and 500 ms because of others",
        "KV on the host",
    ),
    "hosts that failed, the second for 30 s and 680 s": (
        lambda: hosts_page(failures=make_outages()),
        "12 3 11.8 min … host 1 60.0 s 90.0 s 10 7 4,321 3 host 1 120 s – 10 7 4,321 3",
        "",
    ),
    "all hold all, and some failed": (
        lambda: hosts_page(adapters=ALIKE, failures=make_outages()),
        "Every host holds 9 adapters in its memory.",
        "from storage",
    ),
    "of many plans the largest, in order of time": (
        lambda: plans_page(make_plans(41, every_s=10.0)),
        "The 20 largest plans … 220 s 42 21 21.0 GB 230 s",
        "210 s 40",
    ),
}
"""A page, what it says, and what it does not; parts are apart by an ellipsis."""


@pytest.mark.parametrize("name", SAYS)
def test_it_tells_what_there_was_and_nothing_of_what_there_was_not(name):
    made, told, untold = SAYS[name]
    text = words(made())
    assert [part for part in told.split(" … ") if part not in text] == []
    assert not untold or untold not in text


def test_it_says_what_ran_how_and_from_what_numbers(page):
    text = words(page)
    for part in (
        "llama_7b on 2 × a10g",
        "simlora system=slora gpu=a10g",
        "decode.per_context_token_s",
        "runs that the S-LoRA authors published",
        "waited longer than SLO",
        "42 % of the time; 80 switches took 1.60 s.",
        "6 moves of 6 requests; 7 were planned",
        "replica 0 has 8 requests more than the mean 20.0 s 4 406 2",
        "the solver found nothing within 10 nodes not solved 50.0 s 1",
    ):
        assert part in text
    assert "Incomplete run" not in text


def test_names_from_a_trace_stay_text():
    requests = make_requests(400, names=ATTACKS)
    requests.loc[requests["status"] != "finished", "reason"] = ATTACKS[1]
    provenance = {"kind": ATTACKS[2], "source": ATTACKS[0]}
    evil = page_of(
        requests,
        make_timeline(2, rows=50),
        config=ATTACKS[1],
        journal=make_journal(names=ATTACKS),
        run={"system": ATTACKS[0], "model": ATTACKS[1], "gpu": ATTACKS[2], "replicas": 2},
        command=f"simlora workload.path={ATTACKS[1]}",
        workload={"description": ATTACKS[0]},
        versions={ATTACKS[0]: ATTACKS[1]},
        adapters={ATTACKS[0]: ATTACKS[1]},
        replicas=[{ATTACKS[0]: ATTACKS[1]}],
        calibration={"provenance": provenance, "coefficients": {ATTACKS[1]: 1.0}},
    )
    tame = page_of(make_requests(400), make_timeline(2, rows=50), config="x", journal=make_journal())
    assert len(evil.scripts) == len(tame.scripts) == 3
    assert {tag for tag, _ in evil.elements} == {tag for tag, _ in tame.elements}
    assert not any(name.startswith("on") for _, attrs in evil.elements for name in attrs)
    assert all(attack in evil.text for attack in ATTACKS)
    assert ATTACKS[0] in {row["name"] for row in evil.data["charts"]["popularity"]["data"]["values"]}


def test_a_run_without_requests_or_that_rejected_all_has_a_page():
    assert "cold-starts" in of_slow_requests(kv_cold_start_s=0.5).data["charts"]
    assert "placements" not in plans_page(make_plans(1)).data["charts"]
    empty = page_of(make_requests(0))
    assert "No request was submitted" in empty.text
    assert empty.data["charts"] == {}
    rejected = page_of(table(*[lost("rejected", reason="prompt too long")] * 40))
    assert "prompt too long" in rejected.text
    assert "No request has one" in rejected.text
    lengths = {"lengths-prompt_tokens", "lengths-output_tokens"}
    assert set(rejected.data["charts"]) == {"attainment-ttft_s", "popularity", *lengths}


def test_cached_kv_is_told_where_there_is_any():
    kv = {"hit_rate": 0.5, "idle_share": 0.25, "invalid_share": 0.3, "tokens_from_host": 1_000}
    cached = page_of(make_requests(50), make_timeline(2, rows=50, cache=True), kv=kv)
    for part in ("50 % of prompt tokens were cached.", "took 25 % of HBM", "history KV without its adapter"):
        assert part in words(cached)
    without = plain_page(kv={"hit_rate": None, "hbm_share": 0.5})
    assert "history KV" not in without.text
    assert "Cached KV" not in without.text


def test_the_summary_of_an_older_run_may_lack_what_is_not_essential():
    frame = make_requests(50)
    summary = {**make_summary(frame)}
    for name in ("load", "run", "command", "workload", "simulation", "kv", "versions", "replicas"):
        del summary[name]
    text = render(RunResults(summary, frame, pd.DataFrame(), ""))
    assert "<h1>simlora" in text
    assert np.isfinite(Page(text).data["charts"]["cdf-ttft_s"]["data"]["values"][0]["x"])


def test_the_charts_script_is_made_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(html, "_bundled", lambda: "let vega = 'é';")
    made = html._vega.__wrapped__()
    monkeypatch.setattr(html, "_bundled", lambda: 1 / 0)
    assert html._vega.__wrapped__() == made == "let vega = 'é';"
    (kept,) = (tmp_path / "cache/simlora").iterdir()
    kept.write_bytes(b"\xff")
    monkeypatch.setattr(html, "_bundled", lambda: "anew")
    assert html._vega.__wrapped__() == kept.read_text() == "anew"
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))  # a file: nothing can be kept there
    assert html._vega.__wrapped__() == "anew"
