"""The pages in a real browser: they are drawn whole, without an error, and without a look at the network."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from simlora.report.comparison import write_comparison
from simlora.report.html import render
from simlora.results.files import load_results
from simlora.sweeps.comparing import compare
from tests.report.make_results import (
    make_journal,
    make_requests,
    make_summary,
    make_timeline,
    write_results,
)
from tests.report.make_sweep import make_run, make_sweep
from tests.report.test_html import Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # or root may not
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
    "--window-size=1200,2000",
)
ITS_OWN = "not an origin"
"""The initiator of requests of the browser itself: for updates, and accounts."""

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser is installed here: none of {', '.join(BROWSERS)} is on PATH"
)


@dataclass(frozen=True)
class Seen:
    """A page as a browser drew it."""

    text: str
    dom: str
    requests: list[str]
    console: list[str]

    @property
    def sizes(self) -> dict[str, tuple[float, float]]:
        """Width and height of every figure that was drawn, in pixels."""
        found = {}
        for part in re.split(r'(?=<div class="chart)', self.dom)[1:]:
            name, drawn = re.search(r' id="([^"]+)"', part), re.search(r"<svg ([^>]*)>", part)
            assert name
            size = dict(re.findall(r'(width|height)="([\d.]+)"', drawn[1])) if drawn else {}
            found[name[1]] = float(size.get("width", 0)), float(size.get("height", 0))
        return found


def opened(url: str, folder: Path, also: str = "") -> tuple[str, list[str], list[str]]:
    """Return a page as it is drawn, what it asked for, and what the console says; no host is found but `also`."""
    log = folder / "net.json"
    command = [
        str(BROWSER),
        *FLAGS,
        f"--host-resolver-rules=MAP * ~NOTFOUND{also}",
        f"--user-data-dir={folder / 'profile'}",
        f"--log-net-log={log}",
        "--dump-dom",
        url,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    asked = _requests(json.loads(log.read_text(encoding="utf-8")))
    return ran.stdout, asked, [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]


def seen(page: Path, folder: Path) -> Seen:
    """Open a page and wait until it is drawn."""
    return Seen(page.read_text(encoding="utf-8"), *opened(page.as_uri(), folder))


def _requests(log: dict) -> list[str]:
    """Return what was asked for but by the browser itself."""
    start = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    params = [event.get("params", {}) for event in log["events"] if event["type"] == start]
    asked = [p["url"] for p in params if "url" in p and p.get("initiator") != ITS_OWN]
    return [url for url in asked if urlsplit(url).scheme != "file"]


def a_run(folder: Path) -> Path:
    """A run with every section, in which hardly a request waited for weights, so that many points coincide."""
    requests = make_requests(1_000)
    requests["cold_start_s"] = (requests["cold_start_s"] - 0.05).clip(lower=0.0)
    requests["blocked_s"] = 0.0
    journal = make_journal()
    summary = make_summary(requests, migration=journal.migration_facts())
    summary["adapters"] |= {"switches": 80, "switch_s": 1.6, "merged_share": 0.42}
    write_results(folder, requests, make_timeline(2, rows=200), summary, journal=journal)
    page = folder / "report.html"
    page.write_text(render(load_results(folder)), encoding="utf-8")
    return page


def of_a_sweep(folder: Path) -> Path:
    def attainment(system: str, rate: float, seed: int) -> float:
        return 0.9 - 0.2 * rate + 0.05 * (system == "vllm") + 0.03 * seed

    rates = (0.5, 1.0, 2.0, 4.0)
    return make_sweep(folder, attainment, rates=rates, **{"cost.usd_per_million_tokens": 3.0})


def of_runs(folder: Path) -> list[Path]:
    return [
        make_run(folder / f"{system}{rate}{seed}", seed, system=system, workload={"rate_rps": rate})
        for system in ("slora", "<b>vllm</b>")
        for rate in (1, 2)
        for seed in range(2)
    ]


@pytest.fixture(scope="module", params=["a run", "a sweep and runs over rate"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("pages")
    if request.param == "a run":
        return seen(a_run(folder), folder)
    path = folder / "comparison.html"
    write_comparison(path, compare([of_a_sweep(folder / "sweep"), *of_runs(folder)], figures=["makespan_s"]))
    return seen(path, folder)


PRESS = """<script>
  const show = (kind, text) => {
    const shown = document.createElement("pre");
    document.body.append(Object.assign(shown, { className: "saved", textContent: `${kind} ${text}` }));
  };
  URL.createObjectURL = (blob) => { blob.text().then((text) => show(blob.type, text)); return "#"; };
  setTimeout(() => document.querySelectorAll(".save button").forEach((button) => button.click()), 3000);
</script></body>"""
BAD = """<img src="http://elsewhere.invalid/x.png"><div class="chart" id="none"></div>
<script>fetch("https://elsewhere.invalid/y"); throw new Error("boom")</script></body>"""


@pytest.fixture(scope="module")
def pressed(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A page with its policy taken out, so that scripts of ours may press its buttons, and do what no page may."""
    folder = tmp_path_factory.mktemp("pressed")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", a_run(folder).read_text())
    for script in (PRESS, BAD):
        text = script.join(text.rsplit("</body>", 1))
    (folder / "pressed.html").write_text(text, encoding="utf-8")
    return seen(folder / "pressed.html", folder)


def test_every_figure_is_drawn_in_a_size_to_be_seen_with_something_in_it(page):
    assert page.sizes.keys() == Page(page.text).data["charts"].keys()
    for name, (width, height) in page.sizes.items():
        assert 200 <= width <= 1200, f"{name} is {width} pixels wide"
        assert 60 <= height <= 500, f"{name} is {height} pixels high"
    assert "could not be drawn" not in page.dom.split("</main>")[0]
    mark = r'<path [^>]*aria-roledescription="[^"]*mark"|role-mark[^>]*><path'
    for part in re.split(r'(?=<div class="chart)', page.dom)[1:]:
        assert re.findall(mark, part.split("</svg>")[0]), part[:200]


def test_every_figure_can_be_saved_as_svg_and_as_csv(pressed):
    saved = re.findall(r'<pre class="saved">(\S+) (.*?)</pre>', pressed.dom, re.DOTALL)
    kinds = [kind for kind, _ in saved]
    assert kinds.count("text/csv") == kinds.count("image/svg+xml") == len(pressed.sizes) - 1
    for kind, body in saved:
        assert "var(--" not in body, "a colour that only the page knows"
        assert kind != "text/csv" or len(body.splitlines()) > 1, "a table without rows"


def test_nothing_is_asked_of_the_network_and_nothing_is_complained_about(page):
    assert (page.requests, page.console) == ([], [])


def test_a_page_that_does_all_that_is_caught(pressed):
    assert sorted(pressed.requests) == ["http://elsewhere.invalid/x.png", "https://elsewhere.invalid/y"]
    assert any("boom" in line for line in pressed.console)
    assert pressed.sizes["none"] == (0.0, 0.0)
