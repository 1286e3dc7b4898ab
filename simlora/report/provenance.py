"""The sections of report.html on where numbers come from: the calibration, and how the run was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simlora.core.trees import leaves
from simlora.report.format import ABSENT, counted
from simlora.report.markup import EMPTY, Html, join, tag
from simlora.report.parts import facts_table, folded, quantity, section, table
from simlora.report.results import RunResults


def calibration(summary: Mapping[str, Any]) -> Html:
    """Return every coefficient with where it came from.

    A coefficient takes the provenance of the longest dotted prefix in `provenance.coefficients`, else that
    of the whole calibration.
    """
    known = summary.get("calibration") or {}
    provenance = known.get("provenance") or {}
    origins = [(*leaf, _origin(leaf[0], provenance)) for leaf in _values(known.get("coefficients") or {})]
    alone = all(origin.get("source") == provenance.get("source") for _, _, origin in origins)
    body = (
        [name, _kind(origin), *([] if alone else [origin.get("source", ABSENT)]), quantity(name, value)]
        for name, value, origin in origins
    )
    titles = ["coefficient", "kind", *([] if alone else ["source"])]
    warnings = provenance.get("warnings") or ()
    about = [
        leaf
        for leaf in _values({name: value for name, value in provenance.items() if name != "warnings"})
        if not leaf[0].startswith("coefficients.")
    ]
    where = f"{known.get('model', ABSENT)} on {known.get('gpu', ABSENT)}, TP {known.get('tp', ABSENT)}"
    others = [kind["calibration"] for kind in (summary.get("run") or {}).get("others") or []]
    more = "".join(f"; {one['model']} on {one['gpu']}, TP {one['tp']}" for one in others)
    return section(
        "Calibration",
        f"The latency model{'s' if others else ''}: {where}{more}.",
        tag("p", _kind(provenance), " ", provenance.get("source", ABSENT)),
        join(tag("p", warning, class_="note") for warning in warnings),
        _provenance(about),
        table([*titles, "value"], body, texts=len(titles)),
        join(folded(f"{one['model']} on {one['gpu']}", calibration({"calibration": one})) for one in others),
    )


def _provenance(about: list[tuple[str, Any]]) -> Html:
    lines = ([name, quantity(name, value)] for name, value in about)
    listed = table(["provenance", ""], lines, texts=2)
    return folded("Provenance and quality of the fit", listed if about else EMPTY)


def _origin(name: str, provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    special = provenance.get("coefficients") or {}
    prefixes = [key for key in special if name == key or name.startswith(f"{key}.")]
    return dict(provenance) | (dict(special[max(prefixes, key=len)]) if prefixes else {})


def _kind(origin: Mapping[str, Any]) -> Html:
    kind = str(origin.get("kind", "unknown"))
    return tag("span", kind, class_=f"kind {kind}")


def _values(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and value of everything in a tree, lists as words."""
    for name, value in leaves(tree):
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else value


def how_it_was_made(results: RunResults) -> Html:
    """Return how this run was made, and how to make it again."""
    summary = results.summary
    cost = {**(summary.get("simulation") or {}), **(summary.get("kv") or {})}
    versions = " · ".join(f"{name} {version}" for name, version in (summary.get("versions") or {}).items())
    return section(
        "How it was made",
        "",
        tag("pre", summary["command"], class_="command") if summary.get("command") else EMPTY,
        _serve(summary),
        tag("p", f"seed {summary.get('seed', ABSENT)} · {versions}", class_="note"),
        folded(
            "What was run",
            facts_table({k: v for k, v in _values(summary.get("run") or {}) if k not in ("serve", "others")}),
        ),
        folded("Simulation and KV cache figures", facts_table(cost)),
        folded("Full configuration", tag("pre", results.config) if results.config else EMPTY),
    )


def _serve(summary: Mapping[str, Any]) -> Html:
    """Return the command of the engine that was simulated; nothing where its flags are not known."""
    run = summary.get("run") or {}
    if not run.get("serve"):
        return EMPTY
    others = run.get("others") or []
    kinds = [{**run, "replicas": run["replicas"] - sum(kind["replicas"] for kind in others)}, *others]
    return join(
        part
        for kind in kinds
        for part in (
            tag("p", f"The engine that was simulated, on {_machines(kind)}:", class_="note"),
            tag("pre", kind["serve"], class_="command"),
        )
        if kind.get("serve")
    )


def _machines(kind: Mapping[str, Any]) -> str:
    """Return how many replicas of a kind there are, and on what."""
    gpus = f"{kind['tp']} {kind['gpu']}" if kind["tp"] > 1 else kind["gpu"]
    return f"{counted(kind['replicas'], 'replica')} of {gpus}"
