"""The exact GP against scikit-learn, torch's multivariate normal and brute force; and on inputs that break others."""

import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

from kitt.errors import FitError
from kitt.kernels.exact import (
    _PANEL,
    ExactPosterior,
    Likelihood,
    cholesky,
    draw,
    fisher_information,
    log_marginal_likelihood,
)
from kitt.kernels.grammar import WORDS, Expression, Word, parse
from kitt.kernels.kernel import Kernel

EXPRESSIONS = [
    "RBF",
    "Matern12",
    "Linear*RBF + Matern52*Periodic + Matern32*RBF",
    "Linear*Linear + Cosine + RBF*Periodic + Linear*White",
    "Matern12*Cosine + Linear*Cosine + Matern12*Matern32 + White",
]
every_expression = pytest.mark.parametrize("text", EXPRESSIONS)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def case(text: str, N: int = 30, D: int = 3, *batch: int) -> tuple[Kernel, Tensor, Tensor, Tensor]:
    kernel = Kernel(parse(text), D)
    theta = 0.5 * randn(*batch, kernel.size, seed=3)
    return kernel, theta, randn(*batch, N, D, seed=1), randn(*batch, N, seed=2)


def covariance(kernel: Kernel, theta: Tensor, X: Tensor) -> Tensor:
    return kernel.matrix(theta, X) + torch.diag_embed(kernel.noise(theta, X))


def log_normal_density(K: Tensor, y: Tensor) -> Tensor:
    return MultivariateNormal(torch.zeros_like(y), K).log_prob(y)


# --- scikit-learn ----------------------------------------------------------------------------------------------------


def pairs_with_sklearn() -> list[tuple[str, dict[str, object], sk.Kernel]]:
    l3 = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    return [
        ("RBF", {"RBF[0].lengthscale": l3, "RBF.variance": 1.7}, 1.7 * sk.RBF(l3.numpy())),
        (
            "Matern32*RBF + Matern12 + White",
            {
                "RBF*Matern32[0].lengthscale": 2 * l3,
                "RBF*Matern32[1].lengthscale": l3,
                "RBF*Matern32.variance": 0.8,
                "Matern12[0].lengthscale": 3 * l3,
                "Matern12.variance": 0.3,
                "White.variance": 0.2,
            },
            0.8 * sk.RBF(2 * l3.numpy()) * sk.Matern(l3.numpy(), nu=1.5)
            + 0.3 * sk.Matern(3 * l3.numpy(), nu=0.5)
            + sk.WhiteKernel(0.2),
        ),
        (
            "Linear + Matern52",
            {
                "Linear[0].slope": torch.full((3,), 0.6, dtype=torch.float64),
                "Linear[0].shift": torch.zeros(3, dtype=torch.float64),
                "Matern52[0].lengthscale": l3,
                "Matern52.variance": 2.0,
            },
            0.6 * sk.DotProduct(0.0) + 2.0 * sk.Matern(l3.numpy(), nu=2.5),
        ),
    ]


@pytest.mark.parametrize(("text", "values", "theirs"), pairs_with_sklearn(), ids=lambda v: v if type(v) is str else "")
def test_likelihood_and_posterior_against_sklearn(text: str, values: dict[str, Tensor], theirs: sk.Kernel) -> None:
    noise = 0.05
    kernel, X, y, Z = Kernel(parse(text), 3), randn(40, 3), randn(40, seed=1), randn(7, 3, seed=2)
    theta = kernel.flatten({**values, "noise": noise})
    gpr = GaussianProcessRegressor(theirs, alpha=noise, optimizer=None).fit(X.numpy(), y.numpy())
    assert_close(Likelihood(kernel, X, y).value(theta).item(), gpr.log_marginal_likelihood(), rtol=1e-11, atol=0)

    posterior = ExactPosterior.fit(kernel, theta, X, y)
    mean, variance = posterior.predict(Z, noisy=False)
    white = values.get("White.variance", 0.0)  # scikit-learn counts White as signal at the new points
    expected_mean, expected_covariance = gpr.predict(Z.numpy(), return_cov=True)
    assert_close(mean.numpy(), expected_mean, rtol=1e-10, atol=1e-10)
    assert_close(variance.numpy() + white, expected_covariance.diagonal(), rtol=1e-9, atol=1e-9)
    theirs_noisy = torch.from_numpy(expected_covariance) + noise * torch.eye(7, dtype=torch.float64)
    assert_close(posterior.covariance(Z), theirs_noisy, rtol=1e-9, atol=1e-9)


