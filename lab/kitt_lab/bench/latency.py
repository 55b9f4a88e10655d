"""Wall-clock time of captioning, with data in memory and weights loaded, after a warm-up; and time of a whole process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kitt.network.caption import HEADS, caption
from kitt.network.checkpoint import load
from kitt.table.scaling import FloatArray
from kitt_lab.bench.datasets import Source
from kitt_lab.bench.methods import fingerprint
from kitt_lab.bench.runner import Cell

LARGE = (1_000_000, 20)  # rows and columns


def latency_cells(tables: Iterable[Source], models: Sequence[str], repeats: int = 10) -> list[Cell]:
    """Both heads on every table at its full size and on a million rows; then the process and the import."""
    cells = []
    states = {model: {"model": model, "network": fingerprint(model)} for model in models}
    for model in models:
        for head in HEADS:
            key = {"bench": "latency", **states[model], "head": head, "repeats": repeats}
            arguments = {"model": model, "head": head, "repeats": repeats}
            cells += [Cell({**key, "table": t.name}, time_table, {**arguments, "table": t}) for t in tables]
            cells.append(Cell({**key, "table": "million"}, time_large, arguments))
    key = {"bench": "latency", "table": "process", "repeats": repeats, **states[models[0]]}
    cells.append(Cell(key, time_process, {"repeats": repeats, "model": models[0]}))
    cells.append(Cell({"bench": "latency", "table": "import", "repeats": repeats}, time_import, {"repeats": repeats}))
    return cells


def time_table(table: Source, model: str, head: str, repeats: int) -> dict[str, Any]:
    data = table.load()
    return time_caption(data.X, data.y, model, head, repeats)


def time_large(model: str, head: str, repeats: int) -> dict[str, Any]:
    n, d = LARGE
    X = np.random.default_rng(0).standard_normal((n, d))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    return time_caption(X, y, model, head, repeats)


def time_caption(X: FloatArray, y: FloatArray, model: str, head: str, repeats: int) -> dict[str, Any]:
    network = load(model)
    seconds = _timed(lambda: caption(X, y, network=network, head=head), repeats)
    return {"n": len(X), "d": X.shape[1], "threads": torch.get_num_threads(), **seconds}


def time_process(model: str, repeats: int) -> dict[str, Any]:
    """Time of a new process that runs `kitt suggest` on a small file."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        rows = np.column_stack([X, np.sin(2 * X[:, 0]) + X[:, 1]])
        np.savetxt(path, rows, delimiter=",", header="a,b,c,d,y", comments="")
        command = [sys.executable, "-m", "kitt.app.cli", "suggest", str(path), "--json", "--network", model]
        return _timed(lambda: subprocess.run(command, check=True, capture_output=True), min(repeats, 5))


def time_import(repeats: int) -> dict[str, Any]:
    """`import kitt` in a new process, beyond what starting Python takes."""

    def run(code: str) -> dict[str, Any]:
        return _timed(lambda: subprocess.run([sys.executable, "-c", code], check=True), min(repeats, 5))

    empty, full = run("pass"), run("import kitt")
    beyond = {name: full[name] - empty["median"] for name in ("median", "mean", "min")}
    return {**full, **beyond, "python": empty["median"]}


def _timed(work: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Seconds of each repetition after a warm-up."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    values = np.array(seconds)
    spread = {"median": np.median(values), "mean": values.mean(), "std": values.std(), "min": values.min()}
    return {name: float(value) for name, value in spread.items()}
