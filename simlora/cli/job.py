"""One simulation, as Hydra starts it: alone or as a part of a sweep."""

from __future__ import annotations

import gc
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from simlora.api import Interrupted, run
from simlora.api.preparing import ready
from simlora.api.progress import working
from simlora.cli.guarded import BAD_INPUT, INTERRUPTED
from simlora.cli.messages import say, show
from simlora.config.own_folder import own_folder
from simlora.config.setup import Setup
from simlora.core.errors import InputError
from simlora.report.terminal import summary_table
from simlora.results.result import Result


class Job:
    """What Hydra runs. `crashed` tells an error of ours from one of Hydra's."""

    def __init__(self) -> None:
        self.crashed = False

    def run(self, config: DictConfig) -> None:
        """Simulate, write and show. Leaves with SystemExit, after one sentence, where that does not work.

        SystemExit, because it passes through Hydra without a word, and ends a sweep. From a process that a launcher
        has started, InputError instead, which it brings back to the command, where an exit would hang.
        """
        try:
            _simulate(config)
        except InputError as error:
            say(f"error: {error}")
            if _launched():
                raise
            raise SystemExit(BAD_INPUT) from error
        except Exception:
            self.crashed = True
            if _launched():
                raise RuntimeError(f"a run has crashed:\n{traceback.format_exc()}") from None
            raise


def _launched() -> bool:
    """Whether this is a process that a launcher of Hydra's has started: SLURM's job, not the command itself."""
    launcher = HydraConfig.get().launcher
    return not str(launcher["_target_"]).endswith(".BasicLauncher")


def _simulate(config: DictConfig) -> None:
    hydra = HydraConfig.get()
    if not hydra.run.dir:
        raise InputError("hydra.run.dir is empty, must be the folder for the results")
    folder = Path(hydra.runtime.output_dir)
    with working("preparing the workload", False if config.get("progress") is False else None):
        choices = {str(group): choice for group, choice in hydra.runtime.choices.items()}
        setup = ready(config, choices, [own_folder(folder) for folder in _own_folders()])
    _notify(setup.notices)
    try:
        result = run(setup, command=_command(), progress=_progress(setup), folder=folder)
    except Interrupted as interrupt:
        _stop(interrupt.result, folder)
    _notify(result.notices[len(setup.notices) :])
    report = setup.report
    del setup
    gc.collect()  # the trace goes, and the cluster, whose parts refer to each other: the report needs the memory
    result.save(folder, report=report)
    what, where = ("Report", folder / "report.html") if report else ("Results", folder)
    try:
        if hydra.mode == RunMode.MULTIRUN:
            show(f"== {hydra.job.num}: {hydra.job.override_dirname}")
        show(f"{summary_table(result.summary)}\n\n{what}: {_near(where)}\n")
    except InputError as error:
        raise InputError(f"{error}; the results are in {_near(folder)}") from error


def _stop(result: Result, folder: Path) -> None:
    """Keep what was finished, under names that say so, and leave."""
    result.save(folder)
    requests = result.summary["requests"]
    say(
        f"interrupted; {requests['finished']:,} of the {requests['submitted']:,} requests so far were finished: "
        f"{_near(folder / 'requests.incomplete.parquet')} and summary.incomplete.json"
    )
    raise SystemExit(INTERRUPTED)


def _notify(notices: Sequence[str]) -> None:
    for notice in notices:
        say(f"notice: {notice}")


def _progress(setup: Setup) -> bool:
    return sys.stderr.isatty() if setup.progress is None else setup.progress


def _command() -> str:
    """Return the shell command that makes this run again, in whatever folder its user likes."""
    folders = [word for path in _own_folders() for word in ("--config-dir", path)]
    return shlex.join(["simlora", *folders, *map(str, HydraConfig.get().overrides.task)])


def _own_folders() -> list[str]:
    """Return the user's own folders of configurations."""
    sources = HydraConfig.get().runtime.config_sources
    return [source.path for source in sources if source.provider == "command-line"]


def _near(path: Path) -> str:
    """Return a path as seen from here, if it lies below."""
    here = Path(HydraConfig.get().runtime.cwd)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
