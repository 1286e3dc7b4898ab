"""`python -m experiments.fidelity` judges the form of vLLM's steps: a law of it is found again, another is not."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.fidelity.__main__ import main
from experiments.fidelity.vllm_steps import COLUMNS, TERMS, design, fit, predicted_ms, read

LAW = np.array([27.0, 12.0, 0.03, 0.45, 0.3, 0.004, 0.03, 8.0, 0.0003, 25.0])
"""Launches, and then the terms: milliseconds."""


def rows() -> list[dict[str, float]]:
    values = ((500, 3500), (0, 900), (8, 32, 128), (4, 8, 30), (32, 384), (6.0, 40.0, 70.0, 150.0, 400.0))
    names = ("requests", "loads", "slots", "distinct", "adapters", "batch")
    table = pd.DataFrame([*product(*values)], columns=names).assign(
        **dict.fromkeys(COLUMNS.keys() - {*names}, 1.0) | {"steps": 5000, "waiting": 200, "scheduling_s": 0.5}
    )
    table["duration_s"] = 5000 * predicted_ms(LAW, design(table)) / 1e3
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def a_file(folder: Path, table: list[dict[str, float]]) -> Path:
    path = folder / "runs.csv"
    lines = [",".join(COLUMNS.values()), *(",".join(str(row[name]) for name in COLUMNS) for row in table)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_law_of_this_form_is_found_again(tmp_path: Path) -> None:
    known = read(a_file(tmp_path, rows()))
    assert fit(known) == pytest.approx(LAW, rel=0.05)
    assert len(LAW) == len(TERMS) + 1


def test_a_law_of_another_form_leaves_an_error(tmp_path: Path) -> None:
    table, out = rows(), tmp_path / "o.json"

    def worst() -> float:
        assert main(["--runs", str(a_file(tmp_path, table)), "--json", str(out)]) == 0
        return json.loads(out.read_text())["errors"]["worst"]

    assert worst() < 0.01
    for row in table:
        row["duration_s"] *= 1 + row["distinct"] / 20 * (row["batch"] > 100)
    assert worst() > 0.05


def test_a_row_without_slots_or_a_file_of_too_few_is_a_mistake(tmp_path: Path, capsys) -> None:
    table = rows()
    table[3]["slots"] = 0
    assert main(["--runs", str(a_file(tmp_path, table))]) == 2
    assert "line 5 has gpu_loras = 0, must be above 0" in capsys.readouterr().err
    assert main(["--runs", str(a_file(tmp_path, rows()[:9]))]) == 2
    assert "has 9 rows, must have 20 at least" in capsys.readouterr().err
