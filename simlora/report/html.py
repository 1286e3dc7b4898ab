"""report.html: one page that needs nothing but itself.

Everything a page loads is inside it, and its content security policy forbids the rest: no
network, and no script but the two whose hashes it names. So even a hole in the escaping could not
run what a trace put there.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from simlora.core.files import whole_file
from simlora.report import (
    adapters,
    clients,
    fleet,
    handover,
    hosts,
    merging,
    over_time,
    provenance,
    replicas,
    sections,
    slots,
    speculation,
)
from simlora.report.format import headline
from simlora.report.markup import Html, embedded_json, join, tag
from simlora.report.results import RunResults
from simlora.report.vega import Spec

EMBED = "window.vegaEmbed = vegaEmbed;"
"""What page.js needs of the charts' script."""


def render(results: RunResults) -> str:
    """Return the page of a run."""
    results = replace(results, rows=results.counted)
    specs: dict[str, Spec] = {}
    page: dict[str, Any] = {"charts": specs, "series": {}}
    main = tag(
        "main",
        sections.header(results.summary),
        sections.tiles(results.summary),
        sections.slo(results, specs),
        fleet.tenants(results.summary),
        clients.clients(results),
        handover.handover(results),
        speculation.speculation(results),
        sections.latency(results, specs),
        over_time.over_time(results, specs),
        replicas.replicas(results, specs, page),
        adapters.adapters(results, specs),
        slots.slots(results, specs),
        sections.lengths(results, specs),
        fleet.scaling(results, specs),
        hosts.hosts(results),
        hosts.slowness(results.summary),
        hosts.plans(results, specs),
        merging.merging_and_moving(results, specs, page),
        sections.lost(results),
        fleet.cost(results.summary),
        provenance.calibration(results.summary),
        provenance.how_it_was_made(results),
        tag("footer", "This page stands alone: it loads nothing from the network."),
    )
    return document(" ".join(headline(results.summary)), main, page)


def document(title: str, main: Html, page: dict[str, Any]) -> str:
    """Return a page: its content, and the charts and series that its script draws."""
    scripts = [_vega(), Html(_asset("page.js"))]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"simlora: {title}"),
        tag("style", Html(_asset("page.css"))),
    )
    no_script = tag("noscript", tag("p", "The charts need JavaScript; the tables do not.", class_="banner"))
    data = tag("script", embedded_json(page), type="application/json", id="page-data")
    body = tag("body", no_script, main, data, join(tag("script", script) for script in scripts))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _policy(scripts: list[Html]) -> str:
    """Return a content security policy that allows inline styles, these scripts and nothing else."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _asset(name: str) -> str:
    return (resources.files("simlora.report") / name).read_text(encoding="utf-8")


@functools.cache
def _vega() -> Html:
    """Return Vega, Vega-Lite and vega-embed as one script of 900 kB, which the user's cache keeps: it takes 1.3 s."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simlora"
    except RuntimeError:  # the user has no home
        return Html(_bundled())
    made_of = hashlib.sha256(f"{version('vl-convert-python')} {EMBED}".encode()).hexdigest()[:16]
    kept = folder / f"vega-{made_of}.js"
    try:
        return Html(kept.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        made = _bundled()
    with suppress(OSError):  # then the next report takes as long
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(kept) as draft:
            draft.write_text(made, encoding="utf-8")
    return Html(made)


def _bundled() -> str:
    import vl_convert

    return str(vl_convert.javascript_bundle(EMBED))
