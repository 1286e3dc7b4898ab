"""The table on stdout."""

import pytest

from simlora.report.terminal import WIDTH, summary_table
from tests.metrics.frames import table
from tests.report.make_results import make_outages, make_plans, make_requests, make_summary

SUMMARY = make_summary(make_requests(500))


def lines_of(**changes):
    return summary_table({**SUMMARY, **changes}).splitlines()


def value_of(lines, name):
    return next(line for line in lines if line.startswith(name))[16:]


def adapters(**more):
    return {"adapters": SUMMARY["adapters"] | more}


SLO = {"targets": {"ttft_s": 6.0}, "attainment": 0.948, "goodput_rps": 2.28}
MERGED = adapters(switches=10, switch_s=0.2, merged_share=0.753)
MOVED = {"plans": 3, "unsolved": 0, "moves": 47, "recomputed_tokens": 16_224, "adapters_loaded": 1}
UNSOLVED = {"plans": 7, "unsolved": 6, "moves": 0, "recomputed_tokens": 0, "adapters_loaded": 0}
PLANNING = {"simulation": SUMMARY["simulation"] | {"migration_wall_s": 0.0123}, "migration": MOVED}
REJECTED = {"submitted": 1200, "finished": 1199, "aborted": 0, "rejected": 1, "unfinished": 0}
MOVING = make_plans().placement_facts()


@pytest.mark.parametrize(
    "changes, name, value",
    [
        ({"slo": SLO}, "SLO attainment", "94.8 %  (TTFT < 6 s)"),
        ({"throughput_rps": 2.345, "throughput_tps": 1234.5}, "Throughput", "2.35 req/s, 1,234 tok/s"),
        ({"requests": REJECTED}, "Requests", "1,200 submitted: 1,199 finished, 1 rejected"),
        (adapters(reloads=3), "Adapter loads", "812 (51.0 GB; 3 of adapters in use), hit rate 71 %"),
        (MERGED, "Merged", "75.3 % of the time, 10 switches that took 200 ms"),
        (PLANNING, "Simulated in", "110 ms, 17,900 req/s; 12.3 ms of it to plan moves"),
        ({"migration": UNSOLVED}, "Moves", "0 in 7 plans (6 not solved)"),
        ({"placement": MOVING}, "Placement", "3 of 4 plans changed it: 12 adapters newly assigned, 6.00"),
        ({"failures": make_outages()}, "Failures", "2 failures of 1 host, down for 11.8 min in all; 20"),
    ],
)
def test_key_figures_have_their_units_and_what_happened_a_line(changes, name, value):
    lines = lines_of(**changes)
    assert lines[0] == "S-LoRA: llama_7b on 2 × a10g"
    assert value_of(lines, name).startswith(value)


@pytest.mark.parametrize("migration", [None, UNSOLVED | {"plans": 0, "unsolved": 0}])
@pytest.mark.parametrize("failures", [None, make_outages(0)])
def test_what_did_not_happen_has_no_line(migration, failures):
    lines = lines_of(
        migration=migration,
        simulation=SUMMARY["simulation"] | {"migration_wall_s": 1e-4 if migration else None},
        failures=failures,
        placement=make_plans(0).placement_facts(),
        **adapters(switches=0, switch_s=0.0, merged_share=0.0),
    )
    assert not any(line.startswith(("Merged", "Moves", "Failures", "Placement")) for line in lines)
    assert value_of(lines, "Simulated in") == "110 ms, 17,900 req/s"


def test_an_incomplete_run_says_so():
    assert any(line.startswith("INCOMPLETE") for line in lines_of(complete=False))
    assert not any(line.startswith("INCOMPLETE") for line in lines_of())


def test_an_empty_run_has_dashes_and_no_rows_of_nothing():
    shown = summary_table(make_summary(table()))
    assert "None" not in shown
    assert "nan" not in shown
    assert "SLO attainment" not in shown


@pytest.mark.parametrize("text", ["long " * 60, "x" * 300, "\x1b[31mred\x07", "two\nlines"])
def test_no_name_breaks_the_table(text):
    lines = lines_of(workload={"description": text})
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isprintable() for line in lines)
