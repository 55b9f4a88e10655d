"""The likelihood at the lags of a grid is that of `Likelihood`, with the same gradient, on regular and irregular times."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kitt.kernels.exact import Likelihood
from kitt.kernels.grammar import parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.lags import LagLikelihood, _lags

RNG = np.random.default_rng(0)
GRID = np.arange(30.0)
TIMES = {"regular": GRID, "gaps": np.delete(GRID, [3, 4, 17]), "irregular": np.sort(RNG.uniform(0, 30, 25))}
TEXTS = (
    "Matern12",
    "Linear + Matern12",
    "Matern32 + Matern12*Periodic",
    "Linear*Linear + Linear*Periodic + Matern12",
    "Matern52 + RBF*Periodic + Periodic",
)


def _case(text: str, times: str, columns: int = 1) -> tuple[Kernel, torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    x = (TIMES[times] - 15) / 9
    X = torch.tensor(np.column_stack([x, *(rng.normal(size=len(x)) for _ in range(columns - 1))]))
    kernel = Kernel(parse(text), columns)
    return kernel, X, torch.tensor(rng.normal(size=len(x))), torch.tensor(rng.normal(0, 0.5, kernel.size))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("free", [[True], [False, True], [True, False, True]])
def test_value_and_gradient_are_those_of_the_dense_likelihood(text: str, times: str, free: list[bool]) -> None:
    kernel, X, y, theta = _case(text, times)
    is_free = torch.tensor(free)[torch.arange(kernel.size) % len(free)]
    is_free[-1] = True
    held = theta.masked_fill(is_free, torch.nan)
    result = LagLikelihood(kernel, X, y, [True] * len(kernel.expression), held).evaluate(theta)
    value, gradient = Likelihood(kernel, X, y).value_and_gradient(theta)
    assert result.value == pytest.approx(float(value), rel=1e-9)
    np.testing.assert_allclose(result.gradient, gradient[is_free].numpy(), rtol=1e-4, atol=1e-5)
    assert np.linalg.eigvalsh(result.curvature).min() > -1e-9


def test_words_that_see_other_columns_are_dense() -> None:
    kernel, X, y, theta = _case("Matern52 + Linear", "regular", columns=2)
    held = torch.full_like(theta, torch.nan)
    result = LagLikelihood(kernel, X, y, [False, False], held).evaluate(theta)
    value, gradient = Likelihood(kernel, X, y).value_and_gradient(theta)
    assert result.value == pytest.approx(float(value), rel=1e-9)
    np.testing.assert_allclose(result.gradient, gradient.numpy(), rtol=1e-4, atol=1e-5)


def test_the_curvature_is_on_average_the_fisher_information() -> None:
    kernel, X, _, theta = _case("Matern12", "regular")
    K = kernel.matrix(theta, X) + torch.diag(kernel.noise(theta, X))
    L, generator = torch.linalg.cholesky(K), torch.Generator().manual_seed(0)
    held = torch.full_like(theta, torch.nan)
    result = []
    for _ in range(400):
        y = L @ torch.randn(len(X), generator=generator, dtype=torch.float64)
        result.append(LagLikelihood(kernel, X, y, [True], held).evaluate(theta))
    scores = np.array([one.gradient for one in result])
    np.testing.assert_allclose(np.mean([one.curvature for one in result], 0), np.cov(scores.T), atol=0.15 * len(X) / 6)


def test_missing_rows_stay_on_the_grid_and_irregular_ones_have_none() -> None:
    counts = {times: len((_lags(_case("Matern12", times)[1]) or ((), ()))[0]) for times in TIMES}
    assert counts == {"regular": 30, "gaps": 30, "irregular": 0}
