"""The paper's claims about its language, as tests."""

import math

import pytest
import torch

from kitt.kernels.grammar import WORDS, Primitive, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import implied_lengthscale, shrinkage
from kitt_lab.simulate import PAD, SimulatorConfig, simulate


def test_the_vocabulary_has_34_words() -> None:
    """Seven primitives, 25 products of two without RBF², Periodic² and Cosine², and two kinds of noise."""
    signal = [word for word in WORDS if not word.is_noise]
    assert len(WORDS) == 34
    assert len([word for word in signal if len(word.factors) == 1]) == 7
    assert len([word for word in signal if len(word.factors) == 2]) == math.comb(7, 2) + 7 - 3 == 25
    squares = {word.factors[0] for word in signal if len(word.factors) == 2 and word.factors[0] is word.factors[1]}
    assert squares == set(Primitive) - {Primitive.RBF, Primitive.PERIODIC, Primitive.COSINE, Primitive.WHITE}
    assert [str(word) for word in WORDS if word.is_noise] == ["White", "Linear*White"]


def test_four_words_make_35960_captions() -> None:
    assert math.comb(sum(not word.is_noise for word in WORDS), 4) == 35_960


@pytest.mark.parametrize("l", [0.3, 1.0, 4.0])
def test_a_product_of_equal_rbfs_is_an_rbf_of_smaller_lengthscale(l: float) -> None:  # noqa: E741
    """Remark 1: l / sqrt(2) for two factors, l / sqrt(3) for three. RBF*RBF is no word: multiplied out here."""
    kernel = Kernel(parse("RBF"), 2)
    X = torch.randn(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def rbf(lengthscale: float) -> torch.Tensor:
        values = {"RBF[0].lengthscale": torch.full((2,), lengthscale), "RBF.variance": 1.0, "noise": 1.0}
        return kernel.matrix(kernel.flatten(values), X)

    for factors in (2, 3):
        shrunk = implied_lengthscale(torch.full((factors,), l, dtype=torch.float64)).item()
        assert shrunk == pytest.approx(l / math.sqrt(factors))
        torch.testing.assert_close(rbf(l) ** factors, rbf(shrunk), rtol=1e-6, atol=1e-6)


def test_implied_lengthscale_of_unequal_factors() -> None:
    """Remark 2's form, l1 l2 l3 / sqrt((l2 l3)² + (l1 l3)² + (l1 l2)²); Remark 1's lacks those products."""
    a, b, c = 0.4, 1.3, 2.2
    expected = a * b * c / math.sqrt((b * c) ** 2 + (a * c) ** 2 + (a * b) ** 2)
    assert implied_lengthscale(torch.tensor([a, b, c], dtype=torch.float64)).item() == pytest.approx(expected)


@pytest.mark.parametrize("factors", [2, 3])
def test_the_correction_undoes_the_shrinkage(factors: int) -> None:
    """Without it the median of the implied lengthscale falls with the factors; with it, it does not, nor the spread.

    The correction of the paper's code is generous: it scales by the number of factors where its root would do.
    """
    normal = torch.randn(200_000, factors, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shift, widen = shrinkage(factors)
    before, after = (implied_lengthscale(torch.exp(s + w * normal)).log() for s, w in ((0.0, 1.0), (shift, widen)))
    assert before.median() < -0.5 * math.log(factors)
    assert after.median() > before.median() + 0.5 * math.log(factors)
    assert abs(after.median()) < abs(before.median())
    assert abs(after.std() - 1) < abs(before.std() - 1)


def test_linear_times_white_is_noise_that_grows_with_the_input() -> None:
    """Zero between different points; its variance is that of the linear kernel: quadratic in x, least at the shift."""
    kernel, linear = Kernel(parse("Linear*White"), 1), Kernel(parse("Linear"), 1)
    values = {"slope": torch.tensor([0.5]), "shift": torch.tensor([-1.0])}
    theta = kernel.flatten({**{f"Linear*White[0].{k}": v for k, v in values.items()}, "noise": 1e-6})
    plain = linear.flatten({**{f"Linear[0].{k}": v for k, v in values.items()}, "noise": 1e-6})
    X = torch.linspace(-3, 3, 7, dtype=torch.float64)[:, None]
    assert kernel.matrix(theta, X).abs().max() == 0
    noise = kernel.noise(theta, X) - 1e-6
    torch.testing.assert_close(noise, torch.diagonal(linear.matrix(plain, X)))
    torch.testing.assert_close(noise, 0.5 / 2 * (X[:, 0] + 1) ** 2)
    assert noise.argmin() == 2


@pytest.mark.parametrize("stationary", ["RBF", "Matern12", "Matern32", "Matern52", "Periodic", "Cosine"])
def test_white_times_a_stationary_kernel_is_white_again(stationary: str) -> None:
    """Paper, Heteroscedastic noise: so no such product is a word. A stationary kernel is constant on its diagonal."""
    kernel = Kernel(parse(stationary), 2)
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    diagonal = kernel.diagonal(torch.zeros(kernel.size, dtype=torch.float64), X)
    torch.testing.assert_close(diagonal, torch.ones_like(diagonal))


def test_captions_are_drawn_in_decreasing_order_of_variance():
    """Paper, supplement: kernels are stated in decreasing order of their variance."""
    batch = simulate(SimulatorConfig("paper", max_words=3), 300, 8, 2, torch.Generator().manual_seed(0))
    assert (batch.variances.diff(dim=1) <= 0).all()
    assert ((batch.captions == PAD) == (batch.variances == 0)).all()
