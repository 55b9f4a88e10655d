"""A table and a network that the tests of several baselines share."""

import numpy as np
import torch

from kitt.table.dataset import Dataset
from kitt_lab.baselines import ahgp


def network() -> ahgp.HyperparameterNetwork:
    """A small AHGP network with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ahgp.HyperparameterNetwork(ahgp.NetworkConfig(width=16, blocks=1)).eval()


def table(n: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> Dataset:
    random = np.random.default_rng(seed)
    X = random.uniform(-2, 2, (n, 3))
    y = 5 * np.sin(1.5 * X[:, 0]) + 3 * X[:, 1] + 0.3 * random.standard_normal(n)
    return Dataset.from_arrays(scale * X + shift, scale * y + shift)
