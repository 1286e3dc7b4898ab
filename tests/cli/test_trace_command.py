"""simlora-trace, as a user types it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from simlora.cli.trace import main
from simlora.workload import catalogue
from simlora.workload.file import File
from tests.workload.test_catalogue import NAMES, WHOLE, built

OWN = """arrival_s,adapter,rank,prompt_tokens,output_tokens,session
0,<i>a</i>,8,100,20,s
70,<i>a</i>,8,150,20,s
80,b,16,50,5,
200,,,10,5,
"""


@pytest.fixture(autouse=True)
def samples(at_home):
    for name in NAMES:
        shutil.copy(catalogue.entry(name).sample_path, at_home)
    Path("own.csv").write_text(OWN)


def sample(name: str) -> str:
    return catalogue.entry(name).sample


class Undrawn:
    """A picture that takes no time."""

    def savefig(self, path: Path, dpi: int) -> None:
        path.write_text("")


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr("simlora.report.traces.draw_trace", lambda *given: Undrawn())


# list, show ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["azure_functions_2021", "lmsys", "mooncake"])
def test_show_tells_all_of_an_entry(name, capsys):
    assert main(["show", name]) == 0
    out = capsys.readouterr().out
    entry = catalogue.entry(name)
    assert entry.title in out
    assert entry.home in out
    assert f"workload={entry.workload}" in out
    for column in entry.columns:
        assert f"  {column.name} " in out
    assert all(f"sha256 {file.sha256 or 'not known'}" in out for file in entry.files)
    assert "None" not in out
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == sorted(NAMES)


# info ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["azure_functions_2021", "lmsys", "mooncake"])
def test_info_knows_the_format(name, undrawn, capsys):
    assert main(["info", sample(name), *WHOLE.get(name, ())]) == 0
    out = capsys.readouterr().out
    assert f"({name})" in out
    assert "not one of the files whose checksum is known" in out
    for word in ("requests", "rate", "burstiness", "prompts", "answers", "reuse", "adapters", "Gini"):
        assert f"\n{word}" in out or word == "Gini"


TOLD = {
    "own.csv --picture=own.svg": "our own schema … requests    4 in 3.33 min … "
    "sessions    1, of 2.00 requests on average and at most 2 … "
    "adapters    2 used of 2; the first has 66.7 % of the requests … base model  1 requests … "
    "with one adapter for all",
    "one.csv": "rate        mean –/s\n",  # of one request
    "azure_llm_2023.csv": "adapters are drawn, the trace has none … "
    "reuse       not known: the trace has neither sessions nor block hashes",
    "azure_llm_2024.csv workload.adapters=2 workload/popularity=explicit workload.popularity.weights=[0,1]": (
        "1 used of 2; the first has 100 % of the requests"
    ),
    "azure_llm_2024.csv workload.adapters=0": "base model  5 requests",
    "azure_llm_2024.csv seed=1 workload.duration_s=1": "requests    3 in ",
    "azure_llm_2024.csv workload.start_s=0.5": "of which workload.rows=1000000, workload.start_s=0.5, "
    "workload.duration_s=3600 is read (null: all)\n",
    "azure_llm_2023.csv --format azure_llm_2024": "Azure LLM inference trace 2024 (azure_llm_2024)",
}


@pytest.mark.parametrize("typed", TOLD)
def test_info_tells_what_a_trace_is_like_and_what_was_left_out(typed, undrawn, capsys):
    Path("one.csv").write_text("\n".join(OWN.splitlines()[:2]))
    assert main(["info", *typed.split(" ")]) == 0
    captured = capsys.readouterr()
    assert [part for part in TOLD[typed].split(" … ") if part not in captured.out] == []
    assert ("of which" in captured.out) == ("2024" in typed)
    if "2023" in typed:
        dropped = "1 of 6 rows have no prompt or no output tokens and were dropped."
        assert captured.err == f"simlora: notice: azure_llm_2023.csv: {dropped}\n"


@pytest.mark.parametrize(
    ("options", "picture", "begins"),
    [((), "own.csv.png", b"\x89PNG"), (("--picture=own.svg",), "own.svg", b"<?xml")],
)
def test_the_suffix_of_a_picture_says_its_format(options, picture, begins, tmp_path, capsys):
    assert main(["info", "own.csv", *options]) == 0
    assert f"Picture: {picture}" in capsys.readouterr().out
    assert Path(picture).read_bytes().startswith(begins)
    assert not list(tmp_path.glob(".*"))


def test_a_published_file_is_known_by_its_checksum(monkeypatch, undrawn, capsys):
    file = Path(sample("mooncake"))
    found = catalogue.entry("mooncake")
    known = catalogue.DataFile("ours.jsonl", 4, file.stat().st_size, catalogue.sha256(file), "by us")
    monkeypatch.setattr(catalogue, "entry", lambda name: replace(found, files=(known,)))
    assert main(["info", str(file), "--format=mooncake"]) == 0
    assert "ours.jsonl as published (sha256)" in capsys.readouterr().out


# convert -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "suffix"), [("azure_functions_2021", "csv"), ("lmsys", "parquet"), ("mooncake", "jsonl")]
)
def test_what_is_converted_is_read_back(name, suffix, tmp_path, capsys):
    out = tmp_path / f"converted.{suffix}"
    assert main(["convert", sample(name), str(out), "seed=3", *WHOLE.get(name, ())]) == 0
    printed = capsys.readouterr().out
    trace = built(name, sample(name), seed=3)
    assert f"{len(trace)} requests" in printed
    size = trace.hash_block_tokens if trace.has_hashes else 16
    assert ("workload.hash_block_tokens=512" in printed) == (size == 512)
    back = File(str(out), size).build(0)
    assert back.arrival_s == pytest.approx(trace.arrival_s, rel=1e-15)
    assert back.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert [back.adapters[i] for i in back.adapter] == [trace.adapters[i] for i in trace.adapter]
    assert list(back.session or ()) == list(trace.session or ())
    assert list(back.block_hashes or ()) == list(trace.block_hashes or ())
    assert not list(tmp_path.glob(".*"))


def test_names_from_a_trace_stay_text(tmp_path, undrawn):
    """They come out as they went in, and no file is called after them."""
    evil = {"arrival_s": 0, "adapter": "../../x", "rank": 8, "prompt_tokens": 1, "output_tokens": 1}
    Path("evil.jsonl").write_text(json.dumps(evil) + "\n")
    before = set(tmp_path.rglob("*"))
    assert main(["convert", "evil.jsonl", "out.csv"]) == 0
    assert main(["info", "evil.jsonl"]) == 0
    assert {path.name for path in set(tmp_path.rglob("*")) - before} == {"out.csv", "evil.jsonl.png"}
    assert File("out.csv").build(0).adapters[0].name == "../../x"
