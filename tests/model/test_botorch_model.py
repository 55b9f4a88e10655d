"""The whole model inside BoTorch: what its acquisition functions, samplers and fantasies expect of a model."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import kitt
from kitt.errors import InvalidInputError, PartialExportWarning
from kitt.model.botorch.mixture import MixtureModel
from kitt.model.components import Component
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.table.table import Table

BOUNDS = torch.tensor([[10.0, -1.0], [14.0, 1.0]], dtype=torch.float64)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = BOUNDS[0].numpy() + (BOUNDS[1] - BOUNDS[0]).numpy() * rng.uniform(size=(n, 2))
    return X, 100 * np.exp(np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * np.exp(X[:, 1]) * rng.normal(size=n))


@pytest.fixture(scope="module")
def model() -> Model:
    """With everything that a mixture can have: two transforms, words of columns, a noise model, spreads, a tail."""
    data = kitt.Dataset.from_arrays(*rows(40, 0), names=["a", "b"])
    plain = Table.of(data)
    fits = (
        kitt.fit("RBF", plain, random_state=0),
        kitt.fit("Matern52", plain.warped(), random_state=0),
        kitt.fit("RBF(pairs) + Linear(x1)*Matern32 + White", plain, random_state=0),
    )
    assert fits[0].noise_model is not None
    entries = (Component(0, 0.3, True, 0.25), Component(0, 0.2, False, 4.0), Component(1, 0.3), Component(2, 0.2))
    return Model.of(Mixture(fits, entries, Tail(0.01)), data)


@pytest.fixture(scope="module")
def plain(model: Model) -> Model:
    """One GP of the target as it is: its posterior is a normal distribution."""
    return Model.of(Mixture.of(model.mixture.models[:1], [1.0]), model.rows)


def points(*shape: int, seed: int = 5) -> torch.Tensor:
    uniform = torch.rand(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * uniform


@pytest.mark.parametrize("noisy", [False, True])
def test_the_moments_are_those_of_the_model(model: Model, noisy: bool) -> None:
    Z = points(7)
    posterior = model.to_botorch().posterior(Z, observation_noise=noisy)
    mean, std = model.predict(Z.numpy(), noisy)
    np.testing.assert_allclose(posterior.mean[:, 0], mean, rtol=1e-9)
    np.testing.assert_allclose(posterior.variance[:, 0], std**2, rtol=1e-9)
    covariance = model.covariance(Z.numpy(), noisy)
    np.testing.assert_allclose(posterior.distribution.covariance_matrix, covariance, atol=1e-8 * covariance.max())


def test_the_distribution_is_that_of_the_model(model: Model) -> None:
    Z, levels = points(4), torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    posterior = model.to_botorch().posterior(Z, observation_noise=True)
    np.testing.assert_allclose(
        posterior.quantile(levels)[..., 0].T, model.quantiles(Z.numpy(), levels.numpy()), rtol=1e-6
    )
    density = np.exp(model.log_density(Z.numpy(), posterior.mean[:, 0].numpy()))
    np.testing.assert_allclose(posterior.density(posterior.mean)[:, 0], density, rtol=1e-9)


@pytest.mark.parametrize("noisy", [False, True])
def test_shapes_and_batches(model: Model, noisy: bool) -> None:
    botorch_model, Z = model.to_botorch(), points(3, 2)
    posterior = botorch_model.posterior(Z, observation_noise=noisy)
    assert posterior.mean.shape == posterior.variance.shape == (3, 2, 1)
    assert posterior.rsample(torch.Size([5])).shape == (5, 3, 2, 1)
    for i in range(3):
        alone = botorch_model.posterior(Z[i], observation_noise=noisy)
        torch.testing.assert_close(alone.mean, posterior.mean[i])
        torch.testing.assert_close(alone.variance, posterior.variance[i])
    assert botorch_model.batch_shape == torch.Size()
    assert botorch_model.num_outputs == 1
    assert posterior.mean.dtype == torch.float64


def test_gradients(model: Model) -> None:
    botorch_model = model.to_botorch()
    base = torch.randn(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def values(Z: torch.Tensor) -> torch.Tensor:
        posterior = botorch_model.posterior(Z, observation_noise=True)
        draws = posterior.rsample_from_base_samples(torch.Size([8]), base)
        return torch.cat([posterior.mean.ravel(), posterior.variance.ravel() / 100, draws.ravel()])

    assert torch.autograd.gradcheck(values, (points(2).requires_grad_(True),), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("noisy", [False, True])
def test_draws_have_the_moments(model: Model, noisy: bool) -> None:
    posterior = model.to_botorch().posterior(points(3), observation_noise=noisy)
    torch.manual_seed(0)
    draws = posterior.rsample(torch.Size([40_000]))[..., 0]
    spread = posterior.variance[:, 0].sqrt()
    assert ((draws.mean(0) - posterior.mean[:, 0]).abs() < 0.05 * spread).all()
    assert ((draws.std(0) / spread - 1).abs() < 0.1).all()  # moments leave out the ends of a transform
    correlation = torch.corrcoef(draws.T) - torch.corrcoef(posterior.distribution.covariance_matrix)
    assert torch.isfinite(correlation).all()


def test_points_that_were_measured_or_repeat(model: Model, plain: Model) -> None:
    """There the covariance of the function is nearly singular."""
    for botorch_model in (model.to_botorch(), plain.to_botorch()):
        X = botorch_model.train_inputs[0][:20].repeat(2, 1)
        posterior = botorch_model.posterior(X)
        assert (posterior.variance > 0).all()
        assert posterior.rsample(torch.Size([16])).isfinite().all()


def test_gradients_at_points_without_variance() -> None:
    """Where a function without noise was measured nothing is left of its variance, and a part of a ratio is zero."""
    X, _ = rows(30, 0)
    data = kitt.Dataset.from_arrays(X, 5 + np.sin(X[:, 0]) + X[:, 1])
    fits = [kitt.fit(word, data, random_state=0) for word in ("RBF", "Matern52")]
    exact = Model.of(Mixture.of(fits, [0.6, 0.4]), data).to_botorch()
    Z = torch.tensor(np.concatenate([X[:3], X[:1], X[:2] + 0.1])).requires_grad_(True)
    posterior = exact.posterior(Z)
    (posterior.rsample(torch.Size([8])).sum() + posterior.distribution.covariance_matrix.sum()).backward()
    assert Z.grad.isfinite().all()


def test_far_beyond_the_end_of_a_transform(model: Model) -> None:
    """There all values of the target are the last one that the transform knows, without any variance."""
    gp = model.mixture.models[1]
    ended = replace(gp, fitted=replace(gp.fitted, warp=replace(gp.warp, low=0.9, high=1.0)))
    Z = points(3, 1).requires_grad_(True)
    posterior = Model.of(Mixture.of([ended], [1.0]), model.rows).to_botorch().posterior(Z)
    (posterior.mean.sum() + posterior.variance.sum()).backward()
    assert (posterior.variance > 0).all()
    assert Z.grad.isfinite().all()


def test_conditioning_is_an_update(model: Model) -> None:
    X, y = rows(5, 1)
    conditioned = model.to_botorch().condition_on_observations(torch.tensor(X), torch.tensor(y)[:, None])
    Z = points(6)
    mean, std = model.update(X, y).predict(Z.numpy(), False)
    posterior = conditioned.posterior(Z)
    np.testing.assert_allclose(posterior.mean[:, 0], mean, rtol=1e-8)
    np.testing.assert_allclose(posterior.variance[:, 0], std**2, rtol=1e-6)
    torch.testing.assert_close(conditioned.train_inputs[0][-5:], torch.tensor(X))
    torch.testing.assert_close(conditioned.train_targets[-5:], torch.tensor(y))


def test_conditioning_on_what_are_no_observations(model: Model) -> None:
    botorch_model, X = model.to_botorch(), points(3)
    for Y, expected in (
        (torch.ones(2, 1), r"shape \(..., 3, 1\)"),
        (torch.ones(3), r"shape \(..., 3, 1\)"),
        (torch.full((3, 1), torch.nan), "finite targets"),
    ):
        with pytest.raises(InvalidInputError, match=expected):
            botorch_model.condition_on_observations(X, Y)


def test_posterior_transforms_are_applied_whatever_the_noise(model: Model) -> None:
    """As one does who minimises."""
    from botorch.acquisition.objective import ScalarizedPosteriorTransform

    negated = ScalarizedPosteriorTransform(torch.tensor([-1.0], dtype=torch.float64))
    botorch_model, X = model.to_botorch(), points(3)
    for noise in (False, True, torch.ones(3, 1, dtype=torch.float64)):
        own = botorch_model.posterior(X, observation_noise=noise)
        transformed = botorch_model.posterior(X, observation_noise=noise, posterior_transform=negated)
        torch.testing.assert_close(transformed.mean, -own.mean)
        torch.testing.assert_close(transformed.variance, own.variance)


def test_fantasies_are_models_of_their_own(model: Model) -> None:
    from botorch.sampling import SobolQMCNormalSampler

    botorch_model, X = model.to_botorch(), points(3, 2)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    fantasy = botorch_model.fantasize(X, sampler)
    assert fantasy.batch_shape == (4, 3)
    Z = points(4, 3, 2, seed=6)
    mean = fantasy.posterior(Z).mean
    assert mean.shape == (4, 3, 2, 1)
    Y = sampler(botorch_model.posterior(X, observation_noise=True))
    alone = botorch_model.condition_on_observations(X[1], Y[2, 1])
    torch.testing.assert_close(alone.posterior(Z[2, 1]).mean, mean[2, 1])


@pytest.mark.parametrize("name", ["LogExpectedImprovement", "UpperConfidenceBound", "qLogNEI", "qLogEI", "KG"])
def test_acquisition_functions(model: Model, name: str) -> None:
    from botorch import acquisition as a
    from botorch.optim import optimize_acqf

    botorch_model = model.to_botorch()
    X, y = botorch_model.train_inputs[0], botorch_model.train_targets
    made = {
        "LogExpectedImprovement": lambda: a.LogExpectedImprovement(botorch_model, y.max()),
        "UpperConfidenceBound": lambda: a.UpperConfidenceBound(botorch_model, 2.0),
        "qLogNEI": lambda: a.qLogNoisyExpectedImprovement(botorch_model, X, prune_baseline=True),
        "qLogEI": lambda: a.qLogExpectedImprovement(botorch_model, y.max()),
        "KG": lambda: a.qKnowledgeGradient(botorch_model, num_fantasies=3),
    }[name]()
    q = 1 if isinstance(made, a.AnalyticAcquisitionFunction) else 2
    options = {"maxiter": 4}
    candidate, value = optimize_acqf(made, BOUNDS, q=q, num_restarts=2, raw_samples=8, options=options)
    assert candidate.shape == (q, 2)
    assert ((candidate >= BOUNDS[0]) & (candidate <= BOUNDS[1])).all()
    assert value.isfinite()


def test_points_of_the_unit_cube(model: Model) -> None:
    unit = model.to_botorch(bounds=BOUNDS)
    Z = points(4)
    inside = (Z - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    torch.testing.assert_close(unit.posterior(inside).mean, model.to_botorch().posterior(Z).mean)
    single = model.to_botorch(single=True, bounds=BOUNDS)
    torch.testing.assert_close(single.posterior(inside).mean, model.to_botorch(single=True).posterior(Z).mean)
    for wrong in ([[0.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]], [0, 1], [[0.0, 0.0], [1.0, np.inf]]):
        for is_single in (False, True):
            with pytest.raises(InvalidInputError, match=r"bounds of shape \(2, 2\)"):
                model.to_botorch(single=is_single, bounds=wrong)


def test_copies_and_states(model: Model) -> None:
    first, Z = model.to_botorch(), points(3)
    again = copy.deepcopy(first)
    torch.testing.assert_close(again.posterior(Z).mean, first.posterior(Z).mean)
    other = model.to_botorch()
    for tensor in (*other.parameters(), *other.buffers()):
        tensor.data.copy_(torch.where(tensor == 0, tensor, tensor + 0.1))
    assert not torch.allclose(other.posterior(Z).variance, first.posterior(Z).variance)
    for part, own in zip(other.parts, model.to_botorch().parts, strict=True):  # rows are no state
        part.X, part.y = own.X, own.y
    other.load_state_dict(first.state_dict())
    torch.testing.assert_close(other.posterior(Z).variance, first.posterior(Z).variance)
    assert first.subset_output([0]) is first
    with pytest.raises(InvalidInputError, match="one output"):
        first.subset_output([1])
    with pytest.raises(InvalidInputError, match=r"shape \(..., q, 2\)"):
        first.posterior(torch.zeros(3, 5))


def test_parameters_determine_the_posterior(model: Model) -> None:
    """As in any module of torch: they are found, and once they have changed the rows are conditioned on again."""
    botorch_model, Z = model.to_botorch(), points(3)
    assert sum(p.numel() for p in botorch_model.parameters()) == sum(gp.parameter_count for gp in model.mixture.models)
    assert not botorch_model.posterior(Z).mean.requires_grad
    assert not botorch_model.training
    before = botorch_model.posterior(Z).mean
    botorch_model.train()
    with torch.no_grad():
        for parameter in botorch_model.parameters():
            parameter.add_(0.3)
    changed = botorch_model.eval().posterior(Z)
    assert not torch.allclose(changed.mean, before)
    fresh = model.to_botorch()
    fresh.load_state_dict(botorch_model.state_dict())
    torch.testing.assert_close(fresh.posterior(Z).variance, changed.variance)


@pytest.mark.parametrize("noisy", [False, True])
def test_many_points_by_themselves_cost_no_joint_covariance(model: Model, noisy: bool) -> None:
    botorch_model = model.to_botorch()
    Z = points(4, 3)
    conditioned = botorch_model.condition_on_observations(points(4, 2, seed=1), torch.full((4, 2, 1), 90.0))
    for own in (botorch_model, conditioned):
        alone, joint = (own.posterior(Z, observation_noise=noisy) for _ in range(2))
        covariance = joint.distribution.covariance_matrix
        torch.testing.assert_close(alone.mean, joint.distribution.mean.unsqueeze(-1))
        torch.testing.assert_close(alone.variance[..., 0], torch.diagonal(covariance, dim1=-2, dim2=-1))
        assert "distribution" not in alone.__dict__
    many = points(20_000)  # a joint covariance would need 3 GB
    assert botorch_model.posterior(many, observation_noise=noisy).variance.shape == (20_000, 1)


def test_a_sparse_model_predicts_and_says_what_it_cannot(model: Model) -> None:
    table = Table.of(model.rows)
    gp = kitt.fit("RBF", table, random_state=0, exact_rows=20, subset_rows=30, inducing=15)
    sparse = Model.of(Mixture.of([gp], [1.0]), model.rows)
    Z = points(3)
    mean, std = sparse.predict(Z.numpy(), False)
    posterior = sparse.to_botorch().posterior(Z)
    np.testing.assert_allclose(posterior.mean[:, 0], mean, rtol=1e-8)
    np.testing.assert_allclose(posterior.variance[:, 0], std**2, rtol=1e-8)
    with pytest.raises(InvalidInputError, match="sparse"):
        sparse.to_botorch().condition_on_observations(Z, torch.ones(3, 1))


def test_noise_alone_has_a_gradient(model: Model) -> None:
    gp = kitt.fit("White", Table.of(model.rows), random_state=0)
    Z = points(2, 1).requires_grad_(True)
    Model.of(Mixture.of([gp], [1.0]), model.rows).to_botorch().posterior(Z).mean.sum().backward()
    assert (Z.grad == 0).all()


# one kernel


@pytest.mark.parametrize(
    "expression",
    [
        "RBF",
        "Matern52 + Linear",
        "RBF*Periodic + White",
        "Linear*Matern12 + Cosine",
        "Matern32 + Linear*White",
        "RBF(pairs)",
        "Matern52(all) + Linear(x2)*RBF(x1)",
    ],
)
def test_a_single_kernel_is_fitted_already(expression: str) -> None:
    """The objective of `fit_gpytorch_mll` is KITT's, and stands at its maximum."""
    from botorch.fit import fit_gpytorch_mll
    from gpytorch.mlls import ExactMarginalLogLikelihood

    data = kitt.Dataset.from_arrays(*rows(40, 0))
    gp = kitt.fit(expression, data, random_state=0, tolerance=1e-4)
    assert gp.converged
    fitted = Model.of(Mixture.of([gp], [1.0]), data)
    single, Z = fitted.to_botorch(single=True), points(5)
    mean, std = fitted.predict(Z.numpy())
    before = single.posterior(Z, observation_noise=True)
    np.testing.assert_allclose(before.mean.detach()[:, 0], mean, rtol=1e-6)
    np.testing.assert_allclose(before.variance.detach()[:, 0], std**2, rtol=1e-6)
    mll = ExactMarginalLogLikelihood(single.likelihood, single)

    def objective() -> float:
        single.train()
        return float(mll(single(*single.train_inputs), single.train_targets)) * data.n

    assert objective() == pytest.approx(gp.log_posterior, abs=1e-6)
    fit_gpytorch_mll(mll)
    assert objective() == pytest.approx(gp.log_posterior, abs=0.01)
    after = single.eval().posterior(Z, observation_noise=True)
    assert ((after.mean - before.mean).abs() < 0.02 * before.variance.sqrt()).all()


