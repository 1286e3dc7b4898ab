"""The plans that a search has found, and the files that they are written to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import yaml

from simlora.config.engine_flags import (
    PREFIX_CACHING,
    activation_share,
    context,
    deployment,
    engine,
    words,
)
from simlora.core.files import expanded
from simlora.metrics.slo import ATTAINMENT
from simlora.metrics.summary import json_safe
from simlora.planning.apart import Kind
from simlora.planning.candidate import Candidate, Trials
from simlora.planning.machines import Excluded, Traffic
from simlora.planning.notices import kv_tokens, notices
from simlora.planning.plan_lines import plan_lines
from simlora.planning.plan_picture import draw
from simlora.report.sides import CONDITIONS, heading
from simlora.results.files import writing
from simlora.sweeps.grid import QUIET
from simlora.sweeps.outcome import RAN, Outcome, Overrides
from simlora.sweeps.question import Question

MANIFEST = "kubernetes_{}.yaml"


@dataclass(frozen=True)
class Beside:
    """A flag with another value: whether the plan still keeps its SLO with every seed, and the means of figures.

    `past`: with some seed it is past saturation. `divided` says how replicas are divided, where that is what differs.
    """

    key: str
    value: Any
    met: bool
    past: bool
    figures: Mapping[str, float]
    divided: str = ""


@dataclass(frozen=True)
class Planned:
    """One plan. `outcomes` are its runs by seed.

    It still keeps the SLO with `headroom` times the traffic, and with iterations `slower` times as long. `sure` is the
    probability that it holds, as far as the calibration's error goes: None where that is not known. `told`: the runs
    with so much traffic are long enough to tell whether a queue would grow. `longest_tokens` are of the longest
    request, with the longest answer that it allows.
    """

    candidate: Candidate
    traffic: Traffic
    outcomes: Sequence[Outcome]
    longest_tokens: int
    headroom: float
    told: bool
    slower: float
    sure: float | None
    binds: str
    beside: Sequence[Beside]

    @property
    def settings(self) -> dict[str, Any]:
        """Values of the engine's flags by simlora's keys."""
        machine = self.candidate.machine
        keys = [*engine(machine.engine).flags, *([PREFIX_CACHING] if self.traffic.prefixes else [])]
        return {key: machine.setting(key) for key in keys} | dict(self.candidate.settings)

    @property
    def notices(self) -> list[str]:
        """What a user should know of it."""
        return notices(self.candidate, self.outcomes, self.longest_tokens, self.told)

    @property
    def extrapolates(self) -> bool:
        """Whether something is beyond what was measured, which the calibration's error does not count."""
        beyond = ("extrapolated", "none were measured")
        return any(word in said for said in self.notices for word in beyond)

    @property
    def activation_share(self) -> float:
        """Share of a GPU's memory that activations take."""
        settings = dict(self.candidate.settings)
        return activation_share(lambda key: settings.get(key, self.candidate.machine.setting(key)))

    @property
    def kinds(self) -> list[tuple[int, str, list[str]]]:
        """Kinds of replica: how many, for what, "" for all, and the words of the command that starts one."""
        one, machine = self.candidate, self.candidate.machine
        kinds = [Kind(one.replicas, "", {})]
        if one.apart is not None:
            kinds = one.apart.kinds(one.replicas, machine.engine)
        most = kv_tokens(self.outcomes[0].summary)
        found = []
        for place, kind in enumerate(kinds):
            started = words(
                machine.engine,
                self._model,
                self.settings | dict(kind.settings),
                self.activation_share,
                context(self._model, self.longest_tokens, most[min(place, len(most) - 1)]),
                adapters=bool(self.traffic.ranks),
            )
            found.append((kind.number, kind.what, [*started, *kind.words]))
        return found

    @property
    def manifests(self) -> list[dict[str, Any]]:
        """A Kubernetes Deployment for each kind of replica."""
        machine = self.candidate.machine
        return [
            deployment(machine.engine, self._model, command, count, machine.gpus, _label(what))
            for count, what, command in self.kinds
        ]

    @property
    def _model(self) -> str:
        return str(self.candidate.machine.setting("model.name"))

    @property
    def checked(self) -> Overrides:
        """Overrides with which simlora-capacity finds how much of the traffic the plan carries, with the same seeds."""
        return tuple(
            one
            for one in self.candidate.lasting(1).overrides(int(self.candidate.machine.setting("seed")))
            if one not in QUIET and one != "seed=0"
        )

    def figure(self, name: str) -> tuple[float, float, float]:
        """Return mean, least and most over seeds of a figure."""
        values = [one.figure(name) or 0.0 for one in self.outcomes]
        return fmean(values), min(values), max(values)

    def as_dict(self) -> dict[str, Any]:
        """What the JSON holds."""
        one = self.candidate
        return {
            "engine": one.machine.engine,
            "gpu": one.machine.gpu,
            "gpus_per_replica": one.machine.gpus,
            "side": {name: getattr(one.machine.side, name) for name in CONDITIONS},
            "replicas": one.replicas,
            "usd_per_hour": one.usd_per_hour,
            "settings": dict(one.settings),
            "figures": {
                name: dict(zip(("mean", "least", "most"), self.figure(name), strict=True)) for name in SHOWN
            },
            "headroom": self.headroom,
            "slower": self.slower,
            "sure": self.sure,
            "binds": self.binds,
            "beside": [
                {"key": b.key, "value": b.value, "met": b.met, "figures": dict(b.figures)}
                for b in self.beside
            ],
            "kinds": [
                {"replicas": count, "kind": what or "all", "command": shlex.join(command)}
                for count, what, command in self.kinds
            ],
            "overrides": list(one.lasting(1).overrides(0)),
            "times_as_long": one.machine.times,
            "notices": self.notices,
        }


