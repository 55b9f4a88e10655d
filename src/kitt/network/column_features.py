"""Statistics of a table with few rows, from two quick fits: what each column, and each pair of columns, explains.

With z_d = a_d line + b_d smooth + c_d rough, three centred covariances of unit variance along column d, the two fits are
v prod_d (1 + z_d), a sum over every set of columns, and v (1 + sum_d z_d), a sum over columns. Their lengthscales are
fixed, so that a step of the fit takes a Cholesky factor and a few products. A column and a pair are judged by what the
likelihood loses without them, by the share that they have of the mean, and by tests of the residuals.

Shapes: X (B, N, D) and y (B, N), standardised. Everything is equivariant to the order of the columns and does not depend on
the order of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kitt.network.subsets import Reading

READING = Reading(subsets=1, work=0.15e6, max_rows=128)  # rows of a larger table that are fitted: about 30 milliseconds
SMOOTH, ROUGH = 1.0, 0.3  # lengthscales of the fixed covariances, in standard deviations of a column
STEPS = (12, 6)  # of the product fit, and of the additive fit, which starts from the amplitudes of the product fit
PARTS = 3  # line, smooth, rough
COLUMN_SHARE, PAIR_SHARE = 9, 1  # places of the log shares that a column and a pair have of the mean of the product fit
_NOISE = (1e-4, 4.0)  # least and largest noise variance
_RATE = 1.4  # amplitude of the pull towards small amplitudes, an exponential prior
_JITTER = 2e-6  # share of the variance, so that rounding leaves covariances positive
_CHUNK = 2**20  # entries of the covariances of columns worked on at once


@dataclass(frozen=True)
class ColumnFeatures:
    """The statistics of a batch of tables."""

    columns: Tensor  # (B, D, COLUMN_SIZE)
    pairs: Tensor  # (B, D, D, PAIR_SIZE), symmetric
    whole: Tensor  # (B, WHOLE_SIZE)


def column_features(X: Tensor, y: Tensor) -> ColumnFeatures:
    """The statistics of standardised tables."""
    _, N, D = X.shape
    count = max(1, _CHUNK // (N * N * D * PARTS))
    parts = [_features(*some) for some in zip(X.float().split(count), y.float().split(count), strict=True)]
    return ColumnFeatures(*(torch.cat([getattr(p, name) for p in parts]) for name in ("columns", "pairs", "whole")))


def _features(X: Tensor, y: Tensor) -> ColumnFeatures:
    B, N, D = X.shape
    K = _covariances(X)
    product = _Fit.begin(K, y, is_product=True).run(STEPS[0])
    additive = _Fit(K, y, product.theta.clone(), is_product=False).run(STEPS[1])
    columns, pairs, whole = [_along(X, y)], [_tests(X, additive)], []
    for fit in (product, additive):
        now = fit.state()
        z, alpha = fit.z, now.alpha[:, None, :, None]
        with_column = now.slope(z) * z  # the sets of columns that have the column, (B, D, N, N)
        columns.append(fit.log_amplitudes.flatten(2))
        columns += [_log((part @ alpha).var(-2, correction=0)) for part in (now.v * z, with_column)]
        if fit is product:
            without = [now.K[:, None] - with_column, now.K[:, None] - now.slope(z) * (z - fit.lines)]
            columns += [_compress(now.likelihood[:, None] - fit.likelihoods(K)).unsqueeze(-1) for K in without]
        pairs.append(_joint_effects(z, now))
        errors = now.alpha / torch.diagonal(now.inverse, dim1=-2, dim2=-1)
        whole += [fit.theta[:, :2], now.likelihood[:, None] / N, _log(errors.square().mean(-1, keepdim=True))]
    gain = product.state().likelihood - additive.state().likelihood
    whole += [_compress(gain)[:, None], gain[:, None] / N]
    sizes = y.new_tensor([math.log(N), math.log(D)]).expand(B, 2)
    return ColumnFeatures(torch.cat(columns, -1), torch.cat(pairs, -1), torch.cat([*whole, sizes], -1))


# --- the fits --------------------------------------------------------------------------------------------------------


def _covariances(X: Tensor) -> Tensor:
    """Centred covariances of unit mean variance along each column, (B, D, PARTS, N, N)."""
    x = X.mT
    gap = (x.unsqueeze(-1) - x.unsqueeze(-2)).abs()
    K = torch.stack(
        [x.unsqueeze(-1) * x.unsqueeze(-2), (gap / SMOOTH).square_().mul_(-0.5).exp_(), (gap / -ROUGH).exp_()], 2
    )
    mean = K.mean(-1, keepdim=True)
    K = K.sub_(mean).sub_(mean.mT - mean.mean(-2, keepdim=True))
    scale = torch.diagonal(K, dim1=-2, dim2=-1).mean(-1)
    return K.div_(scale.clamp_min(1e-6)[..., None, None])


@dataclass(frozen=True)
class _State:
    """A fit at its parameters."""

    v: Tensor  # (B, 1, 1, 1)
    K: Tensor  # (B, N, N) of the signal
    others: Tensor | None  # (B, D, N, N): the product over the other columns; None for the additive fit
    inverse: Tensor  # (B, N, N) of K with noise
    alpha: Tensor  # (B, N)
    likelihood: Tensor  # (B,)

    def slope(self, z: Tensor) -> Tensor:
        """The derivative of K by each z_d."""
        return self.v if self.others is None else self.v * self.others


class _Fit:
    """Parameters log v, log noise and log amplitudes (B, 2 + D PARTS), and steps that raise the posterior."""

    def __init__(self, K: Tensor, y: Tensor, theta: Tensor, is_product: bool) -> None:
        self.K, self.y, self.theta, self.is_product = K, y, theta, is_product

    @classmethod
    def begin(cls, K: Tensor, y: Tensor, is_product: bool) -> _Fit:
        B, D = K.shape[:2]
        theta = y.new_full((B, 2 + D * PARTS), math.log(0.5 / D))
        theta[:, 0], theta[:, 1] = 0.0, math.log(0.1)
        return cls(K, y, theta, is_product)

    @property
    def log_amplitudes(self) -> Tensor:
        return self.theta[:, 2:].view(*self.K.shape[:3])

    @property
    def z(self) -> Tensor:
        B, D, P, N, _ = self.K.shape
        return (self.log_amplitudes.exp().unsqueeze(-2) @ self.K.view(B, D, P, N * N)).view(B, D, N, N)

    @property
    def lines(self) -> Tensor:
        """The part of z that is lines."""
        return self.log_amplitudes[:, :, 0].exp()[..., None, None] * self.K[:, :, 0]

    def run(self, steps: int) -> _Fit:
        """Steps of Adam with a rate that falls."""
        first, second = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        low = self.theta.new_full(self.theta.shape[1:], -12.0)
        high = self.theta.new_full(self.theta.shape[1:], 4.0)
        low[1], high[1] = map(math.log, _NOISE)
        for step in range(steps):
            slope = self._slope()
            first = 0.7 * first + 0.3 * slope
            second = 0.8 * second + 0.2 * slope.square()
            move = first / (1 - 0.7 ** (step + 1)) / (second / (1 - 0.8 ** (step + 1)) + 1e-4).sqrt()
            self.theta = (self.theta + 0.9 * (1 - step / (steps + 1)) * move).clamp(low, high)
        return self

    def state(self) -> _State:
        z, v = self.z, self.theta[:, 0].exp()
        others = None
        if self.is_product:
            others, total = _products_of_others(1 + z)
        else:
            total = 1 + z.sum(1)
        K = v[:, None, None] * total
        L = self._factor(K)
        inverse, y = torch.cholesky_inverse(L), self.y.double()
        alpha = (inverse @ y.unsqueeze(-1)).squeeze(-1)
        likelihood = -0.5 * (y * alpha).sum(-1) - torch.diagonal(L, dim1=-2, dim2=-1).log().sum(-1)
        return _State(v[:, None, None, None], K, others, inverse.float(), alpha.float(), likelihood.float())

    def _factor(self, K: Tensor) -> Tensor:
        """The Cholesky factor of a covariance (B, ..., N, N) with noise, in double precision."""
        noise = self.theta[:, 1].exp().view(-1, *(1,) * (K.dim() - 3)) + _JITTER * torch.diagonal(
            K, dim1=-2, dim2=-1
        ).mean(-1)
        C = K.double()
        torch.diagonal(C, dim1=-2, dim2=-1).add_(noise.unsqueeze(-1))
        return torch.linalg.cholesky_ex(C)[0]

    def likelihoods(self, K: Tensor) -> Tensor:
        """The evidence (B, D) of signals with other covariances (B, D, N, N) and the noise of this fit."""
        L = self._factor(K)
        y = self.y.double()[:, None, :, None].expand(*K.shape[:-1], 1)
        solved = torch.linalg.solve_triangular(L, y, upper=False)
        return (-0.5 * solved.square().sum((-2, -1)) - torch.diagonal(L, dim1=-2, dim2=-1).log().sum(-1)).float()

    def _slope(self) -> Tensor:
        now = self.state()
        B, D, P, N, _ = self.K.shape
        G = 0.5 * (now.alpha.unsqueeze(-1) * now.alpha.unsqueeze(-2) - now.inverse)
        whole = [(G * now.K).sum((-2, -1)), self.theta[:, 1].exp() * torch.diagonal(G, dim1=-2, dim2=-1).sum(-1)]
        pull = G.unsqueeze(1) * now.slope(G)  # (B, D or 1, N, N)
        by_part = (self.K.view(B, D, P, N * N) @ pull.reshape(B, -1, N * N, 1)).squeeze(-1)
        amplitude = self.log_amplitudes.exp()
        prior = -_RATE * amplitude
        return torch.cat([torch.stack(whole, -1), (amplitude * by_part + prior).flatten(1)], -1)


def _products_of_others(factors: Tensor) -> tuple[Tensor, Tensor]:
    """For each factor (B, D, N, N) the product of all others, and the product of all."""
    D = factors.shape[1]
    others = torch.empty_like(factors)
    before = torch.ones_like(factors[:, 0])
    for d in range(D):
        others[:, d] = before
        before = before * factors[:, d]
    after = torch.ones_like(before)
    for d in range(D - 1, -1, -1):
        others[:, d] *= after
        after = after * factors[:, d]
    return others, before


# --- statistics of columns and pairs ---------------------------------------------------------------------------------


def _along(X: Tensor, y: Tensor) -> Tensor:
    """Correlations of the target, and of its ranks, with each column, and the number of values, (B, D, 5)."""
    N = y.shape[-1]
    x = X.mT
    ranks = [t.argsort(-1).argsort(-1).to(y) / max(N - 1, 1) - 0.5 for t in (x, y)]
    rank = (ranks[0] * ranks[1].unsqueeze(1)).mean(-1) * 12
    bend = x.square() - 1
    bend = bend - (bend * x).mean(-1, keepdim=True) * x
    bend = bend / (bend.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    line, curve = ((s * y.unsqueeze(1)).mean(-1) for s in (x, bend))
    ordered = x.sort(-1).values
    values = ((ordered[..., 1:] - ordered[..., :-1]) > 1e-6).sum(-1) + 1.0
    return torch.stack([rank.abs(), line.abs(), curve.abs(), values.log(), (values / N).log()], -1)


def _joint_effects(z: Tensor, now: _State) -> Tensor:
    """The share of the mean that is the function of a pair of columns, and how well it explains the target, (B, D, D, 3)."""
    B, D, N, _ = z.shape
    flat = (now.v * z).reshape(B, D, N * N)
    outer = (now.alpha.unsqueeze(-1) * now.alpha.unsqueeze(-2)).reshape(B, 1, N * N)
    other = z.reshape(B, D, N * N)
    norm = (flat * outer) @ other.mT
    trace = (flat * now.inverse.reshape(B, 1, N * N)) @ other.mT
    rows = z.permute(0, 2, 1, 3)  # (B, N, D, N)
    mean = now.v * ((rows * now.alpha[:, None, None, :]) @ rows.mT)  # (B, N, D, D)
    return torch.stack([_log(mean.var(1, correction=0)), _ratio(norm, trace), _compress(0.5 * (norm - trace))], -1)


def _tests(X: Tensor, additive: _Fit) -> Tensor:
    """What the additive fit leaves, against products of two columns: a score that is standard normal if nothing is left."""
    now = additive.state()
    B, N, D = X.shape
    product = (X.mT.unsqueeze(2) * X.mT.unsqueeze(1)).reshape(B, D * D, N)
    product = product - product.mean(-1, keepdim=True)
    score = (product @ now.alpha.unsqueeze(-1)).squeeze(-1)
    variance = ((product @ now.inverse) * product).sum(-1)
    return _compress(score.abs() / (variance + 1e-9).sqrt()).view(B, D, D, 1)


def _ratio(norm: Tensor, trace: Tensor) -> Tensor:
    return ((norm.clamp_min(0) + 1e-6) / (trace.clamp_min(0) + 1e-6)).log().clamp(-5, 5)


def _log(values: Tensor) -> Tensor:
    return (values + 1e-6).log()


def _compress(values: Tensor) -> Tensor:
    """Likelihoods and scores on a scale that keeps one and a hundred apart."""
    return values.nan_to_num(0.0).sign() * values.nan_to_num(0.0).abs().log1p()
