"""Plans: the cheapest machines and flags that keep an SLO, and what is said of them."""

import json
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from simlora.api.preparing import composed, ready
from simlora.calibrate.calibration_file import save, text_of
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.core.errors import InputError
from simlora.latency.parts.composed import composed as composed_of_parts
from simlora.planning import Plan, explaining, plan
from simlora.planning.apart import Prefilling, by_rank, ways
from simlora.planning.candidate import Candidate, Trials
from simlora.planning.climbing import deployable
from simlora.planning.explaining import NOTHING, binding
from simlora.planning.machines import (
    RANK,
    ROUTER,
    SLOTS,
    Excluded,
    Machine,
    Traffic,
    fewest,
    longest,
    machine,
    traffic_of,
)
from simlora.planning.notices import without_flags
from simlora.planning.planned import Planned
from simlora.planning.tuning import (
    MEMORY,
    ON_HOST,
    PREFIX_CACHING,
    SEQUENCES,
    TOKENS,
    fixed,
    together,
    tuning,
)
from simlora.sweeps import capacity
from simlora.sweeps.question import REPLICAS, asked
from tests.planning.traffic import ALIKE, OTHERS, PRICES, TRAFFIC, on
from tests.traces import workload

ONE_EACH = {SLOTS: [8], SEQUENCES: [128], TOKENS: [2048], MEMORY: [0.9], ROUTER: ["most_idle"]}
"""A value of each flag, where flags do not matter."""
FEW = ONE_EACH | {SLOTS: [8, 24], SEQUENCES: [64, 256]}
"""A grid that can be run as a whole."""
HALF = (*ALIKE, "workload.rates_rps=[0.4,0.6]")


def planned(*user: str, gpu: str = "l40s", **options: Any) -> Plan:
    """Return the one plan for a traffic on one kind of GPU, with one seed and a value of each flag."""
    usual: dict[str, Any] = {"prices": PRICES, "tune": ONE_EACH, "seeds": 1, "plans": 1, "longest": 1}
    return plan(user, gpus=[gpu], degrees=[1], jobs=1, **usual | options)


