"""Statistics of a data set that are informative about its kernel; tensors in, tensors out.

`describe` computes statistics along each column (waves, spectrum, variogram, smoothing error) and of all columns together;
`probe` measures how well a few Gaussian processes with given lengthscales explain the data.
Both return numbers for each column, equivariant to the order of the columns, and for the whole table; neither depends
on the order of the rows.

Shapes: X (B, N, D) and y (B, N), standardised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import threshold

from kitt.network.waves import wave_statistics

WIDTHS = tuple(2.0 * 0.5**i for i in range(8))  # smoothing widths in standard deviations of a column
FREQUENCIES = tuple(0.08 * (12.0 / 0.08) ** (i / 39) for i in range(40))  # cycles per standard deviation
PROBE_SCALES = (0.4, 1.0, 2.5)  # multiples of the predicted metric
PROBE_FAMILIES = ("rbf", "matern12", "matern32", "matern52")
_EPS = 1e-6
_CHUNK = 2**19  # entries of the pairwise matrices worked on at once, so that they stay in the cache


@dataclass(frozen=True)
class Tables:
    """A batch of standardised tables, and a linear fit."""

    X: Tensor  # (B, N, D)
    y: Tensor  # (B, N)
    residual: Tensor  # (B, N) standardised
    unexplained: Tensor  # (B,) share of the variance that the linear fit leaves
    deviation: Tensor  # (B, N) residual as it is
    slopes: Tensor  # (B, D) of the linear fit
    n: Tensor  # (B,) number of points
    d: Tensor  # (B,) number of columns

    def double(self) -> Tables:
        return Tables(**{field.name: getattr(self, field.name).double() for field in fields(self)})


def prepare(X: Tensor, y: Tensor) -> Tables:
    B, N, D = X.shape
    # Ridge regression; the penalty of about one observation keeps N <= D harmless.
    A = torch.cat([X, X.new_ones(B, N, 1)], -1)
    beta = torch.linalg.solve(A.mT @ A + torch.eye(D + 1).to(X), A.mT @ y.unsqueeze(-1))
    deviation = y - (A @ beta).squeeze(-1)
    residual, unexplained = _standardised(deviation)
    slopes = beta[:, :-1, 0]
    return Tables(
        X, y, residual, unexplained, deviation, slopes, X.new_full((B,), float(N)), X.new_full((B,), float(D))
    )


def _standardised(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values (B, N) with mean zero and variance one over the points, and their variance (B,) before that."""
    n = values.shape[-1]
    centred = values - values.sum(-1, keepdim=True) / n
    variance = centred.square().sum(-1) / n
    return centred / (variance + _EPS).sqrt()[:, None], variance


def describe(t: Tables) -> tuple[Tensor, Tensor]:
    """Numbers for each column (B, D, F) and for the whole table (B, G)."""
    total = _squared_distances(t.X)
    columns = [
        wave_statistics(t.X, _partial_targets(t)),
        _shape(t),
        _spectra(t.X, torch.stack([t.y, t.residual, _square(t.y)], 1), t),
        _along_columns(t, total),
    ]
    joint = _smooth(total / t.d[:, None, None], None, _signals(t), t.n)
    fine = torch.stack([_log(t.n), _log(t.d), _log(t.unexplained), *_moments(t.y, t), *_moments(t.residual, t)], -1)
    return torch.cat(columns, -1), torch.cat([joint, fine], -1)


def _partial_targets(t: Tables) -> Tensor:
    """The target minus what the linear fit explains by the other columns, for each column, (B, D, N)."""
    return t.deviation.unsqueeze(1) + t.X.mT * t.slopes.unsqueeze(-1)


def _squared_distances(z: Tensor) -> Tensor:
    norm = z.square().sum(-1)
    squared = (norm.unsqueeze(-1) + norm.unsqueeze(-2)).baddbmm_(z, z.mT, alpha=-2).clamp_min_(0)
    torch.diagonal(squared, dim1=-2, dim2=-1).zero_()
    return squared


def _signals(t: Tables) -> Tensor:
    """[1, y, y², r, r²], (B, 5, N)."""
    return torch.stack([torch.ones_like(t.y), t.y, t.y.square(), t.residual, t.residual.square()], 1)


