"""comparison.html: what differs, by how much, and whether that is more than chance."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simlora.core.errors import InputError
from simlora.report import comparison_table
from simlora.report.comparison import MOST_LINES, render
from simlora.report.lines import with_cost
from simlora.sweeps.comparing import compare
from simlora.sweeps.differing import varying
from simlora.sweeps.statistics import interval
from simlora.sweeps.winners import better, direction
from tests.report.make_sweep import lose, make_run, make_sweep
from tests.report.test_html import ATTACKS, Page

NOISE = (0.03, -0.02, 0.01)


def steady(system: str, rate: float, seed: int) -> float:
    """vLLM is 0.1 better at rate 2, with the same noise."""
    return 1.0 if rate < 2 else 0.6 + 0.1 * (system == "vllm") + NOISE[seed % 3]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sweep(tmp_path_factory.mktemp("sweep"), steady)


def cells(found: Any, figure: str = "slo.attainment") -> dict[tuple[str, Any], dict[str, Any]]:
    return found.means[figure].set_index(["line", "x"]).to_dict("index")


# What is compared -----------------------------------------------------------------------


def test_a_sweep_is_curves_over_rate_with_a_line_a_system(sweep):
    found = compare([sweep])
    assert (found.x, found.by, found.lines) == ("workload.rate_rps", ("system",), ("slora", "vllm"))
    assert (found.runs, found.notices) == (12, ())
    table = compare([sweep / "sweep.parquet"])
    assert all(found.means[figure].equals(table.means[figure]) for figure in found.means), "it is its table"
    at = cells(found)["slora", 2.0]
    values = 0.6 + np.array(NOISE)
    assert at["estimate"] == pytest.approx(values.mean())
    assert (at["low"], at["high"]) == pytest.approx(interval(values))
    assert at["runs"] == 3


def test_what_curves_are_drawn_over_can_be_chosen(tmp_path):
    sweep = make_sweep(tmp_path, steady)
    table = pd.read_parquet(sweep / "sweep.parquet")
    table.insert(3, "cluster.replicas", 4)
    twice = table.assign(**{"cluster.replicas": 8, "key": table["key"] + "b"})
    pd.concat([table, twice]).to_parquet(sweep / "sweep.parquet", index=False)
    found = compare([sweep])
    assert found.by == ("system", "cluster.replicas")
    assert found.lines == tuple(f"{name}, replicas={n}" for n in (4, 8) for name in ("slora", "vllm"))
    found = compare([sweep], x="cluster.replicas", by=["system"])
    assert (found.x, found.lines) == ("cluster.replicas", ("slora", "vllm"))
    assert found.notices == ("Runs that differ in workload.rate_rps are averaged, too.",)
    assert cells(found)["slora", 8]["runs"] == 6


def test_no_more_keys_than_tell_configurations_apart():
    table = pd.DataFrame(
        {
            "system": ["a", "a", "b", "b"],
            "replica.max_num_seqs": [10, 10, 20, 20],  # as the system sets it
            "scheduler": ["x", "x", "y", "y"],
            "workload.rate_rps": [1, 2, 1, 2.0],
            "cluster.replicas": [4, 4, 4.0, 4],
            "until_s": [None, None, None, None],
        }
    )
    assert varying(table, list(table)) == ["system", "workload.rate_rps"]
    assert varying(table.drop(columns="system"), list(table)[1:]) == ["scheduler", "workload.rate_rps"]
    assert varying(table[:1], list(table)) == []


def test_runs_that_differ_in_their_seed_are_averaged(tmp_path):
    def run(name, seed):
        policy = {"_target_": f"simlora.{name}"}
        return make_run(tmp_path / f"{name}{seed}", seed, scheduler=policy, perfetto=bool(seed))

    folders = [run(name, seed) for name in ("Fcfs", "MostIdle") for seed in range(2)]
    found = compare(folders)
    assert (found.x, found.by, found.lines) == (None, ("scheduler",), ("fcfs", "most_idle"))
    assert set(found.means["slo.attainment"]["runs"]) == {2}
    requests = pd.concat([pd.read_parquet(folder / "requests.parquet") for folder in folders[:2]])
    ttft_s = requests.loc[requests["status"] == "finished", "ttft_s"]
    drawn = found.quantiles[""]["ttft_s"]["fcfs"]
    assert len(drawn) == 200
    assert drawn[100] == pytest.approx(np.quantile(ttft_s, 100 * 0.995 / 199))
    page = Page(render(found))
    assert len(page.data["series"]["cdf"]["levels"][""]) == 2


def test_curves_over_a_number_that_folders_vary_come_with_distributions_to_choose(tmp_path):
    folders = [make_run(tmp_path / str(rate), workload={"rate_rps": rate, "seed": 0}) for rate in (4, 1, 2)]
    found = compare(folders)
    assert (found.x, found.lines) == ("workload.rate_rps", ("slora",))
    assert list(found.quantiles) == ["1", "2", "4"]
    page = Page(render(found))
    assert [attrs["value"] for tag, attrs in page.elements if tag == "option"] == ["1", "2", "4"]
    assert page.data["series"]["cdf"]["shown"] == "1"


def test_the_same_run_twice_is_told_and_counted_once(tmp_path):
    one, two = (make_run(tmp_path / name, gpu={"name": "a10g"}) for name in "ab")
    found = compare([one, two, one])
    assert found.runs == 1
    (notice,) = found.notices
    assert notice.startswith(f"{two} is the very run that {one} is, with the same seed")


def test_runs_beside_a_sweep_are_told_apart_by_what_it_does_not_name(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", steady, ("slora",), seeds=1)
    table = pd.read_parquet(sweep / "sweep.parquet").drop(columns="system")
    table.to_parquet(sweep / "sweep.parquet", index=False)
    folders = [make_run(tmp_path / name, system=name, workload={"rate_rps": 2}) for name in ("slora", "vllm")]
    found = compare([*folders, sweep])
    assert found.lines == ("runs, slora", "runs, vllm", f"{sweep}, system=–")


def test_a_comparison_says_where_more_differs_than_its_lines_say(tmp_path):
    folders = [
        make_run(tmp_path / name, system=name, gpu_name=gpu, slo={"ttft_s": target}, speedup=1)
        for name, gpu, target in (("slora", "a10g", 2), ("vllm", "h100_80g", 6))
    ]
    with pytest.raises(InputError, match=r"differ in gpu: a10g \(.*slora\), .* --across gpu$"):
        compare(folders)
    found = compare(folders, across="gpu")
    assert found.lines == ("slora", "vllm")
    assert [(side.name, side.gpu) for side in found.sides] == [("slora", "a10g"), ("vllm", "h100_80g")]
    by_gpu = compare(folders, by=["gpu"])
    assert by_gpu.notices == ("Runs that differ in system are averaged, too.",)
    assert [side.name for side in by_gpu.sides] == ["slora, a10g", "vllm, h100_80g"]


def test_an_older_table_says_gpu_and_model_in_one_text(tmp_path):
    sweep = make_sweep(tmp_path, steady)
    table = pd.read_parquet(sweep / "sweep.parquet")
    table["device"] = table["system"].map({"slora": "llama_7b on a10g", "vllm": "llama_7b on l40s"})
    table.to_parquet(sweep / "sweep.parquet", index=False)
    with pytest.raises(InputError, match=r"gpu: a10g \(slora\), l40s \(vllm\)"):
        compare([sweep])
    assert [side.gpu for side in compare([sweep], across="gpu").sides] == ["a10g", "l40s"]


def test_a_grid_asks_for_what_it_varies_and_two_grids_do_not(tmp_path):
    def of(folder: str, *gpus: str) -> Path:
        made = [make_sweep(tmp_path / f"{folder}-{gpu}", steady, ("slora",)) for gpu in gpus]
        tables = [pd.read_parquet(one / "sweep.parquet") for one in made]
        for gpu, table in zip(gpus, tables, strict=True):
            table.insert(3, "gpu", gpu)
            table["side.gpu"] = gpu
        pd.concat(tables).to_parquet(made[0] / "sweep.parquet", index=False)
        return made[0]

    assert compare([of("both", "a10g", "l40s")]).lines == ("a10g", "l40s")
    two = [of("one", "a10g"), of("other", "l40s")]
    with pytest.raises(InputError, match=r"differ in gpu: a10g .*, l40s .* --across gpu$"):
        compare(two)
    assert len(compare(two, across=["gpu"]).sides) == 2


def test_seeds_that_change_nothing_are_one_run(tmp_path):
    sweep = make_sweep(tmp_path, lambda system, rate, seed: 0.5 + 0.1 * (system == "vllm"), makespan_s=100.0)
    found = compare([sweep])
    assert {(at["runs"], at["mark"]) for at in cells(found).values()} == {(1, "")}
    (notice,) = found.notices
    assert notice.startswith("8 runs did the very same as the first seed of their configuration")


# Which is better ------------------------------------------------------------------------


def test_a_winner_is_better_seed_by_seed_even_where_intervals_overlap(sweep):
    found = cells(compare([sweep]))
    assert found["slora", 2.0]["high"] > found["vllm", 2.0]["low"]
    assert [found[line, 2.0]["mark"] for line in ("slora", "vllm")] == ["", "best"]
    assert [found[line, 1.0]["mark"] for line in ("slora", "vllm")] == ["", ""]  # all alike
    times = cells(compare([sweep]), "ttft_s.mean")
    assert [times[line, 2.0]["mark"] for line in ("slora", "vllm")] == ["", "best"]  # less is better


def test_past_saturation_there_is_no_best_time(tmp_path):
    """Attainments of 0.2 and 0.4 are those of runs past saturation, whose times say how long they lasted."""

    def overloaded(system: str, rate: float, seed: int) -> float:
        return {"slora": 0.2, "vllm": 0.4}[system] + NOISE[seed] / 10

    found = compare([make_sweep(tmp_path, overloaded)])
    assert cells(found)["vllm", 2.0]["mark"] == "best"
    times = cells(found, "ttft_s.mean")
    assert {times[line, 2.0]["load"] for line in ("slora", "vllm")} == {"past"}
    assert {times[line, 2.0]["mark"] for line in ("slora", "vllm")} == {""}


def test_a_line_that_chance_may_have_made_better_ties(tmp_path):
    def noisy(system: str, rate: float, seed: int) -> float:
        return {"slora": 0.3, "vllm": 0.8, "dlora": 0.82}[system] + NOISE[seed] * (
            1 - 2 * (system == "dlora")
        )

    found = cells(compare([make_sweep(tmp_path, noisy, ("slora", "vllm", "dlora"))]))
    assert [found[line, 2.0]["mark"] for line in ("slora", "vllm", "dlora")] == ["", "tie", "tie"]


def test_one_seed_decides_nothing(tmp_path):
    found = compare([make_sweep(tmp_path, steady, seeds=1)])
    assert set(found.means["slo.attainment"]["mark"]) == {""}
    assert found.means["slo.attainment"]["low"].isna().all()
    assert "One seed each" in Page(render(found)).text


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.1}, True),
        ({0: 2.0, 1: 3.0}, {0: 1.0, 1: 3.0}, False),
        ({0: 2.0, 1: 2.1}, {5: 1.0, 6: 1.1}, False),  # no seed in common: intervals overlap
        ({0: 2.0, 1: 2.001}, {5: 1.0, 6: 1.001}, True),
        ({0: 2.0}, {0: 1.0}, False),
        ({0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}, False),
    ],
)
def test_better_is_beyond_chance(one, other, expected):
    assert better("ttft_s.mean", pd.Series(one, dtype=float), pd.Series(other, dtype=float)) is expected


MORE = ["slo.attainment", "slo.goodput_rps", "throughput_tps", "kv.hit_rate"]
LESS = ["ttft_s.p99", "makespan_s", "cost.usd_per_million_tokens", "kv.preemptions"]


@pytest.mark.parametrize(
    ("figures", "expected"), [(MORE, 1), (LESS, -1), (["adapters.count", "kv.hbm_share"], 0)]
)
def test_the_name_of_a_figure_says_what_is_better(figures, expected):
    assert {direction(figure) for figure in figures} == {expected}


# Cost -----------------------------------------------------------------------------------


def test_no_run_on_the_front_is_beaten():
    rng = np.random.default_rng(0)
    cost, share = rng.integers(1, 9, 60).astype(float), rng.integers(0, 9, 60) / 8
    both = with_cost(pd.DataFrame({"estimate": cost}), pd.DataFrame({"estimate": share}))
    front = {(row.cost, row.estimate) for row in both.itertuples() if row.front}
    points = set(zip(cost, share, strict=True))
    assert front == {
        (c, s) for c, s in points if not any((a <= c and b >= s) and (a, b) != (c, s) for a, b in points)
    }


def test_costs_are_rent_where_it_is_known_else_gpu_seconds(tmp_path, sweep):
    rent = {"cost.usd_per_million_tokens": 3.0, "cost.gpu_hours": 0.5}
    priced = make_sweep(tmp_path / "priced", steady, **rent)
    assert compare([priced]).cost == "cost.usd_per_million_tokens"
    hours = make_sweep(tmp_path / "hours", steady, **{"cost.gpu_hours": 0.5})
    found = compare([hours])
    assert found.cost == "gpu_s_per_thousand_requests"
    assert cells(found, found.cost)["slora", 2.0]["estimate"] == pytest.approx(1000 * 1800 / 200)
    assert compare([sweep]).cost is None
    run = compare([make_run(tmp_path / "run")])
    assert run.cost == "gpu_s_per_thousand_requests"
    (cell,) = cells(run, run.cost).values()
    requests = pd.read_parquet(tmp_path / "run" / "requests.parquet")
    done = requests["status"] == "finished"
    assert cell["estimate"] == pytest.approx(2000 * requests["finish_s"].max() / done.sum())


# The page -------------------------------------------------------------------------------


def test_every_chart_has_its_place_and_its_data(sweep, tmp_path):
    folder = make_run(tmp_path / "run")
    for found in (compare([sweep], figures=["makespan_s"]), compare([folder]), compare([sweep, folder])):
        page = Page(render(found))
        places = [attrs["id"] for tag, attrs in page.elements if attrs.get("class") == "chart"]
        assert set(places) == set(page.data["charts"])
        assert len(places) == len(set(places))
        named = {spec["data"].get("name") for spec in page.data["charts"].values()} - {None}
        assert named == set(page.data["series"])


def test_runs_that_were_lost_are_shown_with_their_reason(tmp_path):
    sweep = make_sweep(tmp_path, steady)
    lose(sweep, 0, "does not fit", "needs 30 GB")
    lose(sweep, 7, "failed", ATTACKS[0])
    found = compare([sweep])
    assert found.lost["reason"].tolist() == ["needs 30 GB", ATTACKS[0]]
    page = Page(render(found))
    assert "needs 30 GB" in page.text
    assert "2 + 1 lost" in page.text
    assert len(page.scripts) == 3


def test_names_from_a_table_stay_text(tmp_path):
    page = Page(render(compare([make_sweep(tmp_path, lambda *_: 0.5, systems=ATTACKS)], command=ATTACKS[1])))
    tame = Page(render(compare([make_sweep(tmp_path / "tame", steady)])))
    assert len(page.scripts) == len(tame.scripts)
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in tame.elements} | {"small"}
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert all(attack in page.text for attack in ATTACKS)


def test_of_many_lines_the_first_are_drawn_and_the_rest_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison_table, "MOST_ROWS", 20)
    names = tuple(f"system{i:03d}" for i in range(14))
    sweep = make_sweep(tmp_path, lambda *_: 0.9, systems=names, rates=(1.0, 2.0), seeds=1)
    text = render(compare([sweep]))
    page = Page(text)
    drawn = {row["name"] for row in page.data["charts"]["attainment"]["data"]["values"]}
    assert drawn == set(names[:MOST_LINES])
    assert f"show the first {MOST_LINES}" in page.text
    assert "The first 20 of 28 rows" in page.text
    assert len(text) - len(page.scripts[1]) < 600_000


# Mistakes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"x": "system"}, "--x system is not a number"),
        ({"x": "workload.rate"}, "'workload.rate' is no key of these runs; did you mean workload.rate_rps"),
        ({"figures": ["slo.attainmnt"]}, "is no figure of these runs; did you mean slo.attainment"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(sweep, asked, sentence):
    with pytest.raises(InputError) as error:
        compare([sweep], **asked)
    assert sentence in str(error.value)


def test_a_sweep_of_which_nothing_ran_has_no_page(tmp_path):
    sweep = make_sweep(tmp_path, steady, ("slora",), (1.0,), seeds=2)
    for row in range(2):
        lose(sweep, row, "does not fit", "needs 30 GB")
    with pytest.raises(InputError, match="none of the 2 runs has any figures; the first: needs 30 GB"):
        compare([sweep])