def _label(what: str) -> str:
    """Return what a kind of replica is for, as a part of a name: `ranks-up-to-8`, `prefill`."""
    return "-".join(what.split()[1:])


SHOWN = (ATTAINMENT, "ttft_s.p95", "tpot_s.p95", "throughput_tps")


@dataclass(frozen=True)
class Plan:
    """The cheapest plans, cheapest first, machines that were left out, and every run that was looked at."""

    question: Question
    traffic: Traffic
    plans: Sequence[Planned]
    excluded: Sequence[Excluded]
    trials: Trials

    @property
    def runs(self) -> pd.DataFrame:
        """A row a run: the machine, replicas, settings, cost and figures; further overrides where it had some."""
        rows = []
        for (one, seed), outcome in self.trials.runs.items():
            row: dict[str, Any] = {
                "engine": one.machine.engine,
                "gpu": one.machine.gpu,
                "gpus_per_replica": one.machine.gpus,
                "replicas": one.replicas,
                "usd_per_hour": one.usd_per_hour,
                "seed": seed,
                **{key: str(value) for key, value in one.settings},
                "apart": "" if one.apart is None else " ".join(one.apart.overrides),
                "further": " ".join(one.more),
                "times_as_long": one.machine.times,
                "status": outcome.status,
            }
            if outcome.status == RAN:
                row["met"] = self.question.met(outcome)
                row |= {name: outcome.figure(name) for name in SHOWN}
            rows.append(row)
        return pd.DataFrame(rows)

    def text(self) -> str:
        """Return the plans in words."""
        return "\n".join(self._lines())

    @property
    def _seeds_are_one(self) -> bool:
        """Whether the runs of a plan do not differ by their seed."""
        runs = [[one.figure(name) for name in SHOWN] for one in self.plans[0].outcomes]
        return len(runs) > 1 and all(run == runs[0] for run in runs)

    def _lines(self) -> Iterator[str]:
        of = self.traffic
        yield (
            f"Traffic: {of.rate_rps:.4g} requests/s of {of.prompt_tokens:.0f} and {of.output_tokens:.0f} tokens on "
            f"average, {len(of.ranks)} adapters" + (f" of ranks up to {max(of.ranks)}" if of.ranks else "")
        )
        sides = [each.candidate.machine.side for each in self.plans]
        if self.question.attainment is None:
            sides = [replace(side, slo=self.question.slo) for side in sides]
        yield heading(list(dict.fromkeys(sides)))
        yield f"SLO: {self.question.slo}; kept with {len(self.question.seeds)} seeds"
        if self._seeds_are_one:
            yield (
                "  every seed gave the very same run, as of a trace read from a file; workload.resample_block_s=60 "
                "draws it anew with each"
            )
        for order, each in enumerate(self.plans, 1):
            yield ""
            yield from plan_lines(order, each, self.question)
        if self.excluded:
            yield ""
            yield "Not planned with"
            for one in self.excluded:
                yield f"  {one.name}: {one.reason}"

    def save(self, folder: Path) -> None:
        """Write plan.json, runs.parquet, plan.png and a kubernetes_N.yaml for each plan, all of them or none."""
        manifests = {MANIFEST.format(order): each.manifests for order, each in enumerate(self.plans, 1)}
        earlier = {path.name for path in expanded(folder).glob(MANIFEST.format("*"))}
        with writing(
            folder, ("runs.parquet", "plan.png", *sorted({*manifests} | earlier), "plan.json")
        ) as draft:
            tree = {
                "slo": self.question.slo,
                "plans": [each.as_dict() for each in self.plans],
                "excluded": [{"machine": one.name, "reason": one.reason} for one in self.excluded],
                "runs": len(self.trials.runs),
            }
            (draft / "plan.json").write_text(json.dumps(json_safe(tree), indent=1) + "\n", encoding="utf-8")
            for name, trees in manifests.items():
                (draft / name).write_text(yaml.safe_dump_all(trees, sort_keys=False), encoding="utf-8")
            self.runs.to_parquet(draft / "runs.parquet")
            draw(self._by_candidate(), self.plans, self.question.attainment, draft / "plan.png")

    def _by_candidate(self) -> pd.DataFrame:
        """A row a candidate that ran: its attainment with the worst seed in its longest runs."""
        table = self.runs
        table = table[(table["further"] == "") & (table["status"] == RAN)]
        same = [
            name for name in table.columns if name not in (*SHOWN, "seed", "status", "met", "times_as_long")
        ]
        longest = table.groupby(same, dropna=False)["times_as_long"].transform("max")
        table = table[table["times_as_long"] == longest]
        found: pd.DataFrame = table.groupby(same, dropna=False, sort=False)[[ATTAINMENT]].min().reset_index()
        return found
