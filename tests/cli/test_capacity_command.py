"""simlora-capacity, as a user types it."""

import json
from pathlib import Path

from simlora.cli.capacity import main

SMALL = (
    "workload=synthetic",
    "workload.arrivals.rate_rps=4",
    "workload.requests=200",
    "workload.duration_s=null",
    "--seeds=1",
    "--jobs=1",
    "--precision=0.1",
    "--longest=1",
)


def test_it_shows_a_rate_and_says_where_the_rest_is(capsys):
    assert main(SMALL) == 0
    out = capsys.readouterr().out
    said = json.loads(Path("outputs/capacity/capacity.json").read_text())
    assert out.startswith("slora: llama_7b on a10g, steps of slora, SLO TTFT < 6 s, calibration")
    assert (
        f"\n{said['value']:.4g} requests/s, one seed\nwithin 95 % of the requests within every slo.*" in out
    )
    assert "Results: outputs/capacity/capacity.png, capacity.json, runs.parquet" in out


def test_options_and_overrides_may_be_mixed(tmp_path, capsys):
    assert main(["--limit", "ttft_s.p95=3", *SMALL, "--replicas", "cluster.replicas=2", "--out=here"]) == 0
    assert "replicas are enough with every seed\nwithin ttft_s.p95 < 3" in capsys.readouterr().out
    assert (tmp_path / "here" / "capacity.png").stat().st_size > 10_000


def test_several_systems_are_searched_side_by_side(tmp_path, capsys):
    assert main([*SMALL, "system=slora,slora_lcfs", "slo.ttft_s=2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("slora; slora_lcfs: llama_7b on a10g, steps of slora, SLO TTFT < 2 s")
    assert [line.split()[0] for line in out[2:4]] == ["slora", "slora_lcfs"]
    said = json.loads((tmp_path / "outputs/capacity/capacities.json").read_text())
    assert [(one["name"], one["folder"]) for one in said] == [("slora", "0"), ("slora_lcfs", "1")]
    alone = json.loads((tmp_path / "outputs/capacity/1/capacity.json").read_text())
    assert {"name": "slora_lcfs", "folder": "1", **alone} == said[1]
    assert alone["side"]["gpu"] == "a10g"
    assert (tmp_path / "outputs/capacity/capacities.png").stat().st_size > 5_000
