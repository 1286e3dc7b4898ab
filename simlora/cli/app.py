"""Starts Hydra, and turns what it complains about into one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from logging import Handler, LogRecord

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import get_args_parser

from simlora.cli.job import Job
from simlora.cli.messages import read_no_more, show, unprintable
from simlora.config.composing import FOLDER, NAME, VERSION_BASE
from simlora.config.crossing import crossed, instead
from simlora.config.mistakes import COMPOSING, in_plain_words
from simlora.config.overrides import check_overrides
from simlora.results.files import cannot_write


def launch(options: Sequence[str], overrides: Sequence[str]) -> int:
    """Run one simulation or a sweep, or print what an option asks for; return the exit status.

    Raises InputError for a mistake in the configuration and for a folder that cannot be made.
    """
    check_overrides(overrides)
    job = Job()
    app = hydra.main(config_path=str(FOLDER), config_name=NAME, version_base=VERSION_BASE)(job.run)
    try:
        with (
            crossed(),
            instead(Handler, "handleError", _not_logged),
            instead(Hydra, mode_of.__name__, mode_of if _may_have_a_mode(options, overrides) else _no_mode),
            _hydra_sees([*overrides, *options]),
        ):
            status = _status(app)
    except COMPOSING as error:
        if job.crashed:
            raise
        raise in_plain_words(error, overrides) from error
    except BrokenPipeError:
        if job.crashed:
            raise
        read_no_more()  # what Hydra printed, such as --help
        status = 0
    except OSError as error:
        if job.crashed:
            raise
        if error.filename is None and _prints(options):
            raise unprintable(error) from error
        raise cannot_write(str(error.filename or "the run's folder"), error) from error
    show("", end="")  # what is in the buffer
    return status


def _status(app: Callable[[], None]) -> int:
    try:
        app()
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    return 0


mode_of = Hydra.get_mode


def _no_mode(composer: Hydra, config_name: str | None, overrides: list[str]) -> None:
    """Return what our own files say of `hydra.mode`: nothing."""


def _may_have_a_mode(options: Sequence[str], overrides: Sequence[str]) -> bool:
    """Whether others may say something of `hydra.mode`, for which Hydra composes the configuration once more."""
    asked = get_args_parser().parse_args(list(options))
    of_hydra = [override for override in overrides if "hydra" in override]
    return any((asked.config_dir, asked.config_path, asked.config_name)) or not all(
        override.startswith(("hydra.run.", "hydra.sweep.")) for override in of_hydra
    )


def _prints(options: Sequence[str]) -> bool:
    """Whether Hydra is asked to print something instead of a run."""
    asked = get_args_parser().parse_args(list(options))
    return any((asked.help, asked.hydra_help, asked.cfg, asked.info, asked.shell_completion))


_complain = Handler.handleError


def _not_logged(handler: Handler, record: LogRecord) -> None:
    """Raise what is wrong with stdout, which `--info` logs on; `logging` would print a traceback a line."""
    error = sys.exc_info()[1]
    if isinstance(error, OSError) and getattr(handler, "stream", None) is sys.stdout:
        raise error
    _complain(handler, record)


@contextmanager
def _hydra_sees(arguments: list[str]) -> Iterator[None]:
    """Hydra reads its arguments from sys.argv, and hands errors on only if it is told to."""
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [argv[0] if argv else "simlora", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error
