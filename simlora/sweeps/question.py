"""What a search for a capacity asks: what is varied, and which SLO has to be met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simlora.api.preparing import composed
from simlora.config.names import close_keys, dotted
from simlora.config.reading import plain
from simlora.config.setup import clients_of, lasts, resolved
from simlora.core.bisection import DIGITS, Bracket
from simlora.core.checks import number, shown, whole
from simlora.core.errors import InputError
from simlora.metrics.saturation import PAST
from simlora.metrics.slo import ATTAINMENT, TARGETS
from simlora.sweeps.grid import facts_of, seeded
from simlora.sweeps.outcome import Outcome, Overrides

RATE, REPLICAS = "rate", "replicas"
RATE_KEYS = ("workload.rate_rps", "workload.arrivals.rate_rps")
REPLICAS_KEY, SPEEDUP_KEY = "cluster.replicas", "speedup"
DEFAULT_ATTAINMENT = 0.95
LEAST, MOST, MOST_REPLICAS = 1e-4, 1e6, 100_000
SEEDS_MOST, LONGEST_MOST = 1000, 1_000_000
STEP, NEAR = 2.0, 1.05
LONGEST, LONGER = 64, 4
"""Runs get so many times as long as configured at most, each so many times as long as the one before."""


@dataclass(frozen=True)
class Question:
    """A configuration, the key that is varied, from `start` on, and the SLO: `limits` of figures and an `attainment`.

    `seeds` are those that are searched for; a rate below `least` is not looked at. `step`: the first one from `start`.
    `lasts` are the keys that make a run longer, as configured; runs are `times` as long, and `longest` times at most.
    `facts` say what the configuration runs on and is judged by, as those of a sweep's cell.
    """

    overrides: Overrides
    find: str
    key: str
    start: float
    whole: bool
    limits: Mapping[str, float]
    attainment: float | None
    precision: float
    seeds: Sequence[int]
    least: float = LEAST
    step: float = STEP
    lasts: Mapping[str, float] = field(default_factory=dict)
    longest: int = LONGEST
    facts: Mapping[str, Any] = field(default_factory=dict)
    times: int = 1

    @property
    def figures(self) -> list[str]:
        """The figures of a run that the SLO is about."""
        return [*self.limits, *(() if self.attainment is None else (ATTAINMENT,))]

    def limit(self, figure: str) -> float:
        """Return the limit of one of the figures."""
        return self.limits[figure] if self.attainment is None or figure != ATTAINMENT else self.attainment

    @property
    def unit(self) -> str:
        """What the answer is a number of."""
        names = {REPLICAS_KEY: "replicas", SPEEDUP_KEY: "times the trace's rate"}
        return (names | dict.fromkeys(RATE_KEYS, "requests/s")).get(self.key, self.key)

    @property
    def slo(self) -> str:
        """The SLO in words: `ttft_s.p95 < 10`."""
        words = _limits_in_words(self.limits)
        if self.attainment is not None:
            words.append(f"{100 * self.attainment:.6g} % of the requests within every slo.*")
        return ", ".join(words)

    def bracket(self) -> Bracket:
        """Return what is known before anything was run."""
        if self.find == REPLICAS:
            return Bracket(self.start, self.least, MOST_REPLICAS, whole=True, step=self.step)
        least = max(self.least, 1) if self.whole else self.least
        return Bracket(self.start, least, MOST, self.precision, self.whole, self.step)

    def overrides_for(self, seed: int, value: float) -> Overrides:
        """Return the overrides of one run: the user's, what is varied, and the seed."""
        length = {} if self.times == 1 else {key: self.times * value for key, value in self.lasts.items()}
        set_here = (self.key, *length)
        others = [override for override in self.overrides if override.partition("=")[0] not in set_here]
        if self.attainment is not None:  # where more have missed, nothing more is to be found out
            others.append(f"until_missed={1.0 - self.attainment:.12g}")
        varied = f"{self.key}={int(value) if self.whole else value:{'' if self.whole else 'g'}}"
        return (*seeded(tuple(others), seed), *(f"{key}={value!r}" for key, value in length.items()), varied)

    def longer(self, start: float) -> Question:
        """Return the same question of runs that go on for longer, whose answer is near `start`."""
        bounds = self.bracket()
        near = min(max(self._rounded(start), bounds.least), bounds.most)
        return replace(self, start=near, step=NEAR, times=LONGER * self.times)

    def _rounded(self, value: float) -> float:
        return round(value) if self.whole else float(f"{value:.{DIGITS}g}")

    def met(self, outcome: Outcome) -> bool:
        """Whether a run kept the SLO, and could have gone on so. Raises InputError if it has no such figure.

        One past saturation could not. Figures are of requests that finished: of a percentile no more may
        have been given up than lie above it, of others one in twenty.
        """
        found = {name: figure_of(outcome, name) for name in self.figures}
        if outcome.summary["load"]["label"] == PAST:
            return False
        requests = outcome.summary["requests"]
        lost = 1.0 - requests["finished"] / max(requests["submitted"], 1)
        within = all(
            (value := found[name]) is not None and value < limit and lost <= _above(name)
            for name, limit in self.limits.items()
        )
        return within and (self.attainment is None or (found[ATTAINMENT] or 0.0) >= self.attainment)


