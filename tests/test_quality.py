"""How good the default model is, on tables whose truth is known: better than the kernel that users have today, and honest.

Margins are about half of what was measured. A table where that kernel is the right one is there to be lost nothing on.
"""

from collections.abc import Callable

import numpy as np
import pytest

import kitt

ROWS, SEEDS = 160, (0, 1)
Rows = tuple[np.ndarray, np.ndarray]


def skewed(rng: np.random.Generator, n: int) -> Rows:
    """Positive, skewed, with noise that grows."""
    X = rng.uniform(-2, 2, (n, 3))
    return X, 100 * np.exp(np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.25 * np.exp(0.4 * X[:, 0]) * rng.normal(size=n))


def growing(rng: np.random.Generator, n: int) -> Rows:
    """Noise that grows along a column of which the function knows nothing."""
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.25 * np.exp(0.8 * X[:, 2]) * rng.normal(size=n)


def heavy(rng: np.random.Generator, n: int) -> Rows:
    """Outliers."""
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_t(2, size=n)


def smooth(rng: np.random.Generator, n: int) -> Rows:
    """Two of five columns matter."""
    X = rng.uniform(-2, 2, (n, 5))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)


def series(rng: np.random.Generator, n: int) -> Rows:
    """Trend and season, with gaps to be filled; `tests/forecast` goes on beyond the end."""
    x = rng.permutation(n).astype(np.float64)
    season = np.sin(2 * np.pi * x / 12) + 0.5 * np.cos(4 * np.pi * x / 12)
    return x[:, None], 0.02 * x + season + 0.2 * rng.normal(size=n)


def measured(make: Callable[..., Rows], new: int) -> tuple[float, float, float]:
    """NLPD of the default model and of a plain RBF on rows after those fitted to, and the share in 90 % intervals."""
    scores = []
    for seed in SEEDS:
        X, y = make(np.random.default_rng(seed), ROWS + new)
        data, X, y = kitt.Dataset.from_arrays(X[:ROWS], y[:ROWS]), X[ROWS:], y[ROWS:]
        model = kitt.suggest(data, fit=True).mixture
        plain = kitt.fit("RBF", data, prior="botorch", random_state=0)
        low, high = model.quantiles(X, [0.05, 0.95]).T
        inside = ((y > low) & (y < high)).mean()
        scores.append((-model.log_density(X, y).mean(), -plain.log_density(X, y).mean(), inside))
    ours, theirs, inside = np.mean(scores, axis=0)
    return ours, theirs, inside


@pytest.mark.parametrize(
    ("make", "new", "gain"),
    [(skewed, 600, 0.6), (growing, 600, 0.3), (heavy, 600, 0.12), (series, 48, 0.2), (smooth, 600, -0.03)],
)
def test_the_default_model_is_better_than_a_plain_kernel_and_honest(make: Callable, new: int, gain: float) -> None:
    ours, theirs, inside = measured(make, new)
    assert theirs - ours > gain
    assert 0.8 < inside < 0.97
    if make is smooth:
        entropy = 0.5 * np.log(2 * np.pi * np.e * 0.1**2)  # of the noise: nobody predicts better
        assert entropy < ours < entropy + 0.2
