"""What every workload promises: seeds, order, ranks, parts that are independent, and refusals that name their key."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL
from simlora.workload.arrivals import Gamma, Poisson
from simlora.workload.azure_functions import AzureFunctions2021
from simlora.workload.burstgpt import BurstGpt
from simlora.workload.conversations import Conversations
from simlora.workload.functions import Functions
from simlora.workload.lengths import Fixed, Geometric, Lengths, Uniform
from simlora.workload.lmsys import Lmsys
from simlora.workload.per_adapter import PerAdapter
from simlora.workload.popularity import Explicit, Power, Zipf
from simlora.workload.production import Production
from simlora.workload.slora import SLora
from simlora.workload.synthetic import Synthetic

LENGTHS = (Uniform(8, 512), Uniform(4, 64))
FIVE = (8, 16, 32, 64, 128)
WORKLOADS = {
    "synthetic": Synthetic(Poisson(5.0), Power(1.0), *LENGTHS, adapters=10, ranks=[8, 16]),
    "slora": SLora(adapters=5, ranks=[64, 32, 16, 8], seed=None),
    "functions": Functions(*LENGTHS, adapters=4, functions=20, sigma_log=1.0, rate_rps=20.0, ranks=[8, 16]),
    "conversations": Conversations(
        Uniform(8, 100), Uniform(20, 300), Geometric(3.0), Zipf(1.0), adapters=8, context_tokens=None
    ),
    "per_adapter": PerAdapter(
        *LENGTHS, adapters=6, ranks=[8, 16], rates_rps=[4, 1], counts=[2, 4], duration_s=500
    ),
    "production": Production(
        *LENGTHS,
        shares=[5, 4, 3, 2, 1],
        trends=([1, 3], [1], [0, 1, 0], [1, 1, 4], [2, 1]),
        ranks=FIVE,
        requests=500,
        span_s=6000.0,
        duration_s=5000.0,
    ),
}
READERS = {
    "invocations": AzureFunctions2021("trace.txt", Fixed(10), Fixed(20)),
    "transcripts": Lmsys("train.parquet", Power(1.0), Poisson(2.0)),
    "published": BurstGpt("burst.csv", Power(1.0), start_s=0.0),
}
COLUMNS = ("arrival_s", "adapter", "prompt_tokens", "output_tokens")
every_workload = pytest.mark.parametrize("name", WORKLOADS)


def changed(one, other, seed=1):
    """Return the names of the columns that differ."""
    a, b = one.build(seed), other.build(seed)
    return {name for name in COLUMNS if not np.array_equal(getattr(a, name), getattr(b, name))}


@every_workload
def test_equal_seeds_give_equal_traces_and_other_seeds_others(name):
    workload = WORKLOADS[name]
    one, again, other = (workload.build(seed) for seed in (1, 1, 2))
    assert (one.session, one.adapters) == (again.session, again.adapters)
    for column in COLUMNS:
        assert np.array_equal(getattr(one, column), getattr(again, column))
        assert not np.array_equal(getattr(one, column)[:50], getattr(other, column)[:50])


@every_workload
def test_requests_come_in_order_until_the_end_and_declare_their_output_exactly(name):
    workload = WORKLOADS[name]
    trace = workload.build(1)
    assert np.all(np.diff(trace.arrival_s) >= 0)
    assert trace.arrival_s[0] >= 0
    assert trace.arrival_s[-1] < workload.duration_s or name == "slora"  # which has a number of requests
    assert np.array_equal(trace.max_output_tokens, trace.output_tokens)


@every_workload
def test_adapters_have_their_ranks_in_turn_whether_asked_for_or_not(name):
    workload = WORKLOADS[name]
    specs = workload.build(1).adapters
    assert [spec.rank for spec in specs] == np.resize(workload.ranks, workload.adapters).tolist()
    assert [spec.name for spec in specs] == [f"adapter_{i}" for i in range(workload.adapters)]


@pytest.mark.parametrize("name", ["synthetic", "slora"])
def test_without_adapters_the_same_requests_are_for_the_base_model(name):
    alone = replace(WORKLOADS[name], adapters=0)
    assert alone.build(1).adapters == ()
    assert set(alone.build(1).adapter.tolist()) == {BASE_MODEL}
    assert changed(WORKLOADS[name], alone) == {"adapter"}


@pytest.mark.parametrize(
    "name, setting, longer_s",
    [
        *(("synthetic", {"duration_s": short_s}, 410.0) for short_s in (10.0, 77.7, 400.0)),
        *(("functions", {"cv": cv}, 330.0) for cv in (0, 1, 4)),
        ("per_adapter", {}, 900.0),
        ("conversations", {}, 4000.0),
        ("production", {}, 6000.0),
    ],
)
def test_a_longer_run_begins_with_the_shorter_one(name, setting, longer_s):
    workload = replace(WORKLOADS[name], **setting)
    short, long = workload.build(1), replace(workload, duration_s=longer_s).build(1)
    n = len(short)
    if name == "conversations":  # whose times are sums that begin elsewhere
        assert long.arrival_s[:n] == pytest.approx(short.arrival_s)
        assert long.session[:n] == short.session
    else:
        assert np.array_equal(long.arrival_s[:n], short.arrival_s)
    for column in COLUMNS[1:]:
        assert np.array_equal(getattr(short, column), getattr(long, column)[:n])


COUNTED = {"duration_s": None, "requests": 400}


@pytest.mark.parametrize(
    "name, part, columns",
    [
        ("synthetic", {"popularity": Zipf(1.0)}, {"adapter"}),
        ("synthetic", {"output_tokens": Fixed(7)}, {"output_tokens"}),
        ("functions", {"output_tokens": Fixed(7)}, {"output_tokens"}),
        ("functions", {"shape": "diurnal"}, {"arrival_s"}),
        ("functions", {"length_scale": 2}, {"prompt_tokens", "output_tokens"}),
        ("conversations", {"first_tokens": Fixed(7)}, {"prompt_tokens"}),
        ("conversations", {"output_tokens": Fixed(7)}, {"prompt_tokens", "output_tokens"}),
        ("production", {"output_tokens": Fixed(7)}, {"output_tokens"}),
        ("production", {"correlation": 0.5, "prompt_tokens": Fixed(7)}, {"prompt_tokens", "output_tokens"}),
        ("production", {"adapters": 50}, {"adapter"}),
        ("production", {"split_exponent": 2}, {"adapter"}),
    ],
)
def test_changing_one_part_leaves_the_others_as_they_were(name, part, columns):
    workload = WORKLOADS[name]
    if name == "production":
        workload = replace(workload, duration_s=None)
    assert changed(workload, replace(workload, **part)) == columns


def test_changing_the_arrivals_leaves_what_arrives_as_it_was():
    counted = replace(WORKLOADS["synthetic"], **COUNTED)
    assert changed(counted, replace(counted, arrivals=Gamma(1.0, 4.0))) == {"arrival_s"}


# What is refused -----------------------------------------------------------------------------

ALL = WORKLOADS | READERS
SETTINGS = [(name, field.name) for name, workload in ALL.items() for field in fields(workload)]
CHECKED_APART = ("path", "arrivals", "popularity", "lengths", "models", "log_types")
MAY_HAVE_NO_ADAPTERS = ("synthetic", "slora", "transcripts", "published")
MAY_BE_0 = ("cv", "gap_cv", "sigma_log", "epoch_sigma_log", "correlation", "split_exponent")
MAY_BE_0 += ("adapters_exponent", "bos_tokens", "seed", "start_s")


@pytest.mark.parametrize("name, key", [setting for setting in SETTINGS if setting[1] not in CHECKED_APART])
def test_what_no_setting_can_be_is_refused_by_its_key(name, key):
    takes_0 = key in MAY_BE_0 or (key == "adapters" and name in MAY_HAVE_NO_ADAPTERS)
    for value in (-1, "few", math.nan, math.inf, *([] if takes_0 else [0])):
        with pytest.raises(InputError, match=rf"workload\.{key}\b"):
            replace(ALL[name], **{key: value})


@pytest.mark.parametrize(
    "name, key", [(name, key) for name, key in SETTINGS if isinstance(getattr(ALL[name], key), Lengths)]
)
def test_lengths_that_will_not_do_are_refused_by_their_key(name, key):
    with pytest.raises(InputError, match=rf"workload\.{key}\.tokens is 0"):
        replace(ALL[name], **{key: Fixed(0)})


REFUSED = [
    ("synthetic", {"arrivals": Poisson(0)}, "workload.arrivals.rate_rps is 0"),
    ("synthetic", {"popularity": Explicit([1, 2])}, "workload.popularity.weights has 2 entries"),
    ("synthetic", {"requests": 5}, "workload.duration_s and workload.requests: both given"),
    ("slora", {"duration_s": 0.1}, "workload.rate_rps x workload.duration_s is 0.2, must be at least 1"),
    ("slora", {"prompt_tokens": [8]}, r"workload.prompt_tokens is \[8\], must be \[lo, hi\]"),
    ("slora", {"output_tokens": [8, 8]}, r"workload.output_tokens\[1\] is 8, .* at least 9"),
    ("functions", {"shape": "diurnal", "day_s": 1e-4}, "workload.day_s is 0.0001 .* than 10,000,000"),
    ("functions", {"shape": [0, 0]}, "workload.shape is all 0"),
    ("functions", {"shape": [0, 1], "day_s": 1000}, "workload.shape is 0 for all of .* is 100 seconds"),
    ("functions", {"context_tokens": 1}, "workload.context_tokens is 1, .* at least 2"),
    ("conversations", {"popularity": Zipf(-1)}, "workload.popularity.exponent is -1"),
    ("per_adapter", {"rates_rps": [0, 1], "counts": [6, 0]}, "gives all of the 6 adapters a rate of 0"),
    ("per_adapter", {"counts": [6]}, "workload.counts has 1 entries, must have one for each of the 2 rates"),
    ("per_adapter", {"counts": [3, 2]}, "workload.counts are 5 adapters together, must be the 6"),
    ("production", {"adapters": 4}, "workload.adapters is 4, must be a whole number of adapters, at least 5"),
    ("production", {"shares": [1, 2]}, "workload.shares has 2 entries, must have one for each of the 5"),
    ("production", {"trends": [[1]]}, "workload.trends has 1 entries, must have one for each of the 5"),
    ("production", {"trends": [[1], [0, 0], [1], [1], [1]]}, r"workload.trends\[1\] is all 0, must have"),
    ("transcripts", {"context_tokens": 1}, "workload.context_tokens is 1"),
]


@pytest.mark.parametrize("name, setting, message", REFUSED)
def test_a_setting_out_of_range_is_refused_by_its_key(name, setting, message):
    with pytest.raises(InputError, match=message):
        replace(ALL[name], **setting)


NOTHING = "in which no request arrives"


@pytest.mark.parametrize(
    "name, setting, message",
    [
        ("synthetic", {"duration_s": 0.001, "arrivals": Poisson(0.001)}, f"duration_s is 0.001 .* {NOTHING}"),
        ("functions", {"duration_s": 1e-6}, f"workload.duration_s is 1e-06 seconds, {NOTHING}; make it"),
        ("per_adapter", {"duration_s": 1e-6}, "no request arrives; make it longer or raise the rate of"),
        ("per_adapter", {"context_tokens": 100}, "context_tokens is 100, .* longest .* here 511 tokens"),
        ("production", {"duration_s": 1e-9}, "workload.duration_s is 1e-09 seconds, in which no request"),
        ("conversations", {"context_tokens": 20}, "context_tokens is 20, which is too few for the first"),
        ("conversations", {"turns": Fixed(1001)}, "turns has drawn 1,001 turns .* must be at most 1,000"),
        ("conversations", {"rate_rps": 1e9}, r"rate_rps x \(workload.duration_s \+ the longest"),
        ("conversations", {"gap_s": 1e12}, "must be at most 100,000,000 requests"),
        ("conversations", {"rate_rps": 1e-9}, "1800 seconds, in which no turn of a conversation arrives"),
    ],
)
def test_what_cannot_be_built_is_refused(name, setting, message):
    with pytest.raises(InputError, match=message):
        replace(WORKLOADS[name], **setting).build(1)
