"""Words that act on columns: their formulas, gradients, diagonals, parts, and their text."""

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from kitt.errors import GrammarError
from kitt.kernels.arrangements import COMBINATIONS, Combination
from kitt.kernels.exact import ExactPosterior, Likelihood
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import STATIONARY, Arrangement, Expression, Primitive, Word, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import Parameter
from kitt.kernels.product import primitive_matrix
from kitt.table.scaling import Standardiser

N, D = 12, 3
ARRANGED = [Word((p,), a) for p in STATIONARY for a in Arrangement if a is not Arrangement.JOINT]
every_word = pytest.mark.parametrize("word", ARRANGED, ids=str)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def case(word: Word) -> tuple[Kernel, Tensor, Tensor, Tensor]:
    kernel = Kernel(Expression((word,)), D)
    return kernel, 0.5 * randn(kernel.size, seed=5), randn(N, D, seed=99), randn(N, seed=77)


@every_word
def test_equals_its_formula(word: Word) -> None:
    kernel, theta, X, _ = case(word)
    values = {name.split(".")[1]: v for name, v in kernel.unflatten(theta).items() if name != "noise"}
    one = torch.ones(1)
    g = [
        primitive_matrix(word.factors[0], X[:, [d]], {Parameter.LENGTHSCALE: values["lengthscale"][[d]]}, one)
        for d in range(D)
    ]
    lines = [
        primitive_matrix(
            Primitive.LINEAR,
            X[:, [d]],
            {Parameter.SLOPE: values["slope"][[d]], Parameter.SHIFT: values["shift"][[d]]},
            one,
        )
        for d in range(D)
    ]
    z = [values["amplitude"][d] * g[d] + lines[d] for d in range(D)]
    pairs = sum(z[d] * z[e] for d, e in combinations(range(D), 2))
    expected = {
        Arrangement.EACH: lambda: values["offset"] + sum(z),
        Arrangement.PAIRS: lambda: (
            values["offset"] + sum(z) + values["pairs"] * pairs + values["joint"] * g[0] * g[1] * g[2]
        ),
        Arrangement.ALL: lambda: values["variance"] * (1 + z[0]) * (1 + z[1]) * (1 + z[2]),
    }[word.arrangement]()
    assert_close(kernel.matrix(theta, X), expected, rtol=1e-12, atol=1e-12)
    assert_close(kernel.diagonal(theta, X), torch.diagonal(expected), rtol=1e-12, atol=1e-12)
    assert_close(kernel.matrix(theta, X[:5], X[5:]), expected[:5, 5:], rtol=1e-12, atol=1e-12)
    assert torch.linalg.eigvalsh(expected).min() > -1e-12


@every_word
def test_gradient_is_that_of_finite_differences_and_a_batch_is_a_loop(word: Word) -> None:
    kernel, theta, X, y = case(word)
    likelihood = Likelihood(kernel, X, y)
    _, gradient = likelihood.value_and_gradient(theta)
    steps = 1e-5 * torch.eye(kernel.size, dtype=torch.float64)
    numeric = torch.stack([(likelihood.value(theta + e) - likelihood.value(theta - e)) / 2e-5 for e in steps])
    assert_close(gradient, numeric, rtol=1e-5, atol=1e-6)
    thetas = theta + 0.1 * randn(3, kernel.size)
    values, gradients = Likelihood(kernel, X.expand(3, N, D), y.expand(3, N)).value_and_gradient(thetas)
    for i in range(3):
        value, gradient = likelihood.value_and_gradient(thetas[i])
        assert_close(values[i], value, rtol=1e-10, atol=1e-10)
        assert_close(gradients[i], gradient, rtol=1e-8, atol=1e-8)


@every_word
def test_torch_differentiates_it_in_the_inputs(word: Word) -> None:
    kernel, theta, X, _ = case(word)
    assert torch.autograd.gradcheck(lambda Z: kernel.matrix(theta, X, Z).sum(), (randn(4, D).requires_grad_(True),))


@every_word
def test_its_quick_gradients_are_those_of_its_formula(word: Word) -> None:
    combination = COMBINATIONS[word.arrangement]
    g, z, w = ([randn(4, 4, seed=10 * k + i) for i in range(n)] for k, n in enumerate((D, D, len(combination.weights))))
    value, kept = combination.value(g, z, w)
    assert_close(value, Combination.value(combination, g, z, w)[0])
    assert_close(combination.by_weight(g, z, w, kept), Combination.by_weight(combination, g, z, w, ()))
    slow = Combination.by_column(combination, g, z, w, ())
    for ours, theirs in zip(combination.by_column(g, z, w, kept), slow, strict=True):
        assert_close(ours[0], theirs[0])
        assert_close(torch.zeros(4, 4, dtype=torch.float64) if ours[1] is None else ours[1], theirs[1])


@every_word
def test_other_units_are_the_same_kernel(word: Word) -> None:
    kernel, theta, X, _ = case(word)
    raw = Standardiser(np.array([3.0, -1.0, 0.0]), np.array([2.0, 0.1, 7.0]), 5.0, 3.0)
    fitted = FittedKernel.from_theta(kernel.expression, theta, ("a", "b", "c"), "y", raw)
    units = fitted.in_table_units()
    Z = torch.tensor(X.numpy() * raw.x_scale + raw.x_mean)
    assert_close(units.kernel.matrix(units.theta, Z), 9.0 * kernel.matrix(theta, X), rtol=1e-9, atol=1e-9)
    assert FittedKernel.from_dict(fitted.to_dict()).to_dict() == fitted.to_dict()


def test_words_add_up_and_a_posterior_takes_them() -> None:
    kernel = Kernel(parse("Linear*Linear + RBF(pairs) + Periodic(x2)"), D)
    theta, X, y = 0.3 * randn(kernel.size), randn(N, D), randn(N)
    posterior = ExactPosterior.fit(kernel, theta, X, y)
    Z = randn(5, D, seed=3)
    assert_close(sum(posterior.component(i, Z)[0] for i in range(3)), posterior.predict(Z)[0])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("rbf(EACH)", "RBF(each)"),
        ("m52( pairs ) + lin", "Matern52(pairs) + Linear"),
        ("SE(all)", "RBF(all)"),
        ("per(month) + lin(year)*rbf(temp)", "Periodic(x2) + Linear(x1)*RBF(x3)"),
        ("rbf(x3, year)", "RBF(x1, x3)"),
        ("RBF(x1)*Periodic(x1)", "RBF(x1)*Periodic(x1)"),
    ],
)
def test_columns_are_read_by_name_or_place(text: str, canonical: str) -> None:
    names = ["year", "month", "temp"]
    expression = parse(text, names)
    assert str(expression) == canonical
    assert parse(str(expression)) == parse(expression.text(names), names) == expression


def test_names_with_signs_stand_in_quotation_marks() -> None:
    names = ["a+b", "c (mm)", "each"]
    expression = Expression((Word((Primitive.RBF,), columns=((0, 1),)), Word((Primitive.LINEAR,), columns=((2,),))))
    assert expression.text(names) == 'RBF("a+b", "c (mm)") + Linear(each)'
    assert parse(expression.text(names), names) == expression


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Linear(each)", "only a single one of RBF"),
        ("RBF*Linear(pairs)", "acts on pairs"),
        ("RBF(tmep)", "did you mean temp?"),
        ("RBF(x7)", "expected a column"),
        ("RBF(each) + RBF(each)", "occurs twice"),
    ],
)
def test_bad_columns_are_refused(text: str, says: str) -> None:
    with pytest.raises(GrammarError, match=says.replace("?", r"\?")):
        parse(text, ["year", "month", "temp"])