def test_gradient_against_sklearn() -> None:
    """scikit-learn's free parameters are logarithms too: variance, lengthscales, then white noise."""
    kernel, X, y = Kernel(parse("RBF"), 3), randn(40, 3), randn(40, seed=1)
    lengthscale = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    theta = kernel.flatten({"RBF[0].lengthscale": lengthscale, "RBF.variance": 1.7, "noise": 0.1})
    theirs = 1.7 * sk.RBF(lengthscale.numpy()) + sk.WhiteKernel(0.1)
    gpr = GaussianProcessRegressor(theirs, alpha=0, optimizer=None).fit(X.numpy(), y.numpy())
    _, expected = gpr.log_marginal_likelihood(gpr.kernel_.theta, eval_gradient=True)
    _, gradient = Likelihood(kernel, X, y).value_and_gradient(theta)
    order = [3, 0, 1, 2, 4]
    assert_close(gradient[order], torch.from_numpy(expected), rtol=1e-9, atol=1e-9)


# --- likelihood ------------------------------------------------------------------------------------------------------


@every_expression
@pytest.mark.parametrize("N", [1, 2, _PANEL - 1, _PANEL, _PANEL + 1, 2 * _PANEL + 17])
def test_panels_agree_with_autograd_through_a_dense_matrix(text: str, N: int) -> None:
    kernel, theta, X, y = case(text, N)
    theta.requires_grad_()
    expected = log_normal_density(covariance(kernel, theta, X), y)
    (expected_gradient,) = torch.autograd.grad(expected, theta)
    likelihood = Likelihood(kernel, X, y)
    value, gradient = likelihood.value_and_gradient(theta)
    assert not gradient.requires_grad
    assert_close(value, expected.detach(), rtol=1e-10, atol=1e-10)
    assert_close(likelihood.value(theta), value, rtol=1e-12, atol=1e-12)
    assert_close(gradient, expected_gradient, rtol=1e-7, atol=1e-7)


OF_COLUMNS = [f"{p}({a})" for p in ("RBF", "Matern12", "Matern52") for a in ("each", "pairs", "all")]


@pytest.mark.parametrize("text", [*map(str, WORDS), *OF_COLUMNS, "RBF(all) + Linear*Periodic + Linear*White"])
def test_fisher_information_is_the_expected_curvature(text: str) -> None:
    """½ tr(K⁻¹ ∂K K⁻¹ ∂K) with derivatives by autograd."""
    kernel, theta, X, _ = case(text, N=12, D=2)
    K = covariance(kernel, theta, X)
    J = torch.autograd.functional.jacobian(lambda t: covariance(kernel, t, X), theta)  # (N, N, P)
    inverse = torch.linalg.inv(K)
    expected = 0.5 * torch.einsum("ab,bcp,cd,daq->pq", inverse, J, inverse, J)
    assert_close(fisher_information(kernel, theta, X), expected, rtol=1e-2, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_likelihood_of_a_matrix(batch: tuple[int, ...]) -> None:
    """`log_marginal_likelihood`, for covariances that are not expressions."""
    root, y = randn(*batch, 12, 12).requires_grad_(), randn(*batch, 12, seed=1).requires_grad_()

    K = root @ root.mT + 0.3 * torch.eye(12, dtype=torch.float64)
    value, expected = log_marginal_likelihood(K, y), log_normal_density(K, y)
    assert_close(value, expected)
    for ours, theirs in zip(
        torch.autograd.grad(value.sum(), (root, y), retain_graph=True),
        torch.autograd.grad(expected.sum(), (root, y)),
        strict=True,
    ):
        assert_close(ours, theirs)
    with pytest.raises(FitError, match="not positive definite"):
        log_marginal_likelihood(-torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64))


