"""Features of real tables that draws from a kernel lack: realistic inputs, and nuisances of the target.

Inputs are rows and columns of real tables (any folder of CSV files), or equally spaced times. Nuisances are outliers,
heavy tails, monotone warps, rounding, ranks, two levels, copies of rows and a step. The caption of a data set, which the
network learns to predict, is unchanged.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.table.scaling import FloatArray

EQUALLY_SPACED = 0.4  # share of the data sets with a single column in which that column is time
MIN_ROWS = 60  # smallest table whose rows are used as inputs
SECOND_NUISANCE = 0.3  # share of the data sets with a nuisance that have another one
_CONSTANT = 1e-9  # standard deviation below which a column counts as constant


# --- inputs ----------------------------------------------------------------------------------------------------------


def read_numbers(path: Path) -> FloatArray:
    """The columns of a CSV file that are numbers throughout, (rows, columns)."""
    values = np.genfromtxt(path, delimiter=",", skip_header=1, ndmin=2)
    return values[:, np.isfinite(values).all(0)]


@lru_cache(maxsize=4)
def read_inputs(folder: str) -> tuple[Tensor, ...]:
    """The numeric columns of every CSV file of a folder, each standardised, as tensors (rows, columns)."""
    tables = []
    for path in sorted(Path(folder).glob("*.csv")):
        values = read_numbers(path)
        values = values[:, values.std(0) > 0] if values.size else values
        if len(values) >= MIN_ROWS and values.shape[1]:
            tables.append(torch.from_numpy((values - values.mean(0)) / values.std(0)))
    if not tables:
        raise InvalidInputError(f"expected CSV files of numbers with at least {MIN_ROWS} rows in {folder}, found none")
    return tuple(tables)


def real_inputs(folder: str, batch: int, n: int, d: int, generator: torch.Generator) -> Tensor:
    """Rows and columns of tables drawn at random, (B, N, D); a single column is equally spaced in some data sets."""
    tables = read_inputs(folder)
    return torch.stack([_one_input(tables, n, d, generator) for _ in range(batch)])


def _one_input(tables: tuple[Tensor, ...], n: int, d: int, generator: torch.Generator) -> Tensor:
    """Columns of one table, (N, D), and where they are too few, columns of further tables beside them."""
    X = torch.empty(n, d, dtype=torch.float64)
    filled = 0
    while filled < d:
        table = tables[int(torch.randint(len(tables), (), generator=generator))]
        if d == 1 and float(torch.rand((), generator=generator)) < EQUALLY_SPACED:
            return torch.arange(n, dtype=torch.float64).unsqueeze(1)
        columns = torch.randperm(table.shape[1], generator=generator)[: d - filled]
        part = table[_draw_rows(len(table), n, generator)][:, columns]
        if n > 1:
            part = part[:, part.std(0) > _CONSTANT]
        X[:, filled : filled + part.shape[1]] = part
        filled += part.shape[1]
    return X


def _draw_rows(rows: int, n: int, generator: torch.Generator) -> Tensor:
    """Indices of n rows, each once as far as a table has enough of them."""
    order = torch.randperm(rows, generator=generator)
    if rows < n:
        order = torch.cat([order, torch.randint(rows, (n - rows,), generator=generator)])
    return order[:n]


def visible_periods(X: Tensor, longest: float, generator: torch.Generator) -> Tensor:
    """A period (B,) for each single column (B, N, 1) that its points can resolve.

    Log-uniform from 2.5 steps to a share `longest` of the range, and half of them a whole number of steps.
    """
    n = X.shape[1]
    span = (X.amax(1) - X.amin(1)).squeeze(-1)
    step = (span / max(n - 1, 1)).clamp_min(1e-6)
    u = _uniform(len(X), generator=generator)
    steps = (
        torch.exp(math.log(2.5) + u * math.log(longest * (n - 1) / 2.5)) if longest * n > 5 else torch.full_like(u, 3.0)
    )
    is_whole = torch.rand(len(X), generator=generator) < 0.5
    whole = steps.round().clamp(3, max(3, math.floor(longest * (n - 1))))
    return torch.where(is_whole, whole, steps) * step


# --- nuisances -------------------------------------------------------------------------------------------------------


def with_nuisances(X: Tensor, y: Tensor, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Copies of X (B, N, D) and standardised y (B, N) in which a share of the data sets has one nuisance, some have two."""
    X, y = X.clone(), y.clone()
    for chance in (share, SECOND_NUISANCE * share):
        is_changed = torch.rand(len(y), generator=generator) < chance
        kind = torch.randint(len(NUISANCES), (len(y),), generator=generator)
        for k, nuisance in enumerate(NUISANCES):
            where = (is_changed & (kind == k)).nonzero().squeeze(1)
            if len(where):
                X[where], changed = nuisance(X[where], y[where], generator)
                y[where] = _standardised(changed)
    return X, y


