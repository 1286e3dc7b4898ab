"""Validates a configuration against what a server did: the same requests are simulated and compared."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from simlora.api.preparing import composed, ready
from simlora.api.running import run
from simlora.calibrate.calibration_file import save, text_of
from simlora.calibrate.scaling import with_host
from simlora.config.engine_flags import PREFIX_CACHING, started
from simlora.config.own_folder import with_folder
from simlora.config.setup import Setup
from simlora.core.arrays import Floats
from simlora.core.checks import whole
from simlora.core.errors import InputError
from simlora.core.files import expanded
from simlora.engine.building import listing_s
from simlora.latency.calibration import Calibration
from simlora.sweeps.grid import QUIET
from simlora.validation.blame import BATCHED, KV, NEAR, SEQUENCES, blamed, error_of, flags_tried, runs_of
from simlora.validation.measured import Measured, Unsaid, read_measured
from simlora.validation.server import not_said, server_of
from simlora.validation.steps import DecodeSteps, calibrated_s, decode_steps, error_of_steps, host_of, rows_of
from simlora.validation.validated import Compared, Fitted, Validation
from simlora.workload.export import write

REQUESTS = "requests.parquet"
KV_LINES = (
    (r"GPU KV cache size: *([\d,]+) tokens", 1),
    (r"# GPU blocks: *([\d,]+)", 16),
    (r"max_total_num_tokens=([\d,]+)", 1),
)
"""What engines write when they start, and how many tokens what they count has: vLLM's V1 and V0 engines, SGLang."""


def validate(
    measured: str | Path,
    overrides: Sequence[str] = (),
    *,
    serve: str | None = None,
    unsaid: Unsaid | None = None,
    kv_tokens: int | None = None,
    fit: bool = False,
    blame: bool = True,
    out: str | Path = "outputs/validate",
    config_dir: str | Path | None = None,
    jobs: int = -1,
    tell: Callable[[str], None] = lambda text: None,
) -> Validation:
    """Return how far a simulation is from what a server did with the same requests.

    `measured` is the result of a benchmark, or a log, with the times of each request's tokens; `unsaid` is what it does
    not say. `serve` is the command that started the server, and `overrides` describe the rest of it. `kv_tokens` are
    those of its KV cache as the engine reports them (`kv_tokens_in` finds them in what it logs): they are compared, and
    simulated. `blame`: each part of the calibration alone is made longer and shorter, and it is said which explains the
    error. `fit`: the host's time is fitted to the decode steps that the times of tokens show, written as a calibration,
    and simulated.

    The requests are written to `out`, with the calibrations that are tried. Raises Faulty for a log that does not say
    what is needed, with all that is wrong, and InputError for other mistakes.
    """
    if kv_tokens is not None:
        whole("kv_tokens", kv_tokens, "tokens", least=1)
    command = None if serve is None else started(serve)
    found = read_measured(str(measured), unsaid or Unsaid())
    server, taken = server_of(found, command, overrides)
    folder = expanded(out)
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / REQUESTS
    write(found.trace, str(trace))
    user = [*with_folder(server, config_dir), "workload=file", f"workload.path={trace}"]
    if found.trace.has_hashes:
        user.append(f"workload.hash_block_tokens={found.trace.hash_block_tokens}")
    setup, base = _simulated(found, user)
    own_kv_tokens = setup.scenario.replica.kv_token_budget
    if kv_tokens is not None and kv_tokens != own_kv_tokens:
        user.append(f"replica.kv_token_budget={kv_tokens}")
        setup, base = _simulated(found, user)
    steps = decode_steps(found) if setup.scenario.cluster.replicas == 1 else None
    validation = Validation(
        measured=found,
        overrides=tuple(user),
        about=setup.about,
        notices=(*found.notices, *taken, *not_said(setup, command, server), *setup.notices),
        base=base,
        kv_tokens=(kv_tokens, own_kv_tokens),
        steps=() if steps is None else rows_of(steps, _expected_s(setup, steps, setup.scenario.calibration)),
        parts=(),
        flags=(),
        fitted=None,
    )
    if blame and base.error >= NEAR:
        calibration = setup.scenario.calibration
        seconds = base.result.summary["simulation"]["wall_s"]
        tell(f"which part is to blame: up to {runs_of(calibration)} runs of about {seconds + 0.3:.1f} s")
        parts = folder / "parts"
        parts.mkdir(exist_ok=True)
        validation = replace(
            validation,
            parts=blamed(
                found.summary(),
                calibration,
                lambda path: (*user, f"calibration={path}", *QUIET),
                parts,
                base.error,
                lambda one: None if steps is None else error_of_steps(steps, _expected_s(setup, steps, one)),
                bool(found.trace.adapters),
                jobs,
            ),
            flags=flags_tried(
                found.summary(), _values(setup, found), tuple(user), kv_tokens is not None, jobs
            ),
        )
    if fit:
        validation = replace(validation, fitted=_fitted(found, setup, steps, user, folder))
    return validation


