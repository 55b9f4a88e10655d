"""Periods and plane waves that a target shows along the columns of a table, from which starting values are derived."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from kitt.fitting.config import StartsConfig

DEFAULT = StartsConfig()
DENSE_COLUMNS = 2  # up to this many columns, short lengthscales are tried too: `kitt bench timeseries`
_FREQUENCIES = 256  # in each column's spectrum; more where there are few columns: `kitt bench timeseries`
_WAVES = 2048  # plane waves that are tried for Cosine; set by hand
_REFINED_WAVES = 48  # the best of these, improved by Gauss-Newton steps: 12 tables of `kitt bench atlas`
_DECISIVE_BIC = 10.0  # difference of BIC that is decisive for a season (Kass & Raftery, 1995)
_COLUMNS = 16  # whose spectra are computed at once


class Spectrum:
    """Periods and plane waves in a target along the columns, computed when a word first needs them."""

    def __init__(
        self, X: Tensor, y: Tensor, shortest: Tensor, generator: torch.Generator, config: StartsConfig = DEFAULT
    ) -> None:
        self.X, self.y, self.shortest, self.config, self._generator = X, y, shortest, config, generator

    @cached_property
    def _peaks(self) -> tuple[Tensor, Tensor]:
        return _spectrum(self.X, self._rest, self.shortest)

    @cached_property
    def _rest(self) -> Tensor:
        """The residual of a cubic trend along each column."""
        return regression([self.X, self.X**2, self.X**3], self.y)[1]

    @property
    def periods(self) -> Tensor:
        """The period (D,) with the highest peak in each column's spectrum."""
        return 1 / self._peaks[1]

    @property
    def strongest(self) -> int:
        """The column with the highest peak of all."""
        return int(self._peaks[0].argmax())

    @cached_property
    def season(self) -> float:
        """The period of that column; the highest peak may be a harmonic of it."""
        peak = float(self.periods[self.strongest])
        is_dense = self.X.shape[1] <= DENSE_COLUMNS
        return _season(self.X[:, self.strongest], self._rest, peak, self.config) if is_dense else peak

    @cached_property
    def waves(self) -> Tensor:
        """Frequencies (W, D) of the strongest plane waves in the target and in its residual from a linear trend."""
        frequency = self._peaks[1]
        targets = (self.y, regression([self.X], self.y)[1])
        return torch.cat([_plane_waves(self.X, r, frequency, self._generator, self.config)[:2] for r in targets])


def regression(features: list[Tensor], y: Tensor) -> tuple[Tensor, Tensor]:
    """The coefficients of a ridge regression, the constant last, and its residual."""
    F = torch.cat([*features, torch.ones_like(features[0][:, :1])], 1)
    ridge = 1e-3 * len(y) * torch.eye(F.shape[1], dtype=F.dtype)
    beta = torch.linalg.solve(F.mT @ F + ridge, F.mT @ y)
    return beta, y - F @ beta


