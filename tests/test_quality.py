"""One guard of the whole pipeline: on rows that were left out, the model is ahead of a plain RBF kernel, by a margin."""

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

import kitt

Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # X, y and whether a row is for training


def seasons() -> Table:
    """Twelve noisy years of a monthly series with trend and season; the last three are left out."""
    t = np.arange(144) / 12
    y = 0.4 * t + np.sin(2 * np.pi * t) + 0.15 * np.random.default_rng(0).normal(size=144)
    return t[:, None], y, t < 9


def directions() -> Table:
    """A wave along a tilted direction, and a line."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (160, 3))
    y = np.cos(X @ [3.0, 2.0, -2.0]) + X[:, 0] + 0.1 * rng.normal(size=160)
    return X, y, np.arange(160) < 110


def friedman() -> Table:
    """Friedman's first function: five of ten columns matter, two of them linearly."""
    X, y = make_friedman1(200, noise=0.5, random_state=0)
    return X, y, np.arange(200) < 100


def noises() -> Table:
    """A curve whose noise grows with the input."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 4, 250)
    return x[:, None], np.sin(x) + 0.25 * x * rng.normal(size=250), np.arange(250) < 150


@pytest.mark.parametrize(
    ("table", "effort", "margin"),
    [
        (seasons, "normal", 1.2),
        (directions, "thorough", 0.7),  # at normal effort no word is added to so few rows, and the gain is 0.04
        (friedman, "normal", 0.04),
        (noises, "normal", 0.25),
    ],
)
def test_left_out_rows_are_predicted_better_than_by_a_plain_rbf_kernel(
    table: Callable[[], Table], effort: str, margin: float
) -> None:
    """Margins are in nats per row, about half of the gain when they were written down."""
    X, y, train = table()
    model = kitt.suggest(X[train], y[train], fit=True, effort=effort, random_state=0).fitted
    mean, variance = kitt.fit("RBF", (X[train], y[train]), random_state=0).predict(X[~train])
    plain = -0.5 * ((y[~train] - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    gain = (model.log_density(X[~train], y[~train]) - plain).mean()
    assert gain > margin
