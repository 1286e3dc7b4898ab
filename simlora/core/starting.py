"""A command that is interrupted while it is imported, before it can end in order."""

from __future__ import annotations

import os
import signal
import sys

COMMANDS = (
    "simlora",
    "simlora-calibrate",
    "simlora-capacity",
    "simlora-check",
    "simlora-plan",
    "simlora-profile",
    "simlora-report",
    "simlora-serve",
    "simlora-record",
    "simlora-sweep",
    "simlora-trace",
    "simlora-validate",
    "-m",
)
"""What `sys.argv` begins with; -m, of `python -m simlora`, is there only until the module is found."""


def _leave(number: int, frame: object) -> None:
    os.write(2, b"simlora: interrupted; nothing was begun\n")
    os._exit(130)


def stoppable() -> None:
    """Let SIGINT end a command of ours without a traceback; leave it as it is in a program that imports simlora."""
    command = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    if command in COMMANDS and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