def kv_tokens_in(path: str | Path) -> int:
    """Return the tokens of the KV cache that an engine's log reports last. Raises InputError where it reports none."""
    try:
        text = expanded(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    for line in reversed(text.splitlines()):
        for pattern, tokens in KV_LINES:
            if match := re.search(pattern, line):
                return int(match.group(1).replace(",", "")) * tokens
    raise InputError(
        f"{path} has no line about the KV cache, such as GPU KV cache size: 424,294 tokens; give it with --kv-tokens"
    )


def _simulated(found: Measured, overrides: Sequence[str]) -> tuple[Setup, Compared]:
    """Return a run of the same requests, and its error."""
    setup = ready(*composed([*overrides, "progress=false"]))
    result = run(setup, command=shlex.join(["simlora", *overrides]))
    return setup, Compared(result, error_of(found.summary(), result.summary))


def _values(setup: Setup, found: Measured) -> dict[str, Any]:
    """Return the values of flags that may be others; prefix caching only where requests share prefixes."""
    replica, tree = setup.scenario.replica, yaml.safe_load(setup.config)
    values = {
        SEQUENCES: replica.max_num_seqs,
        BATCHED: (tree.get("scheduler") or {}).get("max_batched_tokens"),
        KV: replica.kv_token_budget,
    }
    return values | ({PREFIX_CACHING: replica.prefix_caching} if found.trace.has_prefixes else {})


def _expected_s(setup: Setup, steps: DecodeSteps, calibration: Calibration) -> Floats:
    """Return what a calibration says of measured steps [rows]."""
    scenario = setup.scenario
    kernel = scenario.policies.kernel(calibration)
    lists_s = listing_s(scenario, scenario.replica, calibration) * steps.adapters
    return calibrated_s(calibration, kernel, steps, scenario.trace) + lists_s


def _fitted(
    found: Measured, setup: Setup, steps: DecodeSteps | None, user: Sequence[str], folder: Path
) -> Fitted:
    """Return the calibration with the host's time that the steps show, and the run with it."""
    calibration = setup.scenario.calibration
    expected_s = None if steps is None else _expected_s(setup, steps, calibration)
    step_s, sequence_s = host_of(calibration, steps, expected_s)
    own = with_host(calibration, step_s, sequence_s)
    said = {
        "kind": "derived",
        "source": f"{calibration.path}, its host's time fitted to the decode steps of {Path(found.path).name}",
        "from": dict(calibration.provenance),
        **{
            key: calibration.provenance[key]
            for key in ("error", "measured_rank")
            if key in calibration.provenance
        },
    }
    path = folder / "calibration.yaml"
    save(path, text_of(replace(own, provenance=said)))
    _, again = _simulated(found, [*user, f"calibration={path}"])
    return Fitted(str(path), step_s, sequence_s, calibration, again)