def asked(
    overrides: Sequence[str],
    find: str,
    key: str | None,
    start: float | None,
    limits: Mapping[str, float] | None,
    attainment: float | None,
    seeds: int,
    precision: float,
    least: float | None = None,
    step: float = STEP,
    longest: int = LONGEST,
) -> Question:
    """Return the question, all of it checked. Raises InputError for what cannot be asked."""
    config, _ = composed(overrides)
    for stop in ("until_s", "until_missed"):
        if OmegaConf.select(config, stop) is not None:
            raise InputError(
                f"{stop} ends runs while requests still run, which would count as missed; leave it out"
            )
    if clients_of(resolved(config)).react:
        raise InputError(
            "clients.* has requests wait for others, or be sent again, so that no rate is offered; leave it out: what "
            "is found is of an open loop"
        )
    if find not in (RATE, REPLICAS):
        raise InputError(f"find is {shown(find)}, must be {RATE} or {REPLICAS}")
    if find == REPLICAS and not str(OmegaConf.select(config, "autoscaler._target_")).endswith(".fixed.Fixed"):
        raise InputError(
            "an autoscaler says how many replicas there are; look for replicas with autoscaler=fixed"
        )
    checked, attainment = _slo(config, limits or {}, attainment)
    facts = facts_of(tuple(overrides))
    if attainment is None:
        facts["slo"] = ", ".join(_limits_in_words(checked))
    first = whole("seed", OmegaConf.select(config, "seed"), least=0)
    chosen = REPLICAS_KEY if find == REPLICAS else _key(key, config)
    configured = OmegaConf.select(config, chosen)
    in_wholes = isinstance(configured, int) and chosen not in RATE_KEYS
    prefill = whole("cluster.prefill_replicas", OmegaConf.select(config, "cluster.prefill_replicas"), least=0)
    fewest = prefill + 1  # one decodes
    if find == REPLICAS and start is None and isinstance(configured, int):
        configured = max(configured, fewest)
    begin = _begin(chosen, configured if start is None else start, in_wholes)
    if least is not None and find == REPLICAS:
        raise InputError("least is of a rate; the fewest replicas are looked for from 1 on")
    return Question(
        overrides=tuple(overrides),
        find=find,
        key=chosen,
        start=begin,
        whole=in_wholes,
        limits=checked,
        attainment=attainment,
        precision=number("precision", precision, least=10.0 ** (2 - DIGITS), most=1),
        seeds=range(first, first + whole("seeds", seeds, least=1, most=SEEDS_MOST)),
        least=fewest if find == REPLICAS else _least(least, begin),
        step=number("step", step, "times the rate", above=1, most=STEP),
        lasts={} if chosen in (lasting := lasts(config)) else lasting,
        longest=whole("longest", longest, "times the configured length", least=1, most=LONGEST_MOST),
        facts=facts,
    )


def _least(least: float | None, begin: float) -> float:
    return LEAST if least is None else number("least", least, least=LEAST, most=begin)


def _limits_in_words(limits: Mapping[str, float]) -> list[str]:
    return [f"{name} < {limit:g}" for name, limit in limits.items()]


def _slo(
    config: DictConfig, limits: Mapping[str, float], attainment: float | None
) -> tuple[dict[str, float], float | None]:
    """Return the limits and the attainment to be kept; the latter is 0.95 where neither is given."""
    checked = {name: number(f"the limit of {name}", limit, above=0) for name, limit in limits.items()}
    if ATTAINMENT in checked:
        raise InputError(f"{ATTAINMENT} has no upper limit; give attainment, the least share of the requests")
    if attainment is None and not checked:
        attainment = DEFAULT_ATTAINMENT
    if attainment is not None:
        number("attainment", attainment, "of the requests", above=0, most=1)
        slo = OmegaConf.select(config, "slo") or {}
        if not slo.get("classes") and all(slo.get(name) is None for name in TARGETS):
            raise InputError("an attainment is of slo.*, and none is set; set slo.ttft_s, or give limits")
    return checked, attainment


def _begin(key: str, start: Any, in_wholes: bool) -> float:
    """Return the first value to look at, of a rate with as many digits as searches have; 1 where none is set."""
    if start is None:
        return 1
    words = f"{key}, from which the search starts,"
    if in_wholes:
        return whole(words, start, least=1, most=MOST_REPLICAS if key == REPLICAS_KEY else int(MOST))
    return float(f"{number(words, start, least=LEAST, most=MOST):.{DIGITS}g}")


def _key(key: str | None, config: DictConfig) -> str:
    """Return the key of a rate. Raises InputError if there is none, or not the one that was given."""
    known = dotted(plain(config, resolve=False))
    if key is not None:
        if key not in known:
            raise InputError(f"there is no key {key}; {close_keys(key, known)}")
        if key == REPLICAS_KEY or key.startswith("slo."):
            raise InputError(
                f"more of {key} is better, and more of what is varied must be worse; look for replicas"
            )
        return key
    for candidate in RATE_KEYS:
        if candidate in known:
            return candidate
    return SPEEDUP_KEY


def _above(figure: str) -> float:
    """Return which share of the requests may be given up: of `ttft_s.p95` a twentieth."""
    percentile = figure.rpartition(".p")[2]
    return 1.0 - float(percentile) / 100 if percentile.isdigit() else 0.05


def figure_of(outcome: Outcome, name: str) -> float | None:
    """Return a figure of a run. Raises InputError for a name that is none."""
    try:
        if outcome.summary[name.partition(".")[0]] is None:
            raise KeyError(name)
        return outcome.figure(name)
    except (KeyError, TypeError, ValueError):
        known = [place for place in dotted(outcome.summary) if isinstance(_at(outcome, place), int | float)]
        raise InputError(f"summary.json has no number {name}; {close_keys(name, known)}") from None


def _at(outcome: Outcome, place: str) -> object:
    found: object = outcome.summary
    for name in place.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
