"""The advisor of an optimisation: when it asks, fits and conditions; and that it always gives a model."""

import math
import warnings

import numpy as np
import pytest
import torch
from botorch.acquisition import PosteriorMean
from botorch.optim import optimize_acqf_mixed

from kitt.errors import FitError, InvalidInputError
from kitt.interop.advisor import AdvisorConfig, KernelAdvisor
from kitt.model.document import Model
from kitt.model.several import Models


def draw(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return 10 + 5 * X, 50 + 3 * (torch.sin(6 * X[:, :1]) + X[:, 1:])


def actions(advisor: KernelAdvisor, X: torch.Tensor, Y: torch.Tensor, sizes: range) -> list[str]:
    for n in sizes:
        posterior = advisor.model(X[:n], Y[:n]).posterior(X[-3:])
        assert posterior.mean.isfinite().all()
        assert (posterior.variance > 0).all()
    return [step.action for step in advisor.steps]


def test_it_starts_at_three_points_and_captions_when_they_have_doubled() -> None:
    X, Y = draw(30)
    done = actions(KernelAdvisor(config=AdvisorConfig(caption_improbable=False)), X, Y, range(3, 18))
    assert done[:5] == ["plain"] * 5
    assert [n for n, action in zip(range(3, 18), done, strict=True) if action == "captioned"] == [8, 16]
    assert set(done) == {"plain", "captioned", "fitted"}


def test_between_fits_it_conditions() -> None:
    X, Y = draw(45)
    advisor = KernelAdvisor(config=AdvisorConfig(caption_growth=math.inf, fit_growth=1.1, caption_improbable=False))
    assert actions(advisor, X, Y, range(40, 45)) == ["captioned", "conditioned", "conditioned", "conditioned", "fitted"]
    before, model = len(advisor.steps), advisor.model(X[:44], Y[:44])
    assert advisor.steps[before].reason == "nothing is new"
    torch.testing.assert_close(model.train_targets, Y[:44, 0])


def test_improbable_points_are_captioned_again() -> None:
    X, Y = draw(30)
    advisor = KernelAdvisor()
    actions(advisor, X, Y, range(20, 21))
    wrong = torch.cat([Y[:20], Y[20:26] + 100 * torch.randn(6, 1, generator=torch.Generator().manual_seed(0))])
    advisor.model(X[:26], wrong)
    assert advisor.steps[-1].action == "captioned"
    assert "improbable under the model" in advisor.steps[-1].reason


def test_other_points_start_anew() -> None:
    advisor = KernelAdvisor()
    advisor.model(*draw(12))
    advisor.model(*draw(13, seed=1))
    assert [step.action for step in advisor.steps] == ["captioned", "captioned"]


def test_targets_may_be_standardised_at_each_step() -> None:
    """As Ax does, and many a loop in BoTorch: then those of the step before come in other units."""
    X, Y = draw(26)
    raw, standardised = (KernelAdvisor(config=AdvisorConfig(caption_improbable=False)) for _ in range(2))
    for n in range(18, 27):
        mean, std = Y[:n].mean(), Y[:n].std()
        ours = raw.model(X[:n], Y[:n]).posterior(X)
        theirs = standardised.model(X[:n], (Y[:n] - mean) / std).posterior(X)
        torch.testing.assert_close(mean + std * theirs.mean, ours.mean, rtol=1e-4, atol=1e-3)
    assert [step.action for step in standardised.steps] == [step.action for step in raw.steps]
    assert {step.action for step in raw.steps} == {"captioned", "fitted", "conditioned"}


def test_a_warm_fit_is_as_good_as_a_new_one() -> None:
    X, Y = draw(24)
    warm = KernelAdvisor(config=AdvisorConfig(caption_growth=math.inf, caption_improbable=False, whole=False))
    actions(warm, X, Y, range(20, 25))
    cold = KernelAdvisor(config=AdvisorConfig(whole=False))
    cold.model(X, Y)
    ours, theirs = (max(m.log_posterior for m in a._state.model.mixture.models) for a in (warm, cold))
    assert ours > theirs - 3


ODD = {
    "constant targets": (draw(10)[0], torch.ones(10, 1)),
    "one point many times": (torch.ones(12, 2), draw(12)[1]),
    "a constant column": (draw(12)[0] * torch.tensor([1.0, 0.0]), draw(12)[1]),
    "repeated points": tuple(part.repeat(4, 1) for part in draw(5)),
    "failed evaluations": (draw(10)[0], torch.where(torch.arange(10)[:, None] < 2, torch.nan, draw(10)[1])),
    "large numbers": (draw(10)[0] * 1e100, draw(10)[1] * 1e30),
    "a point far away": (torch.cat([draw(10)[0], torch.full((1, 2), 1e6)]), draw(11)[1]),
    "single precision": tuple(part.float() for part in draw(10)),
}


@pytest.mark.parametrize("name", ODD)
def test_it_gives_a_model_of_any_points(name: str) -> None:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.optim import optimize_acqf

    X, Y = ODD[name]
    advisor = KernelAdvisor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (len(X) - 1, len(X)):
            model = advisor.model(X[:n], Y[:n])
        acquisition = LogExpectedImprovement(model, Y.double().nan_to_num(-1e30).max())
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        candidate, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=1, raw_samples=4, options={"maxiter": 3})
    assert candidate.isfinite().all()


