"""Sparse posteriors: what saves time changes no result, not even where the covariance is nearly singular."""

import math

import pytest
import torch
from torch import Tensor

from kitt.kernels.exact import cholesky
from kitt.kernels.grammar import parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.sparse import SparsePosterior, choose_inducing

ROWS, DIMS = 1500, 3
EXPRESSIONS = (
    "RBF",
    "Matern12",
    "Linear",
    "Linear*Cosine + Matern52*Periodic",
    "Linear*Linear + RBF",
    "RBF + Linear*White",
)


def case(expression: str, longer: float, noise: float) -> tuple[Kernel, Tensor, Tensor, Tensor, Tensor]:
    """Kernel, parameters, rows and inducing points; with `longer` lengthscales the rows hardly differ for the kernel."""
    generator = torch.Generator().manual_seed(0)
    kernel = Kernel(parse(expression), DIMS)
    theta = 0.5 * torch.randn(kernel.size, generator=generator, dtype=torch.float64)
    for slot in kernel.slots:
        if "lengthscale" in slot.name:
            theta[slot.slice] += longer
    theta[-1] = noise
    X = torch.randn(ROWS, DIMS, generator=generator, dtype=torch.float64)
    y = torch.sin(X.sum(1)) + 0.1 * torch.randn(ROWS, generator=generator, dtype=torch.float64)
    return kernel, theta, X, y, choose_inducing(kernel, theta, X, 120, generator)


def direct(kernel: Kernel, theta: Tensor, X: Tensor, y: Tensor, Z: Tensor, new: Tensor) -> tuple[Tensor, Tensor, float]:
    """Mean, variance of the function and bound by the formulas of Titsias (2009), all rows at once."""
    K = kernel.matrix(theta, Z)
    L = cholesky(K + 1e-8 * torch.diagonal(K).mean() * torch.eye(len(Z), dtype=K.dtype), "K")
    A = torch.linalg.solve_triangular(L, kernel.matrix(theta, Z, X), upper=False)
    s2 = kernel.noise(theta, X)
    LB = cholesky(torch.eye(len(Z), dtype=K.dtype) + (A / s2) @ A.mT, "B")
    c = torch.linalg.solve_triangular(LB, ((A / s2) @ y).unsqueeze(-1), upper=False).squeeze(-1)
    missing = (kernel.diagonal(theta, X) - A.square().sum(0)).clamp_min(0)
    bound = -0.5 * (y.square() / s2 + s2.log() + missing / s2 + math.log(2 * math.pi)).sum()
    bound = bound + 0.5 * c.square().sum() - torch.diagonal(LB).log().sum()
    here = torch.linalg.solve_triangular(L, kernel.matrix(theta, Z, new), upper=False)
    V = torch.linalg.solve_triangular(LB, here, upper=False)
    variance = kernel.diagonal(theta, new) - here.square().sum(0) + V.square().sum(0)
    return V.mT @ c, variance.clamp_min(0), float(bound)


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("longer", [0.0, 3.0])
@pytest.mark.parametrize("noise", [-1.0, -9.0])
def test_predictions_are_those_of_the_formulas(expression: str, longer: float, noise: float, monkeypatch) -> None:
    kernel, theta, X, y, Z = case(expression, longer, noise)
    new = 1.3 * torch.randn(300, DIMS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mean, variance, bound = direct(kernel, theta, X, y, Z, new)
    monkeypatch.setattr("kitt.kernels.sparse._ENTRIES", 7 * len(Z))  # of unequal chunks
    posterior = SparsePosterior.fit(kernel, theta, X, y, Z)
    ours = posterior.predict(new, noisy=False)
    assert torch.allclose(ours[0], mean, rtol=0, atol=1e-6 * float(mean.abs().max()))
    assert float(((ours[1] - variance) / (variance + kernel.noise(theta, new))).abs().max()) < 1e-6
    assert posterior.log_marginal_likelihood == pytest.approx(bound, rel=1e-8, abs=1e-4)
    words = [posterior.component(i, new)[0] for i, word in enumerate(kernel.expression) if not word.is_noise]
    assert torch.allclose(sum(words), ours[0], atol=1e-6 * float(mean.abs().max()))


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("longer", [0.0, 3.0])
def test_rows_can_be_taken_out_again(expression: str, longer: float) -> None:
    kernel, theta, X, y, Z = case(expression, longer, -3.0)
    fewer = SparsePosterior.fit(kernel, theta, X, y, Z).without(torch.arange(1000, len(X)))
    expected = SparsePosterior.fit(kernel, theta, X[:1000], y[:1000], Z)
    for ours, theirs in zip(fewer.predict(X[1000:]), expected.predict(X[1000:]), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert fewer.log_marginal_likelihood == pytest.approx(expected.log_marginal_likelihood, rel=1e-8)


def test_no_rows_are_predicted_as_none() -> None:
    kernel, theta, X, y, Z = case("RBF", 0.0, -3.0)
    mean, variance = SparsePosterior.fit(kernel, theta, X, y, Z).predict(X[:0])
    assert mean.shape == variance.shape == (0,)
