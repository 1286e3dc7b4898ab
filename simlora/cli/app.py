"""Starts Hydra, and turns what it complains about into one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import hydra

from simlora.cli.job import Job
from simlora.cli.messages import read_no_more
from simlora.config.composing import FOLDER, NAME, VERSION_BASE
from simlora.config.crossing import crossed
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
        with crossed(), _hydra_sees([*overrides, *options]):
            app()
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    except COMPOSING as error:
        if job.crashed:
            raise
        raise in_plain_words(error, overrides) from error
    except BrokenPipeError:
        if job.crashed:
            raise
        read_no_more()  # what Hydra printed, such as --help
    except OSError as error:
        if job.crashed:
            raise
        raise cannot_write(str(error.filename or "the run's folder"), error) from error
    return 0


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
