"""Every word and some sums, in the three libraries of this environment; GPflow and GPJax are in `make test-exports`."""

import copy
import importlib.util
import pickle
import warnings

import numpy as np
import pytest
import torch
from environments import cases, check

from kitt import export
from kitt.errors import InvalidInputError, MissingExtraError
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import parse
from kitt.table.scaling import Standardiser

HERE = ("gpytorch", "botorch", "sklearn")
EVERYTHING = "Linear*Periodic + White + Matern12*Matern52 + RBF*Cosine + Linear*White"


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("library", HERE)
@pytest.mark.parametrize(
    ("expression", "dims", "standardised"),
    [(e, 3, False) for e in cases.EXPRESSIONS] + [(e, 1, s) for e in cases.SUMS for s in (False, True)],
)
def test_source_gives_our_covariance_and_posterior(expression, dims, standardised, library):
    case = cases.case(expression, library, dims, standardised=standardised)
    names, errors = check.run(case)
    assert not check.failures(errors)
    live = export.live(cases.fitted(expression, dims), library, standardised)
    X = np.array(case["X"])
    np.testing.assert_array_equal(check.matrix(library, live, X), check.matrix(library, names["kernel"], X))


@pytest.mark.parametrize("library", HERE)
@pytest.mark.parametrize("y_scale", [1e-3, 1e4])
@pytest.mark.parametrize("expression", ["RBF + White", "Linear*Periodic + Cosine", "RBF(pairs) + Linear(x2)*White"])
def test_gp_for_raw_rows_of_any_unit(expression, y_scale, library):
    """Kernel, mean and noise are handed over together: the library's posterior on the table as it is."""
    from importlib import import_module

    standard = cases.fitted(expression, 2)
    scale = Standardiser(np.array([2000.0, -0.3]), np.array([7.0, 1e-3]), 50 * y_scale, y_scale)
    fitted = FittedKernel(standard.expression, standard.parameters, standard.columns, "y", scale)
    X, y, Z = cases.points(30, 2, 1), cases.points(30, 1, 2)[:, 0], cases.points(7, 2, 3)
    values = {name: np.array(value) for name, value in cases.in_units(fitted, cases.expected(fitted, X, y, Z)).items()}
    model = export.gp(fitted, library, values["X"], values["y"])
    mean, variance = import_module(f"kitt.export.{library}").predict(model, values["Z"])
    np.testing.assert_allclose(mean - scale.y_mean, values["mean"] - scale.y_mean, rtol=1e-6, atol=1e-6 * y_scale)
    np.testing.assert_allclose(variance, values["variance"], rtol=1e-6)


def test_gpytorch_cannot_have_tiny_units():
    standard = cases.fitted("RBF", 1)
    tiny = FittedKernel(
        standard.expression, standard.parameters, ("x",), "y", Standardiser(np.zeros(1), np.ones(1), 0.0, 1e-6)
    )
    with pytest.warns(UserWarning, match="units in which its values are larger"):
        export.live(tiny, "gpytorch")