@pytest.mark.parametrize("component", [0, 2])
def test_a_single_kernel_can_be_conditioned_and_drawn(model: Model, component: int) -> None:
    from botorch.optim.utils import sample_all_priors
    from gpytorch.mlls import ExactMarginalLogLikelihood

    single, X = model.to_botorch(single=True, component=component), points(2)
    single.posterior(X)
    more = single.condition_on_observations(X, torch.full((2, 1), 100.0, dtype=torch.float64))
    assert more.posterior(X).mean.shape == (2, 1)
    sample_all_priors(single)
    assert torch.isfinite(
        ExactMarginalLogLikelihood(single.likelihood, single)(
            single.train()(*single.train_inputs), single.train_targets
        )
    )


# what is said about a part


def test_a_part_says_that_it_is_one(model: Model, plain: Model) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.to("gpytorch")
        plain.to("gpytorch")
        model.to("gpytorch", component=2)
    (said,) = [str(w.message) for w in caught if w.category is PartialExportWarning]
    assert "50% of the weight in a model that averages 3 kernels" in said
    text = model.code("sklearn")
    assert "50% of the weight" in text.replace("\n", " ")
    assert "noise model" in text
    assert "of the weight" not in plain.code("sklearn")


def test_a_transformed_target_has_no_units(model: Model) -> None:
    for ask in (lambda: model.to("sklearn", 1), lambda: model.code("sklearn", 1), lambda: model.to_gp("sklearn", 1)):
        with pytest.raises(InvalidInputError, match="take component=0"):
            ask()
    model.to("sklearn", 1, standardised=True)
    only = Model.of(Mixture.of(model.mixture.models[1:2], [1.0]), model.rows)
    assert "transform of the standardised target" in only.code("sklearn").replace("\n", " ")


