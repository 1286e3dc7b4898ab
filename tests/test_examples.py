"""Every example of the README, the pages in docs/ and --help that simulates names a GPU and a model."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import __main__ as index
from simlora.api.preparing import composed
from simlora.cli import calibrate, capacity, check, plan, record, report, serve, sweep, trace, validate
from simlora.core.errors import InputError

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
def test_commands_name_gpu_and_model(page):
    assert [command for command in commands(page.read_text()) if not names_its_system(command)] == []


def test_there_are_such_commands():
    assert sum(len([*commands(page.read_text())]) for page in PAGES) > 50
    assert not names_its_system("simlora workload.rate_rps=3")
    assert not names_its_system("simlora-sweep system=slora,vllm gpu=a10g")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_so_does_python(page):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    for block in blocks:
        assert not FUNCTION.search(block) or ("gpu=" in block and "model=" in block), block


@pytest.mark.parametrize(
    "examples", [sweep.EXAMPLES, capacity.EXAMPLES, report.EXAMPLES, plan.EXAMPLES, serve.EXAMPLES]
)
def test_so_does_help(examples):
    for line in examples.replace("\\\n", " ").splitlines():
        if line.startswith("  simlora") and "=" in line:
            assert names_its_system(re.sub(r"   +.*", "", line.strip())), line


def test_help_of_each_comparing_command_has_across():
    for command in (sweep, capacity, report):
        assert "--across gpu" in command._parser().format_help()


def words_of(command: str) -> list[str]:
    """Return the words after a command's name, up to the end of the command in a shell."""
    words = shlex.split(command, comments=True)
    ends = [at for at, word in enumerate(words) if word in ("|", "&&", ";", "&", ">")]
    return words[1 : min(ends, default=len(words))]


def first(word: str) -> str:
    """Return an override with the first of its values: of `k=1,2` and `k=range(1,9)` `k=1`, of `k=[1,2]` all of it."""
    word = re.sub(r"=range\((\w+),.*\)$", r"=\1", word)
    depth = 0
    for at, letter in enumerate(word):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            return word[:at]
    return word


PARSERS = {
    f"simlora-{name}": module._parser
    for name, module in (
        ("sweep", sweep), ("capacity", capacity), ("plan", plan), ("serve", serve), ("validate", validate),
        ("calibrate", calibrate), ("check", check), ("record", record), ("report", report), ("trace", trace),
    )
}  # fmt: skip
OWN = re.compile(
    r"my_\w+|my/|mine|~|\$|_target_=(?!simlora)|…|\.\.\.|NAME|KEY|FILE|DIR|-cn\b|--config-name|hydra"
)
"""What an example has of the reader's own, or leaves out."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_and_keys_of_every_command_are_there(page, capsys):
    for command in dict.fromkeys(commands(page.read_text())):
        if OWN.search(command):
            continue
        words, name = words_of(command), Path(shlex.split(command, comments=True)[0]).name
        if name in PARSERS:
            try:
                words = getattr(PARSERS[name]().parse_intermixed_args(words), "overrides", [])
            except SystemExit as left:
                if left.code:
                    pytest.fail(f"{command}: {capsys.readouterr().err}")
                continue
        keys = [first(word) for word in words if "=" in word and not word.startswith("-")]
        try:
            composed(keys)
        except InputError as error:
            raise AssertionError(f"{command}: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_studies_and_targets_of_every_page_are_there(page):
    text = page.read_text()
    have = index.commands()
    wanted = set(re.findall(r"python -m experiments[. ]([a-z][\w.]*\w)", text))
    assert wanted <= have.keys(), wanted - have.keys()
    targets = set(re.findall(r"^([a-z-]+):", (HOME / "Makefile").read_text(), re.MULTILINE))
    called = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert called <= targets, called - targets
