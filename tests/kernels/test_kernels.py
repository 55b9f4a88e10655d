"""All 34 words times many properties, and their values against the written formulas, GPyTorch and scikit-learn."""

import math
from collections.abc import Mapping

import gpytorch
import numpy as np
import pytest
import torch
from sklearn.gaussian_process import kernels as sk
from torch import Tensor
from torch.testing import assert_close

from kitt.errors import InvalidInputError
from kitt.kernels.exact import Likelihood
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.formulas import FORMULAS
from kitt.kernels.grammar import WORDS, Expression, Primitive, Word, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import Parameter
from kitt.kernels.product import primitive_matrix

N, D = 12, 3
every_word = pytest.mark.parametrize("word", WORDS, ids=str)
THREE_PRODUCTS = parse("Linear*RBF + Matern52*Periodic + Matern32*RBF")


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def case(word: Word, *batch: int) -> tuple[Kernel, Tensor, Tensor, Tensor]:
    """Kernel, theta, X, y, with moderate parameters."""
    kernel = Kernel(Expression((word,)), D)
    seed = word.index
    return kernel, 0.5 * randn(*batch, kernel.size, seed=seed), randn(*batch, N, D, seed=99), randn(*batch, N, seed=77)


def covariance(kernel: Kernel, theta: Tensor, X: Tensor) -> Tensor:
    """Of the observations: signal and noise."""
    return kernel.matrix(theta, X) + torch.diag_embed(kernel.noise(theta, X))


