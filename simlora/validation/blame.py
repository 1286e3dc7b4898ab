"""Which part of a calibration explains an error: each part alone is made longer or shorter until least is left."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simlora.calibrate.calibration_file import save, text_of
from simlora.calibrate.scaling import LOADS, LORA, parts_of, scaled
from simlora.config.engine_flags import PREFIX_CACHING
from simlora.latency.calibration import Calibration
from simlora.sweeps.grid import QUIET
from simlora.sweeps.outcome import RAN, Outcome, Overrides
from simlora.sweeps.running import run_all

JUDGED = (
    "ttft_s.mean",
    "ttft_s.p50",
    "ttft_s.p95",
    "tpot_s.mean",
    "tpot_s.p50",
    "tpot_s.p95",
    "throughput_tps",
)
"""The figures whose error counts, those that the log has."""
OCTAVES = (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)
"""Factors that are tried first, as powers of 2."""
HALVINGS = 4
"""How often the step between factors is halved about the best one."""
NEAR = 0.03
"""An error below which nothing is looked for."""
EXPLAINS, EXPLAINS_MOST = 0.5, 0.15
"""A part or a flag explains an error where it leaves less than this share of it, and no more than this."""
SEQUENCES, BATCHED, KV = "replica.max_num_seqs", "scheduler.max_batched_tokens", "replica.kv_token_budget"
FLAGS: Mapping[str, Sequence[int]] = {
    SEQUENCES: (64, 128, 256, 512, 1024),
    BATCHED: (512, 1024, 2048, 4096, 8192, 16384),
}
"""Values of the engine's flags that are tried: a server may have been started with others than it is said."""
KV_SHARES = (0.5, 0.7, 0.85, 1.2)
"""Sizes of the KV cache that are tried where it is not known, as shares of the configured one."""
ALIKE = 1.25
"""Parts that leave less than so many times the least error cannot be told apart."""


@dataclass(frozen=True)
class Part:
    """A part of the calibration: with `factor` times its time the mean error of the figures is `left`.

    `steps_left` is the mean error of the decode steps then, None where the log shows none.
    """

    name: str
    factor: float
    left: float
    steps_left: float | None

    @property
    def both(self) -> float:
        """The mean of the two errors."""
        return self.left if self.steps_left is None else (self.left + self.steps_left) / 2


@dataclass(frozen=True)
class Flag:
    """A key of the configuration with another value: the mean error of the figures that is `left`."""

    key: str
    value: int | bool
    left: float


def explains(left: float, error: float) -> bool:
    """Return whether what leaves so much of an error explains it."""
    return left < EXPLAINS * error and left <= EXPLAINS_MOST


def judged(measured: Mapping[str, Any], simulated: Mapping[str, Any]) -> dict[str, float]:
    """Return simulated over measured of the JUDGED figures that both have."""
    both = {name: (place(measured, name), place(simulated, name)) for name in JUDGED}
    return {name: here / there for name, (there, here) in both.items() if there and here}


def error_of(measured: Mapping[str, Any], simulated: Mapping[str, Any]) -> float:
    """Return the mean of |simulated / measured - 1| over the JUDGED figures that both have."""
    ratios = judged(measured, simulated).values()
    return sum(abs(ratio - 1) for ratio in ratios) / len(ratios)


def place(summary: Mapping[str, Any], name: str) -> float | None:
    """Return a figure by its dotted place; None where it is not there."""
    found: Any = summary
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


def blamed(
    measured: Mapping[str, Any],
    calibration: Calibration,
    run_with: Callable[[Path], Overrides],
    folder: Path,
    left: float,
    steps_left: Callable[[Calibration], float | None],
    with_adapters: bool,
    jobs: int,
) -> list[Part]:
    """Return the parts of a calibration and what each alone can explain, that which leaves least first.

    `run_with` returns the run with a calibration's file; files are written into `folder`. `left` is the error of the
    figures as it is, `steps_left` returns that of the decode steps with a calibration. Runs are kept: after an
    interruption the same search goes on where it was.
    """
    names = [part for part in parts_of(calibration) if with_adapters or part not in (LORA, LOADS)]
    found = {name: {0.0: Part(name, 1.0, left, steps_left(calibration))} for name in names}
    step = 1.0
    wanted: Mapping[str, Sequence[float]] = dict.fromkeys(names, OCTAVES)
    for halving in range(HALVINGS + 1):
        runs = {
            (name, octave): run_with(_file(folder, calibration, name, octave))
            for name, octaves in wanted.items()
            for octave in octaves
            if octave not in found[name]
        }
        outcomes = run_all(runs.values(), jobs=jobs)
        for (name, octave), overrides in runs.items():
            error = _left(measured, outcomes[overrides])
            found[name][octave] = Part(
                name, 2.0**octave, error, steps_left(scaled(calibration, name, 2.0**octave))
            )
        step = 0.5 ** (halving + 1)
        wanted = {name: [_best(tried) - step, _best(tried) + step] for name, tried in found.items()}
    parts = [tried[_best(tried)] for tried in found.values()]
    return sorted(parts, key=lambda part: (part.both, part.name))


def flags_tried(
    measured: Mapping[str, Any], now: Mapping[str, Any], user: Overrides, knows_kv: bool, jobs: int
) -> list[Flag]:
    """Return the error that is left with another value of one flag of the engine, the least first.

    `now` are the values of the configuration by key; `knows_kv`: the size of the KV cache was measured.
    """
    wanted: list[tuple[str, int | bool]] = [
        (key, value) for key, values in FLAGS.items() if now.get(key) for value in values if value != now[key]
    ]
    if not knows_kv:
        wanted += [(KV, int(now[KV] * share)) for share in KV_SHARES]
    if now.get(PREFIX_CACHING) is not None:
        wanted.append((PREFIX_CACHING, not now[PREFIX_CACHING]))
    runs = {one: (*user, f"{one[0]}={str(one[1]).lower()}", *QUIET) for one in wanted}
    outcomes = run_all(runs.values(), jobs=jobs)
    found = [Flag(*one, _left(measured, outcomes[overrides])) for one, overrides in runs.items()]
    return sorted(found, key=lambda flag: (flag.left, flag.key, flag.value))


def runs_of(calibration: Calibration) -> int:
    """Return how many runs the search takes at most."""
    parts = len(parts_of(calibration)) * (len(OCTAVES) + 2 * HALVINGS)
    return parts + sum(map(len, FLAGS.values())) + len(KV_SHARES)


def _best(tried: Mapping[float, Part]) -> float:
    """Return the octave that leaves least; of equal ones that nearest to what the calibration says."""
    return min(tried, key=lambda octave: (tried[octave].both, abs(octave), octave))


def _left(measured: Mapping[str, Any], outcome: Outcome) -> float:
    return error_of(measured, outcome.summary) if outcome.status == RAN else math.inf


def _file(folder: Path, calibration: Calibration, part: str, octave: float) -> Path:
    """Write a calibration of which one part takes 2^octave times as long; return its file.

    Its name has a hash of its text: the folder may have files of another calibration, from a validation before.
    """
    factor = 2.0**octave
    text = text_of(scaled(calibration, part, factor), digits=17)
    named = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f"{part.replace(' ', '_')}_x{factor:.4f}_{named}.yaml"
    if not path.exists():
        save(path, text)
    return path
