from pathlib import Path

import pytest

from tests.cli.command import Command


@pytest.fixture
def simlora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(tmp_path, capsys)