def _spectrum(X: Tensor, r: Tensor, shortest: Tensor) -> tuple[Tensor, Tensor]:
    """The highest power of each column and its frequency, between 1.5 waves over the range and the shortest period."""
    D, span = X.shape[1], (X.amax(0) - X.amin(0)).clamp_min(1e-6)
    cycles = 1.5 + 0.5 * torch.arange(_FREQUENCIES * max(1, 4 // D), dtype=X.dtype)
    power = _power(X / span, r, cycles.expand(D, -1))
    power = power.masked_fill(cycles > (span / shortest).clamp_min(1.5)[:, None], 0.0)
    near = cycles[power.argmax(1), None] + torch.linspace(-0.5, 0.5, 21, dtype=X.dtype)
    best = _power(X / span, r, near).max(1)
    return best.values, near.gather(1, best.indices[:, None])[:, 0] / span


def _power(X: Tensor, r: Tensor, frequency: Tensor) -> Tensor:
    """|sum r exp(2πi f x)|² for the frequencies (D, F) of each column, some columns at a time."""
    powers = []
    for x, f in zip(X.mT.split(_COLUMNS), frequency.split(_COLUMNS), strict=True):
        phase = 2 * math.pi * x[:, None, :] * f[..., None]  # (columns, F, N)
        powers.append((phase.cos() @ r).square() + (phase.sin() @ r).square())
    return torch.cat(powers)


def _season(x: Tensor, r: Tensor, peak: float, config: StartsConfig) -> float:
    """The period of the highest peak, or a multiple of it, as for months of which one is low every year.

    A multiple is accepted only if its further harmonics lower the BIC, and by more than the frequencies between them would.
    """

    def cost(waves: Tensor) -> float:
        phase = 2 * math.pi * x[:, None] * waves / peak
        error = regression([phase.cos(), phase.sin()], r)[1].square().mean().clamp_min(1e-12)
        return float(len(r) * error.log()) + 2 * len(waves) * math.log(len(r))

    whole = torch.tensor([1.0, 2.0], dtype=x.dtype)
    best, least = 1, cost(whole)
    for multiple in (m for m in config.period_multiples if 1.5 * m * peak < x.amax() - x.amin()):
        further = torch.tensor([k for k in range(1, 2 * multiple) if k != multiple], dtype=x.dtype)
        ours, *between = (cost(torch.cat([whole, (further + shift) / multiple])) for shift in (0.0, -0.5, 0.5))
        if ours < min(least, *between) - _DECISIVE_BIC:
            best, least = multiple, ours
    return best * peak


def _plane_waves(X: Tensor, r: Tensor, peaks: Tensor, generator: torch.Generator, config: StartsConfig) -> Tensor:
    """Frequencies (3, D) of the waves a cos(2π w·x) + b sin(2π w·x) that explain most of r.

    The best of random ones and one along each column are improved by Gauss-Newton steps, all at once.
    """
    D = X.shape[1]
    w = torch.randn(_WAVES, D, generator=generator, dtype=X.dtype)
    w *= torch.exp(torch.randn(_WAVES, 1, generator=generator, dtype=X.dtype)) * 0.3 / math.sqrt(D)
    w = torch.cat([w, torch.diag(peaks)])
    phase = 2 * math.pi * (w @ X.mT)
    power = (phase.cos() @ r).square() + (phase.sin() @ r).square()
    w = w[power.topk(min(_REFINED_WAVES, len(w))).indices]
    left, damping = _unexplained(w, X, r)[0], torch.full((len(w), 1), 0.1, dtype=X.dtype)
    for _ in range(config.wave_steps):
        there = w + _wave_step(w, X, r, damping)
        after = _unexplained(there, X, r)[0]
        better = after < left
        w, left = torch.where(better[:, None], there, w), torch.where(better, after, left)
        damping = torch.where(better[:, None], 0.3 * damping, 10 * damping)
    w = w[left.argsort()]
    apart = [0]
    for i in range(1, len(w)):
        if len(apart) < 3 and all((w[i] - s * w[j]).abs().max() > 0.02 for j in apart for s in (1, -1)):
            apart.append(i)
    return w[(apart * 3)[:3]]


def _unexplained(w: Tensor, X: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean square (W,) of r after waves (W, D) of the best amplitudes; their phases (W, N) and amplitudes (W, 2)."""
    phase = 2 * math.pi * (w @ X.mT)
    F = torch.stack([phase.cos(), phase.sin()], -1)  # (W, N, 2)
    gram = F.mT @ F + 1e-6 * len(r) * torch.eye(2, dtype=X.dtype)
    amplitudes = torch.linalg.solve(gram, F.mT @ r)
    return (r - (F @ amplitudes.unsqueeze(-1)).squeeze(-1)).square().mean(-1), phase, amplitudes


def _wave_step(w: Tensor, X: Tensor, r: Tensor, damping: Tensor) -> Tensor:
    """A damped Gauss-Newton step of the frequencies (W, D), with the amplitudes optimised too."""
    _, phase, amplitudes = _unexplained(w, X, r)
    cos, sin = phase.cos(), phase.sin()
    a, b = amplitudes.unsqueeze(-1).unbind(1)
    slope = 2 * math.pi * (b * cos - a * sin)  # of the wave by its phase over 2π
    J = torch.cat([slope.unsqueeze(-1) * X, cos.unsqueeze(-1), sin.unsqueeze(-1)], -1)  # (W, N, D + 2)
    gram = J.mT @ J
    diagonal = torch.diagonal(gram, dim1=-2, dim2=-1)
    diagonal += damping * diagonal + 1e-9
    error = r - a * cos - b * sin
    return torch.linalg.solve(gram, (J.mT @ error.unsqueeze(-1))).squeeze(-1)[:, : w.shape[1]]