@pytest.mark.parametrize("library", ["gpytorch", "botorch", "sklearn"])
def test_the_heaviest_kernel_on_the_rows(plain: Model, library: str) -> None:
    from importlib import import_module

    Z = points(4).numpy()
    mean, variance = import_module(f"kitt.export.{library}").predict(plain.to_gp(library), Z)
    expected, std = plain.predict(Z)
    np.testing.assert_allclose(mean, expected, rtol=1e-6)
    np.testing.assert_allclose(variance, std**2, rtol=1e-6)


def test_a_single_kernel_can_be_pickled(model: Model) -> None:
    gp = model.to_botorch(single=True)
    again = pickle.loads(pickle.dumps(gp))
    X = torch.tensor(model.rows.X[:4])
    assert torch.allclose(again.posterior(X).mean, gp.posterior(X).mean)


def test_single_draws_come_from_all_components() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (30, 1))
    model = kitt.fit("RBF", kitt.Dataset.from_arrays(x, np.sin(x[:, 0])), random_state=0)
    parts = (Component(0, 0.5, spread=1.0), Component(0, 0.5, spread=100.0))
    posterior = MixtureModel(Mixture((model,), parts)).posterior(torch.zeros(1, 1), observation_noise=True)
    torch.manual_seed(0)
    draws = torch.cat([posterior.rsample(torch.Size([1])).flatten() for _ in range(200)])
    many = posterior.rsample(torch.Size([2000])).flatten()
    assert draws.std() == pytest.approx(float(many.std()), rel=0.25)


