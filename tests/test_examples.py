"""Every example of the README, the pages in docs/ and --help that simulates names a GPU and a model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from simlora.cli import capacity, plan, report, serve, sweep

HOME = Path(__file__).parents[1]
PAGES = (HOME / "README.md", *sorted((HOME / "docs").glob("*.md")))
COMMAND = re.compile(r"(?:\S*bin/)?(simlora(?:-sweep|-capacity|-plan|-serve)?)(?= )")
FUNCTION = re.compile(r"simlora\.(?:simulate|sweep|capacity|capacities)\(")
SHOWN = ("--help", "--version", "--cfg", "--hydra-help", "--info")
"""Options with which nothing is simulated."""


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a text with keys: those of code blocks, and those in a line of prose."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += [" ".join(code.split()) for code in re.findall(r"`(simlora[^`]*)`", prose)]
    for line in lines:
        found = COMMAND.search(line)
        before = line[: found.start()] if found else ""
        if found and "=" in line and not re.search(r"[|#:]|\w \w", before.removeprefix("Run it:")):
            yield line[found.start() :]


def names_its_system(command: str) -> bool:
    words = shlex.split(command, comments=True)
    keys = {word.partition("=")[0] for word in words}
    if keys & {*SHOWN} or not any("=" in word and word[0] != "-" for word in words):
        return True
    across = " ".join(words[at + 1] for at, word in enumerate(words[:-1]) if word == "--across")
    needed = {"model"} if words[0].endswith("simlora-plan") else {"gpu", "model"}
    return needed <= keys | {*across.split(",")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_name_gpu_and_model(page: Path) -> None:
    assert [command for command in commands(page.read_text()) if not names_its_system(command)] == []


def test_there_are_such_commands() -> None:
    assert sum(len([*commands(page.read_text())]) for page in PAGES) > 50
    assert not names_its_system("simlora workload.rate_rps=3")
    assert not names_its_system("simlora-sweep system=slora,vllm gpu=a10g")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_so_does_python(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    for block in blocks:
        assert not FUNCTION.search(block) or ("gpu=" in block and "model=" in block), block


@pytest.mark.parametrize(
    "examples", [sweep.EXAMPLES, capacity.EXAMPLES, report.EXAMPLES, plan.EXAMPLES, serve.EXAMPLES]
)
def test_so_does_help(examples: str) -> None:
    for line in examples.replace("\\\n", " ").splitlines():
        if line.startswith("  simlora") and "=" in line:
            assert names_its_system(re.sub(r"   +.*", "", line.strip())), line


def test_help_of_each_comparing_command_has_across() -> None:
    for command in (sweep, capacity, report):
        assert "--across gpu" in command._parser().format_help()
