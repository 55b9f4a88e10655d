"""The functions of sets of columns are projections of the posterior, which are computed here on a full grid."""

from itertools import combinations, product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from kitt.kernels.effects import Effects
from kitt.kernels.exact import ExactPosterior
from kitt.kernels.grammar import STATIONARY, Arrangement, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.posterior import Posterior
from kitt.kernels.sparse import SparsePosterior

N, D, R = 20, 3, 4
ARRANGED = [f"{p.value}({a.value})" for p in STATIONARY for a in Arrangement if a is not Arrangement.JOINT]
JOINT = [
    "RBF",
    "Linear*Linear + Periodic*RBF",
    "Cosine*Linear + Cosine*RBF",
    "Linear + Cosine + Periodic + White",
    "Matern32(x2)*Linear + Matern12(x1) + RBF(x1, x3)*Cosine",
    "RBF(pairs) + Linear*Periodic(x2) + Linear*White",
]
SETS = [own for size in range(D + 1) for own in combinations(range(D), size)]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def posterior_of(expression: str, sparse: bool = False) -> Posterior:
    kernel = Kernel(parse(expression), D)
    theta, X, y = 0.4 * randn(kernel.size, seed=5), randn(N, D, seed=1), randn(N, seed=2)
    if sparse:
        return SparsePosterior.fit(kernel, theta, X, y, X[: N // 2])
    return ExactPosterior.fit(kernel, theta, X, y)


def projection(columns: tuple[int, ...]) -> Tensor:
    """P_T on functions of the grid of all combinations of R values of D columns, (R^D, R^D)."""
    mean, one = torch.full((R, R), 1 / R, dtype=torch.float64), torch.eye(R, dtype=torch.float64)
    P = torch.ones(1, 1, dtype=torch.float64)
    for d in range(D):
        P = torch.kron(P, one - mean if d in columns else mean)
    return P


@pytest.mark.parametrize("expression", ARRANGED + JOINT)
def test_they_are_the_projections_of_the_posterior(expression: str) -> None:
    posterior, rows = posterior_of(expression), randn(R, D, seed=3)
    grid = torch.stack([rows[list(places), range(D)] for places in product(range(R), repeat=D)])
    mean, covariance = posterior.predict(grid)[0], posterior.covariance(grid, noisy=False)
    effects = Effects(posterior, rows)
    assert effects.inseparable == ()
    for columns in SETS[1:]:
        P = projection(columns)
        ours = effects.moments(columns, grid)
        assert_close(ours[0], P @ mean, rtol=1e-8, atol=1e-8)
        assert_close(effects.covariance(columns, grid), P @ covariance @ P.T, rtol=1e-8, atol=1e-8)
        assert_close(ours[1], (P @ covariance @ P.T).diagonal().clamp_min(0), rtol=1e-8, atol=1e-8)
    assert effects.constant == pytest.approx(float(mean.mean()), abs=1e-8)


@pytest.mark.parametrize("expression", [*ARRANGED[:3], *JOINT])
@pytest.mark.parametrize("sparse", [False, True])
def test_they_add_up_to_the_posterior_mean(expression: str, sparse: bool) -> None:
    posterior, rows, Z = posterior_of(expression, sparse), randn(30, D, seed=3), randn(7, D, seed=4)
    effects = Effects(posterior, rows)
    total = posterior.predict(Z)[0]
    assert_close(effects.constant + sum(effects.mean(own, Z) for own in SETS[1:]), total, rtol=1e-8, atol=1e-8)
    assert effects.remainder(SETS[1:], Z).abs().max() < 1e-8
    for columns in SETS[1:4]:
        assert abs(effects.mean(columns, rows).mean()) < 1e-9
    only_first_column = torch.cat([Z[:, :1], randn(7, D - 1, seed=9)], -1)
    assert_close(effects.mean([0], only_first_column), effects.mean([0], Z), rtol=1e-9, atol=1e-9)


def test_a_word_that_cannot_be_taken_apart_is_in_the_remainder() -> None:
    posterior, rows, Z = posterior_of("Matern52*Linear + RBF(each)"), randn(30, D, seed=3), randn(7, D, seed=4)
    effects = Effects(posterior, rows)
    assert [str(word) for word in effects.inseparable] == ["Linear*Matern52"]
    assert_close(effects.remainder([(0,), (1,), (2,)], Z), posterior.component(0, Z)[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("expression", ["RBF(pairs)", "Linear + Cosine"])
def test_the_variance_of_a_sparse_posterior_is_that_of_an_exact_one_if_every_row_is_inducing(expression: str) -> None:
    exact, rows, Z = posterior_of(expression), randn(10, D, seed=3), randn(7, D, seed=4)
    sparse = SparsePosterior.fit(exact.kernel, exact.theta, exact.X, exact.y, exact.X)
    for columns in SETS[1:]:
        ours, theirs = (Effects(posterior, rows).moments(columns, Z) for posterior in (sparse, exact))
        assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_one_column() -> None:
    kernel = Kernel(parse("Matern52 + Linear*RBF"), 1)
    posterior = ExactPosterior.fit(kernel, 0.1 * randn(kernel.size), randn(N, 1, seed=1), randn(N, seed=2))
    effects, Z = Effects(posterior, posterior.X), randn(5, 1, seed=4)
    assert_close(effects.constant + effects.mean([0], Z), posterior.predict(Z)[0])
