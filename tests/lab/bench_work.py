"""Cells for the tests of the benchmark, in a file of its own that other processes import quickly."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kitt_lab.bench.runner import Cell, Plan, run


def square(x: int, seconds: float = 0.0) -> dict[str, Any]:
    time.sleep(seconds)
    return {"square": x * x}


def refuse(x: int) -> dict[str, Any]:
    raise ValueError(f"no square of {x}")


def die(x: int) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def die_once(x: int, marker: str) -> dict[str, Any]:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(x)


def squares(count: int, seconds: float = 0.0) -> list[Cell]:
    return [Cell({"x": x}, square, {"x": x, "seconds": seconds}) for x in range(count)]


def wait_for_ever() -> dict[str, Any]:
    signal.pause()
    return {}


def write_table(path: Path, rows: int = 40, seed: int = 0) -> Path:
    import numpy as np

    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(rows)
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
    return path


if __name__ == "__main__":  # two cells, and a third that only a signal ends
    run([*squares(2), Cell({"x": 2}, wait_for_ever, {})], sys.argv[1], Plan(jobs=0))