# --- posterior -------------------------------------------------------------------------------------------------------


@every_expression
def test_posterior_is_the_conditional_normal(text: str) -> None:
    kernel, theta, X, y = case(text)
    Z = randn(6, 3, seed=5)
    K, cross = covariance(kernel, theta, X), kernel.matrix(theta, X, Z)
    posterior = ExactPosterior.fit(kernel, theta, X, y)
    expected = kernel.matrix(theta, Z) - cross.mT @ torch.linalg.solve(K, cross)
    mean, variance = posterior.predict(Z, noisy=False)
    assert_close(mean, cross.mT @ torch.linalg.solve(K, y), rtol=1e-9, atol=1e-9)
    assert_close(variance, expected.diagonal(), rtol=1e-9, atol=1e-9)
    assert_close(posterior.covariance(Z, noisy=False), expected, rtol=1e-9, atol=1e-9)
    noisy_mean, noisy = posterior.predict(Z)
    assert_close(noisy_mean, mean)
    assert_close(noisy - variance, kernel.noise(theta, Z), rtol=1e-9, atol=1e-9)
    assert_close(posterior.covariance(Z).diagonal(), noisy, rtol=1e-9, atol=1e-9)


@every_expression
def test_batches_equal_loops(text: str) -> None:
    kernel, theta, X, y = case(text, 15, 3, 4)
    Z = randn(4, 6, 3, seed=5)
    batch = ExactPosterior.fit(kernel, theta, X, y)
    loo = batch.leave_one_out()
    for b in range(4):
        one = ExactPosterior.fit(kernel, theta[b], X[b], y[b])
        for ours, theirs in zip(batch.predict(Z), one.predict(Z[b]), strict=True):
            assert_close(ours[b], theirs, rtol=1e-9, atol=1e-9)
        assert_close(batch.covariance(Z)[b], one.covariance(Z[b]), rtol=1e-9, atol=1e-9)
        for ours, theirs in zip(batch.component(0, Z), one.component(0, Z[b]), strict=True):
            assert_close(ours[b], theirs, rtol=1e-9, atol=1e-9)
        for name, theirs in vars(one.leave_one_out()).items():
            assert_close(getattr(loo, name)[b], theirs, rtol=1e-9, atol=1e-9)


@every_expression
def test_component_means_add_up_to_the_mean(text: str) -> None:
    kernel, theta, X, y = case(text)
    Z = randn(6, 3, seed=5)
    posterior = ExactPosterior.fit(kernel, theta, X, y)
    parts = [posterior.component(i, Z) for i, word in enumerate(kernel.expression) if not word.is_noise]
    mean, variance = posterior.predict(Z, noisy=False)
    assert_close(torch.stack([m for m, _ in parts]).sum(0), mean, rtol=1e-9, atol=1e-9)
    assert all(bool((v >= 0).all()) for _, v in parts)
    if len(parts) == 1:
        assert_close(parts[0][1], variance)


def test_a_component_is_the_posterior_of_its_word() -> None:
    """Its variance against the joint normal of the word at Z and the observations."""
    kernel, theta, X, y = case(EXPRESSIONS[2])
    word, Z = 1, randn(6, 3, seed=5)
    alone = Kernel(Expression((kernel.expression.words[word],)), 3)
    values = kernel.unflatten(theta)
    own = alone.flatten({slot.name: values[slot.name] for slot in alone.slots})
    cross, K = alone.matrix(own, X, Z), covariance(kernel, theta, X)
    mean, variance = ExactPosterior.fit(kernel, theta, X, y).component(word, Z)
    assert_close(mean, cross.mT @ torch.linalg.solve(K, y), rtol=1e-9, atol=1e-9)
    expected = alone.matrix(own, Z) - cross.mT @ torch.linalg.solve(K, cross)
    assert_close(variance, expected.diagonal(), rtol=1e-9, atol=1e-9)


