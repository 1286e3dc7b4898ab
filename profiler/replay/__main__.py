"""`python -m profiler.replay`: serve a trace on the device, simulate the same trace, set them side by side."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import Progress

from profiler.device import CHOICES, Device, choose
from profiler.fit import fit_iterations
from profiler.folder import made
from profiler.model.engine import SPARE_TOKENS, Engine
from profiler.replay.compare import Compared, Served, compare
from profiler.replay.device_runner import serve
from profiler.replay.draw import draw
from simlora.cli.guarded import DONE, guarded
from simlora.config.composing import compose
from simlora.config.mistakes import COMPOSING, in_plain_words
from simlora.config.setup import prepare
from simlora.core.checks import whole
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.parts.adapter_memory import Padding
from simlora.engine.parts.reporting import QueueReports, Tracing
from simlora.engine.scenario import Scenario
from simlora.latency.calibration import Calibration
from simlora.policies.loading.base import Miss

KERNEL = "mbgmv"
SYSTEM = ("system=slora", "loader=cached", "kernel=mbgmv")
"""S-LoRA's scheduler and memory; all adapters are on the device from the start."""
SMALL = (
    "workload=synthetic",
    "workload.arrivals.rate_rps=2",
    "workload.duration_s=30",
    "workload.adapters=8",
    "workload.ranks=[8,16,32,64]",
    "workload/prompt_tokens=uniform",
    "workload.prompt_tokens.lo=16",
    "workload.prompt_tokens.hi=128",
    "workload/output_tokens=uniform",
    "workload.output_tokens.lo=8",
    "workload.output_tokens.hi=64",
    "replica.kv_token_budget=6000",
    "replica.max_num_seqs=16",
)
"""The default trace on a CPU: half a minute, of which the CPU is busy for two thirds."""
LARGE = (
    "workload=slora",
    "workload.rate_rps=10",
    "workload.duration_s=30",
    "workload.adapters=32",
    "replica.kv_token_budget=60000",
    "replica.max_num_seqs=128",
)
"""The same for a GPU."""
ALIKE = (Padding, QueueReports, Tracing)
"""Parts of a replica to which it is all the same where its iterations run."""
SILENT = ("timeline=false", "report=false", "progress=false")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve, simulate and compare; 0 when done, 2 for bad input, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m profiler.replay",
        description="Serve a trace on this device: simlora's own replica, whose iterations really run; simulate the "
        "same trace with the calibration of simlora-profile, and with one that is fitted to the iterations of "
        "another trace, served in turn with it; compare iteration by iteration and request by request.",
        epilog=f"KEY=VALUE are simlora's own, on top of {' '.join(SYSTEM)}, and on a CPU of {' '.join(SMALL)}, "
        f"on a GPU of {' '.join(LARGE)}; the other trace is that of the next seed.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="e.g. seed=1 scheduler=lcfs")
    parser.add_argument("--device", choices=CHOICES, default="auto")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU that is the device (default: 1)")
    parser.add_argument(
        "--rounds", type=int, default=4, help="how often both traces are served, in turn (default: 4)"
    )
    parser.add_argument(
        "--calibration", type=Path, help="default: outputs/profile/<gpu>-<model>/<gpu>-<model>-tp1.yaml"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/replay"), help="where tables and pictures go"
    )
    options = parser.parse_args(argv)
    return guarded(lambda: _run(options), "interrupted; nothing is kept")


def _run(options: argparse.Namespace) -> int:
    device = choose(options.device, options.threads)
    whole("--rounds", options.rounds, least=1)
    judged, other = scenarios(device, options.overrides, options.calibration)
    out = made(options.out, f"--out {options.out}")
    found, practice = replay(device, judged, other, options.rounds)
    practice.to_parquet(out / "iterations_other.parquet")
    for number, each in enumerate(found):
        each.iterations.to_parquet(out / f"iterations_{number}.parquet")
        each.simulated.to_parquet(out / f"simulated_{number}.parquet")
        draw(each, out / f"replay_{number}.png")
    for number, run in enumerate(found[0].runs):
        run.requests.to_parquet(out / f"served_{number}.parquet")
    for number, each in enumerate(found):
        print("\n".join(each.lines()), out / f"replay_{number}.png", sep="\n  ")
    return DONE


def scenarios(
    device: Device, overrides: Sequence[str], calibration: Path | None = None
) -> tuple[Scenario, Scenario]:
    """Return what the overrides describe, and the same with the next seed.

    Raises InputError for what they get wrong.
    """
    judged = _scenario(device, overrides, calibration)
    _check(judged)
    return judged, _scenario(device, [*overrides, f"seed={judged.seed + 1}"], calibration)


