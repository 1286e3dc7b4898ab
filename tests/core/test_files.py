"""A file is whole or not there."""

from pathlib import Path

import pytest

from simlora.core.files import whole_file


def test_it_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    with whole_file(path) as draft:
        draft.write_text("whole")
        assert draft.suffix == ".txt", "what writes it may go by the suffix"
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def interrupted(path: Path) -> None:
    with whole_file(path) as draft:
        draft.write_text("half")
        raise KeyboardInterrupt


def test_one_that_fails_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_that_write_the_same_file_do_not_meet(tmp_path):
    path = tmp_path / "a.txt"
    with whole_file(path) as one, whole_file(path) as other:
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"


def test_its_folder_has_to_be_there(tmp_path):
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "no" / "a.txt"):
        pass
