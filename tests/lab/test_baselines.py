"""The baselines: what the protocol promises of each, and each kernel against its formula."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from baseline_work import network, table
from kitt.clock import Clock
from kitt.errors import FitError, InvalidInputError, KittError
from kitt.kernels.exact import log_marginal_likelihood
from kitt.table.dataset import Dataset
from kitt_lab.baselines import METHODS, ahgp, exact, method
from kitt_lab.baselines.base import FittedMethod
from kitt_lab.baselines.deep_kernel import DeepRBF
from kitt_lab.baselines.exact import Covariance, StoppingRule, condition, loss, maximise_likelihood
from kitt_lab.baselines.neural_kernel_network import NetworkKernel, PositiveLinear, likely_periods, median_scales
from kitt_lab.baselines.spectral_mixture import SpectralKernel, SpectralMixture

SHORT = StoppingRule(steps=25)
QUICK: dict[str, dict[str, Any]] = {
    "nkn": {"stopping": SHORT},
    "ahgp": {},
    "spectral-mixture": {"stopping": SHORT, "components": 2, "draws": 20, "finalists": 1},
    "spectral-mixture-product": {"stopping": SHORT, "components": 2, "draws": 20, "finalists": 1},
    "deep-kernel": {"seeds": 2, "batch": 40, "passes": 1, "least_steps": 60},
    "sklearn-gp": {},
    "gradient-boosting": {"folds": 2},
    "gradient-boosting-noise": {"folds": 2},
    "random-forest": {"trees": 40},
    "botorch": {},
}


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An AHGP checkpoint with random weights: its kernel is a sensible one already."""
    path = tmp_path_factory.mktemp("ahgp") / "ahgp.safetensors"
    ahgp.save(path, network(), ahgp.NetworkConfig(width=16, blocks=1), {})
    return str(path)


@pytest.fixture(scope="module")
def fitted(untrained: str) -> Any:
    """fit(name) once for each method, on the same table."""
    cache: dict[str, FittedMethod] = {}

    def fit(name: str) -> FittedMethod:
        if name not in cache:
            cache[name] = quick(name, untrained).fit(table(60, 0), random_state=3)
        return cache[name]

    return fit


def quick(name: str, checkpoint: str) -> Any:
    return method(name, **QUICK[name], **({"checkpoint": checkpoint} if name == "ahgp" else {}))


# --- registry and protocol --------------------------------------------------------------------------------------------


def test_registry_knows_its_names() -> None:
    assert set(QUICK) <= set(METHODS)
    with pytest.raises(InvalidInputError, match=r"no method is called 'nnk'; the methods are .*nkn"):
        method("nnk")
    with pytest.raises(InvalidInputError, match="folds"):
        method("nkn", folds=3)


@pytest.mark.parametrize("name", QUICK)
def test_better_than_a_constant(name: str, fitted: Any) -> None:
    train, test, fit = table(60, 0), table(50, 1), fitted(name)
    mean, std = fit.predict(test.X)
    density = fit.log_density(test.X, test.y)
    assert mean.shape == std.shape == density.shape == (50,)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert np.sqrt(np.mean((test.y - mean) ** 2)) < 0.9 * test.y.std()
    z = (test.y - train.y.mean()) / train.y.std()
    constant = -0.5 * (z**2 + math.log(2 * math.pi)) - math.log(train.y.std())
    assert density.mean() > constant.mean()
    assert fit.kernel
    assert fit.select_seconds >= 0
    assert fit.fit_seconds > 0


@pytest.mark.parametrize("name", QUICK)
def test_density_is_that_of_mean_and_standard_deviation(name: str, fitted: Any) -> None:
    test = table(20, 1)
    mean, std = fitted(name).predict(test.X)
    expected = -0.5 * (((test.y - mean) / std) ** 2 + np.log(2 * np.pi * std**2))
    np.testing.assert_allclose(fitted(name).log_density(test.X, test.y), expected, rtol=1e-9)


@pytest.mark.parametrize("name", QUICK)
def test_deterministic(name: str, untrained: str, fitted: Any) -> None:
    state = torch.random.get_rng_state()
    again = quick(name, untrained).fit(table(60, 0), random_state=3).predict(table(20, 1).X)
    np.testing.assert_array_equal(again, fitted(name).predict(table(20, 1).X))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("name", ["ahgp", "sklearn-gp", "nkn"])
def test_units_of_the_table_do_not_matter(name: str, untrained: str, fitted: Any) -> None:
    test = table(20, 1)
    fit = quick(name, untrained).fit(table(60, 0, 1024.0), random_state=3)  # a power of two scales without rounding
    mean, std = fit.predict(1024 * test.X)
    expected_mean, expected_std = fitted(name).predict(test.X)
    np.testing.assert_allclose(mean / 1024, expected_mean, rtol=1e-6)
    np.testing.assert_allclose(std / 1024, expected_std, rtol=1e-6)
    density = fit.log_density(1024 * test.X, 1024 * test.y)
    np.testing.assert_allclose(density + math.log(1024), fitted(name).log_density(test.X, test.y), rtol=1e-6)