def test_shapes_that_are_no_points_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least 3 points"):
        KernelAdvisor().model(torch.rand(2, 2), torch.rand(2, 1))
    with pytest.raises(InvalidInputError, match=r"shape \(n, D\)"):
        KernelAdvisor().model(torch.rand(5, 2), torch.rand(5, 2, 2))
    with pytest.raises(InvalidInputError, match="at least 3 points"):
        KernelAdvisor().model(np.full((5, 2), np.nan), np.ones(5))


@pytest.mark.parametrize("skewed", [False, True])
def test_crowded_points_move_neither_the_scale_nor_the_mean(skewed: bool) -> None:
    """Forty of sixty points lie around the largest value: the mean far from all points stays that of the process."""
    generator = torch.Generator().manual_seed(0)
    X = 12 * torch.rand(20, 1, generator=generator, dtype=torch.float64)
    X = torch.cat([X, 1.57 + 0.05 * torch.randn(40, 1, generator=generator, dtype=torch.float64)])
    Y = torch.sin(X).exp() if skewed else torch.sin(X)
    advisor = KernelAdvisor(bounds=[[0.0], [12.0]])
    for n in (20, 40, 60):
        advisor.model(X[:n], Y[:n])
    model = advisor.fitted
    s = model.best.standardiser
    assert s.x_mean == pytest.approx([6.0])
    assert s.x_scale == pytest.approx([12 / math.sqrt(12)])
    assert s.y_mean < float(Y.mean()) - 0.2, (s.y_mean, Y.mean())
    for gp in model.mixture.models:  # the transform and the standardisation belong together
        np.testing.assert_allclose(s.inverse_mean(gp.warp.inverse(gp.y.numpy())), Y[:, 0], rtol=1e-9)


def test_bounds_are_checked() -> None:
    for bounds in ([[0.0, 1.0], [1.0, 1.0]], [[0.0], [1.0]], "unit"):
        with pytest.raises(InvalidInputError, match=r"bounds of shape \(2, 2\)"):
            KernelAdvisor(bounds).model(*draw(10))


def test_its_model_can_be_had() -> None:
    advisor = KernelAdvisor()
    assert advisor.fitted is None
    X, Y = draw(12)
    model = advisor.model(X, Y)
    mean, _ = advisor.fitted.predict(X.numpy(), noisy=False)
    np.testing.assert_allclose(model.posterior(X).mean[:, 0], mean, rtol=1e-9)


