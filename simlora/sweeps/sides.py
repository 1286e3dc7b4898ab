"""What each side of a comparison runs on and is judged by, and whether the sides are alike in what is not compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simlora.core.errors import InputError, nearest
from simlora.core.trees import branch
from simlora.metrics.slo import TARGETS
from simlora.report.format import ABSENT, targets_in_words
from simlora.report.sides import CONDITIONS, Side, named

ASKING = {
    "gpu": ("gpu", "cluster.replica_groups"),
    "model": ("model",),
    "engine": ("engine",),
    "slo": ("slo",),
    "calibration": ("calibration",),
}
"""Keys, or sections, of which several values in a grid ask for a difference."""
SETTING = {
    "gpu": "gpu=",
    "model": "model=",
    "engine": "engine=",
    "slo": "slo.*",
    "calibration": "calibration=",
}
"""What sets a condition, in words."""
SIDE = "side."
"""Before the columns of a sweep's table that hold FACTS."""
FACTS = (*CONDITIONS, "kind", "system", "changed")
"""What is known of a run: its CONDITIONS, the kind of its calibration (measured, published or derived), its system, and
what was changed of that."""
OWN = "that of its GPU, model, TP or expert parallelism, and engine"


def of_tree(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return the CONDITIONS of a resolved configuration, in words."""
    slo, cluster = branch(tree, "slo"), branch(tree, "cluster")
    groups = _mappings(cluster.get("replica_groups"))
    own = str(branch(tree, "gpu").get("name", ABSENT))
    gpus = [own, *(_gpu_of(group.get("gpu", own)) for group in groups)]
    classes = {
        str(one.get("name")): {name: one[name] for name in TARGETS if one.get(name) is not None}
        for one in _mappings(slo.get("classes"))
    }
    return _in_words(
        gpus,
        str(branch(tree, "model").get("name", ABSENT)),
        _tp(branch(tree, "replica").get("tp"), tree),
        tree.get("engine"),
        {name: slo[name] for name in TARGETS if slo.get(name) is not None},
        classes,
        tree.get("calibration"),
    )


def _tp(tp: Any, tree: Mapping[str, Any]) -> str:
    """Return the GPUs of a replica as the name of a calibration has them: 4ep where each expert is on one of them."""
    return f"{tp or 1}{'ep' if branch(tree, 'replica').get('expert_parallel') is True else ''}"


def _mappings(found: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; none of what is no list, which the run refuses with its reason."""
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _gpu_of(value: Any) -> str:
    """Return the name of a group's GPU: a name, or a section like `gpu`."""
    return str(value.get("name", ABSENT)) if isinstance(value, Mapping) else str(value)


def of_run(summary: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    """Return the CONDITIONS of a run that was made, in words."""
    run, slo = summary.get("run") or {}, summary.get("slo") or {}
    classes = {name: one.get("targets") or {} for name, one in (slo.get("classes") or {}).items()}
    gpus = [run.get("gpu"), *(one.get("gpu") for one in run.get("others") or [])]
    return _in_words(
        [str(gpu or ABSENT) for gpu in gpus],
        str(run.get("model") or ABSENT),
        _tp(run.get("tp"), config),
        config.get("engine"),
        slo.get("targets") or {},
        classes,
        config.get("calibration"),
    )


def _in_words(
    gpus: Sequence[str],
    model: str,
    tp: str,
    engine: Any,
    targets: Mapping[str, Any],
    classes: Mapping[str, Mapping[str, Any]],
    calibration: Any,
) -> dict[str, str]:
    ending = "" if engine is None else f"-{engine}"
    promised = [f"{name}: {targets_in_words(dict(own))}" for name, own in classes.items()]
    return {
        "gpu": " and ".join(dict.fromkeys(gpus)),
        "model": model,
        "engine": "slora" if engine is None else str(engine),
        "slo": "; ".join([targets_in_words(dict(targets)), *promised]),
        "calibration": f"{gpus[0]}-{model}-tp{tp}{ending}" if calibration is None else str(calibration),
    }


def sides(runs: Iterable[Mapping[str, Any]]) -> tuple[Side, ...]:
    """Return the sides of runs with a `name`, CONDITIONS and `kind`, in order: runs that are alike are one side."""
    names: dict[tuple[str, ...], dict[str, None]] = {}
    kinds: dict[tuple[str, ...], dict[str, None]] = {}
    for run in runs:
        at = tuple(_known(run, condition) or ABSENT for condition in CONDITIONS)
        names.setdefault(at, {})[str(run["name"])] = None
        kind = _known(run, "kind")
        kinds.setdefault(at, {}).update({kind: None} if kind else {})
    found = []
    for at, own in names.items():
        words = dict(zip(CONDITIONS, at, strict=True))
        if kinds[at]:
            words["calibration"] += f" ({', '.join(kinds[at])})"
        found.append(Side(tuple(own), **words))
    return tuple(found)


def allowed(across: str | Iterable[str]) -> frozenset[str]:
    """Return the conditions that may differ, of names of which each may be several with commas.

    Raises InputError for a name that is no condition.
    """
    written = [across] if isinstance(across, str) else list(across)
    found = [word.strip() for words in written for word in words.split(",")]
    for word in found:
        if word not in CONDITIONS:
            raise InputError(
                f"--across {word!r} is nothing that sides may differ in; {nearest(word, CONDITIONS)}"
            )
    return frozenset(found)


def asks(key: str) -> str | None:
    """Return the condition that several values of a key ask to differ, None if it is none."""
    plain = key.lstrip("+~")
    for condition, keys in ASKING.items():
        if any(plain == one or plain.startswith(f"{one}.") for one in keys):
            return condition
    return None


def columns_of(facts: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the columns of a sweep's table that hold these FACTS; what was changed as JSON."""
    changes = json.dumps(facts.get("changed") or {}, default=str)
    return {f"{SIDE}{fact}": changes if fact == "changed" else facts.get(fact) for fact in FACTS}


def facts_in(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the FACTS that a row of a sweep's table holds; what was changed as it is written there."""
    return {fact: row[f"{SIDE}{fact}"] for fact in FACTS}


def kind_of(summary: Mapping[str, Any]) -> str:
    """Return what the calibration of a run that was made is: measured, published or derived; "" if it is not told."""
    return str(((summary.get("calibration") or {}).get("provenance") or {}).get("kind") or "")


def check(runs: Sequence[Mapping[str, Any]], varied: Iterable[str], across: frozenset[str]) -> None:
    """Raise InputError, in one sentence, where runs differ in a condition that was not asked to differ.

    `runs` have a `name`, a `system`, CONDITIONS and the values of the keys that are `varied` on purpose. Where such a
    key asks for a difference, runs of the same value must still be alike. An engine is part of its system: it may
    differ between systems, and not within one. A calibration that is named after GPU, model, TP and engine differs
    where these do.
    """
    found = {}
    for condition in CONDITIONS:
        if condition in across:
            continue
        keys = ["system"] if condition == "engine" else []
        keys += [key for key in varied if asks(key) == condition]
        groups: dict[str, dict[str, dict[str, None]]] = {}
        for run in runs:
            if value := _compared(condition, run):
                group = groups.setdefault(json.dumps([run.get(key) for key in keys], default=str), {})
                group.setdefault(value, {})[str(run["name"])] = None
        if several := next((values for values in groups.values() if len(values) > 1), None):
            found[condition] = several
    if found:
        what = "; and in ".join(f"{condition}: {_in_turn(values)}" for condition, values in found.items())
        same = " and ".join(SETTING[condition] for condition in found)
        raise InputError(
            f"the sides differ in {what}; set {same} alike for all, or allow it with --across {','.join(found)}"
        )


def _compared(condition: str, run: Mapping[str, Any]) -> str:
    """Return what must be alike; "" where it is not known."""
    value = _known(run, condition)
    if condition != "calibration":
        return value
    gpu, model, engine = (str(run.get(name) or "") for name in ("gpu", "model", "engine"))
    begins, ending = f"{gpu.partition(' and ')[0]}-{model}", "" if engine == "slora" else f"-{engine}"
    own = re.fullmatch(f"{re.escape(begins)}-tp[0-9]+{re.escape(ending)}", value)
    return OWN if own else value


def _known(run: Mapping[str, Any], fact: str) -> str:
    """Return a fact of a run, "" where it is not known: a table has NaN there."""
    found = run.get(fact)
    return found if isinstance(found, str) and found != ABSENT else ""


def _in_turn(values: Mapping[str, Iterable[str]]) -> str:
    """Return each value with the names of those that have it."""
    return ", ".join(f"{value} ({named([*names])})" for value, names in values.items())
