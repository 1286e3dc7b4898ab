"""The pages of the site that no hand writes: home, tutorials, and the reference of keys, choices, commands and API.

MkDocs runs this while it builds. Each page has one source: README.md, the executed notebooks, the YAML files of
simlora/conf with their comments, the commands' own --help, and docstrings.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mkdocs_gen_files
import nbformat
from nbconvert import MarkdownExporter

from simlora.config.engine_flags import ENGINES, PREFIX_CACHING

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "simlora" / "conf"
COMMANDS = {
    "simlora": "simlora",
    "simlora-sweep": "simlora.cli.sweep",
    "simlora-capacity": "simlora.cli.capacity",
    "simlora-plan": "simlora.cli.plan",
    "simlora-validate": "simlora.cli.validate",
    "simlora-report": "simlora.cli.report",
    "simlora-trace": "simlora.cli.trace",
    "simlora-serve": "simlora.cli.serve",
    "simlora-record": "simlora.cli.record",
    "simlora-check": "simlora.cli.check",
    "simlora-calibrate": "simlora.cli.calibrate",
    "simlora-profile": "profiler.command",
}
ROOTS = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
FUNCTIONS = {
    "Run": ("simlora.api.simulate", "simlora.api.Result"),
    "Sweep": ("simlora.sweeps.sweep", "simlora.sweeps.Sweep"),
    "Search": ("simlora.sweeps.capacity", "simlora.sweeps.Capacity", "simlora.sweeps.capacities"),
    "Plan": ("simlora.planning.plan", "simlora.planning.Plan"),
    "Validate": ("simlora.validation.validate", "simlora.validation.Validation"),
}
SLOTS = {
    "Scheduler": ("simlora.policies.scheduling.base", "simlora.policies.views.ReplicaView"),
    "Loader": ("simlora.policies.loading.base",),
    "Eviction": ("simlora.policies.eviction.base",),
    "Router": ("simlora.policies.routing.base", "simlora.policies.views.ClusterView"),
    "Placement": ("simlora.policies.placement.base",),
    "Migration": ("simlora.policies.migration.base",),
    "Autoscaler": ("simlora.policies.scaling.base",),
    "Kernel": ("simlora.latency.kernels",),
}
STYLE = """\
.md-grid { max-width: 78rem; }
td code { white-space: nowrap; }
.md-typeset table:not([class]) { font-size: .66rem; }
"""
KEY = re.compile(r"^(?P<indent> *)(?P<name>[\w/]+):(?: +(?P<value>[^#]*?))?(?: +# (?P<said>.*))?$")
CONTINUED = re.compile(r"^ +# (?P<said>.*)$")


@dataclass
class Key:
    """A key of a YAML file: its name from the root on, its default, and what its comment says."""

    name: str
    default: str
    said: list[str] = field(default_factory=list)


def keys(path: Path, prefix: str = "") -> tuple[str, list[Key]]:
    """Return what a file says of itself in the comments before its first key, and its keys with their comments."""
    above: list[str] = []
    found: list[Key] = []
    places: list[tuple[int, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") and not found:
            above.append(line.removeprefix("# "))
        elif (more := CONTINUED.match(line)) and found:
            found[-1].said.append(more["said"])
        elif key := KEY.match(line):
            depth = len(key["indent"])
            places = [place for place in places if place[0] < depth]
            name = ".".join([*(name for _, name in places), key["name"]])
            places.append((depth, key["name"]))
            found.append(
                Key(f"{prefix}{name}", (key["value"] or "").strip(), [key["said"]] if key["said"] else [])
            )
    return " ".join(above), [key for key in found if not key.name.startswith(("defaults", "hydra"))]


def flags() -> dict[str, str]:
    """Return vLLM's flag of each key that it has one for."""
    vllm = ENGINES["vllm"]
    return dict(vllm.flags) | {PREFIX_CACHING: vllm.prefix_caching[True][0]}


def table(of: list[Key]) -> Iterator[str]:
    """Yield a table of keys; those that only hold others are left out."""
    known = {name: flag for name, flag in flags().items() if name in {key.name for key in of}}
    yield f"| key | default | meaning |{' vLLM: |' if known else ''}"
    yield f"|---|---|---|{'---|' if known else ''}"
    for key in of:
        if key.default or key.said:
            default = "must be set" if key.default == "???" else f"`{key.default}`" if key.default else ""
            flag = f" `{known[key.name]}` |" if key.name in known else " |" if known else ""
            yield f"| `{key.name}` | {default} | {' '.join(key.said)} |{flag}"


