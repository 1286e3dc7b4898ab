"""Numbers as a page shows them."""

import pytest

from simlora.report.format import (
    ABSENT,
    clock,
    clock_unit,
    count,
    counted,
    device_in_words,
    digits,
    headline,
    limit,
    percent,
    rate,
    seconds,
    size,
    system_name,
    targets_in_words,
    workload_in_words,
)

SHOWN = {
    digits: {
        0: "0",
        1234567: "1,234,567",
        999.6: "1,000",
        99.96: "100",
        99.94: "99.9",
        12.345: "12.3",
        1.0: "1.00",
    }
    | {0.012345: "0.0123", 0.00001234: "1.23e-05", -2.5: "-2.50"},
    seconds: {
        0: "0 s",
        2.5e-6: "2.50 µs",
        0.0123: "12.3 ms",
        0.9999: "1,000 ms",
        1.0: "1.00 s",
        75: "75.0 s",
    },
    limit: {6.0: "6 s", 0.15: "150 ms", 1.25: "1.25 s"},  # a target keeps the digits that it was given
    size: {12: "12.0 B", 1.2e4: "12.0 kB", 5.1e10: "51.0 GB", 2e12: "2.00 TB"},
    # A share is 100 or 0 per cent only if it is.
    percent: {0: "0 %", 1: "100 %", 0.943: "94.3 %", 0.99999: ">99.9 %", 0.00001: "0.001 %", 0.5: "50 %"},
    # A time of the simulation has the unit of its axis.
    clock: {20: "20.0 s", 750: "12.5 min", 4 * 3600: "4.00 h"},
    system_name: {"slora_no_unify_mem": "S-LoRA (no unify mem)", "dlora": "dLoRA", "mine": "mine"},
}


@pytest.mark.parametrize(
    "show, value, shown", [(show, *pair) for show, pairs in SHOWN.items() for pair in pairs.items()]
)
def test_values_are_shown_with_their_units(show, value, shown):
    assert show(value) == shown


@pytest.mark.parametrize("show", [digits, seconds, limit, size, percent, count])
@pytest.mark.parametrize("absent", [None, float("nan"), float("inf"), "x", True])
def test_what_is_not_a_number_is_a_dash(show, absent):
    assert show(absent) == ABSENT
    assert rate(absent, "req") == ABSENT


def test_the_clock_of_an_axis_and_one_and_many():
    assert [clock_unit(longest_s)[0] for longest_s in (60, 600, 3 * 3600)] == ["s", "min", "h"]
    assert [counted(n, "move") for n in (0, 1, 1200)] == ["0 moves", "1 move", "1,200 moves"]
    assert counted(2, "switch", "switches") == "2 switches"


def test_targets_in_words():
    assert targets_in_words({"ttft_s": 6.0, "tpot_s": 0.1}) == "TTFT < 6 s and TPOT < 100 ms"
    assert targets_in_words({}) == "no target set"


RUN = {"system": "dlora", "model": "llama_7b", "gpu": "a10g", "tp": 2, "replicas": 4}
OTHERS = [{"gpu": "a100_80g", "tp": 4, "replicas": 2}, {"gpu": "a10g", "tp": 2, "replicas": 1}]
CALIBRATED = {"calibration": {"gpu": "a10g", "model": "llama_7b", "tp": 1}, "replicas": [{}, {}]}


@pytest.mark.parametrize(
    ("summary", "system", "where", "device"),
    [
        ({"run": RUN}, "dLoRA", "llama_7b on 4 × a10g (TP 2)", "llama_7b on a10g (TP 2)"),
        (
            {"run": RUN | {"others": OTHERS}},
            "dLoRA",
            "llama_7b on 1 × a10g (TP 2) and 2 × a100_80g (TP 4) and 1 × a10g (TP 2)",
            "llama_7b on a10g (TP 2) and a100_80g (TP 4)",
        ),
        (CALIBRATED, "simlora", "llama_7b on 2 × a10g", "– on –"),
        ({}, "simlora", "unknown model", "– on –"),
    ],
)
def test_a_headline_says_what_ran_on_which_gpus_and_a_device_names_each_kind_once(
    summary, system, where, device
):
    assert headline(summary) == (system, where)
    assert device_in_words(summary) == device


def test_the_workload_in_words():
    workload = {"description": "x.csv", "adapters": 100, "rate_rps": 2}
    summary = {"seed": 3, "requests": {"submitted": 1200}, "workload": workload}
    assert workload_in_words(summary) == "x.csv · 1,200 requests · 100 adapters · 2.00 requests/s · seed 3"
    assert workload_in_words({}) == f"0 requests · seed {ABSENT}"
