"""A policy that cannot go by an argument says so and names the key of its slot."""

import re
from math import inf

import pytest

from simlora.core.errors import InputError
from tests.policies.catalogue import ARGUMENTS, SLOTS, policies

CLASSES = {policy.__name__: policy for slot in SLOTS for policy in policies(slot)}
KEYS = {"scheduling": "scheduler", "routing": "router", "scaling": "autoscaler"}
"""The key of a slot where its package has another name."""

PERIODS = ({"period_s": 0}, {"period_s": 1e-9})
COMIGRATIONS = (
    *PERIODS,
    {"delay_s": -1},
    {"unknown_execution_s": -1},
    {"eta_s": -0.1},
    {"bandwidth_bytes_per_s": 0},
    {"gap": 1.5},
    {"most_nodes": -1},
    {"solver": "gurobi"},
)
DAY = [{"at_s": 0, "replicas": 2}, {"at_s": 200, "replicas": 6}]
REFUSED: dict[str, tuple[dict[str, object], ...]] = {
    "ByQueue": ({"target_requests": 0}, *PERIODS),
    "BySlo": (*PERIODS, {"attainment": 1.5}, {"grow": 0}),
    "BySchedule": (
        *({"period_s": 1e-9, "steps": DAY}, {"steps": []}, {"steps": [{"at_s": 1}]}),
        *({"steps": [{"at_s": 1, "replicas": -1}]}, {"steps": [*DAY, DAY[0]]}),
        {"steps": DAY, "every_s": 150},
    ),
    "CostModel": (
        *({"constants": "papre"}, {"constants": None}, {"every_s": -0.1}, {"every_s": 1e-9}),
        *({"every_s": inf}, {"busy": 1.1}, {"busy_to": "much"}, {"idle": -0.1}, {"idle_to": True}),
        *({"backlog_s": 0}, {"recency_s": 0}, {"recency_s": "always"}, {"dependencies": 1}),
        *({"adapter_reward": "no"}, {"matches_invalid": 0}, {"matches_invalid": False}),
    ),
    "Consolidate": (*PERIODS, {"most_requests": 0}),
    "Ilp": (*COMIGRATIONS, {"host_memory_bytes": -1}),
    "SelectiveIlp": (
        *COMIGRATIONS,
        *({"more_requests": 0}, {"full": 0}, {"full": 1.1}, {"most_replicas": 0}, {"moved_s": -1}),
        {"constants": "mine"},
    ),
    "BurstTolerance": ({"request_tokens": 0}, {"request_tokens": 1.5}, {"most_adapters": 0}),
    "BySpeed": ({"sequences": 0},),
    "RankDemand": (
        *({"operating_points": points} for points in ({}, 5500, {8: 0}, {0: 5})),
        *(*PERIODS, {"trend_periods": 0}),
    ),
    "AdapterAffinity": ({"slack": 0},),
    "PendingTime": (
        *({"merged_share": -0.1}, {"merged_share": 1.1}, {"unknown_execution_s": 0}),
        {"constants": "mine"},
    ),
    "RankAware": ({"slo_s": 0}, {"penalty_s": -1}, {"mean_output_tokens": 0}),
    "RankBands": ({"slack": 0}, {"window": 0}),
    "SessionBands": ({"slack": 0}, {"session_slack": 0}),
    "Scored": (
        *({"scorers": scorers} for scorers in ({"queu": 1}, {"queue": -1}, {"queue": 0}, [1])),
        *({"scorers": {"queue": {"depth": 1}}}, {"filters": {"balanced": {"gap": -1}}}),
    ),
    "ChunkedSlo": ({"pass_s": 0}, {"margin_s": 2, "slo_s": 1}),
    "Credit": (
        *({"constants": "papers"}, {"merged_s": 0}, {"normal": 20_000.0}, {"tune_every": 0}),
        {"factor": 0.9},
    ),
    "EarlyAbort": ({"slo_s": 0}, {"margin_s": -1}, {"margin_s": 3, "slo_s": 2}),
    "PeftContinuous": ({"merge": 3},),
}
"""By policy: arguments, of which the first is refused."""


@pytest.mark.parametrize(
    "name, arguments", [(name, arguments) for name, each in REFUSED.items() for arguments in each]
)
def test_what_is_out_of_range_is_refused_by_its_key(name, arguments):
    package = CLASSES[name].__module__.split(".")[2]
    key = f"{KEYS.get(package, package)}.{next(iter(arguments))}"
    with pytest.raises(InputError, match=rf"{re.escape(key)}\b"):
        CLASSES[name](**{**ARGUMENTS.get(name, {}), **arguments})


@pytest.mark.parametrize("below, above", [("idle", "idle_to"), ("idle_to", "busy_to"), ("busy_to", "busy")])
def test_the_bands_of_the_cost_model_do_not_go_down(below, above):
    model, band = CLASSES["CostModel"], {"idle": 0.2, "idle_to": 0.4, "busy_to": 0.6, "busy": 0.8}
    assert model(**(band | {below: band[above]}))
    with pytest.raises(InputError, match=r"eviction\.idle, .* must not go down in that order"):
        model(**(band | {below: band[above], above: band[below]}))


@pytest.mark.parametrize("name", ["Ilp", "SelectiveIlp"])
@pytest.mark.parametrize("solver, package", [("cbc", "pulp"), ("highs", "highspy")])
def test_a_solver_that_is_not_installed_is_named(monkeypatch, name, solver, package):
    found = "simlora.policies.migration.comigration.find_spec"
    monkeypatch.setattr(found, lambda name: None if name == package else name)
    with pytest.raises(InputError, match=f"its Python package {package} is not installed"):
        CLASSES[name](solver=solver)
