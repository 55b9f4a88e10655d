"""Data sets a second that the simulator draws, for several sizes, against drawing them one by one with scikit-learn.

python -m kitt_lab.bench.simulator [--threads 2] [--seconds 1.5]
"""

import argparse
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from kitt_lab.simulate import DEFAULT_DATA, PAPER_DATA, SimulatorConfig, simulate

ENTRIES = 2**21  # points squared, in a batch


def rate(config: SimulatorConfig, n: int, d: int, seconds: float) -> float:
    generator = torch.Generator().manual_seed(0)
    batch = max(8, min(512, ENTRIES // n**2))
    simulate(config, batch, n, d, generator)
    start, drawn = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        simulate(config, batch, n, d, generator)
        drawn += batch
    return drawn / (time.perf_counter() - start)


def peer_rate(n: int, d: int, seconds: float) -> float:
    """Prior draws of an RBF with its own lengthscales each, by scikit-learn."""
    rng = np.random.default_rng(0)
    start, drawn = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        kernel = ConstantKernel(rng.lognormal()) * RBF(rng.lognormal(size=d))
        GaussianProcessRegressor(kernel).sample_y(rng.uniform(-2.5, 2.5, (n, d)), random_state=drawn)
        drawn += 1
    return drawn / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = Table("N", "D", "one word, a second", "captions and noise, a second", "scikit-learn, RBF only", "ratio")
    for n in (64, 256, 512):
        for d in (1, 4, 16):
            paper, default = (rate(config, n, d, options.seconds) for config in (PAPER_DATA, DEFAULT_DATA))
            peer = peer_rate(n, d, options.seconds)
            table.add_row(str(n), str(d), f"{paper:,.0f}", f"{default:,.0f}", f"{peer:,.0f}", f"{paper / peer:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
