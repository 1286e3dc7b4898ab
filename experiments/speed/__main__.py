"""Measure the simulator's speed: `python -m experiments.speed [--quick] [--json OUT]`."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from experiments.speed.scenarios import PAIRS, SCENARIOS, Speed, clock_events_per_s, measure
from experiments.studies.command import ended, parser_of, writable

HEAD = (
    f"{'scenario':<24}{'requests':>10}{'requests/s':>12}{'target':>9}{'token-steps/s':>15}"
    f"{'events/req':>12}{'memory':>10}{'clock events/s':>18}"
)


def run(speed: Speed, repeats: int = 1) -> dict[str, Any]:
    """Measure in fresh processes, one after the other; keep the median run. The clock alone runs beside each."""
    found = []
    for _ in range(repeats):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
            figures = fresh.submit(measure, speed).result()
        found.append({**figures, "clock_events_per_s": clock_events_per_s()})
    middle = sorted(found, key=lambda figures: figures["wall_s"])[len(found) // 2]
    return {
        "scenario": speed.name,
        "replicas": speed.replicas,
        "requests": speed.requests,
        "fast_forward": speed.fast_forward,
        "target_requests_per_s": speed.target_rps,
        **middle,
    }


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    target = f"{row['target_requests_per_s']:,.0f}" if row["target_requests_per_s"] else ""
    return (
        f"{row['scenario']:<24}{row['requests']:>10,}{row['requests_per_s']:>12,.0f}{target:>9}"
        f"{row['token_steps_per_s']:>15,.0f}{row['events_per_request']:>12.2f}"
        f"{row['peak_memory_bytes'] / 1e6:>7,.0f} MB{row['clock_events_per_s']:>18,.0f}"
    )


def ratio(above: Speed, below: Speed, turns: int = 3) -> float:
    """Measure the two in turn and return the median ratio of their requests/s."""
    found = [run(above)["requests_per_s"] / run(below)["requests_per_s"] for _ in range(turns)]
    return sorted(found)[turns // 2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Time all scenarios, each in a process of its own. Returns the exit status."""
    parser = parser_of("experiments.speed", __doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the million-request scenarios")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures as JSON")
    options = parser.parse_args(arguments)
    return ended(lambda: _measure(options.quick, options.json))


def _measure(quick: bool, out: Path | None) -> None:
    if out:
        writable(out, "--json")
    chosen = [s for s in SCENARIOS if not quick or s.requests < 1_000_000]
    print(HEAD, flush=True)
    rows = []
    for speed in chosen:
        rows.append(run(speed, repeats=3 if speed.requests < 100_000 else 1))
        print(line(rows[-1]), flush=True)
    print("\nRatios, measured in turn:", flush=True)
    found = {}
    for name, (above, below) in PAIRS.items():
        found[name] = ratio(above, below)
        print(f"{found[name]:8.2f}  {name}", flush=True)
    if out:
        out.write_text(json.dumps({"scenarios": rows, "ratios": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