def test_rescaling_there_and_back():
    for expression in cases.EXPRESSIONS:
        kernel = cases.fitted(expression)
        again = kernel.in_table_units().rescaled(kernel.standardiser)
        np.testing.assert_allclose(again.theta, kernel.theta, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("library", HERE)
def test_noise_knows_points_by_row_not_by_value(library):
    _, errors = check.run(cases.repeated(library))
    assert not check.failures(errors)


@pytest.mark.parametrize("library", ["gpytorch", "botorch"])
def test_exact_beyond_the_limits_of_gpytorch(library):
    """512 rows are its limit for eager kernels, 800 for Cholesky."""
    fitted = cases.fitted("RBF + Linear*White + Matern32", 2)
    X, y, Z = cases.points(900, 2, 1), cases.points(900, 1, 2)[:, 0], cases.points(20, 2, 3)
    source = export.code(fitted, library, standardised=True)
    case = {"source": source, "library": library, **cases.expected(fitted, X, y, Z)}
    _, errors = check.run(case)
    assert not check.failures(errors)


@pytest.mark.parametrize("library", export.LIBRARIES)
@pytest.mark.parametrize("expression", ["RBF", EVERYTHING, "Matern32(pairs) + Periodic(x1)*Linear(x3)"])
def test_source_stands_alone(expression, library):
    source = export.code(cases.fitted(expression), library)
    compile(source, "exported.py", "exec")
    assert "import kitt" not in source
    assert "from kitt" not in source
    assert ("torch" in source) == (library in ("gpytorch", "botorch"))
    assert ("class Cosine" in source) == ("Cosine" in expression)  # only what is needed


def test_source_keeps_names_and_units():
    values = {"RBF[0].lengthscale": (1.0,), "RBF.variance": 1.0, "noise": 0.1}
    name = "a \"quoted\" {name}\n'''\\"
    standardiser = cases.fitted("RBF", 1).standardiser
    kernel = FittedKernel(parse("RBF"), values, (name,), 'y"', standardiser)
    names: dict = {}
    exec(export.code(kernel, "sklearn", standardised=True, notes=['A "note" \\ here.']), names)
    assert "A 'note' \\\\ here." in export.code(kernel, "sklearn", notes=['A "note" \\ here.'])
    assert (names["columns"], names["target"]) == ([name], 'y"')
    X, y = np.array([[3.0], [5.0]]), np.array([1.0, 2.0])
    np.testing.assert_allclose(names["standardise"](X), standardiser.transform_x(X))
    np.testing.assert_allclose(names["standardise_target"](y), standardiser.transform_y(y))
    mean, variance = names["in_units"](standardiser.transform_y(y), np.ones(2))
    np.testing.assert_allclose(mean, y)
    np.testing.assert_allclose(variance, standardiser.inverse_variance(np.ones(2)))


def test_unknown_library():
    with pytest.raises(InvalidInputError, match="gpytorch, botorch, sklearn, gpflow, gpjax"):
        export.code(cases.fitted("RBF"), "stan")
    with pytest.raises(InvalidInputError, match="'stan'"):
        export.live(cases.fitted("RBF"), "stan")


@pytest.mark.parametrize("library", ["gpflow", "gpjax"])
def test_missing_library(library):
    if importlib.util.find_spec(library):
        pytest.skip("is installed here")
    with pytest.raises(MissingExtraError, match=rf"pip install '\.\[{library}\]'"):
        export.live(cases.fitted("RBF"), library)


# scikit-learn: the kernels can be cloned, pickled and optimised


@pytest.mark.parametrize(
    "expression", ["Linear", "Cosine", "Periodic", "Linear*White", EVERYTHING, *cases.ARRANGED, *cases.CHOSEN]
)
def test_sklearn_gradient(expression):
    from sklearn.base import clone

    kernel = clone(export.live(cases.fitted(expression, seed=1), "sklearn", standardised=True))
    kernel = pickle.loads(pickle.dumps(kernel))
    X = cases.points(8, 3, 1).numpy()
    theta, (_, gradient) = kernel.theta, kernel(X, eval_gradient=True)
    assert gradient.shape == (8, 8, len(theta)) == (8, 8, len(kernel.bounds))
    for i, step in enumerate(1e-6 * np.eye(len(theta))):
        slope = (kernel.clone_with_theta(theta + step)(X) - kernel.clone_with_theta(theta - step)(X)) / 2e-6
        np.testing.assert_allclose(gradient[..., i], slope, atol=1e-7 * max(1, np.abs(slope).max()))
    np.testing.assert_allclose(kernel.diag(X), np.diag(kernel(X)))


def test_sklearn_optimises_with_some_parts_fixed():
    from sklearn.gaussian_process import GaussianProcessRegressor

    kernel = export.live(cases.fitted("Linear + Periodic + White", 2), "sklearn", standardised=True)
    linear, periodic = kernel.k1.k1, kernel.k1.k2.k2
    linear.set_params(shift_bounds="fixed")
    periodic.set_params(period_bounds="fixed")
    X, y = cases.points(25, 2, 1).numpy(), cases.points(25, 1, 2)[:, 0].numpy()
    before = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None).fit(X, y)
    after = GaussianProcessRegressor(kernel, alpha=0.01).fit(X, y)
    assert after.log_marginal_likelihood_value_ > before.log_marginal_likelihood_value_
    assert list(after.kernel_.k1.k1.shift) == list(linear.shift)
    assert list(after.kernel_.k1.k1.slope) != list(linear.slope)