def odd_tables() -> dict[str, Dataset]:
    base = table(24, 0)
    X = np.column_stack([base.X, np.arange(24) % 2, np.repeat(base.X[:12, :1], 2)])
    series = Dataset.from_arrays(np.arange(24.0)[:, None], np.sin(np.arange(24.0)))
    return {
        "constant column": replace(base, X=base.X * [1, 0, 1]),
        "copies and levels": Dataset.from_arrays(X, base.y).rows(np.repeat(np.arange(12), 2)),
        "constant target": replace(base, y=np.full(24, 7.0)),
        "one row": base.rows([0] * 24),
        "three rows": base.rows(slice(3)),
        "series": series,
        "huge": Dataset.from_arrays(1e150 * base.X, 1e150 * base.y),
        "outlier": Dataset.from_arrays(np.where(np.arange(24)[:, None] == 3, 1e9, base.X), base.y),
    }


@pytest.mark.parametrize(("name", "odd"), list(product(QUICK, odd_tables())))
def test_odd_tables(name: str, odd: str, untrained: str) -> None:
    data = odd_tables()[odd]
    settings = {**QUICK[name], **({"stopping": StoppingRule(steps=5)} if "stopping" in QUICK[name] else {})}
    settings |= {"least_steps": 5} if name == "deep-kernel" else {}
    settings |= {"checkpoint": untrained} if name == "ahgp" else {}
    try:
        fit = method(name, **settings).fit(data, random_state=0)
    except KittError:
        return
    mean, std = fit.predict(data.X)
    assert np.isfinite(mean).all()
    assert not np.isnan(std).any()
    assert np.isfinite(fit.log_density(data.X, data.y)).all()


@pytest.mark.parametrize("name", QUICK)
def test_too_few_rows(name: str, untrained: str) -> None:
    with pytest.raises(InvalidInputError, match="at least 2 rows"):
        quick(name, untrained).fit(table(8, 0).rows(slice(1)), random_state=0)


def test_new_rows_are_checked(fitted: Any) -> None:
    fit = fitted("gradient-boosting")
    assert fit.predict(np.empty((0, 3)))[0].shape == (0,)
    with pytest.raises(InvalidInputError, match=r"shape \(M, 3\)"):
        fit.predict(np.zeros((4, 2)))
    with pytest.raises(InvalidInputError, match="finite"):
        fit.predict(np.full((1, 3), np.nan))
    with pytest.raises(InvalidInputError, match="one value for each row"):
        fit.log_density(np.zeros((4, 3)), np.zeros(3))


def test_ahgp_noise_is_fixed_and_optional(untrained: str, fitted: Any) -> None:
    X = table(20, 1).X
    _, noisy = fitted("ahgp").predict(X)
    _, latent = method("ahgp", checkpoint=untrained, protocol="original").fit(table(60, 0), 0).predict(X)
    np.testing.assert_allclose(noisy**2 - latent**2, ahgp.NOISE * table(60, 0).y.var(), rtol=1e-4)
    with pytest.raises(InvalidInputError, match="protocol"):
        method("ahgp", protocol="paper")


# --- exact GPs of modules ---------------------------------------------------------------------------------------------


def kernels(D: int = 3) -> dict[str, Covariance]:
    random = torch.Generator().manual_seed(0)

    def positive(*shape: int) -> torch.Tensor:
        return 0.2 + torch.rand(shape, generator=random, dtype=torch.float64)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        deep = DeepRBF(D, (5,))
    return {
        "nkn": NetworkKernel(positive(D), None, random),
        "nkn of a series": NetworkKernel(positive(1), positive(2), random),
        "deep": deep,
        "mixture": SpectralKernel("mixture", positive(2), positive(2, D), 0.05 * positive(2, D)),
        "product": SpectralKernel("product", positive(2, D), positive(2, D), 0.05 * positive(2, D)),
        "ahgp": ahgp.MixtureProduct(positive(D, 10).log(), torch.full((D, 10), 0.1)),
    }


