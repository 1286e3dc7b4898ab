"""A trace drawn anew from its own blocks of time."""

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.core.trace import AdapterSpec, Trace
from simlora.workload.file import File
from simlora.workload.resampling import resampled
from tests.traces import csv

MINUTE = np.arange(0.0, 60.25, 0.25)
TRACE = Trace(
    arrival_s=MINUTE,
    adapter=(np.arange(len(MINUTE)) // 40 % 2).astype(np.int64),  # in turn, ten seconds each
    prompt_tokens=np.arange(1, len(MINUTE) + 1),
    output_tokens=np.ones(len(MINUTE), dtype=np.int64),
    max_output_tokens=np.ones(len(MINUTE), dtype=np.int64),
    adapters=(AdapterSpec("a", 8), AdapterSpec("b", 16)),
    session=[f"s{row // 8}" for row in range(len(MINUTE))],
    source="t.csv",
)


@pytest.mark.parametrize("block_s", [0.7, 5.0, 50.0])
def test_it_is_as_long_and_has_about_as_many_requests(block_s):
    found = resampled(TRACE, block_s, seed=3)
    assert found.duration_s <= TRACE.duration_s
    assert len(found) == pytest.approx(len(TRACE), rel=0.25)
    assert found.source == f"t.csv, blocks of {block_s:g} s drawn anew with seed 3 (moving-block bootstrap)"


def test_within_a_block_requests_stay_as_they_were():
    found = resampled(TRACE, 5.0, seed=1)
    for block in range(12):
        own = (found.arrival_s >= 5 * block) & (found.arrival_s < 5 * (block + 1))
        assert np.diff(found.prompt_tokens[own]).tolist() == [1] * (own.sum() - 1), "rows in a row"
        assert np.diff(found.arrival_s[own]) == pytest.approx(0.25)


def test_a_session_does_not_go_on_in_another_block():
    found = resampled(TRACE, 5.0, seed=1)
    assert found.session is not None
    blocks: dict[str | None, set[int]] = {}
    for session, arrival_s in zip(found.session, found.arrival_s.tolist(), strict=True):
        blocks.setdefault(session, set()).add(int(arrival_s // 5.0))
    assert all(len(those) == 1 for those in blocks.values())


def test_seeds_differ_and_one_seed_is_always_the_same():
    first, again, other = (resampled(TRACE, 5.0, seed) for seed in (1, 1, 2))
    assert first.prompt_tokens.tolist() == again.prompt_tokens.tolist()
    assert first.prompt_tokens.tolist() != other.prompt_tokens.tolist()


def test_a_file_is_read_as_it_is_unless_it_is_asked_to_be_drawn(tmp_path):
    path = csv(tmp_path, *(f"{at / 4},a,8,{at + 1},1" for at in range(240)))
    assert File(path).build(1).prompt_tokens.tolist() == File(path).build(2).prompt_tokens.tolist()
    drawn = File(path, resample_block_s=5.0)
    assert drawn.build(1).prompt_tokens.tolist() != drawn.build(2).prompt_tokens.tolist()


def test_blocks_must_be_shorter_than_the_trace(tmp_path):
    with pytest.raises(InputError, match="is 60, must be less than the 60 s that the trace lasts"):
        resampled(TRACE, 60.0, seed=0)
    with pytest.raises(InputError, match=r"workload\.resample_block_s is -1"):
        File("t.csv", resample_block_s=-1)