def formula(primitive: Primitive, p: Mapping[str, Tensor], x: Tensor, z: Tensor, same: bool) -> float:
    """Each primitive between two points, as docs/notation.md and the paper write it."""
    tau = x - z
    match primitive:
        case Primitive.WHITE:
            return float(same)
        case Primitive.LINEAR:
            return float((p["slope"] / (1 + p["shift"] ** 2) * (x - p["shift"]) * (z - p["shift"])).sum())
        case Primitive.COSINE:
            return math.cos(2 * math.pi * float((tau * p["frequency"]).sum()))
        case Primitive.PERIODIC:
            return math.exp(-0.5 * float(((torch.sin(math.pi * tau / p["period"]) / p["lengthscale"]) ** 2).sum()))
    r = float((tau / p["lengthscale"]).norm())
    match primitive:
        case Primitive.RBF:
            return math.exp(-0.5 * r * r)
        case Primitive.MATERN12:
            return math.exp(-r)
        case Primitive.MATERN32:
            return (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
        case _:
            return (1 + math.sqrt(5) * r + 5 / 3 * r * r) * math.exp(-math.sqrt(5) * r)


# --- every word ------------------------------------------------------------------------------------------------------


@every_word
def test_equals_its_formula(word: Word) -> None:
    kernel, theta, X, _ = case(word)
    values = kernel.unflatten(theta)
    expected = torch.full((N, N), float(values.get(f"{word}.variance", 1.0)), dtype=torch.float64)
    for i in range(N):
        for j in range(N):
            for f, primitive in enumerate(word.factors):
                prefix = f"{word}[{f}]."
                own = {name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
                expected[i, j] *= formula(primitive, own, X[i], X[j], i == j)
    assert_close(
        covariance(kernel, theta, X),
        expected + values["noise"] * torch.eye(N, dtype=torch.float64),
        rtol=1e-12,
        atol=1e-12,
    )


@every_word
def test_symmetric_and_positive_semidefinite(word: Word) -> None:
    kernel, theta, X, _ = case(word)
    K = covariance(kernel, theta, X)
    assert_close(K, K.mT, rtol=0, atol=1e-13 * float(K.abs().max()))
    signal = torch.linalg.eigvalsh(kernel.matrix(theta, X))
    assert signal.min() >= -1e-12 * max(float(signal.max()), 1.0)
    assert torch.linalg.eigvalsh(K).min() > 0


@every_word
def test_diagonal_is_that_of_the_matrix(word: Word) -> None:
    kernel, theta, X, _ = case(word)
    assert_close(kernel.diagonal(theta, X), torch.diagonal(kernel.matrix(theta, X)), rtol=1e-12, atol=1e-12)
    both = kernel.diagonal(theta, X) + kernel.noise(theta, X)
    assert_close(kernel.word_diagonals(theta, X).sum(-2) + kernel.unflatten(theta)["noise"], both)


@every_word
def test_block_between_two_sets_of_points(word: Word) -> None:
    kernel, theta, X, _ = case(word)
    assert_close(kernel.matrix(theta, X[:5], X[5:]), kernel.matrix(theta, X)[:5, 5:], rtol=1e-12, atol=1e-12)


@every_word
def test_gradient_is_that_of_finite_differences(word: Word) -> None:
    kernel, theta, X, y = case(word)
    likelihood = Likelihood(kernel, X, y)
    value, gradient = likelihood.value_and_gradient(theta)
    assert_close(value, likelihood.value(theta), rtol=1e-12, atol=0)
    step = 1e-5
    for i in range(kernel.size):
        e = torch.zeros_like(theta)
        e[i] = step
        numeric = (likelihood.value(theta + e) - likelihood.value(theta - e)) / (2 * step)
        assert_close(gradient[i], numeric, rtol=1e-6, atol=1e-6, msg=lambda m, i=i: f"theta[{i}]: {m}")


@every_word
def test_autograd_through_the_matrix(word: Word) -> None:
    """For kernels that are not expressions, such as a neural kernel network, and for gradients in X."""
    kernel, theta, X, _ = case(word)
    weights = randn(N, N, seed=5)
    weights = weights + weights.mT
    inputs = (theta.requires_grad_(), X.requires_grad_())
    torch.autograd.gradcheck(lambda t, x: (weights * kernel.matrix(t, x)).sum(), inputs, atol=1e-5)


@every_word
def test_batch_equals_loop(word: Word) -> None:
    kernel, theta, X, y = case(word, 4)
    K, noise = kernel.matrix(theta, X), kernel.noise(theta, X)
    values, gradients = Likelihood(kernel, X, y).value_and_gradient(theta)
    for b in range(4):
        assert_close(K[b], kernel.matrix(theta[b], X[b]), rtol=1e-12, atol=1e-12)
        assert_close(noise[b], kernel.noise(theta[b], X[b]))
        value, gradient = Likelihood(kernel, X[b], y[b]).value_and_gradient(theta[b])
        assert_close(values[b], value, rtol=1e-11, atol=1e-11)
        assert_close(gradients[b], gradient, rtol=1e-8, atol=1e-8)


@every_word
def test_a_word_of_chosen_columns_is_that_of_a_table_of_these(word: Word) -> None:
    if word.is_noise and Primitive.LINEAR not in word.factors:
        return  # White sees no columns
    keep = [0, 2]
    chosen = Word(word.factors, columns=((0, 2),) * len(word.factors))
    kernel, small = Kernel(Expression((chosen,)), D), Kernel(Expression((word,)), D - 1)
    assert kernel.size == small.size
    theta, X, y = 0.5 * randn(kernel.size), randn(N, D, seed=99), randn(N, seed=77)
    assert_close(covariance(kernel, theta, X), covariance(small, theta, X[:, keep]), rtol=1e-12, atol=1e-12)
    for one, other in zip(
        Likelihood(kernel, X, y).value_and_gradient(theta),
        Likelihood(small, X[:, keep], y).value_and_gradient(theta),
        strict=True,
    ):
        assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_word
def test_print_is_parse_and_json_round_trips(word: Word) -> None:
    kernel, theta, *_ = case(word)
    assert parse(str(kernel.expression)) == kernel.expression
    fitted = FittedKernel.from_theta(kernel.expression, theta, ("a", "b", "c"))
    again = FittedKernel.from_dict(fitted.to_dict())
    assert again == fitted
    assert_close(again.theta, theta, rtol=1e-14, atol=1e-14)


@every_word
def test_flatten_and_unflatten_invert(word: Word) -> None:
    kernel, theta, *_ = case(word, 4)
    assert_close(kernel.flatten(kernel.unflatten(theta)), theta, rtol=1e-9, atol=1e-9)
    assert kernel.slots[-1].slice.stop == kernel.size
    assert [a.slice.stop for a in kernel.slots[:-1]] == [b.start for b in kernel.slots[1:]]
    per_column = [p for primitive in word.factors if primitive in FORMULAS for p in FORMULAS[primitive].parameters]
    assert kernel.size == len(per_column) * D + (Primitive.LINEAR not in word.factors) + 1


@every_word
def test_single_precision_is_close(word: Word) -> None:
    kernel, theta, X, y = case(word)
    K = kernel.matrix(theta, X)
    K32 = kernel.matrix(theta.float(), X.float())
    assert K32.dtype == torch.float32
    assert_close(K32.double(), K, rtol=0, atol=5e-5 * max(float(K.abs().max()), 1.0))
    value, gradient = Likelihood(kernel, X.float(), y.float()).value_and_gradient(theta.float())
    exact, exact_gradient = Likelihood(kernel, X, y).value_and_gradient(theta)
    assert value.dtype == gradient.dtype == torch.float32
    assert_close(value.double(), exact, rtol=1e-3, atol=1e-3)
    assert_close(gradient.double(), exact_gradient, rtol=2e-2, atol=2e-2 * float(exact_gradient.abs().max()))


# --- the flat parameter vector ---------------------------------------------------------------------------------------


def test_slot_names_and_errors() -> None:
    kernel = Kernel(parse("Linear*Linear + RBF + White"), 2)
    names = "Linear*Linear[0].slope Linear*Linear[0].shift Linear*Linear[1].slope Linear*Linear[1].shift"
    assert [s.name for s in kernel.slots] == [
        *names.split(),
        "RBF[0].lengthscale",
        "RBF.variance",
        "White.variance",
        "noise",
    ]
    with pytest.raises(InvalidInputError, match=r"missing \['White.variance', 'noise'\], unknown \['foo'\]"):
        kernel.flatten({**{s.name: torch.ones(2) for s in kernel.slots[:-2]}, "foo": 1.0})
    with pytest.raises(InvalidInputError, match="at least one input dimension"):
        Kernel(parse("RBF"), 0)


def test_each_factor_has_its_own_columns() -> None:
    kernel = Kernel(parse("Linear(x2)*RBF(x1, x3) + Cosine(x2)"), D)
    theta, X = 0.5 * randn(kernel.size), randn(N, D)
    values = kernel.unflatten(theta)
    rbf = primitive_matrix(
        Primitive.RBF,
        X[:, [0, 2]],
        {Parameter.LENGTHSCALE: values["Linear(x2)*RBF(x1, x3)[1].lengthscale"]},
        torch.ones(2),
    )
    slope, shift = (values[f"Linear(x2)*RBF(x1, x3)[0].{name}"] for name in ("slope", "shift"))
    own = {Parameter.SLOPE: slope, Parameter.SHIFT: shift}
    linear = primitive_matrix(Primitive.LINEAR, X[:, 1:2], own, torch.ones(1))
    wave = {Parameter.FREQUENCY: values["Cosine(x2)[0].frequency"]}
    cosine = values["Cosine(x2).variance"] * primitive_matrix(Primitive.COSINE, X[:, 1:2], wave, torch.ones(1))
    assert_close(kernel.matrix(theta, X), rbf * linear + cosine)
    with pytest.raises(InvalidInputError, match="refers to column x3, but the table has 2"):
        Kernel(parse("RBF(x3)"), 2)


def test_parameters_of_many_kernels_on_one_data_set() -> None:
    """theta (S, P) with X (N, D): many starts of one fit."""
    kernel = Kernel(parse("Linear*RBF + Matern12 + Periodic*Cosine + White"), D)
    theta, X, y = 0.4 * randn(3, kernel.size), randn(200, D), randn(200)
    values, gradients = Likelihood(kernel, X, y).value_and_gradient(theta)
    for i in range(3):
        value, gradient = Likelihood(kernel, X, y).value_and_gradient(theta[i])
        assert_close(values[i], value)
        assert_close(gradients[i], gradient, rtol=1e-8, atol=1e-8)


# --- someone else's code ---------------------------------------------------------------------------------------------


class ShiftedLinear(gpytorch.kernels.Kernel):
    """The paper's linear kernel, which GPyTorch lacks."""

    def __init__(self, slope: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.slope, self.shift = slope, shift

    def forward(self, a: Tensor, b: Tensor, diag: bool = False, **_: object) -> Tensor:
        weight = self.slope / (1 + self.shift**2)
        return ((a - self.shift) * weight) @ (b - self.shift).mT


def nu(primitive: Primitive) -> float:
    return int(primitive.value[-2]) / 2


def in_gpytorch(primitive: Primitive, p: Mapping[str, Tensor], dims: int) -> gpytorch.kernels.Kernel:
    k = gpytorch.kernels
    if primitive is Primitive.LINEAR:
        return ShiftedLinear(p["slope"], p["shift"])
    if primitive is Primitive.COSINE:  # cos(π |τ| / p), in one dimension
        assert dims == 1
        kernel = k.CosineKernel().double()
        kernel.period_length = 0.5 / p["frequency"].abs()
        return kernel
    if primitive is Primitive.PERIODIC:  # exp(−2 sum_d sin²(π τ_d / p_d) / λ_d), λ = 4 l²
        kernel = k.PeriodicKernel(ard_num_dims=dims).double()
        kernel.period_length, kernel.lengthscale = p["period"], 4 * p["lengthscale"] ** 2
        return kernel
    kernel = (
        k.RBFKernel(ard_num_dims=dims)
        if primitive is Primitive.RBF
        else k.MaternKernel(nu(primitive), ard_num_dims=dims)
    )
    kernel = kernel.double()
    kernel.lengthscale = p["lengthscale"]
    return kernel


def in_sklearn(primitive: Primitive, p: Mapping[str, Tensor]) -> sk.Kernel:
    numbers = {name: value.numpy() for name, value in p.items()}
    if primitive is Primitive.RBF:
        return sk.RBF(numbers["lengthscale"])
    if primitive is Primitive.PERIODIC:  # exp(−2 sin²(π |τ| / p) / λ²), λ = 2 l, in one dimension
        return sk.ExpSineSquared(2 * numbers["lengthscale"].item(), numbers["period"].item())
    return sk.Matern(numbers["lengthscale"], nu=nu(primitive))


def factors_of(kernel: Kernel, theta: Tensor) -> list[tuple[float, list[tuple[Primitive, dict[str, Tensor]]]]]:
    """Variance and parameters by factor of every word."""
    values = kernel.unflatten(theta)
    return [
        (
            float(values.get(f"{word}.variance", 1.0)),
            [
                (p, {s.parameter.value: values[s.name] for s in kernel.slots if (s.word, s.factor) == (i, j)})
                for j, p in enumerate(word.factors)
            ],
        )
        for i, word in enumerate(kernel.expression)
    ]


def gpytorch_matrix(kernel: Kernel, theta: Tensor, X: Tensor) -> Tensor:
    total = torch.zeros(X.shape[0], X.shape[0], dtype=X.dtype)
    for variance, factors in factors_of(kernel, theta):
        matrices = [in_gpytorch(p, values, kernel.dims)(X).to_dense() for p, values in factors]
        total = total + variance * math.prod(matrices[1:], start=matrices[0])
    return total.detach()


def assert_close_to_gpytorch(kernel: Kernel, theta: Tensor, X: Tensor) -> None:
    """Its Matern12 loses half the digits on the diagonal, where its distance is not quite zero."""
    rough = any(Primitive.MATERN12 in word.factors for word in kernel.expression)
    tolerance = 2e-7 if rough else 1e-10
    assert_close(kernel.matrix(theta, X), gpytorch_matrix(kernel, theta, X), rtol=tolerance, atol=tolerance)


signal_words = [word for word in WORDS if not word.is_noise]


@pytest.mark.parametrize("word", [w for w in signal_words if Primitive.COSINE not in w.factors], ids=str)
def test_against_gpytorch(word: Word) -> None:
    kernel, theta, X, _ = case(word)
    assert_close_to_gpytorch(kernel, theta, X)


@pytest.mark.parametrize("word", signal_words, ids=str)
def test_against_gpytorch_in_one_dimension(word: Word) -> None:
    kernel = Kernel(Expression((word,)), 1)
    theta, X = 0.5 * randn(kernel.size, seed=word.index), randn(N, 1)
    assert_close_to_gpytorch(kernel, theta, X)


def test_a_sum_against_gpytorch() -> None:
    kernel = Kernel(THREE_PRODUCTS, D)
    theta, X = 0.5 * randn(kernel.size), randn(40, D)
    assert_close_to_gpytorch(kernel, theta, X)


in_sklearn_too = [w for w in signal_words if not {Primitive.LINEAR, Primitive.COSINE} & set(w.factors)]


@pytest.mark.parametrize(
    ("word", "dims"),
    [(w, d) for w in in_sklearn_too for d in (1, D) if d == 1 or Primitive.PERIODIC not in w.factors],
    ids=str,
)
def test_against_sklearn(word: Word, dims: int) -> None:
    kernel = Kernel(Expression((word,)), dims)
    theta, X = 0.5 * randn(kernel.size, seed=word.index), randn(N, dims)
    ((variance, factors),) = factors_of(kernel, theta)
    theirs = math.prod((in_sklearn(p, values) for p, values in factors), start=sk.ConstantKernel(variance))
    assert_close(kernel.matrix(theta, X).numpy(), theirs(X.numpy()), rtol=1e-9, atol=1e-9)


def test_linear_without_shift_is_sklearns_dot_product() -> None:
    kernel, X = Kernel(parse("Linear"), D), randn(N, D)
    theta = kernel.flatten({"Linear[0].slope": torch.full((D,), 2.5), "Linear[0].shift": torch.zeros(D), "noise": 0.1})
    theirs = sk.ConstantKernel(2.5) * sk.DotProduct(sigma_0=0.0)
    assert_close(kernel.matrix(theta, X).numpy(), theirs(X.numpy()))


def test_noise_words_are_sklearns_white_kernel() -> None:
    kernel, X = Kernel(parse("RBF + White"), 1), randn(N, 1)
    X[1] = X[0]  # equal inputs, two observations
    theta = 0.5 * randn(kernel.size)
    v = {name: float(value) for name, value in kernel.unflatten(theta).items()}
    theirs = v["RBF.variance"] * sk.RBF(v["RBF[0].lengthscale"]) + sk.WhiteKernel(v["White.variance"] + v["noise"])
    assert_close(covariance(kernel, theta, X).numpy(), np.asarray(theirs(X.numpy())))
    assert_close(kernel.matrix(theta, X, X.clone()).numpy(), theirs(X.numpy(), X.numpy()))


def test_periodic_repeats() -> None:
    kernel = Kernel(parse("Periodic"), 2)
    theta, X = 0.3 * randn(kernel.size), randn(N, 2)
    shifted = X + 3 * kernel.unflatten(theta)["Periodic[0].period"]
    assert_close(kernel.matrix(theta, X, shifted), kernel.matrix(theta, X), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("primitive", Primitive)
def test_one_primitive_alone_is_its_word_of_unit_variance(primitive: Primitive) -> None:
    word = Word((primitive,))
    kernel, theta, X, _ = case(word, 2)
    ((_, ((_, values),)),) = factors_of(kernel, theta[0])
    p = {Parameter(name): value for name, value in values.items()}
    matrix = primitive_matrix(primitive, X[0], p, torch.ones(D))
    v = kernel.unflatten(theta[0])
    expected = (covariance(kernel, theta[0], X[0]) - v["noise"] * torch.eye(N, dtype=torch.float64)) / v.get(
        f"{word}.variance", 1.0
    )
    assert_close(matrix, expected)
