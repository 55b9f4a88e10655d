"""Whether a target is a trend, a wave, harmonics of it, a wave that grows, or two waves along a column.

The target is regressed on such functions of the column. A wave has the frequency of the highest peak of a periodogram, made
finer by Gauss-Newton steps, because a wave that is off by a tenth of a cycle over the range of the column hides everything
that is fainter. The statistics are logarithms: of the share of the variance that each regression leaves, of the two
frequencies, and of the heights of their peaks. More than some fifty cycles over an evenly filled column are not seen.

Shapes: C columns of tables, N points, J regressors, W frequencies. No gradient flows through these statistics.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

STEP, COUNT = 0.12, 128  # grid of frequencies, cycles per standard deviation of a column
SLOWEST = 3  # of these frequencies; slower waves are bends
REGRESSIONS = (
    "trend",
    "bend",
    "wave",
    "trend, wave",
    "bend, wave",
    "trend, harmonics",
    "trend, growing wave",
    "trend, two waves",
)
NEARLY = (
    0.9  # of several peaks that are so high, compared with the highest, the slowest wave counts: others are aliases
)
NUMBERS = len(REGRESSIONS) + 4  # for each column: of the regressions, and two frequencies with their peaks
LEAST_WAVE_SHARE = 1e-4  # of the variance of the target; a wave that explains less is rounding error
UNKNOWN = (4.5, 4.0)  # frequency and height of the peak where there is no wave: as in noise
_EPS = 1e-6
_CHUNK = 2**19  # entries of the waves worked on at once, so that they stay in the cache


def wave_statistics(X: Tensor, targets: Tensor) -> Tensor:
    """Statistics (B, D, NUMBERS) of the targets (B, D, N) of each column along that column of X (B, N, D)."""
    B, N, D = X.shape
    x, y = X.mT.reshape(B * D, N), targets.reshape(B * D, N)
    parts = torch.arange(B * D).split(max(1, _CHUNK // (N * COUNT)))
    return torch.cat([_along(x[part], _standardised(y[part])) for part in parts]).view(B, D, -1)


def _standardised(values: Tensor) -> Tensor:
    centred = values - values.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + _EPS).sqrt()


def _along(x: Tensor, y: Tensor) -> Tensor:
    """The statistics of standardised targets (C, N) along x (C, N)."""
    one, x1 = torch.ones_like(x).unsqueeze(-1), x.unsqueeze(-1)
    trend, bend = torch.cat([one, x1], -1), torch.cat([one, x1, x1.square()], -1)
    grid = _powers(x)
    first, peak = _strongest_wave(x, y, trend, grid)
    wave = _wave(x, first)
    second, second_peak = _strongest_wave(x, y, torch.cat([trend, wave], -1), grid)
    designs = (  # as in REGRESSIONS
        [trend],
        [bend],
        [one, wave],
        [trend, wave],
        [bend, wave],
        [trend, wave, _wave(x, 2 * first), _wave(x, 3 * first)],
        [trend, wave, x1 * wave],
        [trend, wave, _wave(x, second)],
    )
    left = [_left_over(torch.cat(parts, -1), y).clamp(1e-4, 10) for parts in designs]
    return torch.stack([*left, first, second, peak, second_peak], -1).log()


def _powers(x: Tensor) -> Tensor:
    """exp(2πi f x) at all frequencies f of the grid, for x (C, N): complex, (C, W, N)."""
    angle = (2 * math.pi * STEP) * x
    powers = x.new_empty(len(x), COUNT, x.shape[1], dtype=angle.dtype.to_complex())
    powers[:, 0] = torch.complex(angle.cos(), angle.sin())
    done = 1
    while done < COUNT:  # by doubling, which is faster than cosines and sines
        more = min(done, COUNT - done)
        torch.mul(powers[:, :more], powers[:, done - 1 : done], out=powers[:, done : done + more])
        done += more
    return powers


def _strongest_wave(x: Tensor, y: Tensor, others: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
    """Frequency (C,) of the strongest wave in what regressors (C, N, J) leave of y (C, N), and the height of its peak."""
    rest = y - (others @ _coefficients(others, y)).squeeze(-1)
    power = (grid @ rest.unsqueeze(-1).to(grid.dtype)).squeeze(-1).abs().square()[:, SLOWEST - 1 :]  # (C, W)
    highest = power.amax(-1, keepdim=True)
    is_high = (power >= NEARLY * highest).to(torch.uint8)
    frequency = STEP * (is_high.argmax(-1) + SLOWEST).to(x)
    for _ in range(3):
        wave = _wave(x, frequency)
        b = _coefficients(torch.cat([others, wave], -1), y)[:, -2:, 0]
        slope = 2 * math.pi * x * (b[:, 1:] * wave[..., 0] - b[:, :1] * wave[..., 1])  # of the wave in its frequency
        step = _coefficients(torch.cat([others, wave, slope.unsqueeze(-1)], -1), y)[:, -1, 0]
        frequency = (frequency + step.clamp(-STEP / 2, STEP / 2)).clamp_min(STEP)
    # A wave that explains the share s of the variance has a peak of about s N² / 2.
    is_there = highest.squeeze(-1) > 0.5 * LEAST_WAVE_SHARE * x.shape[1] ** 2
    height = highest.squeeze(-1) / power.mean(-1).clamp_min(_EPS)
    return frequency.where(is_there, UNKNOWN[0]), height.where(is_there, UNKNOWN[1])


def _wave(x: Tensor, frequency: Tensor) -> Tensor:
    """Cosine and sine (C, N, 2) of a frequency (C,) for each x (C, N)."""
    phase = 2 * math.pi * frequency.unsqueeze(-1) * x
    return torch.stack([phase.cos(), phase.sin()], -1)


def _coefficients(A: Tensor, y: Tensor) -> Tensor:
    """Least squares (C, J, 1) of y (C, N) on regressors (C, N, J), with a slight ridge, in their own scales."""
    scale = (A.square().sum(1, keepdim=True) + _EPS).sqrt()
    A = A / scale
    gram = A.mT @ A
    torch.diagonal(gram, dim1=-2, dim2=-1).add_(1e-5)
    solved, _ = torch.linalg.solve_ex(gram, A.mT @ y.unsqueeze(-1))
    return solved.nan_to_num(0.0, 0.0, 0.0) / scale.mT


def _left_over(A: Tensor, y: Tensor) -> Tensor:
    """Share (C,) of the variance of y (C, N) that regressors (C, N, J) leave, per degree of freedom; 1 if there are none."""
    n, j = A.shape[1], A.shape[2]
    if n <= j:
        return torch.ones_like(y[:, 0])
    rest = y - (A @ _coefficients(A, y)).squeeze(-1)
    return rest.square().sum(-1) / (n - j)