@pytest.fixture(scope="module", autouse=True)
def few_steps() -> Iterator[None]:
    """How far a plan reaches beyond its traffic is found in few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explaining, "STEPS", 2)
        yield


@dataclass(frozen=True)
class Told:
    """A plan without a model, for a limit of another figure, with a scheduler of no engine, and what was told."""

    made: Plan
    heard: list[str]


@pytest.fixture(scope="module")
def told() -> Told:
    heard: list[str] = []
    user = [one for one in ALIKE if not one.startswith(("model=", "slo."))]
    tune = {key: values for key, values in ONE_EACH.items() if key not in (SLOTS, TOKENS)}
    limits = {"ttft_s.p95": 1.0}
    own = (f"{SLOTS}=32", "scheduler=lcfs")
    made = planned(*user, *own, gpu="h100_80g", limits=limits, tune=tune, tell=heard.append)
    return Told(made, heard)


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(
        HALF, gpus=[*PRICES], degrees=[1], prices=PRICES, tune=FEW, seeds=2, plans=2, longest=1, jobs=1
    )


def test_plans_are_the_cheapest_first_and_keep_the_slo_with_every_seed(found):
    costs = [each.candidate.usd_per_hour for each in found.plans]
    assert costs == sorted(costs)
    for each in found.plans:
        assert len(each.outcomes) == 2
        assert all(found.question.met(outcome) for outcome in each.outcomes)
        assert each.figure("slo.attainment")[1] >= 0.95
        assert each.candidate.replicas >= each.candidate.machine.least


def test_one_replica_less_keeps_it_with_no_flags_of_the_whole_grid(found):
    best = next(each.candidate for each in found.plans if each.candidate.replicas > 1)
    grid = [
        best.changed(replicas=best.replicas - 1, settings=tuple(zip(FEW, values, strict=True)))
        for values in product(*FEW.values())
    ]
    found.trials.run(grid, found.question.seeds)
    assert [one for one in grid if found.trials.met(one, found.question.seeds)] == []


def test_the_same_arguments_give_the_same_plan(found):
    gpus = [*PRICES][::-1]
    again = plan(HALF, gpus=gpus, degrees=[1], prices=PRICES, tune=FEW, seeds=2, plans=2, longest=1, jobs=2)
    assert again.text().splitlines()[1:] == found.text().splitlines()[1:]


def test_the_bound_is_below_what_capacity_finds():
    """The bound of replicas at a rate, one over the rate that a replica carries, for requests of a single length."""
    user = (
        "model=llama_3_1_8b", "workload=synthetic", "workload.adapters=4", "workload/prompt_tokens=fixed",
        "workload/output_tokens=fixed", "workload.duration_s=200", "slo.ttft_s=2",
        "replica.max_loras=4", "replica.max_lora_rank=64", "replica.adapter_tokenizers=false",
    )  # fmt: skip
    run = ("system=vllm", "gpu=l40s", *user)
    rate = (
        f"workload.arrivals.rate_rps={8 * capacity(run, seeds=1, precision=0.1, longest=1, jobs=1).value:.6g}"
    )
    _, of = on(user=(*user, rate))
    assert 1 <= fewest(ready(*composed([*run, rate])).scenario, of, cached=False) <= 8


def test_the_search_begins_with_the_adapters_in_use_and_the_requests_of_little_s_law():
    chosen, traffic = on()
    start = dict(tuning(chosen, traffic, {}, 0.05).start(2))
    stay_s = traffic.output_tokens * 0.05
    active = sum(1 - math.exp(-rate * stay_s / 2) for rate in traffic.rates_rps)
    assert start[SLOTS] >= active
    assert start[SEQUENCES] >= 2 * traffic.rate_rps * stay_s / 2
    assert start[SLOTS] in (1, 2, 4, 8, 16, 24)


def test_what_is_asked_to_be_tuned_is_all_that_varies():
    chosen, traffic = on()
    of = tuning(chosen, traffic, {SLOTS: [8, 16], "scheduler.max_batched_tokens": [2048]}, 0.05)
    assert of.ladders[SLOTS] == [8, 16]
    assert {dict(each)[SLOTS] for each in of.beside(of.start(1), 1)} == {8, 16}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"replica.tp": [2]}, "--tune replica.tp: the GPUs of a replica are what --tp says"),
        ({"replica.block_size": [16]}, "--tune replica.block_size: vllm has no such flag"),
        ({SEQUENCES: ["many"]}, "--tune replica.max_num_seqs is 'many', must be a whole number"),
        ({RANK: [20]}, "--tune replica.max_lora_rank: is 20, must be one of 8, 16, 32"),
        ({ROUTER: ["most_idel"]}, "there is no router 'most_idel'; did you mean most_idle"),
        ({RANK: [8]}, "--tune replica.max_lora_rank: is 8, and there are adapters of rank 16"),
        ({MEMORY: [1.2]}, "--tune replica.gpu_memory_utilization is 1.2, must be greater than 0 and"),
        ({PREFIX_CACHING: ["on"]}, "must be true, false or both"),
        ({SEQUENCES: [512], TOKENS: [256]}, "max_num_seqs is 512 and scheduler.max_batched_tokens 256, must"),
    ],
)
def test_a_value_that_a_flag_cannot_have_is_refused(asked, said):
    with pytest.raises(InputError, match=re.escape(said)):
        tuning(*on(), asked, None)


def test_a_flag_is_set_or_tuned_and_not_both():
    with pytest.raises(InputError, match=r"max_loras is set to 4 and has --tune replica\.max_loras as well"):
        tuning(*on(user=(*TRAFFIC, f"{SLOTS}=4")), {SLOTS: [8, 16]}, None)


def test_the_host_has_room_for_every_slot(told):
    assert fixed(traffic_of(TRAFFIC, "vllm"))[ON_HOST] == 24
    text = told.made.text()
    assert "--max-loras 32" in text
    assert "--max-cpu-loras 32" in text


def test_more_traffic_is_more_than_the_user_s():
    chosen, of = on(user=(*TRAFFIC, "speedup=3"))
    one = Candidate(chosen, 1, tuning(chosen, of, {}, None).start(1))
    assert one.faster(2.0).more == ("speedup=6", "workload.duration_s=80"), "for as long"


def test_a_plan_keeps_its_slo_in_runs_that_are_long_enough_to_tell():
    """A run of 31 s ends before the queue is long: what is enough for it is not enough for one of 123 s."""
    busy = (*ALIKE, "speedup=1.3")
    short, long = (planned(*busy, tune=ONE_EACH | {SLOTS: [24]}, longest=longest) for longest in (1, 4))
    assert any("31 s of arrivals are too short to tell" in notice for notice in short.plans[0].notices)
    assert not any("too short" in notice for notice in long.plans[0].notices)
    (one,) = long.plans
    first = short.plans[0].candidate
    assert short.trials.met(first, [0])
    assert not short.trials.met(first.lasting(4), [0])
    assert long.trials.met(one.candidate.lasting(4 * one.candidate.machine.times), long.question.seeds)
    lasts_s = round(40 * one.candidate.machine.times * one.headroom)
    assert f"workload.duration_s={lasts_s}" in one.candidate.faster(one.headroom).overrides(0)
    assert "workload.duration_s=40 " in f"{shlex.join(one.checked)} ", "a check makes its own runs longer"


def test_a_trace_that_is_too_short_is_said_to_be(tmp_path):
    every = [f"{second},{adapter},16,512,64" for second in range(20) for adapter in ("one", "two")]
    found = planned(*OTHERS, *workload(tmp_path, *every), tune=ONE_EACH | {SLOTS: [2]}, longest=16)
    assert "notice: 19 s of arrivals are too short to tell" in found.text()


def test_requests_that_fit_no_replica_are_said_and_the_command_asks_for_no_more_than_fits(tmp_path):
    every = [f"{second},one,16,{60_000 if second == 70 else 400},20" for second in range(150)]
    user = ("model=llama_3_1_8b", *workload(tmp_path, *every), "slo.ttft_s=2")
    found = planned(*user, gpu="l4", tune=ONE_EACH | {SLOTS: [1]}, prices=None)
    (one,) = found.plans
    room = int(one.outcomes[0].summary["run"]["kv_token_budget"])
    said = f"1 of 150 requests are refused and count as missed; the KV of a replica has room for {room:,}"
    assert said in found.text()
    ((_, _, words),) = one.kinds
    assert room - 256 < int(words[words.index("--max-model-len") + 1]) <= room


def test_a_model_that_the_hub_has_not_and_requests_beyond_its_window_are_said(tmp_path):
    every = [f"{second},one,16,2500,20" for second in range(40)]
    user = ("model=llama_7b", *workload(tmp_path, *every), "slo.ttft_s=5")
    text = planned(*user, gpu="a100_80g", tune=ONE_EACH | {SLOTS: [1]}).text()
    assert "no model on the hub is known as llama_7b" in text
    assert "requests have up to 2,520 tokens, more than the 2,048 of llama_7b's window" in text


def test_the_longest_request_is_that_of_every_draw_and_of_the_whole_trace(tmp_path):
    every = [f"{second},one,16,{7000 if second == 5 else 100},20" for second in range(200)]
    user = (*OTHERS, *workload(tmp_path, *every), "workload.resample_block_s=20", "seed=3")
    chosen, of = on(user=user)
    assert longest(chosen, [3], of) == 7020
    drawn, of = on()
    most = longest(drawn, [0, 1, 2], of)
    assert most == max(traffic_of((*TRAFFIC, f"seed={seed}"), "vllm").longest_tokens for seed in (0, 1, 2))
    assert longest(drawn.lasting(4), [0, 1, 2], of) >= most


def test_a_step_has_room_for_a_token_of_every_sequence():
    chosen, traffic = on()
    of = tuning(chosen, traffic, {SEQUENCES: [256, 512], TOKENS: [256, 1024]}, 0.05)
    start = of.start(1)
    assert all(together(dict(each)) for each in (start, *of.beside(start, 1)))


def test_what_is_simulated_and_has_no_flag_is_listed():
    own = ["replica.kv_token_budget=20000", "++eviction._target_=simlora.policies.eviction.gdsf.Gdsf"]
    chosen, _ = on(user=(*TRAFFIC, *own, f"{SLOTS}=8"))
    assert without_flags(Candidate(chosen, 1, ())) == own


def test_a_check_has_the_seeds_of_its_plan():
    chosen, of = on(user=(*TRAFFIC, "seed=3"))
    one = Candidate(chosen, 1, tuning(chosen, of, {}, None).start(1))
    assert "seed=3" in Planned(one, of, (), 200, 1.0, True, 1.0, None, "", ()).checked


def test_values_that_cannot_go_together_are_passed_over():
    chosen, of = on()
    settings = tuning(chosen, of, {SLOTS: [8], ON_HOST: [4, 24]}, None).start(1)
    trials = _trials()
    one = Candidate(chosen, 1, settings)
    few = one.changed(settings=tuple((key, 4 if key == ON_HOST else value) for key, value in settings))
    assert trials.score(few, [0]) < 0 <= trials.score(one, [0])
    more = few.changed(settings=tuple((key, 16 if key == SLOTS else value) for key, value in few.settings))
    assert trials.score(more, [0]) < trials.score(few, [0]), "a climb leads to fewer slots"


def test_a_machine_has_room_if_it_has_some_for_one_slot():
    large = [one for one in TRAFFIC if not one.startswith("workload.ranks")]
    chosen, of = on("a10g", (*large, "workload.ranks=[8,256]"))
    trials = _trials()
    settings = dict(tuning(chosen, of, {}, None).start(1))
    scores = [
        trials.score(Candidate(chosen, 1, tuple((settings | {SLOTS: slots}).items())), [0])
        for slots in (1, 8)
    ]
    assert scores[1] < 0 < scores[0]


def test_nothing_binds_where_nothing_is_missed_and_a_product_s_router_is_taken_where_it_does():
    quiet = [one for one in TRAFFIC if not one.startswith("workload.rates_rps")]
    chosen, of = on(user=(*quiet, "workload.rates_rps=[0.02]"))
    tuned, trials = tuning(chosen, of, {}, None), _trials()
    settings = tuple((key, "rank_aware" if key == ROUTER else value) for key, value in tuned.start(2))
    one = Candidate(chosen, 2, settings)
    assert binding(trials, one, 1.0) == NOTHING
    assert dict(deployable(trials, one, tuned).settings)[ROUTER] != "rank_aware"


def _trials() -> Trials:
    return Trials(asked(TRAFFIC, REPLICAS, None, None, None, None, 1, 0.02), jobs=1)


def test_what_the_user_sets_is_not_tuned():
    own = (*TRAFFIC, f"{SLOTS}=4", f"{RANK}=64", "router=round_robin", "scheduler._target_=mine.Mine")
    of = traffic_of(TRAFFIC, "vllm")
    chosen = machine(own[:-1], "vllm", "l40s", 1, 1.9, of, fixed(of))
    assert isinstance(chosen, Machine)
    found = tuning(replace(chosen, user=own), of, {}, None)
    assert found.ladders[SLOTS] == [4]
    assert ROUTER not in found.ladders
    assert "scheduler.max_batched_tokens" not in found.ladders, "another scheduler need not have it"
    assert chosen.setting(RANK) == 64


def test_without_adapters_nothing_is_kept_for_lora():
    none = {key: values for key, values in ONE_EACH.items() if key != SLOTS}
    found = planned(*OTHERS, "workload=synthetic", "workload.adapters=0", "workload.duration_s=30", tune=none)
    ((_, _, words),) = found.plans[0].kinds
    assert not any("lora" in word for word in words)
    assert not any("max_lora_rank" in notice for notice in found.plans[0].notices)
    assert "adapters:" not in found.text()


def test_prefixes_are_cached_where_requests_may_share_them():
    talks = ("workload=chatbot", "workload.adapters=8", "workload.duration_s=60", "workload.rate_rps=1")
    chosen, of = on(user=(*OTHERS, *talks))
    assert dict(tuning(chosen, of, {}, None).start(1))[PREFIX_CACHING] is True
    assert chosen.least == fewest(ready(*composed(chosen.overrides)).scenario, of, cached=True)


def test_a_calibration_is_of_one_gpu_and_a_machine_with_another_is_left_out(tmp_path):
    path = tmp_path / "mine.yaml"
    known = composed_of_parts(gpu_named("h100_80g"), model_named("llama_3_1_8b"), 1, "vllm")
    assert known is not None
    save(path, text_of(known))
    user = (*TRAFFIC, f"calibration={path}")
    of = traffic_of(user, "vllm")
    left_out = machine(user, "vllm", "l40s", 1, 1.9, of, fixed(of))
    assert isinstance(left_out, Excluded)
    assert left_out.reason == f"calibration {path} is for gpu h100_80g"
    assert isinstance(machine(user, "vllm", "h100_80g", 1, 2.99, of, fixed(of)), Machine)


def test_the_heading_and_the_check_of_a_plan_have_the_slo_that_it_was_made_for(told):
    assert ", SLO ttft_s.p95 < 1, calibration" in told.made.text().splitlines()[1]
    both = replace(told.made, question=replace(told.made.question, attainment=0.9))
    assert "check: simlora-capacity --limit=ttft_s.p95=1 --attainment=0.9 " in both.text()


def test_a_policy_that_the_engine_has_no_flag_for_and_a_model_that_was_not_given_are_said(told):
    assert "not in the command: scheduler=lcfs, for which vllm has no flag" in told.made.text()
    assert told.heard[0] == "no model is given: llama_3_1_8b is planned for; model= names another"


def test_an_slo_that_was_not_given_is_said_first():
    class Heard(Exception):
        pass

    def hears(text: str) -> None:
        raise Heard(text)

    user = [one for one in ALIKE if not one.startswith("slo.")]
    with pytest.raises(Heard, match="no SLO is given: planned for TTFT < 6 s"):
        planned(*user, tell=hears)


def test_a_plan_says_its_command_what_binds_and_how_sure_it_is(found):
    text = found.text()
    best = found.plans[0]
    ((_, _, words),) = best.kinds
    command = shlex.join(words)
    assert command in text
    assert f"--max-loras {dict(best.candidate.settings)[SLOTS]}" in command
    assert "--max-lora-rank 16 --max-cpu-loras 24" in command
    assert "prefix-caching" not in command, "no request shares a prefix"
    most = longest(best.candidate.machine, found.question.seeds, found.traffic)
    stated = int(words[words.index("--max-model-len") + 1])
    assert stated >= most > stated - 256
    assert "adapters: --lora-modules NAME=PATH" in text
    assert f"binds: {best.binds}" in text
    assert best.sure is not None
    assert 0.5 <= best.sure <= 1.0
    assert best.slower >= 1.0
    assert best.headroom >= 1.0
    assert {each.key for each in best.beside} >= {SLOTS, SEQUENCES}


def test_a_plan_is_saved_with_its_runs_its_picture_and_a_deployment(found, tmp_path):
    (tmp_path / "kubernetes_9.yaml").write_text("of an earlier search with more plans")
    found.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"kubernetes_{order}.yaml" for order in range(1, len(found.plans) + 1)),
        "plan.json",
        "plan.png",
        "runs.parquet",
    ]
    tree = json.loads((tmp_path / "plan.json").read_text())
    assert [each["usd_per_hour"] for each in tree["plans"]] == [
        each.candidate.usd_per_hour for each in found.plans
    ]
    for order, each in enumerate(found.plans, 1):
        manifest = yaml.safe_load((tmp_path / f"kubernetes_{order}.yaml").read_text())
        assert manifest["spec"]["replicas"] == each.candidate.replicas
    runs = pd.read_parquet(tmp_path / "runs.parquet")
    assert len(runs) == len(found.trials.runs)
    assert np.isfinite(runs["usd_per_hour"]).all()


def test_traffic_that_cannot_be_read_is_no_matter_of_machines():
    with pytest.raises(InputError, match=r"^none\.csv does not exist"):
        plan(("workload=file", "workload.path=none.csv", "slo.ttft_s=1"))


@pytest.mark.parametrize(
    ("more", "arguments", "said"),
    [
        (("gpu=l40s",), {}, "give --gpus"),
        (("replica.tp=2",), {}, "give --tp"),
        (("cluster.replicas=3",), {}, "leave it out"),
        (("cluster.stragglers=[]",), {}, "it slows replicas itself"),
        ((), {"gpus": ["a800_80g"]}, "no price of gpu=a800_80g is known; give one with --price a800_80g"),
        (("model=llama_3_3_70b",), {"prices": PRICES}, r"no machine is left to plan with .*GB"),
        (
            ("slo.tpot_s=0.001", "workload.duration_s=10"),
            {"prices": PRICES, "tune": ONE_EACH, "seeds": 1, "longest": 1, "jobs": 1},
            r"no machine keeps the SLO, .*the nearest is \d+ with \d",
        ),
        ((), {"gpus": ["l40"]}, "there is no gpu=l40"),
        ((), {"gpus": []}, "--gpus names none"),
        ((), {"engines": ["slora"]}, "--engines slora: its flags are not known"),
        ((), {"prices": {"l40s": -1.0}}, "--price l40s is -1"),
        ((), {"plans": 0}, "plans is 0"),
        ((), {"tune": ONE_EACH, "limits": {"nosuch": 1.0}, "jobs": 1}, "has no number nosuch"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(more, arguments, said):
    with pytest.raises(InputError, match=said):
        plan((*ALIKE, *more), **{"gpus": ["l40s"], "degrees": [1], **arguments})


def test_large_ranks_get_replicas_of_their_own_where_slots_of_their_rank_would_cost_all_others(tmp_path):
    """With slots of rank 256 for all adapters no number of replicas keeps the pace: their kernels take too long."""
    mixed = (*TRAFFIC, "workload.adapters=32", "workload.ranks=[8,8,8,8,8,8,8,256]")
    paced = ("workload.rates_rps=[0.4]", "slo.tpot_s=0.06")
    found = planned(*mixed, *paced, gpu="h100_80g", tune=ONE_EACH | {SLOTS: [4, 32]})
    (best,) = found.plans
    apart = best.candidate.apart
    assert (apart.rank, apart.highest) == (8, 256)
    (small, up_to, of_small), (large, above, of_large) = best.kinds
    assert (up_to, above) == ("for ranks up to 8", "for ranks above 8")
    assert small + large == best.candidate.replicas
    assert of_small[of_small.index("--max-lora-rank") + 1] == "8"
    assert of_large[of_large.index("--max-lora-rank") + 1] == "256"
    assert f"run {large} for ranks above 8: vllm serve" in found.text()
    assert any("max_lora_rank is 256" in notice and "extrapolated" in notice for notice in best.notices)
    found.save(tmp_path)
    names = [
        tree["metadata"]["name"] for tree in yaml.safe_load_all((tmp_path / "kubernetes_1.yaml").read_text())
    ]
    assert names == ["vllm-llama-3-1-8b-ranks-up-to-8", "vllm-llama-3-1-8b-ranks-above-8"]


def test_replicas_are_set_apart_by_the_share_of_the_requests_and_slots_by_the_adapters_in_use():
    of = Traffic(1000, 100.0, 100.0, 100.0, [1.0] * 8 + [1.0, 1.0], [8] * 8 + [64, 64], False, 200)
    found = list(by_rank(of, replicas=5, stay_s=2.0))
    assert [(one.replicas, one.slots, one.rank, one.highest) for one in found] == [
        (1, 2, 8, 64),
        (2, 2, 8, 64),
    ]
    assert list(by_rank(replace(of, ranks=[8] * 10), 5, 2.0)) == [], "one rank"
    near = {(one.replicas, one.slots) for one in found[0].beside(replicas=2)}
    assert near == {(1, 1)}, "a replica is left for the others, and there are two such adapters"
    assert found[0].said(5) == "4 for ranks up to 8 and 1 of 2 slots for ranks above"


def test_fewer_replicas_keep_a_fast_pace_where_some_only_prefill(tmp_path):
    """A prompt of 4,096 tokens lengthens the steps of all that run beside it."""
    long = ("workload=synthetic", "workload.adapters=8", "workload.ranks=[16]", "workload.duration_s=10",
            "workload/prompt_tokens=fixed", "workload.prompt_tokens.tokens=4096", "workload/output_tokens=fixed",
            "workload.output_tokens.tokens=128", "workload.arrivals.rate_rps=6",
            "slo.ttft_s=1", "slo.tpot_s=0.012")  # fmt: skip
    user = ("model=llama_3_1_8b", *long)
    (alike,) = planned(*user, gpu="h100_80g").plans
    found = planned(*user, gpu="h100_80g", pools=True)
    (best,) = found.plans
    assert best.candidate.replicas < alike.candidate.replicas
    assert isinstance(best.candidate.apart, Prefilling)
    (prefill, first, started), (decode, then, _) = best.kinds
    assert (prefill + decode, first, then) == (best.candidate.replicas, "that prefill", "that decode")
    assert json.loads(started[started.index("--kv-transfer-config") + 1])["kv_connector"] == "NixlConnector"
    assert "router@decode_router=most_idle" in best.checked
    others = {each.value: each for each in best.beside if each.key == "cluster.prefill_replicas"}
    assert others, "as many replicas, otherwise divided"
    assert all(f"{count} that prefill" in found.text() for count in others)
    found.save(tmp_path)
    names = [
        tree["metadata"]["name"] for tree in yaml.safe_load_all((tmp_path / "kubernetes_1.yaml").read_text())
    ]
    assert names == ["vllm-llama-3-1-8b-prefill", "vllm-llama-3-1-8b-decode"]


def test_numbers_of_replicas_that_prefill_are_tried_all_over():
    chosen, of = on(user=ALIKE)

    def tried(replicas: int, pools: bool = True) -> list[int]:
        return [one.replicas for one in ways(chosen, of, replicas, 2.0, pools) if isinstance(one, Prefilling)]

    assert tried(5) == [1, 2, 3, 4]
    assert tried(20) == [1, 4, 7, 10, 13, 16, 19]
    assert tried(1) == tried(5, pools=False) == []
    assert [one.replicas for one in Prefilling(3).beside(replicas=4)] == [2]


@pytest.mark.parametrize("caches", [True, False])
def test_replicas_that_prefill_and_that_decode_cache_prefixes_alike(caches):
    chosen, _ = on(user=ALIKE)
    settings = ((ROUTER, "most_idle"), ("replica.prefix_caching", caches))
    found = Candidate(chosen, 3, settings, apart=Prefilling(1)).overrides(0)
    assert f"replica.prefix_caching={str(caches).lower()}" in found
    assert {"cluster.prefill_replicas=1", "router@decode_router=most_idle"} <= set(found)
