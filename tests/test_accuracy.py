"""Errors that README and vLLM's page name are those of the pages that the commands beside them write."""

from __future__ import annotations

import re

from tests.test_examples import HOME

README = (HOME / "README.md").read_text(encoding="utf-8")
WORST_FIRST = (HOME / "docs/fidelity.md").read_text(encoding="utf-8")
CARRIES_OVER = (HOME / "docs/calibrations.md").read_text(encoding="utf-8")
CLAIMS = (HOME / "docs/claims.md").read_text(encoding="utf-8")


def of(page: str, *labels: str) -> list[str]:
    """Return the cells of the one row of a page that begins with these."""
    start = "| " + " | ".join(labels) + " | "
    (row,) = [line for line in page.splitlines() if line.startswith(start)]
    return row.removeprefix(start).removesuffix(" |").split(" | ")


def test_vllms_hours():
    rows, tokens_per_s = of(WORST_FIRST, "vLLM with LoRA: output tokens/s", "`vllm_lora_runs.csv`")[:2]
    itl = of(WORST_FIRST, "vLLM with LoRA: inter-token latency", "`vllm_lora_runs.csv`")[1]
    said = f"{tokens_per_s} of tokens/s, {itl} of inter-token latency"
    assert f"| {said}, medians of {rows} hours |" in README
    beyond = re.search(
        rf"of {rows} predicted rows; beyond 20 % in one of them: (\d+)$", WORST_FIRST, re.MULTILINE
    )
    assert beyond is not None
    assert f"| {said}; {beyond[1]} of {rows} by more than 20 % |" in README
    text = " ".join((HOME / "docs/vllm.md").read_text(encoding="utf-8").split())
    assert f"{tokens_per_s} in tokens per second and {itl} in inter-token latency" in text
    assert f"{rows} measured hours" in text


def test_s_loras_runs():
    throughput = of(WORST_FIRST, "S-LoRA and its baselines: throughput", "`slora_runs.csv`")[1]
    first_token = of(WORST_FIRST, "S-LoRA and its baselines: mean first token", "`slora_runs.csv`")[1]
    assert f"| {throughput} of throughput, {first_token} of first tokens |" in README


def test_dloras_artifact():
    medians = [
        round(float(found))
        for found in re.findall(r"^\| dLoRA's Figure .*? \| (\S+) % \| \S+ % \|$", WORST_FIRST, re.MULTILINE)
    ]
    assert f"| {min(medians)} to {max(medians)} % |" in README


def test_what_was_left_out_of_the_fit():
    step = of(CARRIES_OVER, "host of vLLM", "model llama_3_1_8b", "decode step")[0]
    kernels = of(CARRIES_OVER, "kernels, by roofline", "a GPU", "decode step")[0]
    assert f"{round(float(step.split()[0]))} % of a decode step; another {kernels} if" in README


def test_the_board_of_claims():
    counts = re.search(
        r"^(\d+) claims: (\d+) holds, (\d+) near, (\d+) off, (\d+) \D+, (\d+) \D+$", CLAIMS, re.MULTILINE
    )
    assert counts is not None
    all_, hold, near, off, *other = map(int, counts.groups())
    said = f"{hold} hold, {near} are near, {off} are off, {sum(other)} cannot be judged"
    assert f"| {all_} claims of five papers | {said} |" in README
