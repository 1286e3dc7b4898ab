"""Trace files by hand, in simlora's own format."""

from pathlib import Path

HEADER = "arrival_s,adapter,rank,prompt_tokens,output_tokens"


def csv(folder: Path, *rows: str, header: str = HEADER, name: str = "trace.csv") -> str:
    """Write a trace of these rows; return its path."""
    path = folder / name
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return str(path)


def workload(folder: Path, *rows: str, header: str = HEADER) -> tuple[str, str]:
    """Write a trace of these rows; return the overrides that read it."""
    return "workload=file", f"workload.path={csv(folder, *rows, header=header)}"