def outliers(X: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Up to a twentieth of the targets are off by two to eight standard deviations."""
    share = 0.005 + 0.045 * _uniform(len(y), 1, generator=generator)
    is_hit = _uniform(*y.shape, generator=generator) < share
    size = (2 + 6 * _uniform(len(y), 1, generator=generator)) * _normal(*y.shape, generator=generator)
    return X, y + is_hit * size


def heavy_tails(X: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise of Student's t with three degrees of freedom, from a little of the variance to most of it."""
    chi_squared = torch.stack([_normal(*y.shape, generator=generator).square() for _ in range(3)]).mean(0)
    noise = _standardised(_normal(*y.shape, generator=generator) / chi_squared.sqrt())
    return X, y + noise * torch.exp(-3 + 3 * _uniform(len(y), 1, generator=generator))


def warped(X: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A monotone warp: exponential to either side."""
    bend = 0.2 + 0.8 * _uniform(len(y), 1, generator=generator)
    bend = torch.where(_uniform(len(y), 1, generator=generator) < 0.5, -bend, bend)
    return X, torch.exp(bend * y.clamp(-4, 4)) / bend


def rounded(X: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """To one to ten levels per standard deviation."""
    levels = torch.exp(math.log(0.8) + 2.5 * _uniform(len(y), 1, generator=generator))
    return X, (y * levels).round()


def ranks_or_two_levels(X: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A uniform target, or a binary one."""
    rank = y.argsort(1).argsort(1).to(y) / y.shape[1]
    cut = 0.2 + 0.6 * _uniform(len(y), 1, generator=generator)
    is_binary = _uniform(len(y), 1, generator=generator) < 0.5
    return X, torch.where(is_binary, (rank > cut).to(y), rank)


def copied_rows(X: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Up to six tenths of the rows are copies of others."""
    B, N = y.shape
    is_copy = _uniform(B, N, generator=generator) < 0.6 * _uniform(B, 1, generator=generator)
    source = torch.where(is_copy, torch.randint(N, (B, N), generator=generator), torch.arange(N))
    return X.gather(1, source.unsqueeze(-1).expand_as(X)), y.gather(1, source)


def step(X: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A jump along the first column."""
    x = X[..., 0]
    place = x.gather(1, torch.randint(x.shape[1], (len(x), 1), generator=generator))
    return X, y + (x > place) * 1.5 * _normal(len(y), 1, generator=generator)


# Each entry has the same probability; tails and warps, which real tables have most often, are listed twice.
NUISANCES = (
    outliers,
    heavy_tails,
    heavy_tails,
    warped,
    warped,
    rounded,
    ranks_or_two_levels,
    copied_rows,
    step,
)


def _standardised(y: Tensor) -> Tensor:
    """Zero mean and unit variance over the points; where a nuisance has left one value only, the first point differs,
    and the variance is 1 − 1/N."""
    centred = y - y.mean(1, keepdim=True)
    scale = centred.square().mean(1, keepdim=True).sqrt()
    one_differs = torch.zeros_like(y)
    one_differs[:, 0] = math.sqrt(y.shape[1])
    one_differs = one_differs - one_differs.mean(1, keepdim=True)
    return torch.where(scale > _CONSTANT, centred / scale.clamp_min(_CONSTANT), one_differs)


def _uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