def keys_page() -> Iterator[str]:
    """Yield the page of all keys that every system has."""
    yield "# Keys\n"
    yield (
        "Every key of `simlora/conf/config.yaml`, as `simlora key=value` sets it. What a choice adds (`scheduler`, "
        "`workload`, …) stands under [Choices](choices.md). Times are in seconds, sizes in bytes, as the names say.\n"
    )
    _, found = keys(CONF / "config.yaml")
    sections: dict[str, list[Key]] = {}
    for key in found:
        sections.setdefault(key.name.partition(".")[0] if "." in key.name else "", []).append(key)
    for name in [
        name for name in dict.fromkeys(key.name.partition(".")[0] for key in found) if name in sections
    ]:
        sections[""] = [key for key in sections.get("", []) if key.name != name]
        yield f"\n## `{name}`\n"
        yield from table([key for key in found if key.name == name and key.said] + sections[name])
    yield "\n## The run\n"
    yield from table(sections[""])


def choices_page() -> Iterator[str]:
    """Yield the page of all choices of every group."""
    yield "# Choices\n"
    yield "`simlora group=choice` takes one of these; a choice's keys are set as `group.key=value`.\n"
    for folder in sorted(path for path in CONF.rglob("*") if path.is_dir()):
        group = folder.relative_to(CONF).as_posix()
        yield f"\n## `{group}`\n"
        for path in sorted(folder.glob("*.yaml")):
            above, found = keys(path, f"{group.replace('/', '.')}.")
            own = [key for key in found if not key.name.endswith("_target_")]
            yield f"\n### `{group}={path.stem}`\n"
            yield f"{above}\n"
            if own and group not in ("system", "gpu", "model"):
                yield from table(own)


def commands_page() -> Iterator[str]:
    """Yield the page of every command's --help."""
    yield "# Commands\n"
    for name, module in COMMANDS.items():
        command = [sys.executable, "-m", module, "--help"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        yield f"\n## {name}\n\n```text\n{ran.stdout.rstrip()}\n```\n"


def python_page() -> Iterator[str]:
    """Yield the page of the functions that `import simlora` has."""
    yield "# Python\n"
    yield "`import simlora` has these; what a command does, one of them does.\n"
    for title, names in FUNCTIONS.items():
        yield f"\n## {title}\n"
        for name in names:
            yield f"\n::: {name}\n"


def policies_page() -> Iterator[str]:
    """Yield the page of the slots: what each is asked, and what its view shows."""
    yield "# Policies\n"
    yield "A policy is a class below the base class of its slot ([how to write one](../extending.md)).\n"
    for title, modules in SLOTS.items():
        yield f"\n## {title}\n"
        for name in modules:
            yield f"\n::: {name}\n    options:\n      show_root_toc_entry: false\n"


def from_root(name: str) -> str:
    """Return a page of the repository's root with its links as they are from here."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"\]\(notebooks/(\w+)\.ipynb\)", r"](tutorials/\1.md)", text)
    return re.sub(r"\[notebooks/\]\(notebooks\)", "[tutorials](tutorials/first_run.md)", text)


def tutorials() -> None:
    """Write the notebooks as they were executed, with their pictures."""
    exporter = MarkdownExporter()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, resources = exporter.from_notebook_node(nbformat.read(path, as_version=4))
        for name, picture in resources["outputs"].items():
            with mkdocs_gen_files.open(f"tutorials/{path.stem}/{name}", "wb") as file:
                file.write(picture)
            text = text.replace(f"({name})", f"({path.stem}/{name})")
        text = re.sub(r"\]\(\.\./docs/", "](../", text)
        text = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text)
        with mkdocs_gen_files.open(f"tutorials/{path.stem}.md", "w") as page:
            page.write(text)


with mkdocs_gen_files.open("reference/site.css", "w") as page:
    page.write(STYLE)
for name, source in ROOTS.items():
    with mkdocs_gen_files.open(name, "w") as page:
        page.write(from_root(source))
for name, lines in {
    "keys": keys_page,
    "choices": choices_page,
    "commands": commands_page,
    "python": python_page,
    "policies": policies_page,
}.items():
    with mkdocs_gen_files.open(f"reference/{name}.md", "w") as page:
        page.write("\n".join(lines()) + "\n")
tutorials()
