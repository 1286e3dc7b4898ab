"""How far long work is: a bar on a terminal, elsewhere a line a minute."""

import pytest

from simlora.api import progress


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands at the last of these minutes."""
    found = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: 60.0 * found[-1])
    return found


def test_a_log_gets_a_line_a_minute(minutes, capsys):
    with progress.bar(100, "runs", doing="sweeping") as tell:
        for done, minute in ((1, 0.5), (20, 2.0), (25, 2.5), (50, 3.0)):
            minutes.append(minute)
            tell(done)
    assert capsys.readouterr().err.splitlines() == [
        "simlora: sweeping 20 of 100 runs, about 8 minutes left",
        "simlora: sweeping 50 of 100 runs, about 3 minutes left",
    ]


def test_a_bar_that_is_switched_off_says_nothing(minutes, capsys):
    with progress.bar(100, "runs", shown=False) as tell:
        minutes.append(9.0)
        tell(50)
    assert capsys.readouterr().err == ""
