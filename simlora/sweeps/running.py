"""Runs many configurations, in parallel, each once, and those that were run before not again."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import nullcontext
from dataclasses import asdict, replace

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from simlora.api.cache import Cache, open_cache
from simlora.api.inputs import Inputs
from simlora.api.own_code import OwnCodeFailed
from simlora.api.preparing import simulated
from simlora.api.progress import bar
from simlora.core.errors import DoesNotFit, InputError
from simlora.core.interrupts import unheard
from simlora.sweeps.outcome import DOES_NOT_FIT, FAILED, NOT_KEPT, NOT_SIMULATED, RAN, Outcome, Overrides

warnings.filterwarnings("ignore", ".*tasks which were still being processed", UserWarning)
"""Runs that an interruption ends are cancelled, and said to be; joblib need not say so, too."""
DEATHS_MOST = 3
Simulated = tuple[Overrides, Outcome, Inputs]
"""A run, what became of it, and what it has read."""
AT_ONCE = 4
"""Runs for each worker of a backend that tells results only all together."""


def run_all(
    wanted: Iterable[Overrides],
    jobs: int = -1,
    shown: bool | None = None,
    cache: Cache | None = None,
    keep_going: bool = False,
) -> dict[Overrides, Outcome]:
    """Return the outcome of every run, each simulated once.

    `shown`: a progress bar; None is on a terminal. `keep_going`: an error of ours, or of a user's policy, is an outcome
    too; otherwise it is raised, once the runs before it are kept.
    """
    wanted = list(dict.fromkeys(wanted))
    found: dict[Overrides, Outcome] = {}
    with bar(len(wanted), "runs", shown) as tell:
        for overrides, outcome in each_run(wanted, jobs, cache, keep_going):
            found[overrides] = outcome
            tell(len(found))
    return found


def each_run(
    wanted: Sequence[Overrides], jobs: int = -1, cache: Cache | None = None, keep_going: bool = False
) -> Iterator[tuple[Overrides, Outcome]]:
    """Yield runs and what became of them: those that were kept first, others as they end, once they are kept."""
    cache = open_cache() if cache is None else cache
    missing = {}
    first: dict[str, str] = {}
    for overrides in wanted:
        files = cache.files(overrides)
        for file, hashed in files.items():
            first.setdefault(file, hashed)
        path = cache.path(overrides, files)
        if kept := cache.get(path, overrides):
            yield overrides, Outcome(**kept)
        else:
            missing[overrides] = path
    if not missing:
        return
    for overrides, ended, read in _simulated([*missing], jobs, keep_going):
        path = missing[overrides]
        outcome = replace(ended, key=path.stem)
        if outcome.status == RAN:
            if changed := _changed(first, read):
                outcome = Outcome(FAILED, reason=changed, seconds=outcome.seconds, key=path.stem)
            elif doubt := read.doubt or cache.doubt:
                outcome = replace(outcome, reason=f"{NOT_KEPT}: {doubt}")
            else:
                cache.put(path, overrides, asdict(outcome), read)
        yield overrides, outcome


def _changed(first: dict[str, str], read: Inputs) -> str:
    """Say which file a run has read as another than the runs before it, whose hashes are in `first`; "" if none."""
    for file, hashed in read.files.items():
        if first.setdefault(file, hashed) != hashed:
            return f"{file} has changed since the first of these runs began; run it again"
    return ""


def _simulated(missing: Sequence[Overrides], jobs: int, keep_going: bool) -> Iterator[Simulated]:
    """Yield what runs come to, as they end; runs of a process that died are begun again.

    Raises InputError if processes die again and again, without a run that ends between.
    """
    left, deaths = list(missing), 0
    while left:
        done = set()
        try:
            for ended in _spread(left, jobs, keep_going):
                done.add(ended[0])
                yield ended
        except Exception as error:
            if not _died(error):
                raise
            deaths = 0 if done else deaths + 1
            if deaths == DEATHS_MOST:
                raise InputError(
                    f"processes that simulate died {deaths} times without a run that ended, for lack of memory perhaps "
                    f"(fewer jobs need less); runs that were finished are kept; one of those that were not: {left[0]}"
                ) from error
        left = [overrides for overrides in left if overrides not in done]


def _spread(runs: Sequence[Overrides], jobs: int, keep_going: bool) -> Iterator[Simulated]:
    """Yield what runs come to, from joblib's backend."""
    backend = get_active_backend()[0]
    workers = min(effective_n_jobs(jobs), len(runs))
    if backend.supports_return_generator:
        pool = Parallel(n_jobs=workers, return_as="generator_unordered")
        with unheard() if workers > 1 else nullcontext():
            ended = pool(delayed(_run)(overrides, keep_going) for overrides in runs)
        yield from ended
        return
    # Ray's tells only when all have ended: so a few at a time, or a kill would cost all of them.
    for first in range(0, len(runs), AT_ONCE * workers):
        some = runs[first : first + AT_ONCE * workers]
        yield from Parallel(n_jobs=workers)(delayed(_run)(overrides, keep_going) for overrides in some)


def _died(error: Exception) -> bool:
    """Whether a process that simulated is gone, which says nothing of its run."""
    return isinstance(error, BrokenExecutor) or type(error).__module__.split(".")[0] in ("ray", "distributed")


def _run(overrides: Overrides, keep_going: bool) -> Simulated:
    """Return a run with what became of it; what simlora refuses is an outcome too."""
    started_s = time.thread_time()
    nothing = Inputs({}, {})
    try:
        result, read = simulated(overrides)
    except DoesNotFit as error:
        return overrides, Outcome(DOES_NOT_FIT, reason=str(error)), nothing
    except OwnCodeFailed as error:
        if not keep_going:
            raise
        return overrides, Outcome(FAILED, reason=str(error)), nothing
    except InputError as error:
        return overrides, Outcome(NOT_SIMULATED, reason=str(error)), nothing
    except Exception as error:
        if not keep_going:
            raise
        return overrides, Outcome(FAILED, reason=f"{type(error).__name__}: {error}"), nothing
    return overrides, Outcome(RAN, result.summary, seconds=time.thread_time() - started_s), read