# GPyTorch and BoTorch: the kernels can be copied, trained and used in an acquisition function


@pytest.mark.parametrize("expression", [EVERYTHING, *cases.CHOSEN])
def test_gpytorch_trains_every_parameter(expression):
    from gpytorch.mlls import ExactMarginalLogLikelihood

    from kitt.export import gpytorch

    fitted = cases.fitted(expression, 3)
    X, y = cases.points(25, 3, 1), cases.points(25, 1, 2)[:, 0]
    kernel = export.live(fitted, "gpytorch", standardised=True)
    kernel = pickle.loads(pickle.dumps(copy.deepcopy(kernel)))
    model = gpytorch.gp(kernel, fitted.parameters["noise"], X, y).train()
    ExactMarginalLogLikelihood(model.likelihood, model)(model(X), y).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert sum(p.numel() for p in model.parameters()) == fitted.kernel.size
    assert all(g is not None and g.isfinite().all() and g.abs().sum() > 0 for g in gradients.values()), gradients


@pytest.mark.parametrize(
    "expression", ["Matern52*Linear + RBF", "RBF + White + Linear*White", "RBF(pairs) + Linear(x2)*Periodic(x1)"]
)
def test_botorch_from_fit_to_candidate(expression):
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    from kitt.export import botorch

    fitted = cases.fitted(expression, 2)
    X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.sin(5 * X).sum(-1)
    model = botorch.gp(export.live(fitted, "botorch", True), fitted.parameters["noise"], X, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"options": {"maxiter": 5}})
    acquisition = qLogExpectedImprovement(model, best_f=y.max())
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    candidate, value = optimize_acqf(acquisition, bounds, q=2, num_restarts=2, raw_samples=16, options={"maxiter": 10})
    assert candidate.shape == (2, 2)
    assert ((candidate >= 0) & (candidate <= 1)).all()
    assert value.isfinite()


@pytest.mark.parametrize("library", ["gpytorch", "botorch"])
def test_gpytorch_noise_at_the_training_rows(library):
    """The whole training set in its order, which values alone could not tell from the training set."""
    fitted = cases.fitted("RBF + White", 2)
    X, y = cases.points(12, 2, 1), cases.points(12, 1, 2)[:, 0]
    source = export.code(fitted, library, standardised=True)
    case = {"source": source, "library": library, **cases.expected(fitted, X, y, X.clone())}
    _, errors = check.run(case)
    assert max(errors["mean"], errors["variance"]) < 1e-10


@pytest.mark.parametrize("wrapping", ["scaled", "on the left", "on the right"])
def test_gpytorch_noise_inside_other_kernels(wrapping):
    from kitt.export import gpytorch

    fitted = cases.fitted("RBF + White", 2)
    X, y, Z = cases.points(20, 2, 1), cases.points(20, 1, 2)[:, 0], cases.points(5, 2, 3)
    kernel, nothing = export.live(fitted, "gpytorch", True), gpytorch.scale(gpytorch.rbf([1.0, 1.0]), 1e-14)
    wrapped = {
        "scaled": gpytorch.scale(kernel, 1.0),
        "on the left": kernel + nothing,
        "on the right": nothing + kernel,
    }[wrapping]
    mean, variance = gpytorch.predict(gpytorch.gp(wrapped, fitted.parameters["noise"], X, y), Z)
    expected = cases.expected(fitted, X, y, Z)
    np.testing.assert_allclose(mean, expected["mean"], atol=1e-10)
    np.testing.assert_allclose(variance, expected["variance"], atol=1e-10)


def test_gpytorch_noise_in_batches():
    """BoTorch evaluates a model on batches of points: each must be as it is alone."""
    from kitt.export import botorch

    fitted = cases.fitted("RBF + White + Linear*White", 2)
    X, y, Z = cases.points(12, 2, 1), cases.points(12, 1, 2)[:, 0], cases.points(10, 2, 3)
    model = botorch.gp(export.live(fitted, "botorch", True), fitted.parameters["noise"], X, y)
    alone = model.posterior(Z).variance[:, 0]
    batch = model.posterior(Z.unsqueeze(-2)).variance[:, 0, 0]
    torch.testing.assert_close(alone, batch)
