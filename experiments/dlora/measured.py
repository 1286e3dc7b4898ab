"""What all of dLoRA's studies share, and what its authors measured: the numbers that their artifact plots.

Those of Figures 9 to 12 are in `dlora_ae.json` in SIMLORA_MEASURED_DIR (default: ../shared/measured), which is not part
of this project. All of its numbers are of the released code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.studies.points import Point
from experiments.studies.reading import measured_dir
from experiments.studies.study import read_seeds
from simlora.core.errors import InputError

FOLDER = Path(__file__).resolve().parent
SEEDS = read_seeds(FOLDER)
"""Those over which the claims are judged: a curve is their mean, the band around it from the least to the most."""
TARGETS_S = {
    "latency_per_output_token_s.mean": 0.5,
    "latency_over_output_tokens_s": 0.5,
    "queue_per_output_token_s.mean": 0.5,
}
"""By metric: 10 times a decode step (§7.1), and in Figure 11(a) the same of the queueing delay per token."""
FILE = "dlora_ae.json"
TIME, P90 = "latency_per_output_token_s.mean", "latency_per_output_token_s.p90"
QUEUE = "queue_per_output_token_s.mean"
"""Figure 11(a) is in seconds per output token: parse_log.sh averages the last number of each line of the log."""
POLICIES = {"fcfs": "unmerged_only", "merge": "merged_only", "credit": "released"}
WAYS = {1: "round_robin", 2: "proactive", 3: "dlora"}
SYSTEMS = {1: "vllm_uniform", 2: "peft", 3: "released"}
LOOPS = ("released", "at_once")
"""The panels of the event loop's what-if, which have the same measured points."""
SEVEN = ("7B_maf1", "7B_maf2")
"""The panels of Figure 9 that its points may be of."""

Key = tuple[str, str, str, float]
"""Study, panel, series, x."""


@dataclass(frozen=True)
class Measured:
    """Measured metrics, by study, panel, series and x."""

    rows: Mapping[Key, Mapping[str, float]]

    def of(self, point: Point) -> dict[str, list[Any]]:
        """Return the metrics that were measured of a point, by name: a list of one."""
        if not isinstance(point.x, int | float):
            return {}
        found = self.rows.get((point.study, point.panel, point.series, float(point.x)), {})
        return {metric: [value] for metric, value in found.items()}


def path() -> Path:
    """Return where the file is, if it is."""
    return measured_dir() / FILE


def read() -> Measured | None:
    """Return what was measured; None if the file is not there. Raises InputError for another file of that name."""
    try:
        tree = json.loads(path().read_text(encoding="utf-8"))
        return Measured(dict(_rows(tree)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path()} is not what dLoRA's artifact plots: {error!r}") from None


def _rows(tree: Mapping[str, Any]) -> Iterator[tuple[Key, Mapping[str, float]]]:
    for row in tree["figure9"]["rows"]:
        for panel in SEVEN:
            yield ("figure_9", panel, SYSTEMS[row["exec_type"]], row["rate"]), {TIME: row["avg_lat"]}
    for row in tree["figure10"]:
        found = {TIME: row["avg_lat"], P90: row["p90_lat"]}
        yield ("figure_10", "one_gpu", POLICIES[row["policy"]], row["stride"]), found
        for panel in ("plus_0", "plus_4", "plus_8", "plus_12"):
            yield ("what_if_slower", panel, POLICIES[row["policy"]], row["stride"]), found
    for row in tree["figure11a"]:
        found = {QUEUE: row["queueing_delay"]}
        for study, panel in (("figure_11a", "released"), *(("what_if_event_loop", each) for each in LOOPS)):
            yield (study, panel, WAYS[row["migration_type"]], row["rate"]), found
    for row in tree["figure12"]:
        found = {"throughput_rps": row["throughput"]}
        yield ("figure_12", "eight_gpus", SYSTEMS[row["exec_type"]], row["num_adapters"]), found