def test_known_variances_of_the_noise_may_be_standardised_with_the_targets() -> None:
    X, Y = draw(13)
    Yvar = torch.full_like(Y, 0.01)
    advisor = KernelAdvisor(config=AdvisorConfig(caption_improbable=False))
    for n, unit in ((11, 1.0), (12, 3.0), (13, 0.5)):
        model = advisor.model(X[:n], unit * Y[:n], unit**2 * Yvar[:n])
    assert [step.action for step in advisor.steps] == ["captioned", "fitted", "fitted"]
    assert advisor.fitted is not None
    np.testing.assert_allclose(advisor.fitted.rows.noise, 0.25 * 0.01)
    added = model.posterior(X, observation_noise=True).variance - model.posterior(X).variance
    assert (added > 0.9 * 0.25 * 0.01).all()
    advisor.model(X, 0.5 * Y)  # nothing is known any more
    assert advisor.steps[-1].action == "captioned"


def test_several_outcomes_have_kernels_of_their_own() -> None:
    X, Y = draw(13)
    both = torch.cat([Y, (X - 12).square().sum(-1, keepdim=True)], -1)
    both[4, 1] = math.nan  # an evaluation that gave one of two outcomes
    advisor, alone = KernelAdvisor(), KernelAdvisor()
    for n in (12, 13):
        posterior = advisor.model(X[:n], both[:n]).posterior(X)
        expected = alone.model(X[:n], Y[:n]).posterior(X)
        assert posterior.mean.shape == (13, 2)
        torch.testing.assert_close(posterior.mean[:, :1], expected.mean)
    assert [step.output for step in advisor.steps] == [0, 1, 0, 1]
    assert [step.points for step in advisor.steps] == [12, 11, 13, 12]
    assert isinstance(advisor.fitted, Models)
    assert advisor.fitted.targets == ("y1", "y2")
    assert isinstance(alone.fitted, Model)


def coded(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One continuous input, and one with three categories that each move the target."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    code = torch.randint(3, (n, 1), generator=generator)
    return torch.cat([x, code.double()], -1), torch.sin(4 * x) + torch.tensor([0.0, 5.0, -2.0]).double()[code]


def test_categories_are_no_numbers() -> None:
    X, Y = coded(21)
    advisor = KernelAdvisor(bounds=[[0, 0], [1, 2]], categories={1: 3})
    for n in (20, 21):
        model = advisor.model(X[:n], Y[:n])
    (fitted,) = advisor.models
    assert fitted is not None
    assert fitted.encoding.names == ("x1", "x2=0", "x2=1", "x2=2")
    torch.testing.assert_close(model.posterior(X).mean, Y, atol=0.3, rtol=0)
    choices: list[dict[int, float]] = [{1: float(code)} for code in range(3)]
    box = torch.tensor([[0.0, 0.0], [1.0, 2.0]]).double()
    candidate, _ = optimize_acqf_mixed(PosteriorMean(model), box, 1, 2, choices, raw_samples=8)
    torch.testing.assert_close(candidate[0], torch.tensor([math.pi / 8, 1.0]).double(), atol=0.15, rtol=0)
    assert model.condition_on_observations(X[:2], Y[:2]).posterior(X).mean.shape == (21, 1)


def test_categories_survive_where_the_default_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise FitError("nothing fits")

    X, Y = coded(20)
    advisor = KernelAdvisor(bounds=[[0, 0], [1, 2]], categories={1: 3})
    monkeypatch.setattr(advisor, "_advance", fails)
    assert advisor.model(X, Y).posterior(X).mean.shape == (20, 1)
    assert advisor.steps[-1].action == "default"


@pytest.mark.parametrize(
    ("categories", "message"), [({2: 3}, "positions"), ({1: 2}, "codes 0 to 1"), ({0: 3}, "codes")]
)
def test_wrong_categories_are_refused(categories: dict[int, int], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        KernelAdvisor(categories=categories).model(*coded(10))
