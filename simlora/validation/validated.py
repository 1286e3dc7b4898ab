"""What a validation found: in words, as files, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.calibrate.scaling import HOST, HOST_SEQUENCE
from simlora.config.engine_flags import ENGINES
from simlora.latency.calibration import Calibration
from simlora.metrics.summary import json_safe
from simlora.results.files import writing
from simlora.results.result import Result
from simlora.validation.blame import ALIKE, NEAR, Flag, Part, explains, judged, place
from simlora.validation.measured import Measured
from simlora.validation.steps import StepRow

FIGURES = {
    "TTFT": "ttft_s",
    "TPOT": "tpot_s",
    "ITL": "tbt_s",
    "E2EL": "latency_s",
}
"""Times of requests and tokens by the names that benchmarks print."""
SHOWN = 3
"""Flags that are listed."""
HELPS = 0.75
"""A flag is listed where it leaves less than this share of the error."""
OF_TIMES = ("mean", "p50", "p95", "p99")
FILES = ("validation.png", "validation.json", "requests.parquet", "run/report.html")


@dataclass(frozen=True)
class Compared:
    """A simulated run of the same requests, and the mean error of its figures (blame.JUDGED)."""

    result: Result
    error: float


@dataclass(frozen=True)
class Fitted:
    """The host's seconds of a step and of a sequence as fitted, the calibration's file, what it was, and the run."""

    path: str
    step_s: float
    sequence_s: float
    before: Calibration
    run: Compared


@dataclass(frozen=True)
class Validation:
    """A server's run beside a simulated one.

    `kv_tokens` are those of the KV cache, as the engine reports them (None: not known) and as the configuration has
    them. `steps` are decode steps, measured and as the calibration says, empty where the log has no times of tokens.
    `parts` are those of the calibration, that which explains the error best first, and `flags` the engine's with other
    values; both empty where that was not looked for.
    """

    measured: Measured
    overrides: Sequence[str]
    about: Mapping[str, Any]
    notices: Sequence[str]
    base: Compared
    kv_tokens: tuple[int | None, int]
    steps: Sequence[StepRow]
    parts: Sequence[Part]
    flags: Sequence[Flag]
    fitted: Fitted | None

    def figures(self, run: Compared | None = None) -> Iterator[tuple[str, str, float, float]]:
        """Yield figures that the log has: what, of what, measured and simulated."""
        there, here = self.measured.summary(), (run or self.base).result.summary
        for name, metric in FIGURES.items():
            for part in OF_TIMES:
                was, found = place(there, f"{metric}.{part}"), place(here, f"{metric}.{part}")
                if was is not None and found is not None:
                    yield name, part, was, found
        for name, metric in (("requests/s", "throughput_rps"), ("tokens/s", "throughput_tps")):
            was, found = place(there, metric), place(here, metric)
            if was is not None and found is not None:
                yield "Throughput", name, was, found

    def text(self) -> str:
        """Return all of it in words."""
        parts = [self._head(), self._table(), self._steps(), self._blame(), self._fit()]
        return "\n\n".join(part for part in parts if part)

    def _head(self) -> str:
        trace, about, calibration = self.measured.trace, self.about, self.base.result.summary["calibration"]
        requests = self.base.result.summary["requests"]
        lines = [
            f"{self.measured.path}: {self.measured.tool}, {len(trace):,} requests in {self.measured.span_s:.4g} s, "
            f"{len(trace.adapters)} adapters",
            f"simulated: system {about['system']}, model {about['model']}, {about['replicas']} × gpu {about['gpu']}, "
            f"tp {about['tp']}, calibration {calibration['path']} ({calibration['provenance']['kind']})",
        ]
        if lost := requests["submitted"] - requests["finished"]:
            lines.append(f"of the simulated requests {lost:,} did not finish; figures are of the others")
        return "\n".join(lines)

    def _table(self) -> str:
        lines = [f"{'':<11} {'':<11} {'measured':>12} {'simulated':>12} {'error':>9}"]
        before = ""
        for name, part, was, found in self.figures():
            shown = (f"{was:,.3f}", f"{found:,.3f}") if name == "Throughput" else (_time(was), _time(found))
            lines.append(
                f"{'' if name == before else name:<11} {part:<11} {shown[0]:>12} {shown[1]:>12} {_off(was, found):>9}"
            )
            before = name
        there, own = self.kv_tokens
        if there is not None:
            lines.append(f"{'KV cache':<11} {'tokens':<11} {there:>12,} {own:>12,} {_off(there, own):>9}")
            if there != own:
                lines.append("The simulation has the measured KV cache.")
        lines.append(
            f"Mean error {100 * self.base.error:.1f} %: the mean of |simulated / measured - 1| over {self._judged()}."
        )
        return "\n".join(lines)

    def _judged(self) -> str:
        """Return the rows of the table whose errors the mean error is of."""
        rows = judged(self.measured.summary(), self.base.result.summary)
        times = {name: metric for name, metric in FIGURES.items() if f"{metric}.p50" in rows}
        named = [f"mean, p50 and p95 of {' and '.join(times)}"] if times else []
        return ", and ".join([*named, *(["tokens/s"] if "throughput_tps" in rows else [])])

    def _steps(self) -> str:
        if not self.steps:
            return ""
        lines = ["Decode steps that the times of tokens show, against the calibration:"]
        lines.append(f"{'batch':<11} {'measured':>12} {'calibrated':>12} {'error':>9}")
        for row in self.steps:
            batch = f"{row.least}" if row.least == row.most else f"{row.least} to {row.most}"
            lines.append(
                f"{batch:<11} {_time(row.measured_s):>12} {_time(row.calibrated_s):>12} "
                f"{_off(row.measured_s, row.calibrated_s):>9}"
            )
        return "\n".join(lines)

    def _blame(self) -> str:
        if not self.parts:
            return (
                ""
                if self.base.error >= NEAR
                else f"Below {100 * NEAR:.0f} % no part of the calibration is to blame."
            )
        lines = ["What is left of the error if one part of the calibration alone takes another time:"]
        lines.append(f"{'part':<24} {'times':>7} {'of figures':>11} {'of steps':>10}")
        for part in self.parts:
            steps = "" if part.steps_left is None else f"{100 * part.steps_left:.1f} %"
            lines.append(f"{part.name:<24} {part.factor:>7.2f} {100 * part.left:>9.1f} % {steps:>10}")
        better = [one for one in self.flags if one.left < HELPS * self.base.error]
        if better:
            lines.append("And if one flag of the engine has another value than the configuration says:")
        elif self.flags:
            lines.append(
                f"No other value of one flag leaves clearly less of the error; {len(self.flags)} were tried."
            )
        lines += [f"{self._named(one):<32} {100 * one.left:>9.1f} %" for one in better[:SHOWN]]
        lines.append(self.verdict)
        return "\n".join(lines)

    @property
    def alike(self) -> list[str]:
        """The parts that explain the error about as well as the best one."""
        return [part.name for part in self.parts[1:] if part.both <= ALIKE * self.parts[0].both]

    @property
    def verdict(self) -> str:
        """Which part of the calibration is to blame, as a sentence."""
        best = self.parts[0]
        flag = self.flags[0] if self.flags else None
        if flag is not None and flag.left < best.left and explains(flag.left, self.base.error):
            return (
                f"To blame: the configuration, if the server had {self._named(flag)}; check the command that started "
                "it. No part of the calibration explains the error as well."
            )
        if not explains(best.left, self.base.error):
            return "No single part or flag explains the error: it may be several, or what is not simulated."
        others = f" It cannot be told apart from: {', '.join(self.alike)}." if self.alike else ""
        return f"To blame: {best.name}, {best.factor:.2f} times as long as the calibration says.{others}"

    def _named(self, flag: Flag) -> str:
        """Return a flag as the engine calls it, or the key where it does not."""
        engine = ENGINES.get(str(self.about.get("system")))
        name = None if engine is None else engine.flags.get(flag.key)
        value = str(flag.value).lower()
        return f"{flag.key}={value}" if name is None else f"{name} {value}"

    def _fit(self) -> str:
        if self.fitted is None:
            return ""
        fitted, before = self.fitted, self.fitted.before
        lines = ["The host's time, fitted to these steps:"]
        lines.append(f"{'':<24} {'as it was':>12} {'fitted':>12}")
        for name, was, now in (
            ("a step", before.need(HOST), fitted.step_s),
            ("each sequence of it", before.need(HOST_SEQUENCE), fitted.sequence_s),
        ):
            lines.append(f"{name:<24} {_time(was):>12} {_time(now):>12}")
        lines.append(f"{'mean error':<24} {100 * self.base.error:>10.1f} % {100 * fitted.run.error:>10.1f} %")
        for (name, part, was, found), (_, _, _, now) in zip(
            self.figures(), self.figures(fitted.run), strict=True
        ):
            lines.append(f"{f'{name} {part}':<24} {_off(was, found):>12} {_off(was, now):>12}")
        lines.append(
            f"Fitted to this run, it is judged by another: simlora-validate OTHER.json … calibration={fitted.path}"
        )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """What validation.json holds."""
        there, own = self.kv_tokens
        found: dict[str, Any] = {
            "measured": self.measured.path,
            "tool": self.measured.tool,
            "requests": len(self.measured.trace),
            "overrides": list(self.overrides),
            "run": dict(self.about),
            "figures": [
                {
                    "figure": name,
                    "of": part,
                    "measured": was,
                    "simulated": sim,
                    "error": sim / was - 1 if was else None,
                }
                for name, part, was, sim in self.figures()
            ],
            "error": self.base.error,
            "kv_tokens": {"measured": there, "configured": own},
            "decode_steps": [vars(row) for row in self.steps],
            "parts": [vars(part) for part in self.parts],
            "flags": [vars(flag) for flag in self.flags],
            "verdict": self.verdict if self.parts else None,
            "notices": list(self.notices),
        }
        if self.fitted is not None:
            found["fitted"] = {
                "calibration": self.fitted.path,
                "host_step_s": self.fitted.step_s,
                "host_sequence_s": self.fitted.sequence_s,
                "error": self.fitted.run.error,
            }
        safe: dict[str, Any] = json_safe(found)
        return safe

    def save(self, folder: str | Path) -> Path:
        """Write validation.json, validation.png, and the simulated run in `run`; return the folder."""
        folder = Path(folder)
        self.base.result.save(folder / "run")
        with writing(folder, FILES[:2]) as drafts:
            (drafts / "validation.json").write_text(
                json.dumps(self.as_dict(), indent=2) + "\n", encoding="utf-8"
            )
            self.draw(drafts / "validation.png")
        return folder

    def draw(self, path: str | Path) -> None:
        """Draw the distributions of TTFT and TPOT, and the decode steps, measured and simulated."""
        from matplotlib.figure import Figure

        from simlora.report.colours import AMBER, BLUE

        picture = Figure(figsize=(12, 3.9), layout="constrained", dpi=120)
        axes = picture.subplots(1, 3 if self.steps else 2)
        rows = self.base.result.counted
        pairs = [
            ("TTFT", self.measured.ttft_s, rows["ttft_s"]),
            ("TPOT", self.measured.tpot_s, rows["tpot_s"]),
        ]
        for at, (name, there, here) in zip(axes, pairs, strict=False):
            for label, values, colour in (("measured", there, BLUE), ("simulated", here, AMBER)):
                at.plot(
                    *_distribution(np.asarray(values, dtype=np.float64)),
                    color=colour,
                    label=label,
                    linewidth=1.8,
                )
            at.set(
                xlabel=f"{name} [s]",
                ylabel="share of requests",
                title=f"{name} of {len(self.measured.trace):,} requests",
            )
            at.set_xscale("log")
        if self.steps:
            batch = [(row.least * row.most) ** 0.5 for row in self.steps]
            axes[2].plot(
                batch, [1e3 * row.measured_s for row in self.steps], "o-", color=BLUE, label="measured"
            )
            axes[2].plot(
                batch, [1e3 * row.calibrated_s for row in self.steps], "o-", color=AMBER, label="calibrated"
            )
            axes[2].set(xlabel="sequences in the batch", ylabel="decode step [ms]", title="Decode steps")
            axes[2].set_xscale("log", base=2)
            axes[2].xaxis.set_major_formatter("{x:g}")
            axes[2].set_ylim(bottom=0)
        for at in axes:
            at.grid(color="#e6e8eb")
            at.spines[["top", "right"]].set_visible(False)
            at.legend(frameon=False, fontsize=9)
        picture.savefig(path, format="png")


def _distribution(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values in order, and the share that is not above each."""
    known = np.sort(values[~np.isnan(values) & (values > 0)])
    return known, np.arange(1, len(known) + 1) / max(len(known), 1)


def _time(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e3, "ms")):
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:,.3g} {unit}"
    return f"{seconds * 1e6:,.3g} µs"


def _off(was: float, found: float) -> str:
    return f"{100 * (found / was - 1):+.1f} %" if was else ""
