"""What every command of ours does: finds the user's modules, can be stopped, and says in one sentence what is wrong."""

from __future__ import annotations

import os
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from simlora import __version__
from simlora.cli.messages import say, show
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.files import expanded

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130
RUNS_ARE_KEPT = "interrupted; the runs that were finished are kept, and the same command goes on from there"


def guarded(command: Callable[[], int], when_interrupted: str) -> int:
    """Run a command and return its exit status; an error of our own keeps its traceback."""
    _open_streams()
    try:
        with _stoppable(), _at_home():
            return command()
    except Exception as error:
        if _while_stopping(error):
            say(when_interrupted)
            return INTERRUPTED
        if isinstance(error, InputError):
            say(f"error: {error}")
            return BAD_INPUT
        if not isinstance(error, OSError) or (error.filename is None and _is_there()):
            raise
        place = "the current folder" if error.filename is None else shown(str(error.filename))
        say(f"error: {place} cannot be used: {error.strerror or error}")
        return BAD_INPUT
    except KeyboardInterrupt:
        say(when_interrupted)
        return INTERRUPTED


def _while_stopping(error: BaseException | None) -> bool:
    """Whether an error came of an interrupt: Hydra and OmegaConf put back what they had not changed yet, and fail."""
    if isinstance(error, AssertionError):
        return False
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def printed(text: str) -> int:
    """Print on stdout, wherever the command was begun; return the exit status."""
    _open_streams()
    try:
        show(text)
    except InputError as error:
        say(f"error: {error}")
        return BAD_INPUT
    return DONE


class Parser(ArgumentParser):
    """argparse's, but that a stdout which takes no --help is an error."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message and file is sys.stdout:
            show(message, end="")
        else:
            super()._print_message(message, file)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help."""
        self._print_message(self.format_help(), sys.stdout if file is None else file)


def command_parser(prog: str, description: str, examples: str, usage: str | None = None) -> ArgumentParser:
    """Return a parser of options that are written out in full, with --help and --version."""
    parser = Parser(
        prog=prog,
        usage=usage,
        description=description,
        epilog=examples,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"simlora {__version__}")
    return parser


def add_config_dir(parser: ArgumentParser) -> None:
    """Give a command --config-dir; `overrides_of` puts it before the overrides."""
    parser.add_argument(
        "--config-dir",
        type=Path,
        metavar="DIR",
        help="your own configurations beside simlora's: DIR/router/mine.yaml makes router=mine a choice",
    )


def add_longest(parser: ArgumentParser) -> None:
    """Give a command that makes runs longer until their answer no longer moves the option --longest."""
    parser.add_argument(
        "--longest",
        type=int,
        default=64,
        metavar="TIMES",
        help="runs get at most so many times as long as configured; 1: as configured (default: 64)",
    )


def add_across(parser: ArgumentParser) -> None:
    """Give a command that compares the option --across."""
    parser.add_argument(
        "--across",
        action="append",
        default=[],
        metavar="WHAT",
        help="what sides may differ in, of gpu, model, engine, slo and calibration, such as --across gpu,model "
        "(default: nothing but what is varied itself, such as gpu=a10g,l40s; each system may have its own engine)",
    )


def overrides_of(options: Namespace) -> list[str]:
    """Return the overrides of a command that has --config-dir. Raises InputError if that is no folder."""
    from simlora.config.own_folder import own_folder

    own = [] if options.config_dir is None else [own_folder(options.config_dir)]
    return [*own, *options.overrides]


def guarded_options(
    parser: ArgumentParser,
    argv: Sequence[str] | None,
    command: Callable[[Namespace], int],
    when_interrupted: str,
) -> int:
    """Run a command with its options, other words may stand anywhere between these; return its exit status."""
    _open_streams()
    try:
        options = parser.parse_intermixed_args(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as leave:  # --help, or what argparse has complained about
        return leave.code if isinstance(leave.code, int) else BAD_INPUT
    except InputError as error:
        say(f"error: {error}")
        return BAD_INPUT
    return guarded(lambda: command(_from_home(options)), when_interrupted)


def _from_home(options: Namespace) -> Namespace:
    """Return options whose paths have their `~` replaced. Raises InputError for one that no file can have."""
    for name, value in vars(options).items():
        if isinstance(value, Path):
            setattr(options, name, expanded(value))
        elif isinstance(value, list):
            setattr(options, name, [expanded(one) if isinstance(one, Path) else one for one in value])
    return options


def _open_streams() -> None:
    """Open what was closed before the command began (`2>&-`), or the next file that is opened would take its place.

    Worker processes inherit it: without a stderr they do not start.
    """
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115  # for as long as we run
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")  # a locale that has no µ; that of C has surrogateescape


@contextmanager
def _at_home() -> Iterator[None]:
    """Find the user's own modules in the current folder, as `python -m simlora` does.

    Raises OSError if it is not there any more, and InputError if it, or an argument, is no text in this locale.
    """
    here = os.getcwd()
    for given in (here, *sys.argv[1:]):
        _check_text(given)
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _check_text(given: str) -> None:
    try:
        given.encode()
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        words = os.fsencode(given).decode(errors="backslashreplace")
        cure = "must be" if encoding == "utf-8" else "set PYTHONUTF8=1, by which it is read as"
        raise InputError(f"{shown(words)} is no text in this locale ({encoding}); {cure} UTF-8") from None


def _is_there() -> bool:
    """Whether the current folder still is."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM, as batch systems send it, end a run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # SIGINT too: a shell script starts its background jobs with SIGINT ignored.
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
