"""The container and the Kubernetes example of simlora-serve: held to a schema, and to the server that they start."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from simlora.api.preparing import composed, ready
from simlora.config.engine_flags import ENGINES, command, deployment
from tests.serving.conftest import get, live

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.31"
SETTINGS = {"replica.max_loras": 16, "replica.max_lora_rank": 16, "replica.max_num_seqs": 256}


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, with their continued lines."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


@pytest.fixture
def trees() -> dict[str, dict[str, Any]]:
    """Return the example's objects by their kind."""
    return {tree["kind"]: tree for tree in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def test_the_example_is_as_kubernetes_schema_has_it(trees: dict[str, dict[str, Any]]) -> None:
    assert [*trees] == ["Deployment", "Service"]
    for tree in trees.values():
        kubernetes_validate.validate(tree, KUBERNETES, strict=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_so_is_the_deployment_that_a_plan_writes(engine: str) -> None:
    words = shlex.split(command(engine, "llama_3_1_8b", SETTINGS))
    tree = deployment(engine, "llama_3_1_8b", words, 3, 2, "ranks-up-to-8")
    kubernetes_validate.validate(tree, KUBERNETES, strict=True)


def test_the_service_and_the_scraper_find_the_pods(trees: dict[str, dict[str, Any]]) -> None:
    pod, service = trees["Deployment"]["spec"]["template"], trees["Service"]["spec"]
    (container,) = pod["spec"]["containers"]
    (port,) = container["ports"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert trees["Deployment"]["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert service["ports"][0]["targetPort"] == port["name"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    assert ("EXPOSE", str(port["containerPort"])) in instructions()


def test_the_server_answers_where_the_pods_are_probed_and_scraped(trees: dict[str, dict[str, Any]]) -> None:
    pod = trees["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    paths = [container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")]
    (front,) = live().fronts
    for path in (*paths, pod["metadata"]["annotations"]["prometheus.io/path"]):
        assert get(front, path).status_code == 200


def test_what_the_pods_and_the_image_serve_can_be_composed(trees: dict[str, dict[str, Any]]) -> None:
    (container,) = trees["Deployment"]["spec"]["template"]["spec"]["containers"]
    of_image = json.loads(dict(instructions())["CMD"])
    assert container["args"][0] == "--per-replica"
    for overrides in (container["args"][1:], of_image):
        assert ready(*composed(overrides)).scenario.trace.adapters


def test_the_image_is_built_from_files_that_are_there_and_starts_a_command_of_ours() -> None:
    for name, words in instructions():
        if name == "COPY" and not words.startswith("--from"):
            *sources, _ = words.split()
            assert all((ROOT / source).exists() for source in sources), words
    script, *options = json.loads(dict(instructions())["ENTRYPOINT"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert script in project["scripts"]
    assert options == ["--host", "0.0.0.0"]
    assert "serve" in project["optional-dependencies"]
