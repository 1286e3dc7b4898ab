"""The catalogue of public traces: every entry is whole, every sample readable, every reader refuses another file."""

import functools
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from simlora.api.preparing import composed
from simlora.config.composing import choices
from simlora.config.making import make
from simlora.core.errors import InputError
from simlora.workload import catalogue
from simlora.workload.catalogue import DataFile, entry, format_of, known_file, names, sha256, workload_of

TRACES = Path(os.environ.get("SIMLORA_TRACE_DIR", "../shared/traces"))
REQUESTS = {
    "azure_functions_2019": 21,
    "azure_functions_2021": 6,
    "azure_llm_2023": 5,
    "azure_llm_2024": 5,
    "burstgpt": 5,
    "lmsys": 3,
    "mooncake": 4,
    "qwen_bailian": 5,
    "sharegpt": 3,
}
"""Of the samples."""
NAMES = tuple(REQUESTS)
WHOLE = {"azure_functions_2019": ["workload.rate_rps=null", "workload.duration_s=null"]}
every_name = pytest.mark.parametrize("name", NAMES)


@functools.cache
def configuration(*overrides):
    return composed(overrides)[0]


def built(name, path, *overrides, seed=0):
    """Return what the workload of an entry makes of a file."""
    config = configuration(f"workload={workload_of(name)}", *WHOLE.get(name, ()), *overrides)
    OmegaConf.update(config, "workload.path", str(path))
    tree = {"workload": OmegaConf.to_container(config.workload, resolve=True)}
    return make(tree, "workload", object).build(seed)


def test_these_are_in_it():
    assert names() == sorted(NAMES)


@every_name
def test_an_entry_is_whole(name):
    found = entry(name)
    texts = (found.title, found.origin, found.licence, found.citation, found.get, found.adapters)
    assert all(len(text) > 3 and "\n" not in text for text in (*texts, found.schema_source, found.uncertain))
    assert found.home.startswith(("https://github.com/", "https://huggingface.co/datasets/"))
    assert found.workload in choices("workload")
    assert "SIMLORA_TRACE_DIR" in found.get
    assert found.columns
    assert all(column.unit and column.holds for column in found.columns)
    assert found.files
    for file in found.files:
        assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.rows is None or file.rows > 0
        assert file.size_bytes is None or file.size_bytes > 0
        assert file.known


@every_name
def test_a_sample_is_known_by_its_columns_and_read_the_same_twice(name):
    sample = entry(name).sample_path
    assert format_of(str(sample)) == name
    assert sample.stat().st_size < 50_000
    one, other = built(name, sample), built(name, sample)
    assert len(one) == REQUESTS[name]
    for column in ("arrival_s", "adapter", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(one, column), getattr(other, column))
    drawn = (one.adapters, one.session, one.block_hashes)
    assert drawn == (other.adapters, other.session, other.block_hashes)
    assert str(sample) in one.source


@every_name
def test_the_seed_draws_what_the_trace_does_not_say(name):
    functions = name.startswith("azure_functions")  # whose functions are the adapters
    sample = entry(name).sample_path
    seeds = range(2 if functions else 5)
    drawn = {tuple(np.bincount(built(name, sample, seed=seed).adapter).tolist()) for seed in seeds}
    assert (len(drawn) > 1) == (not functions)


@every_name
def test_a_file_of_another_trace_is_refused_in_one_sentence(name, tmp_path):
    suffix = entry(name).sample_path.suffix
    other = tmp_path / f"other{suffix if suffix in ('.csv', '.txt') else '.csv'}"
    other.write_text("colour,weight\nred,5\n")
    with pytest.raises(InputError) as error:
        built(name, other)
    (sentence,) = str(error.value).splitlines()
    assert sentence.startswith(str(other))
    assert "colour" in sentence or "has no column" in sentence


@every_name
def test_a_missing_file_says_where_to_get_it(name, tmp_path):
    with pytest.raises(InputError, match=r"gone\.csv does not exist; get .* and set SIMLORA_TRACE_DIR"):
        built(name, tmp_path / "gone.csv")
    with pytest.raises(InputError, match=r"workload.path is not set, must be .* as published"):
        built(name, "")


