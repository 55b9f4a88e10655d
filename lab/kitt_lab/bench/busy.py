"""A caption and two fits by one thread, as `kitt.threads` says, and by all: alone, and while every core has other work.

python -m kitt_lab.bench.busy
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np

from kitt.network.caption import caption
from kitt_lab.fits import fit_all


def seconds(work: Callable[[], object], repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=400)
    jobs: dict[str, tuple[Callable[[], object], int]] = {
        "a caption": (lambda: caption(X, y), 10),
        "two fits": (lambda: fit_all(["RBF", "Matern52*Periodic"], (X, y)), 1),
    }
    for work, _ in jobs.values():
        work()
    for state, count in (("quiet", 0), ("busy", os.cpu_count() or 1)):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            for name, (work, repeats) in jobs.items():
                one = seconds(work, repeats)
                with (
                    patch("kitt.network.caption.threads_for", nullcontext),
                    patch("kitt.fitting.optimise.threads_for", nullcontext),
                ):
                    every = seconds(work, repeats)
                print(f"{state}: {name}, {one:.2f} s by one thread, {every:.2f} s by all ({every / one:.1f} times)")
        finally:
            for other in others:
                other.kill()


if __name__ == "__main__":
    main()
