"""`simlora-calibrate`: which GPUs, models and engines have a calibration, and a new one for those that have none."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from simlora.cli.guarded import DONE, add_config_dir, command_parser, guarded_options
from simlora.cli.messages import say, show
from simlora.core.errors import InputError, nearest

if TYPE_CHECKING:
    from simlora.hardware.gpu import Gpu
    from simlora.hardware.model import ModelShape
    from simlora.latency.calibration import Calibration
    from simlora.latency.parts.kernel_times import KernelTimes

DESCRIPTION = """\
A calibration says how long an iteration takes on a GPU, with a model and a serving engine. Those that come with simlora
were measured, published, or derived: composed of the base model's kernels on that GPU, and of the engine's host time,
LoRA kernels and loads, measured elsewhere."""
EXAMPLES = """\
examples
  simlora-calibrate list                                    how many calibrations there are, by GPU and engine
  simlora-calibrate list l40s vllm                          those whose name has both words
  simlora-calibrate show l40s-mistral_7b-tp2-vllm           every coefficient of one, and where its parts are from
  simlora gpu=l40s model=mistral_7b replica.tp=2 system=vllm    a run with it

  simlora-calibrate derive --gpu l40s --tp 2 --model ./my-model --out my.yaml
                                                            of a folder with Hugging Face's config.json, which needs
                                                            pip install 'simlora[derive]'
  simlora-calibrate fit steps.csv --gpu l40s --tp 2 --model mistral_7b --out mine.yaml
                                                            with the host's time of your own server: columns batch,
                                                            context_tokens (of all sequences), step_s, and, if it served
                                                            adapters, adapters (distinct), slots, max_lora_rank; a
                                                            steady batch's time per output token is a step
