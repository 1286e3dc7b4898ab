import pytest

from tests.cli.command import Command


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    """Run every test in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def simlora(at_home, capsys):
    return Command(at_home, capsys)
