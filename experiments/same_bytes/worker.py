"""Simulates what comes as JSON lines on stdin, and answers with digests as JSON lines.

It is run by path, with simlora on PYTHONPATH from the checkout that it is to simulate with:
`python -P worker.py HASHING`. HASHING is the path of tests/golden/hashing.py. The first line of stdin maps old names of
configuration keys to new ones, each other line is a list of overrides with new names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import warnings
from types import FrameType, ModuleType
from typing import Any, NoReturn

LIMIT_S = 120
"""Wall-clock seconds after which a simulation counts as crashed, by TimeoutError."""


def loaded(path: str) -> ModuleType:
    """Return the module of a file."""
    spec = importlib.util.spec_from_file_location("hashing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_old_names(override: str, new_to_old: dict[str, str]) -> str:
    """Return an override with the key by the name that a checkout without the new names has."""
    key, _, value = override.partition("=")
    return f"{new_to_old.get(key, key)}={value}"


def old_names_of(renamed: dict[str, str]) -> dict[str, str]:
    """Return the keys that this checkout has by older names, as new -> old."""
    from simlora.config import names

    known = getattr(names, "RENAMED", {})
    return {new: old for old, new in renamed.items() if old not in known}


def answer(overrides: list[str], hashing: ModuleType, renamed: dict[str, str]) -> dict[str, Any]:
    """Return the digests of a simulation, or the message of its refusal, or the type of the error that ended it."""
    import simlora
    from simlora.core.errors import InputError

    signal.alarm(LIMIT_S)
    try:
        result = simlora.simulate(overrides)
        return {"digests": hashing.digests(result, renamed), "counts": hashing.counts(result)}
    except InputError as error:
        return {"refused": str(error)}
    except Exception as error:
        return {"crashed": type(error).__name__, "message": str(error)[:300]}
    finally:
        signal.alarm(0)


def too_long(_number: int, _frame: FrameType | None) -> NoReturn:
    """Raise TimeoutError."""
    raise TimeoutError(f"the simulation takes longer than {LIMIT_S} s")


def main() -> None:
    """Answer until stdin ends. What simulations print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_long)
    hashing, renamed = loaded(sys.argv[1]), json.loads(sys.stdin.readline())
    old_names = old_names_of(renamed)
    import simlora

    print(json.dumps({"simlora": simlora.__file__}), file=answers, flush=True)
    for line in sys.stdin:
        overrides = [in_old_names(override, old_names) for override in json.loads(line)]
        print(json.dumps(answer(overrides, hashing, renamed)), file=answers, flush=True)


if __name__ == "__main__":
    main()
