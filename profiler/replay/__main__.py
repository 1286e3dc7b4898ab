"""`python -m profiler.replay`: serve a trace on the device, simulate the same trace, set them side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from profiler.device import CHOICES, Device, choose
from profiler.model.engine import SPARE_TOKENS, Engine
from profiler.replay.compare import Compared, compare
from profiler.replay.draw import draw
from profiler.replay.loop import Loop
from simlora.config.composing import compose
from simlora.config.mistakes import COMPOSING, in_plain_words
from simlora.config.setup import prepare
from simlora.core.errors import InputError
from simlora.engine.cluster import Cluster
from simlora.engine.scenario import Scenario

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130
SYSTEM = ("system=slora", "loader=cached", "kernel=mbgmv")
"""S-LoRA's scheduler and memory; all adapters are on the device from the start."""
TRACE = (
    "workload=synthetic",
    "workload.arrivals.rate_rps=1.5",
    "workload.duration_s=60",
    "workload.adapters=8",
    "workload.ranks=[8,16,32,64]",
    "workload.prompt_tokens.lo=16",
    "workload.prompt_tokens.hi=256",
    "workload.output_tokens.lo=8",
    "workload.output_tokens.hi=96",
    "replica.kv_token_budget=6000",
    "replica.max_batch_size=16",
)
"""What is served when nobody says otherwise: for a small model on a CPU."""
SILENT = ("timeline=false", "report=false", "progress=false")


def main(argv: Sequence[str] | None = None) -> int:
    """Run both and compare; 0 when done, 2 for bad input, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m profiler.replay",
        description="Serve a trace on this device with a real batch loop, simulate the same trace with the calibration "
        "that simlora-profile fitted to the device, and compare iteration by iteration and request by request.",
        epilog="KEY=VALUE are simlora's own, on top of: " + " ".join((*SYSTEM, *TRACE)),
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="of simlora's, e.g. seed=1 scheduler=lcfs"
    )
    parser.add_argument("--device", choices=CHOICES, default="auto")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU that is the device (default: 1)")
    parser.add_argument(
        "--calibration", type=Path, help="default: outputs/profile/<gpu>-<model>/<gpu>-<model>-tp1.yaml"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/replay"), help="where tables and the picture go"
    )
    options = parser.parse_args(argv)
    try:
        device = choose(options.device, options.threads)
        found = replay(device, options.overrides, options.calibration)
        options.out.mkdir(parents=True, exist_ok=True)
        found.iterations.to_parquet(options.out / "iterations.parquet")
        found.real.to_parquet(options.out / "real.parquet")
        found.simulated.to_parquet(options.out / "simulated.parquet")
        draw(found, options.out / "replay.png")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted; nothing is kept", file=sys.stderr)
        return INTERRUPTED
    for line in found.lines():
        print(line)
    print(options.out / "replay.png")
    return DONE


def replay(device: Device, overrides: Sequence[str], calibration: Path | None = None) -> Compared:
    """Serve and simulate the trace that the overrides describe. Raises InputError for what they get wrong."""
    scenario = _scenario(device, overrides, calibration)
    if scenario.replicas != 1 or scenario.replica.tp != 1:
        raise InputError("one device can only replay cluster.replicas=1 and replica.tp=1")
    cluster = Cluster(scenario)
    room = scenario.replica.kv_token_budget + scenario.replica.max_batch_size * SPARE_TOKENS
    ranks = [adapter.rank for adapter in cluster.adapters]
    engine = Engine(scenario.model, device, room, ranks or [8], scenario.seed)
    loop = Loop(scenario, engine, cluster.adapters, "mbgmv")
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task("serving on the device", total=len(scenario.trace))
        real = loop.run(lambda ended: shown.update(task, completed=ended)).requests()
    return compare(scenario, loop.iterations, real, cluster.run().requests())


def _scenario(device: Device, overrides: Sequence[str], calibration: Path | None) -> Scenario:
    chosen = dict(each.partition("=")[::2] for each in overrides)
    model = chosen.get("model", "llama_2_7b" if device.is_gpu else "llama_17m")
    name = f"{device.gpu}-{model}"
    path = calibration or Path("outputs") / "profile" / name / f"{name}-tp1.yaml"
    if not path.exists():
        raise InputError(
            f"there is no calibration {path}; make one with simlora-profile, or name one with --calibration"
        )
    given = [
        f"gpu={device.gpu}",
        f"model={model}",
        f"calibration={path}",
        *SYSTEM,
        *TRACE,
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
