"""The covariance functions, batched over data sets: the only kernel code in the package.

Every primitive is a map from inputs to features and a function of two feature vectors. Two kinds are enough:

* *dot* kernels, k = <f(x), f(x')>: Linear, and Cosine because cos(a − b) = cos a cos b + sin a sin b;
* *radial* kernels, k = g(|f(x) − f(x')|²): RBF, the Materns, and Periodic, which is an RBF on the circle.

So a covariance matrix is one matrix product and one elementwise function, nothing of size N×N×D is ever made, and the
gradient of anything in K goes back through N×F features instead of through the N×N graph (see `Term.backward`).
Shapes: X (..., N, D), parameters (..., D), mask (D,) or (..., D) with 1 for active dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.kernels.grammar import Expression, Primitive, Word
from kitt.kernels.priors import Parameter

Params = Mapping[Parameter, Tensor]
_TINY = 1e-30  # lower bound of squared distances in the Materns, so that their root is differentiable


# --- the eight formulas ----------------------------------------------------------------------------------------------


def linear(X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """sum_d v_d / (1 + c_d²) (x_d − c_d)(x'_d − c_d): the paper's shifted linear kernel, v the slope, c the shift."""
    c = p[Parameter.SHIFT]
    scale = mask * torch.sqrt(p[Parameter.SLOPE] / (1 + c * c))
    return (X - c.unsqueeze(-2)) * scale.unsqueeze(-2)


def cosine(X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """cos(2π sum_d w_d (x_d − x'_d)): a plane wave, w the signed frequency."""
    phase = 2 * math.pi * (X @ (p[Parameter.FREQUENCY] * mask).unsqueeze(-1))
    return torch.cat([phase.cos(), phase.sin()], -1)


def scaled(X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """x_d / l_d: the features of every stationary kernel with one lengthscale per dimension."""
    return X * (mask / p[Parameter.LENGTHSCALE]).unsqueeze(-2)


def periodic(X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """exp(−½ sum_d sin²(π τ_d / p_d) / l_d²): an RBF on circles, since |e^{ia} − e^{ib}|² = 4 sin²((a − b)/2)."""
    angle = 2 * math.pi * X / p[Parameter.PERIOD].unsqueeze(-2)
    radius = (0.5 * mask / p[Parameter.LENGTHSCALE]).unsqueeze(-2)
    return torch.cat([angle.cos() * radius, angle.sin() * radius], -1)


@dataclass(frozen=True)
class Matern:
    """P(r) exp(−r) with r² = 2ν |f − f'|²; P is 1, 1 + r or 1 + r + r²/3 for ν = 1/2, 3/2, 5/2."""

    two_nu: int

    def polynomial(self, r: Tensor) -> Tensor | None:
        if self.two_nu == 1:
            return None
        return 1 + r if self.two_nu == 3 else (r / 3 + 1).mul_(r).add_(1)

    def log_slope(self, r: Tensor) -> Tensor:
        """d log k / d(r²)."""
        if self.two_nu == 1:
            return (-0.5 / r).masked_fill_(
                r < 2 * math.sqrt(_TINY), 0
            )  # the derivative is undefined at a repeated point
        return -0.5 / (1 + r) if self.two_nu == 3 else (1 + r).div_((r / 3 + 1).mul_(r).add_(1)).mul_(-1 / 6)


@dataclass(frozen=True)
class Formula:
    """One primitive: its per-dimension parameters, its features, and how two feature vectors make a covariance."""

    parameters: tuple[Parameter, ...]
    features: Callable[[Tensor, Params, Tensor], Tensor]
    kind: str  # "dot", "gauss" for exp(−½ |f − f'|²), or "matern"
    matern: Matern | None = None


FORMULAS: dict[Primitive, Formula] = {
    Primitive.LINEAR: Formula((Parameter.SLOPE, Parameter.SHIFT), linear, "dot"),
    Primitive.COSINE: Formula((Parameter.FREQUENCY,), cosine, "dot"),
    Primitive.RBF: Formula((Parameter.LENGTHSCALE,), scaled, "gauss"),
    Primitive.PERIODIC: Formula((Parameter.LENGTHSCALE, Parameter.PERIOD), periodic, "gauss"),
    **{
        primitive: Formula((Parameter.LENGTHSCALE,), scaled, "matern", Matern(two_nu))
        for primitive, two_nu in ((Primitive.MATERN12, 1), (Primitive.MATERN32, 3), (Primitive.MATERN52, 5))
    },
}


def primitive_matrix(primitive: Primitive, X: Tensor, p: Params, mask: Tensor) -> Tensor:
    """One primitive of unit variance between the points of X: (..., N, N). White is the identity."""
    if primitive is Primitive.WHITE:
        return torch.eye(X.shape[-2], dtype=X.dtype, device=X.device).expand(*X.shape[:-1], X.shape[-2])
    formula = FORMULAS[primitive]
    term = Term.of((formula,), (formula.features(X, p, mask),), None)
    return term.matrix(term, same=True)


# --- a word, evaluated -----------------------------------------------------------------------------------------------


def _squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """|a_i − b_j|² by one matrix product of augmented features: [−2a, |a|², 1] · [b, 1, |b|²]."""
    ones_a, ones_b = a.new_ones(*a.shape[:-1], 1), b.new_ones(*b.shape[:-1], 1)
    left = torch.cat([-2 * a, (a * a).sum(-1, keepdim=True), ones_a], -1)
    right = torch.cat([b, ones_b, (b * b).sum(-1, keepdim=True)], -1)
    return left @ right.mT


def _zero_diagonal(s: Tensor, offset: int) -> None:
    torch.diagonal(s, offset, -2, -1).zero_()


@dataclass
class Saved:
    """What `Term.block` keeps for `Term.backward`."""

    K: Tensor
    radii: list[Tensor]
    rests: list[Tensor | None]  # for each dot factor, the product of all other factors


@dataclass(frozen=True)
class Term:
    """A word evaluated at points: v · prod <a, a'> · prod P(r) exp(−r) · exp(−½ s), each part a function of features.

    The features of all Gaussian factors are concatenated, so that RBF*Periodic costs one exponential; Matern factors
    keep their own distances and share that exponential.
    """

    dots: tuple[Tensor, ...]  # features (..., N, F)
    gauss: Tensor | None
    materns: tuple[tuple[Matern, Tensor], ...]  # features times sqrt(2ν)
    log_variance: Tensor | None  # (...,)

    @classmethod
    def of(cls, formulas: tuple[Formula, ...], features: tuple[Tensor, ...], log_variance: Tensor | None) -> Term:
        pairs = list(zip(formulas, features, strict=True))
        gauss = [z for f, z in pairs if f.kind == "gauss"]
        return cls(
            tuple(z for f, z in pairs if f.kind == "dot"),
            torch.cat(gauss, -1) if gauss else None,
            tuple((f.matern, z * math.sqrt(f.matern.two_nu)) for f, z in pairs if f.matern is not None),
            log_variance,
        )

    @property
    def leaves(self) -> list[Tensor]:
        """The tensors through which a gradient flows back to the parameters, in the order of `backward`."""
        parts = [*self.dots, *([] if self.gauss is None else [self.gauss]), *(z for _, z in self.materns)]
        return parts if self.log_variance is None else [*parts, self.log_variance]

    def detach(self) -> Term:
        return Term(
            tuple(z.detach() for z in self.dots),
            None if self.gauss is None else self.gauss.detach(),
            tuple((m, z.detach()) for m, z in self.materns),
            None if self.log_variance is None else self.log_variance.detach(),
        )

    def rows(self, index: slice) -> Term:
        return Term(
            tuple(z[..., index, :] for z in self.dots),
            None if self.gauss is None else self.gauss[..., index, :],
            tuple((m, z[..., index, :]) for m, z in self.materns),
            self.log_variance,
        )

    def matrix(self, other: Term, same: bool = False) -> Tensor:
        """Covariance between the points of this term and those of another (`same`: they are the same points)."""
        return self.block(other, 0 if same else None).K

    def block(self, other: Term, diagonal: int | None) -> Saved:
        """Rows of this term against columns of `other`; `diagonal` is the offset of the block's diagonal, if any."""
        exponent: Tensor | None = None
        if self.gauss is not None and other.gauss is not None:
            exponent = _squared_distance(self.gauss, other.gauss).clamp_min_(0)
            if diagonal is not None:
                _zero_diagonal(exponent, diagonal)
            exponent *= -0.5
        radii = []
        for (_, a), (_, b) in zip(self.materns, other.materns, strict=True):
            r = _squared_distance(a, b)
            if diagonal is not None:
                _zero_diagonal(r, diagonal)
            radii.append(r.clamp_min_(_TINY).sqrt_())
            exponent = -r if exponent is None else exponent.sub_(r)
        K: Tensor | None = None
        if exponent is not None:
            if self.log_variance is not None:
                exponent += self.log_variance[..., None, None]
            K = exponent.exp_()
            for (matern, _), r in zip(self.materns, radii, strict=True):
                if (polynomial := matern.polynomial(r)) is not None:
                    K = polynomial.mul_(K)  # not K *= polynomial: autograd, where it is used, needs exp's result
        rests: list[Tensor | None] = []
        products = [a @ b.mT for a, b in zip(self.dots, other.dots, strict=True)]
        if K is None and self.log_variance is not None:
            products[0] = products[0] * self.log_variance.exp()[..., None, None]
        for i, product in enumerate(products):
            others = products[:i] + products[i + 1 :] + ([] if exponent is None else [K])
            rests.append(others[0] if others else None)  # a word has at most two factors
            K = product if K is None else K * product
        assert K is not None
        return Saved(K, radii, rests)

    def backward(self, other: Term, saved: Saved, G: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Gradient of sum(G ∘ K) with respect to `leaves`, seen from the rows and from the columns.

        For a radial factor d(sum G∘K)/ds = (G∘K) ∘ (d log k / ds), and s = |a − b|² gives rowsum(W) a − W b. The
        columns' log-variance entry is zero, because a variance is one number for both sides.
        """
        rows, columns = [], []
        for a, b, rest in zip(self.dots, other.dots, saved.rests, strict=True):
            W = G if rest is None else G * rest
            if rest is None and self.log_variance is not None:
                W = W * self.log_variance.exp()[..., None, None]
            rows.append(W @ b)
            columns.append(W.mT @ a)
        if not (self.materns or self.gauss is not None or self.log_variance is not None):
            return rows, columns
        M = G * saved.K
        radial: list[tuple[Tensor, Tensor, Tensor | None]] = []
        if self.gauss is not None and other.gauss is not None:
            radial.append((self.gauss, other.gauss, None))
        for (matern, a), (_, b), r in zip(self.materns, other.materns, saved.radii, strict=True):
            radial.append((a, b, matern.log_slope(r)))
        for a, b, slope in radial:
            W, factor = (M, -1.0) if slope is None else (slope.mul_(M), 2.0)
            rows.append(factor * _pull(W, a, b))
            columns.append(factor * _pull(W.mT, b, a))
        if self.log_variance is not None:
            rows.append(M.sum((-2, -1)))
            columns.append(torch.zeros_like(rows[-1]))
        return rows, columns


def _pull(W: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """sum_j W_ij (a_i − b_j), with the row sums taken in the same product."""
    product = W @ torch.cat([b, b.new_ones(*b.shape[:-1], 1)], -1)
    return a * product[..., -1:] - product[..., :-1]


# --- an expression and its flat parameter vector ---------------------------------------------------------------------


@dataclass(frozen=True)
class Slot:
    """A named part of the flat parameter vector."""

    name: str  # "Linear*RBF[1].lengthscale", "Periodic.variance", "noise"
    word: int | None
    factor: int | None
    parameter: Parameter
    start: int
    size: int

    @property
    def slice(self) -> slice:
        return slice(self.start, self.start + self.size)


class Kernel:
    """An expression over D input dimensions, with observation noise: theta (..., P) -> covariance.

    `mask` switches dimensions off, for all words (D,) or word by word (W, D); a masked dimension keeps its place in
    theta and has no influence.
    """

    def __init__(self, expression: Expression, dims: int, mask: Tensor | None = None) -> None:
        if dims < 1:
            raise InvalidInputError(f"a kernel needs at least one input dimension, got {dims}")
        self.expression, self.dims = expression, dims
        mask = torch.ones(dims) if mask is None else torch.as_tensor(mask)
        self.mask = mask.expand(len(expression), dims)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        slots: list[Slot] = []

        def add(name: str, word: int | None, factor: int | None, parameter: Parameter, size: int) -> None:
            slots.append(Slot(name, word, factor, parameter, slots[-1].slice.stop if slots else 0, size))

        for i, word in enumerate(self.expression):
            for j, primitive in enumerate(word.factors):
                for parameter in FORMULAS[primitive].parameters if primitive in FORMULAS else ():
                    add(f"{word}[{j}].{parameter.value}", i, j, parameter, self.dims)
            if has_variance(word):
                add(f"{word}.variance", i, None, Parameter.VARIANCE, 1)
        add("noise", None, None, Parameter.NOISE, 1)
        return tuple(slots)

    @property
    def size(self) -> int:
        return self.slots[-1].slice.stop

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Flat and unconstrained -> named and constrained; a size-one parameter loses its axis."""
        values = {s.name: s.parameter.constrain(theta[..., s.slice]) for s in self.slots}
        return {s.name: values[s.name] if s.factor is not None else values[s.name].squeeze(-1) for s in self.slots}

    def flatten(self, values: Mapping[str, Tensor | float]) -> Tensor:
        missing = [s.name for s in self.slots if s.name not in values]
        unknown = [name for name in values if name not in {s.name for s in self.slots}]
        if missing or unknown:
            raise InvalidInputError(f"parameters of {self.expression}: missing {missing}, unknown {unknown}")
        parts = []
        for s in self.slots:
            value = torch.as_tensor(values[s.name], dtype=torch.float64)
            parts.append(s.parameter.unconstrain(value if s.factor is not None else value.unsqueeze(-1)))
        return torch.cat(parts, -1)

    def _params(self, theta: Tensor, word: int, factor: int | None) -> dict[Parameter, Tensor]:
        return {
            s.parameter: s.parameter.constrain(theta[..., s.slice])
            for s in self.slots
            if s.word == word and s.factor == factor
        }

    def terms(self, theta: Tensor, X: Tensor) -> list[Term]:
        """The signal words evaluated at the points X."""
        return [self.term(i, theta, X) for i, word in enumerate(self.expression) if not word.is_noise]

    def term(self, i: int, theta: Tensor, X: Tensor) -> Term:
        """One signal word evaluated at the points X."""
        formulas = tuple(FORMULAS[primitive] for primitive in self.expression.words[i].factors)
        mask = self.mask[i].to(X)
        features = tuple(f.features(X, self._params(theta, i, j), mask) for j, f in enumerate(formulas))
        variance = self._params(theta, i, None).get(Parameter.VARIANCE)
        return Term.of(formulas, features, None if variance is None else variance.squeeze(-1).log())

    def matrix(self, theta: Tensor, X: Tensor, Z: Tensor | None = None) -> Tensor:
        """Covariance of the signal (the sum of the words that are not noise), (..., N, M)."""
        here = self.terms(theta, X)
        there = here if Z is None else self.terms(theta, Z)
        total = X.new_zeros(*theta.shape[:-1], X.shape[-2], (X if Z is None else Z).shape[-2])
        for a, b in zip(here, there, strict=True):
            total = total + a.matrix(b, same=Z is None)
        return total

    def word_diagonals(self, theta: Tensor, X: Tensor) -> Tensor:
        """Prior variance of each word at each point, noise words included: (..., W, N)."""
        return torch.stack([self._diagonal(theta, X, i) for i in range(len(self.expression))], -2)

    def _diagonal(self, theta: Tensor, X: Tensor, i: int) -> Tensor:
        """k(x, x): a stationary factor is one, Linear is the square of its features."""
        variance = self._params(theta, i, None).get(Parameter.VARIANCE)
        value = X.new_ones(*theta.shape[:-1], X.shape[-2])
        value = value if variance is None else value * variance
        for j, primitive in enumerate(self.expression.words[i].factors):
            if primitive is Primitive.LINEAR:
                value = value * linear(X, self._params(theta, i, j), self.mask[i].to(X)).square().sum(-1)
        return value

    def diagonal(self, theta: Tensor, X: Tensor) -> Tensor:
        """Prior variance of the signal at each point, (..., N)."""
        return self._sum_diagonals(theta, X, noise=False)

    def noise(self, theta: Tensor, X: Tensor) -> Tensor:
        """The variance (..., N) of everything that is independent between points: noise words and observation noise."""
        slot = self.slots[-1]
        return self._sum_diagonals(theta, X, noise=True) + slot.parameter.constrain(theta[..., slot.slice])

    def _sum_diagonals(self, theta: Tensor, X: Tensor, noise: bool) -> Tensor:
        total = X.new_zeros(*theta.shape[:-1], X.shape[-2])
        for i, word in enumerate(self.expression):
            if word.is_noise == noise:
                total = total + self._diagonal(theta, X, i)
        return total


def has_variance(word: Word) -> bool:
    """A product has one variance, but Linear brings its own, one per dimension (paper, Heteroscedastic noise)."""
    return Primitive.LINEAR not in word.factors
