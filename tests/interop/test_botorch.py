"""A model of BoTorch made of points: what BoTorch and its hosts construct, fit, condition, copy, subset and store."""

import copy
import pickle
import warnings

import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.model import ModelList
from botorch.models.transforms.input import Normalize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset

from kitt.errors import InvalidInputError
from kitt.interop.botorch import KITTModel

UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def points(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def targets(X: torch.Tensor) -> torch.Tensor:
    return torch.stack([10 + (5 * X[..., 0]).sin() + X[..., 1], (X[..., 0] - X[..., 1]).square()], -1)


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def one() -> KITTModel:
    return KITTModel(points(14), targets(points(14))[:, :1]).fit().eval()


@pytest.fixture(scope="module")
def two() -> KITTModel:
    return KITTModel(points(14), targets(points(14))).fit().eval()


@pytest.mark.parametrize("outputs", [1, 2])
def test_posteriors_have_the_shapes_of_batches_and_outputs(one: KITTModel, two: KITTModel, outputs: int) -> None:
    model = one if outputs == 1 else two
    assert model.num_outputs == outputs
    assert model.batch_shape == torch.Size()
    for shape in ((3,), (4, 3), (2, 4, 1)):
        Z = points(*shape, seed=1)
        for noisy in (False, True):
            posterior = model.posterior(Z, observation_noise=noisy)
            assert posterior.mean.shape == posterior.variance.shape == (*shape, outputs)
            assert posterior.rsample(torch.Size([5])).shape == (5, *shape, outputs)
        torch.testing.assert_close(model.posterior(Z).mean, targets(Z)[..., :outputs], atol=0.3, rtol=0)


def test_it_is_constructed_as_hosts_do(one: KITTModel) -> None:
    data = SupervisedDataset(points(14), targets(points(14))[:, :1], feature_names=["a", "b"], outcome_names=["y"])
    same = KITTModel(**KITTModel.construct_inputs(data)).fit()
    torch.testing.assert_close(same.posterior(points(3, seed=1)).mean, one.posterior(points(3, seed=1)).mean)
    assert next(same.parameters()).dtype == torch.float64


def test_a_state_is_conditioned_on_the_points_of_the_model_that_loads_it(two: KITTModel) -> None:
    Z = points(3, seed=1)
    whole, some = KITTModel(points(14), targets(points(14))), KITTModel(points(14)[:10], targets(points(14))[:10])
    with pytest.raises(InvalidInputError, match=r"call fit\(\) first"):
        some.posterior(Z)
    for model in (whole, some):
        model.load_state_dict(two.state_dict())
    torch.testing.assert_close(whole.posterior(Z).variance, two.posterior(Z).variance)
    assert (some.posterior(Z).variance > two.posterior(Z).variance).all()
    for again in (copy.deepcopy(two), pickle.loads(pickle.dumps(two)), two.train().eval()):
        torch.testing.assert_close(again.posterior(Z).mean, two.posterior(Z).mean)


def test_outputs_are_subset_and_listed(one: KITTModel, two: KITTModel) -> None:
    Z, gp = points(3, seed=1), SingleTaskGP(points(14), targets(points(14))[:, 1:])
    torch.testing.assert_close(two.subset_output([1]).posterior(Z).mean, two.posterior(Z).mean[:, 1:])
    torch.testing.assert_close(two.posterior(Z, output_indices=[1]).mean, two.posterior(Z).mean[:, 1:])
    assert ModelList(one, gp).posterior(Z).mean.shape == (3, 2)
    singles = [model.to_botorch(single=True) for model in two.fitted]
    assert ModelListGP(*singles).posterior(Z).mean.shape == (3, 2)


@pytest.mark.parametrize("outputs", [1, 2])
def test_fantasies_and_conditioning(one: KITTModel, two: KITTModel, outputs: int) -> None:
    model, X, Z = (one if outputs == 1 else two), points(4, 2, seed=2), points(3, seed=1)
    fantasy = model.fantasize(X, SobolQMCNormalSampler(torch.Size([6]), seed=0))
    assert fantasy.batch_shape == (6, 4)
    assert fantasy.num_outputs == outputs
    assert fantasy.posterior(points(6, 4, 3, seed=1)).mean.shape == (6, 4, 3, outputs)
    more = model.condition_on_observations(Z, targets(Z)[:, :outputs])
    assert (more.posterior(Z).variance < model.posterior(Z).variance).all()
    torch.testing.assert_close(more.posterior(Z).mean, targets(Z)[:, :outputs], atol=0.1, rtol=0)


def test_pending_points_count(one: KITTModel) -> None:
    """The improvement is that of the best of all points, also of those that are evaluated already."""
    best = targets(points(14))[:, 0].max()
    free = qLogExpectedImprovement(one, best_f=best)
    candidate, _ = optimize_acqf(free, UNIT, q=1, num_restarts=2, raw_samples=16)
    taken = qLogExpectedImprovement(one, best_f=best, X_pending=candidate)
    same, other = candidate.unsqueeze(0), points(1, 1, seed=7)
    assert free(other) < free(same) - 0.5
    assert taken(other) > free(same) - 0.1


def test_several_objectives(two: KITTModel) -> None:
    made = qLogNoisyExpectedHypervolumeImprovement(two, ref_point=[9.0, 0.0], X_baseline=points(14))
    candidate, value = optimize_acqf(made, UNIT, q=2, num_restarts=1, raw_samples=8, options={"maxiter": 3})
    assert candidate.shape == (2, 2)
    assert value.isfinite()


def test_points_in_other_units(one: KITTModel) -> None:
    """By a transform of BoTorch, or by bounds: both are the model in the unit cube."""
    low, width = torch.tensor([-5.0, 100.0]).double(), torch.tensor([10.0, 1.0]).double()
    X, Z, Y = low + width * points(14), points(3, seed=1), targets(points(14))[:, :1]
    box = torch.stack([low, low + width])
    for options in ({"bounds": box}, {"input_transform": Normalize(2, bounds=box)}):
        model = KITTModel(X, Y, **options).fit().eval()
        torch.testing.assert_close(model.posterior(low + width * Z).mean, one.posterior(Z).mean, atol=1e-3, rtol=1e-4)
        model.train()
        assert torch.equal(model.train_inputs[0], X)


def test_shapes_that_are_no_points_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="a model for each batch"):
        KITTModel(points(3, 5), targets(points(3, 5)))
    with pytest.raises(InvalidInputError, match="shape of train_Y"):
        KITTModel(points(5), targets(points(5)), torch.ones(5, 1))


def test_known_variances_are_those_of_each_output() -> None:
    X, Y = points(14), targets(points(14))
    Yvar = torch.stack([torch.full((14,), 1e-4), torch.linspace(1e-6, 0.1, 14)], -1).double()
    model = KITTModel(X, Y, Yvar).fit().eval()
    for k, fitted in enumerate(model.fitted):
        assert fitted is not None
        assert fitted.rows is not None
        torch.testing.assert_close(torch.tensor(fitted.rows.noise), Yvar[:, k])
    added = model.posterior(X, observation_noise=True).variance - model.posterior(X).variance
    assert (added > 0.9 * Yvar.mean(0)).all()
    again = KITTModel(X, Y, Yvar)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again.posterior(X).mean, model.posterior(X).mean)
    Z, z = points(2, seed=1), targets(points(2, seed=1)) + 0.05
    sure, unsure = (model.condition_on_observations(Z, z, noise=torch.full((2, 2), v).double()) for v in (1e-8, 1.0))
    assert (sure.posterior(Z).variance < unsure.posterior(Z).variance).all()