def test_moments_of_a_transformed_target_are_those_of_the_model() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (40, 1))
    data = Table.of(kitt.Dataset.from_arrays(x, np.exp(2 * np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=40)))).warped()
    fitted = kitt.fit("RBF", data, random_state=0)
    mixture = Mixture.of([fitted], [1.0])
    there = np.linspace(-2.5, 2.5, 7)[:, None]
    posterior = MixtureModel(mixture).posterior(torch.tensor(there), observation_noise=True)
    mean, std = mixture.predict(there)
    np.testing.assert_allclose(posterior.mean[:, 0].numpy(), mean, rtol=1e-6)
    np.testing.assert_allclose(posterior.variance[:, 0].numpy(), std**2, rtol=1e-6)


def test_fantasies_below_zero_do_not_ruin_a_kernel_of_the_logarithm() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (40, 1))
    data = Table.of(kitt.Dataset.from_arrays(x, np.exp(2 * np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=40)))).warped()
    assert data.warp.kind == "log"
    model = MixtureModel(Mixture.of([kitt.fit("RBF", data, random_state=0)], [1.0]))
    X = torch.tensor([[0.3]])
    with pytest.raises(InvalidInputError, match="expected positive targets"):
        model.condition_on_observations(X, torch.tensor([[-1.0]]))
    drawn = model._conditioned(X, torch.tensor([-5.0], dtype=torch.float64))
    assert float(drawn._parts[0].y.min()) > -6
