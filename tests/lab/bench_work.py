"""What the cells of `test_bench` do: in a file of its own, light to import, so that other processes find it quickly."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kitt.lab.bench.runner import Cell, Plan, run


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


if __name__ == "__main__":
    run(squares(int(sys.argv[2]), 0.1), sys.argv[1], Plan(jobs=0))