def points(kernel: str, n: int = 30, seed: int = 0) -> torch.Tensor:
    D = 1 if kernel == "nkn of a series" else 3
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", kernels())
def test_kernels_are_positive_semidefinite(name: str) -> None:
    kernel, X = kernels()[name], points(name)
    with torch.no_grad():
        F = kernel.features(X)
        K = kernel(F, F)
        assert_close(K, K.mT)
        assert torch.linalg.eigvalsh(K).min() > -1e-9 * K.diagonal().max()
        assert_close(kernel.diagonal(F), K.diagonal(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", [name for name in kernels() if name != "ahgp"])
def test_loss_in_panels_is_the_likelihood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, X = kernels()[name], points(name)
    y = X[:, 0].sin()
    F = kernel.features(X)
    direct = -log_marginal_likelihood(kernel(F, F) + kernel.noise * torch.eye(30), y) / 30
    expected = torch.autograd.grad(direct, list(kernel.parameters()))
    monkeypatch.setattr(exact, "_ENTRIES", 200)  # several panels
    assert loss(kernel, X, y) == pytest.approx(direct.item())
    for parameter, gradient in zip(kernel.parameters(), expected, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-9)


def test_maximum_likelihood_and_prediction() -> None:
    kernel, X = kernels()["deep"], points("deep")
    y = X[:, 0].sin() + 0.1 * X[:, 1]
    before = loss(kernel, X, y)
    after = maximise_likelihood(kernel, X, y, StoppingRule(steps=20))
    assert after < before
    assert loss(kernel, X, y) == pytest.approx(after)
    Z = points("deep", 7, seed=1)
    mean, variance = condition(kernel, X, y)(Z.numpy())
    with torch.no_grad():
        F, G = kernel.features(X), kernel.features(Z)
        weights = torch.linalg.solve(kernel(F, F) + kernel.noise * torch.eye(30), kernel(F, G))
        assert_close(torch.as_tensor(mean), weights.mT @ y)
        expected = (kernel(G, G) - weights.mT @ kernel(F, G)).diagonal() + kernel.noise
    assert_close(torch.as_tensor(variance), expected)


def test_a_kernel_that_cannot_be_evaluated() -> None:
    kernel, X = kernels()["mixture"], points("mixture")
    kernel.log_w.data[:] = torch.nan
    with pytest.raises(FitError, match="starting values"):
        maximise_likelihood(kernel, X, X[:, 0], SHORT)


def test_time_budget_stops() -> None:
    kernel, X = kernels()["nkn"], points("nkn")
    limited = maximise_likelihood(kernel, X, X[:, 0].sin(), StoppingRule(steps=100), Clock(0.0))
    assert limited > maximise_likelihood(kernel, X, X[:, 0].sin(), StoppingRule(steps=100))


# --- each kernel against its formula ----------------------------------------------------------------------------------


def test_network_layers_start_as_in_the_original() -> None:
    layer = PositiveLinear(6, 8, torch.Generator().manual_seed(0))
    weight = layer(torch.eye(6, dtype=torch.float64)) - layer(torch.zeros(6, 6, dtype=torch.float64))
    assert ((weight > 1 / 12) & (weight < 3 / 12)).all()
    assert_close(layer(torch.zeros(6, 1, dtype=torch.float64)), torch.full((8, 1), 0.01, dtype=torch.float64))


def test_network_primitives() -> None:
    kernel = NetworkKernel(
        torch.tensor([1.2], dtype=torch.float64), torch.tensor([0.7, 2.0]).double(), torch.Generator()
    )
    with torch.no_grad():
        kernels = [float(K) for K in kernel.primitives(torch.tensor([[0.5]]).double(), torch.tensor([[-0.4]]).double())]
    tau = 0.9
    rbf = [math.exp(-0.5 * (tau / scale) ** 2) for scale in (0.2, 0.8)]
    quadratic = [(1 + (tau / 0.4) ** 2 / (2 * alpha)) ** -alpha for alpha in (0.1, 1.0)]
    periodic = [math.exp(-0.5 * math.sin(math.pi * tau / p) ** 2) for p in (0.7, 2.0)]
    assert kernels == pytest.approx([-0.2, -0.2, *rbf, *quadratic, *periodic])


def test_scales_and_periods_of_a_table() -> None:
    X = np.array([[0.0, 0, 5], [1, 0, 5], [2, 0, 5], [3, 1, 5]])
    np.testing.assert_allclose(median_scales(X), math.sqrt(3) * np.array([1.5, 0.5, 1.0]))
    x = np.sort(np.random.default_rng(0).uniform(-2, 2, 150))
    periods = likely_periods(x, 3 * x + np.sin(2 * np.pi * x / 0.5) + 0.3 * np.sin(2 * np.pi * x / 0.17))
    np.testing.assert_allclose(periods, [0.5, 0.17], rtol=0.05)


@pytest.mark.parametrize("form", ["mixture", "product"])
def test_spectral_mixture_formula(form: Any) -> None:
    random = np.random.default_rng(0)
    w = random.random((2,) if form == "mixture" else (2, 3))
    mu, v, A, B = random.random((2, 3)), random.random((2, 3)), random.random((4, 3)), random.random((5, 3))
    tau = (A[:, None] - B)[:, :, None]  # (4, 5, 1, 3)
    terms = np.exp(-2 * np.pi**2 * v * tau**2) * np.cos(2 * np.pi * mu * tau)  # (4, 5, 2, 3)
    expected = (w * terms.prod(-1)).sum(-1) if form == "mixture" else (w * terms).sum(-2).prod(-1)
    kernel = SpectralKernel(form, *map(torch.as_tensor, (w, mu, v)))
    with torch.no_grad():
        np.testing.assert_allclose(kernel(torch.as_tensor(A), torch.as_tensor(B)), expected, atol=1e-12)


def test_spectral_mixture_finds_a_period() -> None:
    x = np.linspace(0, 10, 80)[:, None]
    data = Dataset.from_arrays(x[:60], np.sin(2 * np.pi * x[:60, 0] / 1.3))
    mean, _ = SpectralMixture(components=2, draws=200, stopping=SHORT).fit(data, 0).predict(x[60:])
    assert np.abs(mean - np.sin(2 * np.pi * x[60:, 0] / 1.3)).max() < 0.2