@every_name
def test_a_few_rows_of_a_large_file_are_read_as_its_beginning(name):
    sample = entry(name).sample_path
    rows = 1 if name in ("lmsys", "sharegpt") else 2
    some, whole = built(name, sample, f"workload.rows={rows}"), built(name, sample)
    assert 0 < len(some) < len(whole)
    with pytest.raises(InputError, match=r"workload.rows is 0, must be a whole number of rows, at least 1"):
        built(name, sample, "workload.rows=0")


def test_an_entry_that_lacks_something_is_refused(tmp_path, monkeypatch):
    (tmp_path / "half.yaml").write_text("title: Half\ncolumns: []\nfiles: []\n")
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path)
    with pytest.raises(InputError, match=r"half.yaml must have the keys adapters, citation, columns, "):
        entry("half")


# Formats -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "row", "name"),
    [
        ("arrival_s,adapter,rank,prompt_tokens,output_tokens,session", "0,a,8,1,1,s", "file"),
        ("input_tokens,output_tokens", "1,1", "sharegpt"),
        ("arrival_s,input_tokens,output_tokens", "1,1,1", "sharegpt"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46,1,2024", "azure_llm_2023"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 00:00:00,1,2024", "azure_llm_2024"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2031-1-1,1,2024", "azure_llm_2023"),
    ],
)
def test_a_format_is_known_by_its_columns_and_azure_s_year_by_the_first_row(columns, row, name, tmp_path):
    (tmp_path / "t.csv").write_text(f"{columns}\n{row}\n")
    assert format_of(str(tmp_path / "t.csv")) == name


def test_lmsys_s_parquet_is_known_without_reading_it(tmp_path):
    cells = {"conversation_id": ["a"], "model": ["b"], "conversation": [[]], "language": ["c"]}
    pd.DataFrame(cells).to_parquet(tmp_path / "train.parquet")
    assert format_of(str(tmp_path / "train.parquet")) == "lmsys"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("x.csv", "when,how_long\n1,2\n", "has the columns when, how_long, which are those of no trace"),
        ("x.csv", ",".join(f"c{i}" for i in range(20)), "c0, c1, c2, c3, c4, c5, c6, c7, ..., which"),
        ("x.parquet", "no parquet", "is not a readable Parquet file"),
        ("x.dat", "a,b\n", r"has the suffix '.dat', must be one of .csv, .parquet, .jsonl, .txt, .json"),
        ("x.csv", "", "is empty"),
        *((f"gone.{suffix}", None, "does not exist") for suffix in ("csv", "json", "parquet", "dat")),
    ],
)
def test_a_file_of_no_known_format_is_refused(name, text, sentence, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"{name} {sentence}" if text is None else sentence):
        format_of(str(tmp_path / name))


# Files as published --------------------------------------------------------------------------


ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    "content, size_bytes, checksum, known",
    [(b"abc", 3, ABC, True), (b"abd", 3, ABC, False), (b"abcd", 3, ABC, False), (b"abc", None, None, False)],
)
def test_a_file_is_known_byte_for_byte(content, size_bytes, checksum, known, tmp_path):
    file = tmp_path / "data.csv"
    file.write_bytes(content)
    assert (sha256(file) == ABC) == (content == b"abc")
    whole, published = entry("burstgpt"), DataFile("data.csv", 1, size_bytes, checksum, "by us")
    object.__setattr__(whole, "files", (published,))
    assert known_file(whole, file) == (published if known else None)


@pytest.mark.parametrize(
    ("name", "file", "rows"),
    [
        ("azure_llm_2023", "azure_llm_2023_conv.csv", 19366),
        ("mooncake", "mooncake_conversation.jsonl", 12031),
    ],
)
def test_the_published_files_are_those_of_the_catalogue(name, file, rows):
    path = TRACES / file
    if not path.exists():
        pytest.skip(f"{path} is not here; set SIMLORA_TRACE_DIR")
    known = known_file(entry(name), path)
    assert (known.rows, known.size_bytes) == (rows, path.stat().st_size)
    assert format_of(str(path)) == name
    assert len(built(name, path)) == rows


def test_the_lengths_of_share_gpt_are_read_with_their_arrivals():
    path = TRACES / "sharegpt_lengths.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here; set SIMLORA_TRACE_DIR")
    trace = built("sharegpt", path, "workload.arrivals=null", "workload.context_tokens=null")
    table = pd.read_csv(path)
    assert trace.arrival_s.tolist() == sorted(table["arrival_s"])
    assert sorted(trace.prompt_tokens.tolist()) == sorted(table["input_tokens"])
