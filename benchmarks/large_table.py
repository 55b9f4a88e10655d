"""A table of 100,000 rows and 10 columns: CPU seconds and peak memory of `kitt fit` and `kitt predict` on one thread."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "kitt.cli", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"kitt {arguments[0]} failed")
    return f"kitt {arguments[0]}: {usage.ru_utime + usage.ru_stime:.0f} CPU s, {usage.ru_maxrss / 2**20:.2f} GB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 10))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.abs(X[:, 3]) + 0.1 * rng.normal(size=rows)
    with tempfile.TemporaryDirectory() as folder:
        table, model, out = (str(Path(folder) / name) for name in ("table.csv", "model.json", "out.csv"))
        pd.DataFrame(X, columns=[f"x{i}" for i in range(10)]).assign(y=y).to_csv(table, index=False)
        print(run("fit", table, "--target", "y", "-o", model))
        print(run("predict", model, table, "-o", out))


if __name__ == "__main__":
    main()
