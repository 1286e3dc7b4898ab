"""What the kernels have to move, and the command that times them; how fast they are is not asserted."""

import re

import pytest
import torch

from profiler.kernels.pages import random_pages
from profiler.kernels.speed import main, moved_bytes
from profiler.kernels.work import BASE_MODEL


def test_a_step_moves_weights_of_every_rows_own_rank_its_input_once_and_its_output_twice():
    pages = random_pages([8, 64], 100, 50, torch.float16, torch.device("cpu"))
    assert moved_bytes([0], pages) == 2 * (8 * 150 + 100 + 2 * 50)
    assert moved_bytes([0, 1, 0, BASE_MODEL], pages) == 2 * (80 * 150 + 4 * (100 + 2 * 50))


def test_every_kernel_of_the_device_has_its_line(capsys):
    assert main(["--device", "cpu", "--batch", "3", "--ranks", "8", "16", "--hidden", "64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.search(r"a copy moves [\d.]+ GB/s", lines[0])
    assert [line.split()[0] for line in lines[2:]] == ["bgmv", "mbgmv"]
    assert all(re.search(r"[\d.]+ µs +[\d.]+ GB/s +[\d.]+% of a copy", line) for line in lines[2:])


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--batch", "0"], "--batch is 0, must be"),
        (["--ranks", "0"], "rank 0 of an adapter must be from 1 to 256"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, says, capsys):
    assert main(["--device", "cpu", "--hidden", "64", *arguments]) == 2
    assert says in capsys.readouterr().err