def _check(scenario: Scenario) -> None:
    """Raise InputError for what the device's engine does not do: it prefills whole prompts, or takes a decode step."""
    scheduler = scenario.policies.scheduler()
    for fits, needs in (
        (scenario.cluster.replicas == scenario.replica.tp == 1, "cluster.replicas=1 and replica.tp=1"),
        (
            not (scheduler.chunks or scheduler.pauses or scheduler.merges),
            "a scheduler that neither prefills in chunks nor pauses requests nor merges adapters",
        ),
        (scenario.policies.loader().answers == (Miss.FREE,), "loader=cached, as all adapters are on it"),
    ):
        if not fits:
            raise InputError(f"one device can only replay {needs}")
    parts = map(type, Simulation(scenario).fleet.replicas[0].hooks.parts)
    if unlike := [_words(part.__name__) for part in parts if part not in ALIKE]:
        raise InputError(f"one device cannot replay a replica with {', '.join(unlike)}")


def _words(name: str) -> str:
    """Return the name of a class in words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def replay(
    device: Device, judged: Scenario, other: Scenario, rounds: int = 4
) -> tuple[list[Compared], pd.DataFrame]:
    """Serve and simulate the judged trace: with its calibration, and with one that is fitted to the other trace.

    Returns both comparisons, and the iterations of the other trace.
    """
    engine = _engine(device, judged, other)
    served: dict[str, list[Served]] = {"other": [], "judged": []}
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as shown:
        # In turn, other, judged, judged, other: a machine that is slow for a while, or slower all the time,
        # is so for both.
        for turn in range(rounds):
            for name in ("other", "judged") if turn % 2 == 0 else ("judged", "other"):
                scenario = other if name == "other" else judged
                served[name].append(_serve(scenario, engine, shown, f"serving the {name} trace"))
    practice = pd.concat([run.iterations for run in served["other"]], ignore_index=True)
    of_trace = calibration_of(practice, judged.calibration)
    compared = [
        compare(scenario, served["judged"], Simulation(scenario).run().requests())
        for scenario in (judged, replace(judged, calibration=of_trace))
    ]
    return compared, practice


def calibration_of(practice: pd.DataFrame, profiled: Calibration) -> Calibration:
    """Return the profile's calibration with prefills, decode steps and LoRA kernel fitted to these iterations instead.

    Nothing of the profile's own stays in them: a curve has the points of one of the two, not of both.
    """
    kernel = f"kernels.{KERNEL}."
    coefficients = {
        # What the iterations do not tell apart from the base model's, such as a kernel's intercept, is 0.
        name: 0.0 if name.startswith(kernel) else value
        for name, value in profiled.coefficients.items()
        if not name.startswith(("prefill.", "decode."))
    }
    for fitted in fit_iterations(practice, KERNEL).values():
        coefficients |= fitted.coefficients
    return replace(
        profiled,
        coefficients=coefficients,
        path=f"a calibration fitted to {len(practice)} iterations of another trace",
    )


def _engine(device: Device, judged: Scenario, other: Scenario) -> Engine:
    """Return a device that has run before, with whatever both traces ask of it."""
    replica = judged.replica
    room = replica.kv_token_budget + replica.max_num_seqs * SPARE_TOKENS
    ranks = [adapter.rank for adapter in judged.trace.adapters]
    engine = Engine(judged.model, device, room, ranks or [8], judged.seed)
    longest = max(
        int((each.trace.prompt_tokens + each.trace.output_tokens).max()) for each in (judged, other)
    )
    engine.warm(KERNEL, replica.max_num_seqs, min(longest, room - SPARE_TOKENS))
    return engine


def _serve(scenario: Scenario, engine: Engine, shown: Progress, title: str) -> Served:
    task = shown.add_task(title, total=len(scenario.trace))
    return serve(scenario, engine, KERNEL, lambda ended: shown.update(task, completed=ended))


def _scenario(device: Device, overrides: Sequence[str], calibration: Path | None) -> Scenario:
    chosen = dict(each.partition("=")[::2] for each in overrides)
    model = chosen.get("model", "llama_2_7b" if device.is_gpu else "llama_16m")
    name = f"{device.gpu}-{model}"
    path = calibration or Path("outputs") / "profile" / name / f"{name}-tp1.yaml"
    if not path.exists():
        raise InputError(
            f"there is no calibration {path}; make one with simlora-profile, or name one with --calibration"
        )
    trace = LARGE if device.is_gpu else SMALL
    given = [
        f"gpu={device.gpu}",
        f"model={model}",
        f"calibration={path}",
        *SYSTEM,
        *trace,
        *overrides,
        *SILENT,
    ]
    last = {each.partition("=")[0]: each for each in given}
    try:
        config, choices = compose(list(last.values()))
    except COMPOSING as error:
        raise in_plain_words(error, overrides) from None
    return prepare(config, choices).scenario


if __name__ == "__main__":
    sys.exit(main())
