"""Reading a run's folder."""

import pandas as pd
import pytest

from simlora.core.errors import InputError
from simlora.report.results import REQUEST_COLUMNS
from simlora.results.files import load_results
from tests.report.make_results import make_journal, make_requests, make_timeline, write_results


def test_a_folder_comes_back_as_tables(tmp_path):
    results = load_results(write_results(tmp_path, make_requests(1_000), make_timeline(2, rows=200)))
    assert results.summary["requests"]["submitted"] == len(results.requests) == 1_000
    assert results.requests.columns.tolist() == REQUEST_COLUMNS
    assert results.timeline["replica"].nunique() == 2
    assert results.config.startswith("system:")


def test_a_run_may_have_kept_neither_timeline_nor_config(tmp_path):
    (write_results(tmp_path, make_requests(10)) / "config.yaml").unlink()
    results = load_results(tmp_path)
    assert results.timeline.empty
    assert results.config == ""
    assert [len(table) for table in (results.decisions, results.moves, results.plans)] == [0, 0, 0]


def test_what_was_decided_comes_back_as_it_was(tmp_path):
    journal = make_journal()
    results = load_results(write_results(tmp_path, make_requests(10), journal=journal))
    pd.testing.assert_frame_equal(results.decisions, journal.decisions())
    pd.testing.assert_frame_equal(results.moves, journal.moves())
    pd.testing.assert_frame_equal(results.plans, journal.plans())


@pytest.mark.parametrize("name", ["summary.json", "requests.parquet"])
def test_a_folder_without_results_is_named(tmp_path, name):
    (write_results(tmp_path, make_requests(10)) / name).unlink()
    with pytest.raises(InputError, match=f"is not the folder of a run: it has no {name}"):
        load_results(tmp_path)
