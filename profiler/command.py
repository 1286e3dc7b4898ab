"""The command `simlora-profile`: measure a device, fit a calibration, say how good it is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_dir

from profiler.folder import made
from simlora.api.progress import bar
from simlora.cli.guarded import DONE, guarded, printed
from simlora.cli.messages import show
from simlora.config.composing import FOLDER, VERSION_BASE
from simlora.config.making import make
from simlora.config.mistakes import COMPOSING, in_plain_words
from simlora.config.overrides import check_overrides
from simlora.config.reading import plain
from simlora.core.checks import whole
from simlora.core.errors import InputError, nearest
from simlora.core.files import expanded
from simlora.hardware.model import ModelShape

CONF = Path(__file__).with_name("conf")
MODELS = {"cpu": "llama_16m", "cuda": "llama_2_7b"}
"""The model that is profiled by default, by kind of device."""
HELP = """\
simlora-profile measures what the simulator assumes: the base model's iterations, LoRA kernels, copies and merges of
adapters, LoRA on CPU cores. It writes a calibration that simlora runs with, and a report of how good it is.

  simlora-profile [key=value] ...

Examples
  simlora-profile                                   a quick look at this machine's GPU, or else its CPU
  simlora-profile device=cuda model=llama_2_13b plan=full
  simlora gpu=cpu model=llama_16m calibration=outputs/profile/cpu-llama_16m/cpu-llama_16m-tp1.yaml

Keys
  device=auto     auto, cuda or cpu
  model=null      a model of simlora's; null is llama_2_7b on a GPU, llama_16m on a CPU
  plan=quick      quick (minutes), long (what quick leaves out), full, cpu_lora (the host alone, for models of any
                  size), or a YAML file of points
  kernels=null    of LoRA, as in kernels=[mbgmv]; null is all that run on the device
  threads=1       of a CPU that is the device
  seed=0          of random weights, of pages, and of the order in which points are timed
  out=null        folder of the results; null is outputs/profile/<gpu>-<model>

Files in the folder: <gpu>-<model>-tp1.yaml (the calibration), report.html, measurements.parquet (a row a sample).
What was measured is not measured again: run the same command to go on after an interrupt.
Exit status: 0 done, 2 bad input, 130 interrupted.
"""


@dataclass(frozen=True)
class Settings:
    """What the command line asked for."""

    device: str
    plan: str
    kernels: tuple[str, ...] | None
    threads: int
    seed: int
    out: Path | None
    model: ModelShape


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(arguments):
        return printed(HELP.removesuffix("\n"))
    kept = "interrupted; what was measured is kept, the same command goes on"
    return guarded(lambda: _run(arguments), kept)


def _run(arguments: list[str]) -> int:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise InputError(
            "torch is not installed; install simlora with it: pip install '.[profiler]' where simlora lies"
        ) from None
    from profiler import collect, device, fit, host, points, report, write
    from profiler.bench import Bench
    from profiler.model.lora import ways

    chosen = _composed(arguments)["device"]
    on = device.choose(str(chosen))
    settings = _settings(arguments, MODELS[on.torch.type])
    on = device.choose(settings.device, settings.threads)
    kernels = settings.kernels or tuple(ways(on.torch))
    for kernel in kernels:
        if kernel not in ways(on.torch):
            raise InputError(
                f"kernels: there is no {kernel!r} on {on.torch.type}; {nearest(kernel, ways(on.torch))}"
            )
    memories = ("pinned", "pageable", "device") if on.is_gpu else ("pageable", "device")
    plan = points.read(settings.plan, kernels, memories, host.cores())
    name = f"{on.gpu}-{settings.model.name}"
    out = settings.out or Path("outputs") / "profile" / name
    identity = {**on.describe(), "model": settings.model.name, "dtype": str(on.dtype), "seed": settings.seed}
    samples = collect.Samples(made(out, f"out={out}"), identity)
    show(f"{settings.model.name} on {on.name}: {len(plan.points)} points, {plan.rounds} rounds")
    with bar(len(plan.points) * plan.rounds, "points", doing="measuring") as tell:
        bench = Bench(on, settings.model, plan.points, settings.seed)
        collect.collect(plan, bench.samples_s, samples, settings.seed, lambda done, total: tell(done))
    table = samples.by_point()
    fitted = fit.fit_all(table, settings.model)
    command = shlex.join(["simlora-profile", *arguments])
    calibration = out / f"{name}-tp1.yaml"
    provenance = write.provenance(identity, command, fitted, table)
    write.calibration(calibration, on.gpu, settings.model.name, fitted, table, provenance)
    report.write(out / "report.html", settings.model, provenance, fitted, table)
    for line in [*report.lines(fitted), *report.answers(fitted)]:
        show(line)
    show(f"{calibration}\n{out / 'report.html'}\n{samples.path}")
    return DONE


def _composed(arguments: Sequence[str]) -> dict[str, object]:
    check_overrides(arguments)
    try:
        with initialize_config_dir(str(CONF), job_name="simlora-profile", version_base=VERSION_BASE):
            config = compose("profile", overrides=[*arguments, f"hydra.searchpath=['file://{FOLDER}']"])
        return plain(config, resolve=True)
    except COMPOSING as error:
        raise in_plain_words(error, arguments) from None


def _settings(arguments: Sequence[str], model: str) -> Settings:
    if not any(argument.startswith("model=") for argument in arguments):
        arguments = [*arguments, f"model={model}"]
    tree = _composed(arguments)
    kernels, out = tree["kernels"], tree["out"]
    return Settings(
        device=str(tree["device"]),
        plan=str(tree["plan"]),
        kernels=None
        if kernels is None
        else tuple(map(str, kernels if isinstance(kernels, list) else [kernels])),
        threads=whole("threads", tree["threads"], least=1),
        seed=whole("seed", tree["seed"], least=0),
        out=None if out is None else expanded(str(out)),
        model=make(tree, "model", ModelShape),
    )


if __name__ == "__main__":
    sys.exit(main())