@every_expression
def test_leave_one_out_is_refitting_without_the_point(text: str) -> None:
    kernel, theta, X, y = case(text, 14)
    loo = ExactPosterior.fit(kernel, theta, X, y).leave_one_out()
    for i in range(14):
        rest = torch.arange(14) != i
        mean, variance = ExactPosterior.fit(kernel, theta, X[rest], y[rest]).predict(X[i : i + 1])
        assert_close(loo.mean[i], mean[0], rtol=1e-8, atol=1e-8)
        assert_close(loo.variance[i], variance[0], rtol=1e-8, atol=1e-8)
        normal = torch.distributions.Normal(mean[0], variance[0].sqrt())
        assert_close(loo.log_density[i], normal.log_prob(y[i]), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("noise_word", ["White", "Linear*White"])
def test_noise_words_do_not_carry_over_to_new_points(noise_word: str) -> None:
    """At a training input, the noise of that observation is not predicted: White is only more noise."""
    kernel, plain = Kernel(parse(f"RBF + {noise_word}"), 2), Kernel(parse("RBF"), 2)
    theta, X, y, Z = 0.5 * randn(kernel.size), randn(20, 2), randn(20, seed=1), randn(5, 2, seed=2)
    assert kernel.matrix(theta, X, X.clone()).equal(kernel.matrix(theta, X, X))
    posterior = ExactPosterior.fit(kernel, theta, X, y)
    mean, variance = posterior.predict(Z, noisy=False)
    signal, extra = plain.matrix(theta[: plain.size], X), kernel.noise(theta, X)
    cross = plain.matrix(theta[: plain.size], X, Z)
    assert_close(mean, cross.mT @ torch.linalg.solve(signal + torch.diag(extra), y))
    assert (variance <= kernel.diagonal(theta, Z)).all()
    _, noisy = posterior.predict(Z)
    values = kernel.unflatten(theta)
    if noise_word == "White":
        assert_close(noisy - variance, (values["White.variance"] + values["noise"]).expand(5))
        folded = {n: v for n, v in values.items() if n.startswith("RBF")} | {"noise": extra[0]}
        same = ExactPosterior.fit(plain, plain.flatten(folded), X, y).predict(Z)
        assert_close((mean, noisy), same)
    else:
        assert (noisy - variance).std() > 0


# --- draws -----------------------------------------------------------------------------------------------------------


def test_draws_have_the_covariance_asked_for() -> None:
    kernel, theta, X, _ = case(EXPRESSIONS[2], 5)
    K = covariance(kernel, theta, X)
    sample = draw(K.expand(40_000, 5, 5), torch.Generator().manual_seed(0))
    scale = K.diagonal().sqrt()
    assert_close(sample.mT @ sample / 40_000 / scale / scale[:, None], K / scale / scale[:, None], rtol=0, atol=0.03)
    again = draw(K.expand(40_000, 5, 5), torch.Generator().manual_seed(0))
    assert torch.equal(sample, again)


# --- the jitter ladder -----------------------------------------------------------------------------------------------


def everything(kernel: Kernel, theta: Tensor, X: Tensor, y: Tensor) -> list[Tensor]:
    likelihood, posterior = Likelihood(kernel, X, y), ExactPosterior.fit(kernel, theta, X, y)
    results = [likelihood.value(theta), *likelihood.value_and_gradient(theta)]
    results += [*posterior.predict(X[..., :4, :] + 0.1), posterior.covariance(X[..., :4, :] + 0.1)]
    return [*results, *vars(posterior.leave_one_out()).values()]


@pytest.mark.parametrize("word", WORDS, ids=str)
@pytest.mark.parametrize("batched", [False, True])
def test_any_parameters_give_finite_numbers_or_a_named_error(word: Word, batched: bool) -> None:
    kernel = Kernel(Expression((word,)), 2)
    X, y = randn(15, 2), randn(15, seed=1)
    X[1] = X[0]
    for size in (5.0, 30.0, 300.0, 1e5):
        random = size * randn(2, kernel.size, seed=int(size))
        for theta in (*random, torch.full_like(random[0], size), torch.full_like(random[0], -size)):
            args = (theta, X, y)
            try:
                results = everything(kernel, *(a[None] for a in args)) if batched else everything(kernel, *args)
            except FitError as error:
                assert str(word) in str(error)  # noqa: PT017
                assert size > 5, "a plain parameter should not need to fail"
            else:
                assert all(bool(torch.isfinite(r).all()) for r in results), (size, theta)


@pytest.mark.parametrize("text", ["RBF", "Periodic", "Linear*Linear", "Cosine", "RBF*Periodic + Matern52"])
def test_repeated_rows_and_the_smallest_noise(text: str) -> None:
    kernel = Kernel(parse(text), 2)
    X, y = randn(10, 2).repeat(6, 1), randn(10, seed=1).repeat(6)
    theta = torch.zeros(kernel.size, dtype=torch.float64)
    theta[-1] = -50  # the noise is at its floor
    for scale in (0.0, 10.0, 20.0):  # variances of 1, 2e4, 5e8
        for slot in kernel.slots:
            if slot.parameter.value in ("variance", "slope"):
                theta[slot.slice] = scale
        assert all(bool(torch.isfinite(r).all()) for r in everything(kernel, theta, X, y))


@pytest.mark.parametrize(("size_x", "size_y"), [(1e-200, 1.0), (1e5, 1.0), (1e200, 1.0), (1.0, 1e200), (1.0, 0.0)])
def test_data_of_any_size(size_x: float, size_y: float) -> None:
    kernel, theta, X, y = case("Linear + RBF*Matern12 + Cosine")
    try:
        results = everything(kernel, theta, X * size_x, y * size_y)
    except FitError as error:
        assert "Linear + RBF*Matern12 + Cosine" in str(error)  # noqa: PT017
    else:
        assert all(bool(torch.isfinite(r).all()) for r in results)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_jitter_goes_only_where_it_is_needed(dtype: torch.dtype) -> None:
    good = torch.diag(torch.arange(1.0, 6.0, dtype=dtype))
    singular = torch.ones(5, 5, dtype=dtype)
    L = cholesky(torch.stack([good, singular]))
    assert_close(L[0], good.sqrt(), rtol=4 * torch.finfo(dtype).eps, atol=0)
    assert_close(L[1] @ L[1].mT, singular, rtol=0, atol=2e-4)


@pytest.mark.parametrize("broken", [-1.0, float("nan"), float("inf")])
def test_a_hopeless_matrix_is_a_fit_error(broken: float) -> None:
    K = torch.eye(4, dtype=torch.float64)
    K[2, 2] = broken
    with pytest.raises(FitError, match="Linear"):
        cholesky(K, "Linear")
    with pytest.raises(FitError, match="the kernel"):
        cholesky(torch.stack([torch.eye(4, dtype=torch.float64), K]))


def test_a_draw_survives_a_matrix_that_rounding_made_indefinite() -> None:
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(40, 40, generator=generator, dtype=torch.float64)).Q
    values = torch.linspace(0, 3, 40, dtype=torch.float64)
    values[0] = -0.01
    K = ((Q * values) @ Q.mT).float().expand(2000, 40, 40)
    y = draw(K, generator)
    assert torch.isfinite(y).all()
    assert (y.mT @ y / 2000 - K[0]).abs().max() < 0.3


def test_a_factor_with_jitter_has_a_gradient() -> None:
    singular, regular = torch.ones(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    K = torch.stack([singular, regular]).requires_grad_(True)
    L = cholesky(K)
    L.sum().backward()
    assert K.grad is not None
    assert K.grad.isfinite().all()
    assert torch.equal(L[1], regular)
