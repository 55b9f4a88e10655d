"""What the columns do to the fitted mean: shares of single columns and of pairs, and the curve along each column.

The shares are Sobol indices: of a function of independent columns, each distributed as in the table, the variance is the
sum of what each column does by itself, what pairs do together beyond that, and so on. They therefore add up to 100 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from kitt.explain.facts import Curve, Interaction, Shape
from kitt.table.scaling import FloatArray

Function = Callable[[Tensor], Tensor]  # (M, D) standardised inputs -> (M,)
Groups = list[tuple[str, list[int]]]  # columns of the table, with the columns of X that stand for them


@dataclass(frozen=True)
class ColumnsConfig:
    """How many points the shares and curves are computed from."""

    points: int = 1024  # for shares: standard errors of about 2 %
    most_columns: int = 40  # of a wider table, fewer points
    paired: int = 5  # columns of which all pairs are looked at
    grid: int = 25  # points of a curve
    background: int = 64  # rows over which a curve is averaged
    min_values: int = 5  # of a column, for its curve to have a shape
    clear: float = 2.0  # standard deviations beyond which a curve rises or falls
    turn: float = 0.15  # of its whole rise, by which a curve must come back to have a lowest or highest point
    detour: float = 1.3  # of the straight way to its end, at most: a curve with more bends has no simple shape
    flat: float = 0.1  # of its whole rise, which a curve may still move where it has levelled off
    least_flat: float = 0.3  # of the rows, over which it then has


DEFAULT = ColumnsConfig()


@dataclass(frozen=True, eq=False)
class Shares:
    """Sobol indices of each group of columns, with their standard error, and the strongest pairs."""

    alone: FloatArray  # (G,) first order
    total: FloatArray  # (G,)
    error: FloatArray  # (G,) of the first
    pairs: tuple[Interaction, ...]


def shares(f: Function, X: Tensor, groups: Groups, config: ColumnsConfig = DEFAULT) -> Shares:
    """First and total indices by the estimators of Jansen (1999), and second ones of pairs of the strongest columns."""
    rng = np.random.default_rng(2)
    count = config.points if len(groups) <= config.most_columns else config.points // 4
    A, B = _independent(X, groups, count, rng), _independent(X, groups, count, rng)
    fA, fB = f(A), f(B)
    variance = float(torch.cat([fA, fB]).var(correction=0))
    if not variance > 0:
        zero = np.zeros(len(groups))
        return Shares(zero, zero, zero, ())

    def swapped(chosen: Sequence[int]) -> Tensor:
        """A with some columns of B."""
        there = A.clone()
        for g in chosen:
            there[:, groups[g][1]] = B[:, groups[g][1]]
        return f(there)

    with_one = [swapped([g]) for g in range(len(groups))]
    centre = torch.cat([fA, fB]).mean()
    closed = [(fB - centre) * (one - fA) / variance for one in with_one]  # Saltelli et al. (2010)
    raw = np.array([float(c.mean()) for c in closed])
    error = np.array([float(c.std()) / count**0.5 for c in closed])
    total = np.array([0.5 * float((fA - one).square().mean()) / variance for one in with_one])
    alone = np.minimum(np.maximum(raw, 0.0), total)
    if len(groups) == 1:
        return Shares(np.ones(1), np.ones(1), np.zeros(1), ())
    alone = alone / max(1.0, alone.sum())
    pairs = _pairs(groups, total, alone, lambda i, j: (fB - centre) * (swapped([i, j]) - fA) / variance, config)
    return Shares(alone, np.minimum(total, 1.0), error, pairs)


def _pairs(
    groups: Groups, total: FloatArray, alone: FloatArray, closed: Callable[[int, int], Tensor], config: ColumnsConfig
) -> tuple[Interaction, ...]:
    """What two columns do beyond each by itself; no more of it than the single columns leave of 100 %."""
    left, found = max(0.0, 1 - float(alone.sum())), []
    strongest = sorted(np.argsort(total - alone)[::-1][: config.paired])
    for i, j in combinations(strongest, 2):
        values = closed(i, j)
        share = float(values.mean()) - alone[i] - alone[j]
        bound = min(total[i] - alone[i], total[j] - alone[j])
        error = float(values.std()) / len(values) ** 0.5
        found.append(Interaction((groups[i][0], groups[j][0]), float(np.clip(share, 0.0, max(bound, 0.0))), error))
    found.sort(key=lambda pair: -pair.share)
    scale = min(1.0, left / max(sum(pair.share for pair in found), 1e-12))
    return tuple(Interaction(p.columns, p.share * scale, p.error) for p in found if p.share > 0)


def _independent(X: Tensor, groups: Groups, count: int, rng: np.random.Generator) -> Tensor:
    """Rows of which every column is drawn for itself from the table; the columns of one group together."""
    out = torch.empty(count, X.shape[1], dtype=X.dtype)
    for _, places in groups:
        rows = torch.from_numpy(np.concatenate([rng.permutation(len(X)) for _ in range(count // len(X) + 1)])[:count])
        out[:, places] = X[rows][:, places]
    return out


# --- curves -----------------------------------------------------------------------------------------------------------


def curve(
    f: Function, covariance: Callable[[Tensor], Tensor], X: Tensor, place: int, config: ColumnsConfig = DEFAULT
) -> Curve:
    """The mean along a column, averaged over rows (partial dependence), with its standard deviation; standardised."""
    x = X[:, place]
    values = torch.unique(torch.quantile(x, torch.linspace(0.01, 0.99, config.grid, dtype=x.dtype)))
    if len(distinct := torch.unique(x)) <= config.grid:
        values = distinct
    rows = X[torch.from_numpy(np.random.default_rng(3).permutation(len(X))[: config.background])]
    mean, std = [], []
    for value in values:
        there = rows.clone()
        there[:, place] = value
        mean.append(float(f(there).mean()))
        std.append(float(covariance(there).mean().clamp_min(0).sqrt()))
    return Curve(values.numpy(), np.array(mean), np.array(std))


def shape(line: Curve, x: FloatArray, config: ColumnsConfig = DEFAULT) -> Shape:
    """What a curve does beyond its uncertainty; `x` are the values of the column in the rows."""
    mean, std = line.mean, line.std
    low, high = int(mean.argmin()), int(mean.argmax())
    rise, error = float(mean[high] - mean[low]), float(np.hypot(std[high], std[low]))
    if len(mean) < config.min_values or rise <= config.clear * error:
        return Shape("none", None, rise, error)
    for kind, at, sign in (("lowest", low, 1.0), ("highest", high, -1.0)):
        if not 0 < at < len(mean) - 1:
            continue
        up = sign * (mean - mean[at])
        ends = [int(up[: at + 1].argmax()), at + int(up[at:].argmax())]
        if all(up[e] > max(config.turn * rise, config.clear * np.hypot(std[e], std[at])) for e in ends):
            is_simple = _way(mean) <= config.detour * sum(up[e] for e in ends)
            return Shape(kind, float(line.x[at]), rise, error) if is_simple else Shape("none", None, rise, error)
    if _way(mean) > config.detour * rise:
        return Shape("none", None, rise, error)
    kind = "rises" if low < high else "falls"
    end = high if low < high else low
    moving = np.flatnonzero(np.abs(mean - mean[end]) > config.flat * rise)
    first_flat = int(moving.max(initial=0)) + 1
    if first_flat < len(mean) and float((x >= line.x[first_flat]).mean()) >= config.least_flat:
        return Shape(kind, float(line.x[first_flat]), rise, error)
    return Shape(kind, None, rise, error)


def _way(mean: FloatArray) -> float:
    """All ups and downs together."""
    return float(np.abs(np.diff(mean)).sum())