def _along_columns(t: Tables, total: Tensor) -> Tensor:
    """Ties, and smoothing along each column: over all points, and over points that are close in the other columns."""
    B, N, D = t.X.shape
    x = t.X.mT.reshape(B * D, N)
    data_set = torch.arange(B).repeat_interleave(D)
    signals, width = _signals(t), 0.35 * (t.d - 1).clamp_min(1).sqrt()
    out = []
    for part in torch.arange(B * D).split(max(1, _CHUNK // (N * N))):
        here, n = data_set[part], t.n[data_set[part]]
        squared = (x[part].unsqueeze(-1) - x[part].unsqueeze(-2)).square_()
        ties = (squared < 1e-8).to(x).sum((1, 2)) / n / n
        rest = torch.exp((total[here] - squared).mul_((-0.5 / width[here].square())[:, None, None]))
        smooth = _smooth(squared, rest, signals[here], n)
        out.append(torch.cat([ties.unsqueeze(-1), ties.clamp_min(1e-4).log().unsqueeze(-1), smooth], -1))
    return torch.cat(out).view(B, D, -1)


def _log(values: Tensor) -> Tensor:
    return (values + _EPS).log()


def _square(values: Tensor) -> Tensor:
    """Standardised squares: how the size of the target varies."""
    return _standardised(values.square())[0]


def _moments(values: Tensor, t: Tables) -> list[Tensor]:
    """Skewness and log kurtosis of a standardised quantity."""
    return [values.pow(3).sum(1) / t.n / 10, _log(values.pow(4).sum(1) / t.n)]


def _shape(t: Tables) -> Tensor:
    """Moments of each column and of the target along it, (B, D, 11)."""
    n = t.n[:, None]
    x, x2 = t.X, t.X.square()
    signals = torch.stack([t.y, t.residual, _square(t.y), _square(t.residual)], -1)  # (B, N, 4)
    along = x.mT @ signals / n.unsqueeze(-1)
    across = (x2.mT @ signals) / n.unsqueeze(-1) - (x2.sum(1) / n).unsqueeze(-1) * (signals.sum(1) / n).unsqueeze(1)
    skew, kurtosis = x.pow(3).sum(1) / n, x.pow(4).sum(1) / n
    d = t.d[:, None].expand_as(skew)
    own = torch.stack([skew.abs().log1p(), kurtosis.log1p(), d.log()], -1)
    return torch.cat([along.abs(), across, own], -1)


def _spectra(X: Tensor, signals: Tensor, t: Tables) -> Tensor:
    """Log periodogram of each signal (B, S, N) along each column, (B, D, S·40)."""
    omega = 2 * math.pi * torch.tensor(FREQUENCIES, dtype=X.dtype, device=X.device)
    phase = X.mT.unsqueeze(-1) * omega  # (B, D, N, W)
    signals = signals.unsqueeze(1)  # (B, 1, S, N)
    power = (signals @ phase.cos()).square() + (signals @ phase.sin()).square()  # (B, D, S, W)
    return _log(power / t.n[:, None, None, None] + 1e-3).flatten(2)


def _smooth(squared: Tensor, window: Tensor | None, signals: Tensor, n: Tensor) -> Tensor:
    """Gaussian smoothing of target and residual at all widths over given squared distances (C, N, N), which are overwritten.

    One product of the weights with the signals gives, for each width: the log of the mean weight, and for target and
    residual the leave-one-out smoothing error, the correlogram and the variogram. With a window, every other width is also
    smoothed inside it. A width half as large is the fourth power of the weights. Returns (C, 7 · passes).
    """
    weights = squared.mul_(-0.5 / WIDTHS[0] ** 2).exp_()
    sums = []
    for i in range(len(WIDTHS)):
        if i:
            threshold(weights, 1e-9, 0.0, inplace=True).square_().square_()  # no denormals: they are slow
        sums.append(signals @ weights)  # the weights are symmetric, and a short and wide left factor is much faster
        if window is not None and i % 2 == 0:
            sums.append(signals @ (weights * window))
    own = torch.stack(sums, 1) - signals.unsqueeze(1)  # (C, passes, 5, N): a point's own weight is one
    n = n.unsqueeze(-1)
    mass = own[:, :, 0].clamp_min(0)
    total = mass.sum(-1) + 0.01
    out = [_log(mass.sum(-1) / n)]
    for k in (1, 3):
        s, smooth = signals[:, None, k], own[:, :, k]
        error = (s - smooth / (mass + 0.05)).square().sum(-1) / n
        gap = (s.square() * mass + own[:, :, k + 1] - 2 * s * smooth).sum(-1) / (2 * total)
        out += [_log(error.clamp_max(100)), (s * smooth).sum(-1) / total, _log(gap.clamp(1e-3, 100))]
    return torch.cat(out, -1)


def probe(t: Tables, roughness: Tensor, nugget: Tensor) -> tuple[Tensor, Tensor]:
    """Evidence for a few Gaussian processes with inverse lengthscales `roughness` (B, D) and noise share `nugget` (B,).

    For RBF and the three Materns at three multiples of the metric: the profile log likelihood (the overall variance is
    maximised in closed form) of the target and of the linear fit's residual. Also the residuals of one of them: standardised
    leave-one-out errors, their spectrum along each column and whether they grow with it. No gradient flows back.
    """
    with torch.no_grad():
        squared = _squared_distances(t.X * roughness.unsqueeze(1))
        distance = squared.sqrt()
        targets = torch.stack([t.y, t.residual], -1)
        scores, errors = [], None
        for family in PROBE_FAMILIES:
            for scale in PROBE_SCALES:
                K = _correlation(family, squared, distance, scale)
                torch.diagonal(K, dim1=-2, dim2=-1).copy_(1.0 + nugget[:, None])
                L, failed = torch.linalg.cholesky_ex(K)  # scores of those that fail are not numbers, or the lowest
                solved = torch.linalg.solve_triangular(L, targets, upper=False)
                log_det = 2 * torch.diagonal(L, dim1=-2, dim2=-1).log().sum(-1) / t.n
                variance = solved.square().sum(1) / t.n[:, None]  # (B, 2)
                scores.append(-0.5 * (variance + 1e-9).log() - 0.5 * log_det.unsqueeze(-1))
                if family == "matern32" and scale == 1.0:
                    errors = _leave_one_out_errors(
                        torch.where(failed[:, None, None] > 0, torch.eye(K.shape[-1]).to(K), L), t
                    )
        assert errors is not None
        return _probe_features(torch.stack(scores, -1), errors, t)


def _correlation(family: str, squared: Tensor, distance: Tensor, scale: float) -> Tensor:
    if family == "rbf":
        return (squared * (-0.5 * scale**2)).exp_()
    r = distance * (scale * {"matern12": 1.0, "matern32": 3.0, "matern52": 5.0}[family] ** 0.5)
    decay = torch.exp(-r)
    if family == "matern12":
        return decay
    return decay.mul_(1 + r) if family == "matern32" else decay.mul_((r / 3 + 1).mul_(r).add_(1))


def _leave_one_out_errors(L: Tensor, t: Tables) -> Tensor:
    inverse = torch.cholesky_inverse(L)
    precision = torch.diagonal(inverse, dim1=-2, dim2=-1)
    errors = (inverse @ t.residual.unsqueeze(-1)).squeeze(-1) / precision.clamp_min(_EPS).sqrt()
    return _standardised(errors)[0]


def _probe_features(scores: Tensor, errors: Tensor, t: Tables) -> tuple[Tensor, Tensor]:
    """scores (B, 2, P) per point; the total differences between families are what decides, so they come too, clipped."""
    scores = torch.nan_to_num(scores, nan=-10.0, posinf=10.0, neginf=-10.0).clamp(-10, 10)
    relative = (scores - scores.amax(-1, keepdim=True)) * t.n[:, None, None]
    by_family = scores.unflatten(-1, (len(PROBE_FAMILIES), len(PROBE_SCALES))).amax(-1)
    best = (by_family - by_family.amax(-1, keepdim=True)) * t.n[:, None, None]
    whole = [scores.flatten(1), _compress(relative).flatten(1), _compress(best).flatten(1)]
    whole += [m.unsqueeze(-1) for m in _moments(errors, t)]
    squares = _square(errors)
    n = t.n[:, None]
    along = (t.X.mT @ squares.unsqueeze(-1)).squeeze(-1) / n
    across = (t.X.square().mT @ squares.unsqueeze(-1)).squeeze(-1) / n
    spectrum = _spectra(t.X, torch.stack([errors, squares], 1), t)
    column = torch.cat([along.abs().unsqueeze(-1), across.unsqueeze(-1), spectrum], -1)
    return column, torch.cat(whole, -1)


def _compress(nats: Tensor) -> Tensor:
    """Differences in log evidence on a scale that keeps both one nat and a hundred apart."""
    return -torch.log1p(-nats)


# --- the numbers of `describe` as curves, for figures ---------------------------------------------------------------------

PASSES = tuple(  # of `_smooth` along a column: its width, and whether only among points close in the other columns
    (width, inside) for i, width in enumerate(WIDTHS) for inside in ((False, True) if i % 2 == 0 else (False,))
)


@dataclass(frozen=True)
class Curves:
    """The curves that `describe` computes along each column, for target (0) and residual of the linear fit (1)."""

    power: Tensor  # (B, D, 2, FREQUENCIES): periodogram, about 1 for white noise
    neighbours: Tensor  # (B, D, PASSES): mean weight of the other points
    error: Tensor  # (B, D, 2, PASSES): squared leave-one-out error of smoothing, variance 1
    variogram: Tensor  # (B, D, 2, PASSES): half the mean squared difference of neighbours, variance 1


def spectra_of(columns: Tensor) -> slice:
    """The spectra of target, residual and squared target in the numbers for each column: before ties and smoothing."""
    end = columns.shape[-1] - 7 * len(PASSES) - 2
    return slice(end - 3 * len(FREQUENCIES), end)


def curves(columns: Tensor) -> Curves:
    """The parts of the numbers for each column (B, D, F), the first result of `describe`, that are curves."""
    passes, frequencies = len(PASSES), len(FREQUENCIES)
    power = columns[..., spectra_of(columns)].unflatten(-1, (3, frequencies))[..., :2, :].exp()
    smooth = columns[..., -7 * passes :].unflatten(-1, (7, passes)).exp()
    return Curves(power, smooth[..., 0, :], smooth[..., [1, 4], :], smooth[..., [3, 6], :])
