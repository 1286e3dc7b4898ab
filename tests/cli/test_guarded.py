"""What ends a command: an interrupt, also where its clean-up fails; an error of our own keeps its traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simlora.cli.guarded import INTERRUPTED, guarded


def failing_after(interrupt: BaseException | None, error: Exception) -> Callable[[], int]:
    """Return a command that fails in what it does in the end, as OmegaConf's `flag_override` did."""

    def command() -> int:
        try:
            if interrupt is not None:
                raise interrupt
        finally:
            raise error

    return command


def test_what_fails_while_an_interrupt_is_cleaned_up_is_the_interrupt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = AttributeError("'NoneType' object has no attribute '_invalidate_flags_cache'")
    assert guarded(failing_after(KeyboardInterrupt(), error), "nothing was done") == INTERRUPTED
    assert capsys.readouterr().err == "simlora: nothing was done\n"


@pytest.mark.parametrize("error", [AttributeError("x"), AssertionError("KV pool: 3 blocks are nowhere")])
def test_an_error_of_our_own_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        guarded(failing_after(None, error), "nothing was done")


def test_a_broken_invariant_says_so_also_after_an_interrupt() -> None:
    with pytest.raises(AssertionError, match="nowhere"):
        guarded(
            failing_after(KeyboardInterrupt(), AssertionError("3 blocks are nowhere")), "nothing was done"
        )