Exit status: 0 done, 2 bad input."""
ENGINES = ("slora", "vllm")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, "interrupted; nothing was written")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-calibrate", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("command", choices=("list", "show", "derive", "fit"), help="what to do")
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="of list: words that a name has; of show: one calibration; of fit: a table of measured decode steps",
    )
    add_config_dir(parser)
    add("--gpu", metavar="GPU", help="of derive and fit: a GPU of simlora's or of --config-dir, such as l40s")
    add(
        "--like",
        metavar="GPU",
        help="of derive and fit: a GPU of simlora's whose kernels are scaled to --gpu, where that is one of your own",
    )
    add(
        "--model",
        metavar="MODEL",
        help="of derive and fit: a model of simlora's or of --config-dir, or a folder with config.json",
    )
    add("--engine", default="vllm", choices=ENGINES, help="of derive: the serving engine (default: vllm)")
    add("--tp", type=int, default=1, metavar="N", help="of derive and fit: GPUs of a replica (default: 1)")
    add(
        "--expert-parallel",
        action="store_true",
        help="of derive and fit: each expert of a mixture is whole on one of the GPUs",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="of derive and fit: the file to write (default: its name, and .yaml)",
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    return {"list": _list, "show": _show, "derive": _derive, "fit": _fit}[options.command](options)


def _list(options: argparse.Namespace) -> int:
    from simlora.latency import calibration as calibrations
    from simlora.latency.parts.composed import derivable, error_of, expected

    rows = []
    for name in calibrations.names():
        found = calibrations.load(name)
        rows.append((name, found.provenance["kind"], str(found.provenance.get("source", ""))))
    whole = {name for name, _, _ in rows}
    rows += [
        (name, "derived", f"expect {expected(error_of(*of))}")
        for name, of in derivable().items()
        if name not in whole
    ]
    chosen = [row for row in sorted(rows) if all(word in row[0] for word in options.names)]
    if not chosen:
        raise InputError(f"no calibration has {' and '.join(options.names)} in its name")
    wide = max(len(name) for name, _, _ in chosen)
    show("\n".join(f"{name:{wide}}  {kind:9}  {_short(source)}" for name, kind, source in chosen))
    return DONE


def _short(text: str, most: int = 90) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _show(options: argparse.Namespace) -> int:
    from simlora.calibrate.calibration_file import text_of

    if len(options.names) != 1:
        raise InputError("simlora-calibrate show takes the name of one calibration")
    show(text_of(_named(options.names[0])).rstrip())
    return DONE


def _named(name: str) -> Calibration:
    from simlora.calibrate.shapes import gpu_named, model_named
    from simlora.latency import calibration as calibrations
    from simlora.latency.parts.composed import composed, derivable

    if name in calibrations.names() or name.endswith((".yaml", ".yml")):
        return calibrations.load(name)
    parts = derivable()
    if name not in parts:
        raise InputError(
            f"there is no calibration {name!r}; {nearest(name, [*calibrations.names(), *parts])}"
        )
    gpu, model, tp, engine, apart = parts[name]
    found = composed(gpu_named(gpu), model_named(model), tp, engine, apart)
    assert found is not None, "kernels and engine are there"
    return found


def _derive(options: argparse.Namespace) -> int:
    from simlora.latency.parts.composed import compose, warning

    gpu, model, times = _asked(options)
    found = compose(times, gpu, model, options.engine)
    say(f"notice: {warning(found)}")
    _save(found, model, options)
    return DONE


def _fit(options: argparse.Namespace) -> int:
    from statistics import median as median_of

    from simlora.calibrate.host import fitted, read_steps

    if len(options.names) != 1:
        raise InputError("simlora-calibrate fit takes one table of measured decode steps")
    if options.engine != "vllm":
        raise InputError(
            f"simlora-calibrate fit is for --engine vllm, not {options.engine}: only vLLM has one host part"
        )
    steps = read_steps(options.names[0])
    gpu, model, times = _asked(options)
    found, fit = fitted(times, steps, gpu, model, options.names[0])
    show(f"{fit.fitted} steps fitted, {len(fit.errors)} judge\n")
    show(f"{'host':<12} {'a step':>10} {'a sequence':>12} {'median error':>14} {'worst':>8}")
    for label, step_s, sequence_s, errors in (
        ("as it came", *fit.came, fit.before),
        ("as fitted", fit.step_s, fit.sequence_s, fit.errors),
    ):
        median, worst = 100 * median_of(errors), 100 * max(errors)
        show(
            f"{label:<12} {1e3 * step_s:>7.3f} ms {1e6 * sequence_s:>9.2f} µs {median:>12.1f} % {worst:>6.1f} %"
        )
    show("")
    _save(found, model, options)
    return DONE


def _asked(options: argparse.Namespace) -> tuple[Gpu, ModelShape, KernelTimes]:
    """Return the GPU, the model, and its kernels there: those that come with simlora, or else NVIDIA's package's."""
    from simlora.calibrate.kernels import kernel_times
    from simlora.calibrate.roofline import scaled
    from simlora.calibrate.shapes import gpu_named, model_named
    from simlora.latency.parts.composed import engines
    from simlora.latency.parts.kernel_times import APART, shipped

    for option in ("gpu", "model"):
        if getattr(options, option) is None:
            raise InputError(f"simlora-calibrate {options.command} needs --{option}")
    if options.tp < 1:
        raise InputError(f"--tp is {options.tp}, must be at least 1")
    own = options.config_dir
    gpu, model = gpu_named(options.gpu, own), model_named(options.model, own)
    model.check_tp(options.tp)
    like = gpu if options.like is None else gpu_named(options.like, own)
    apart = options.expert_parallel
    if apart and (model.experts == 1 or options.tp == 1):
        raise InputError("--expert-parallel needs a model with experts and --tp above 1")
    key = like.name, model.name, options.tp, engines()[options.engine]["kernels"] + (APART if apart else "")
    times = shipped().get(key) or kernel_times(like, model, options.tp, key[3])
    return gpu, model, times if options.like is None else scaled(times, model, like, gpu)


def _save(found: Calibration, model: ModelShape, options: argparse.Namespace) -> None:
    from simlora.calibrate.calibration_file import save, text_of

    out = options.out or Path(f"{found.path}.yaml")
    save(out, text_of(found))
    chosen = f"model={options.model}" if model.name == options.model else _overrides(model)
    show(f"wrote {out}; a run with it:\n")
    folder = "" if options.config_dir is None else f"--config-dir {options.config_dir} "
    apart = " replica.expert_parallel=true" if options.expert_parallel else ""
    hardware = f"gpu={options.gpu} replica.tp={options.tp}{apart} calibration={out}"
    show(f"  simlora {folder}system={options.engine} {hardware} {chosen}")


def _overrides(model: ModelShape) -> str:
    """Return a model that simlora does not have as overrides of one that it has."""
    values = ((field.name, getattr(model, field.name)) for field in fields(model))
    shown = (
        (name, str(value).lower() if isinstance(value, bool) else value)
        for name, value in values
        if name not in ("experts", "experts_per_token") or model.experts > 1
    )
    return " ".join(f"++model.{name}={value}" for name, value in shown)


if __name__ == "__main__":
    sys.exit(main())
