"""Runs cells and writes one JSON line for each: resumable and in parallel; a crash is recorded as a result.

A `Cell` is its key, what to call, and with which arguments. Cells whose key is in the file already are skipped. Only this
process writes: a line is appended whole; one that a crash cut short is run again.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from platform import machine, python_version
from typing import Any

from kitt import journal
from kitt.errors import InvalidInputError
from kitt.runs import Killed, run_each

Line = dict[str, Any]  # key, status, result or error, seconds of clock and processor, versions, time
Report = Callable[[int, int, Line], None]  # cells done, cells in all, the last line
PACKAGE = "kitt-gp"
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "gpytorch", "botorch")  # those that are installed are recorded
MIXED = "The lines read for this table come from"  # how the warning above a table of several commits begins


@dataclass(frozen=True)
class Cell:
    """One measurement: `work(**arguments)` gives its numbers; `key` (JSON) identifies it."""

    key: Mapping[str, Any]
    work: Callable[..., Mapping[str, Any]]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return identity(self.key)


def identity(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True, default=journal.plain)


@lru_cache
def versions() -> dict[str, str]:
    """The versions of KITT and of what its numbers depend on. On another processor, fits may end in another optimum."""
    return {
        **{"kitt" if name == PACKAGE else name: _version(name) for name in (PACKAGE, *PACKAGES) if _version(name)},
        "python": python_version(),
        "machine": machine(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "commit": commit_of(Path(__file__).parent),
    }


def commit_of(folder: Path) -> str:
    """The commit of a checkout of this package, with "-dirty" if files differ from it; empty for any other folder.

    An installed package may lie in the checkout of something else, whose commit says nothing about it.
    """
    project = Path(_git(folder, "rev-parse", "--show-toplevel") or folder) / "pyproject.toml"
    if not project.is_file():
        return ""
    name = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("name")
    return _git(folder, "describe", "--always", "--dirty", "--exclude", "*") if name == PACKAGE else ""


def _git(folder: Path, *arguments: str) -> str:
    """What git prints; nothing if it fails or is not there."""
    try:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    """The name of its model, as Linux knows it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def mixed_commits(lines: Iterable[Line]) -> str:
    """A sentence for a table made from lines of several commits; empty for one commit."""
    counts = Counter(line.get("versions", {}).get("commit") or "an unknown commit" for line in lines)
    listed = ", ".join(f"{commit} ({count} lines)" for commit, count in counts.most_common())
    return f"{MIXED} {len(counts)} commits: {listed}." if len(counts) > 1 else ""


# --- the file --------------------------------------------------------------------------------------------------------


def read(path: Path | str) -> list[Line]:
    """The lines of a file, the last one of every key, without truncated lines; empty if there is no file."""
    by_key: dict[str, Line] = {}
    for line in journal.read(path):
        if isinstance(line, dict) and "key" in line:
            by_key[identity(line["key"])] = line
    return list(by_key.values())


# --- running ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Where to run cells: in this process (`jobs` 0), in that many others, or, with a scheduler, all over a dask cluster."""

    jobs: int = 1
    scheduler: str | None = None  # address of the cluster's scheduler, such as tcp://10.0.0.1:8786
    retry: bool = False  # run failed cells again

    def __post_init__(self) -> None:
        if self.jobs < 0:
            raise InvalidInputError(f"expected a number of jobs of at least 0, got {self.jobs}")


def run(cells: Iterable[Cell], path: Path | str, plan: Plan | None = None, report: Report | None = None) -> list[Line]:
    """Run the cells that the file lacks, append their lines, and return the lines of all cells."""
    plan, wanted = plan or Plan(), {cell.identity: cell for cell in cells}
    if Path(path).is_dir():
        raise InvalidInputError(f"expected a file of JSON lines, got the folder '{path}'")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    lines = {identity(line["key"]): line for line in read(path)}
    done = {key for key in wanted if key in lines and not (plan.retry and lines[key]["status"] != "ok")}
    todo = [cell for key, cell in wanted.items() if key not in done]
    for count, line in enumerate(measured(todo, plan), len(done) + 1):
        journal.append(path, line)
        lines[identity(line["key"])] = line
        if report:
            report(count, len(wanted), line)
    return [lines[key] for key in wanted]


def measured(cells: Sequence[Cell], plan: Plan) -> Iterator[Line]:
    """Lines of the cells, as they come."""
    for i, line in run_each(measure, cells, plan.jobs, plan.scheduler):
        yield _crashed(cells[i], line) if isinstance(line, Killed) else line


def measure(cell: Cell) -> Line:
    """Run one cell; an exception is its result."""
    line: Line = {"key": dict(cell.key)}
    started, cpu = time.perf_counter(), time.process_time()
    try:
        line |= {"status": "ok", "result": dict(cell.work(**cell.arguments))}
        json.dumps(line, allow_nan=False, default=journal.plain)
    except Exception as error:
        last = traceback.format_exception(error)[-4:]
        line.pop("result", None)
        line |= {"status": "failed", "error": f"{type(error).__name__}: {error}", "traceback": "".join(last)}
    return _finished({**line, "cpu_seconds": time.process_time() - cpu}, time.perf_counter() - started)


def _crashed(cell: Cell, killed: Killed) -> Line:
    return _finished({"key": dict(cell.key), "status": "crashed", "error": killed.error}, killed.seconds)


def _finished(line: Line, seconds: float) -> Line:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {**line, "seconds": seconds, "versions": versions(), "time": now}
