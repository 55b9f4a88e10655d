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
from torch.quasirandom import SobolEngine

from kitt.explanation.facts import CLEAR, Curve, Interaction, Shape
from kitt.table.scaling import FloatArray

Function = Callable[[Tensor], Tensor]  # (M, D) standardised inputs -> (M,), or (M, M) of a covariance
Blocks = Sequence[tuple[int, ...]]  # groups of columns that are exchanged together
Groups = list[tuple[str, list[int]]]  # columns of the table, with the columns of X that stand for them

# From how many points the shares and curves of columns are computed, and how curves are described; set by hand.
POINTS = 1024  # for shares: standard errors of about 1 % of products and sums
SAMPLES = 8  # of which the points consist; standard errors come from the differences between samples
MANY_COLUMNS = 40  # a wider table is evaluated at fewer rows and points
PAIRED = 5  # columns of which all pairs are considered
DRAWN_COLUMNS = 8  # the strongest, whose shares have the uncertainty of the posterior too
DRAWN_POINTS = 128  # for the shares of a function that is drawn from the posterior
DRAWS = 64
GRID = 25  # points of a curve
BACKGROUND = 64  # rows over which a curve is averaged
MIN_VALUES = 5  # of a column, for its curve to level off
TURN = 0.15  # of its whole rise, by which a curve must come back to turn
FLAT = 0.1  # of its whole rise, which a curve may still move where it has levelled off
LEAST_FLAT = 0.3  # of the rows, over which it then has


@dataclass(frozen=True, eq=False)
class Shares:
    """Sobol indices of each group of columns, with their standard deviations, and the strongest pairs."""

    alone: FloatArray  # (G,) first order
    alone_error: FloatArray
    total: FloatArray  # (G,)
    total_error: FloatArray
    pairs: tuple[Interaction, ...]


def shares(f: Function, X: Tensor, groups: Groups, covariance: Function | None = None) -> Shares:
    """First, second and total indices of a posterior mean f, each by the estimator that varies less.

    Their errors are those of the estimate and, given the posterior's joint covariance, those of f itself: how much the
    indices vary between functions that are drawn from the posterior.
    """
    count = POINTS if len(groups) <= MANY_COLUMNS else POINTS // 4
    A, B = _independent(X, groups, count, SAMPLES)
    single = [(g,) for g in range(len(groups))]
    values = f(_design(A, B, groups, single)).reshape(-1, count)
    if not float(values[:2].var(correction=0)) > 0:
        zero = np.zeros(len(groups))
        return Shares(zero, zero, zero, zero, ())
    if len(groups) == 1:
        return Shares(np.ones(1), np.zeros(1), np.ones(1), np.zeros(1), ())
    small, large, _ = _first(values)
    jansen = _error(large, SAMPLES) < _error(small, SAMPLES)
    alone, total, _ = (term.mean(-1).numpy() for term in _terms(values, single, jansen))
    alone = np.clip(alone, 0.0, total)
    pairs = list(combinations(sorted(np.argsort(total - alone)[::-1][:PAIRED].tolist()), 2))
    values = torch.cat([values, f(_design(A, B, groups, pairs)).reshape(-1, count)[2:]])
    terms = _terms(values, [*single, *pairs], jansen)
    errors = [_error(term, SAMPLES).numpy() for term in terms]
    if covariance is not None:
        strongest = {*np.argsort(total)[::-1][:DRAWN_COLUMNS].tolist(), *(g for pair in pairs for g in pair)}
        blocks = [*((g,) for g in sorted(strongest)), *pairs]
        n = min(DRAWN_POINTS, count)
        drawn = _drawn(f, covariance, _design(A[:n], B[:n], groups, blocks)).unflatten(-1, (-1, n))
        spread = [t.mean(-1).std(0).numpy() for t in _terms(drawn, blocks, jansen[sorted(strongest)])]
        places = (sorted(strongest), sorted(strongest), list(range(len(pairs))))
        for error, more, where in zip(errors, spread, places, strict=True):
            error[where] = np.hypot(error[where], more)
    alone = alone / max(1.0, alone.sum())
    beyond = terms[2].mean(-1).numpy()
    together = _bounded(beyond, [min(total[i] - alone[i], total[j] - alone[j]) for i, j in pairs], 1 - alone.sum())
    interactions = [
        Interaction((groups[i][0], groups[j][0]), share, error)
        for (i, j), share, error in zip(pairs, together.tolist(), errors[2].tolist(), strict=True)
        if share > 0
    ]
    strongest_first = tuple(sorted(interactions, key=lambda pair: -pair.share))
    return Shares(alone, errors[0], np.minimum(total, 1.0), errors[1], strongest_first)


def _design(A: Tensor, B: Tensor, groups: Groups, blocks: Blocks) -> Tensor:
    """The rows A, the rows B, and for each block of columns A with these columns of B."""
    points = [A, B]
    for block in blocks:
        there = A.clone()
        for g in block:
            there[:, groups[g][1]] = B[:, groups[g][1]]
        points.append(there)
    return torch.cat(points)


def _first(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Terms whose means over n are the closed indices (..., K, n), by two estimators, and the total ones.

    `values` (..., 2 + K, n) are those of a function at a design with K blocks. The estimator of Saltelli et al. (2010)
    varies less for small indices, that of Jansen (1999) for large ones.
    """
    ends = values[..., :2, :].flatten(-2)
    variance = ends.var(-1, correction=0).clamp_min(1e-300)[..., None, None]
    fA, fB, other = values[..., :1, :], values[..., 1:2, :], values[..., 2:, :]
    small = (fB - ends.mean(-1)[..., None, None]) * (other - fA) / variance
    large = 1 - 0.5 * (fB - other).square() / variance
    return small, large, 0.5 * (fA - other).square() / variance


def _terms(values: Tensor, blocks: Blocks, jansen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Terms whose means over n are the first and total indices of single columns (..., G, n), and the second ones of pairs.

    The blocks are single columns, then pairs; `jansen` (G,) says which estimator a column has. Pairs have that of
    Saltelli, which is zero where columns only add up.
    """
    small, large, total = _first(values)
    place = {block[0]: k for k, block in enumerate(blocks) if len(block) == 1}
    single, pairs = len(place), [block for block in blocks if len(block) > 1]
    parts = [small[..., [place[pair[side]] for pair in pairs], :] for side in (0, 1)]
    closed = torch.where(jansen[:, None], large[..., :single, :], small[..., :single, :])
    return closed, total[..., :single, :], small[..., single:, :] - parts[0] - parts[1]


def _drawn(f: Function, covariance: Function, points: Tensor) -> Tensor:
    """(S, P) functions drawn from the posterior at some points."""
    C = covariance(points)
    level = C.diagonal().mean().clamp_min(1e-12)
    for jitter in (1e-8, 1e-6, 1e-4, 1e-2):
        root, failed = torch.linalg.cholesky_ex(C + jitter * level * torch.eye(len(C), dtype=C.dtype))
        if not failed:
            break
    else:
        root = torch.diag(C.diagonal().clamp_min(0).sqrt())
    normal = torch.randn(len(C), DRAWS, dtype=C.dtype, generator=torch.Generator().manual_seed(4))
    return (f(points)[:, None] + root @ normal).mT


def _bounded(share: FloatArray, bound: Sequence[float], left: float) -> FloatArray:
    """Second indices of pairs, bounded by what each of their columns has, and together by what single columns leave."""
    share = np.clip(share, 0.0, np.maximum(bound, 0.0))
    return share * min(1.0, max(left, 0.0) / max(float(share.sum()), 1e-12))


def _independent(X: Tensor, groups: Groups, count: int, samples: int) -> tuple[Tensor, Tensor]:
    """Two tables of which every column is drawn for itself from X; the columns of one group together.

    They consist of several samples, each of points that fill the space evenly (a scrambled Sobol sequence).
    """
    size = count // samples
    draws = [SobolEngine(2 * len(groups), scramble=True, seed=seed).draw(size) for seed in range(samples)]
    chosen = (torch.cat(draws) * len(X)).long().clamp_max(len(X) - 1)  # (M, 2 G) places in the order of each column
    out = X.new_zeros(2, count, X.shape[1])
    for g, (_, places) in enumerate(groups):
        values = X[torch.from_numpy(np.lexsort(X[:, places].numpy().T))][:, places]
        out[0][:, places], out[1][:, places] = values[chosen[:, g]], values[chosen[:, len(groups) + g]]
    return out[0], out[1]


def _error(terms: Tensor, samples: int) -> Tensor:
    """The standard error of the means of terms (..., n), from how much they vary between samples."""
    return terms.unflatten(-1, (samples, -1)).mean(-1).std(-1) / samples**0.5


# --- curves -----------------------------------------------------------------------------------------------------------


def curve(f: Function, covariance: Function, X: Tensor, place: int) -> Curve:
    """The mean along a column, averaged over rows (partial dependence), with its standard deviation; standardised."""
    x = X[:, place]
    values = torch.unique(torch.quantile(x, torch.linspace(0.01, 0.99, GRID, dtype=x.dtype)))
    if len(distinct := torch.unique(x)) <= GRID:
        values = distinct
    mean, std = _averaged(f, covariance, X, [place], values[:, None])
    return Curve(values.numpy(), mean, std)


def _averaged(
    f: Function, covariance: Function, X: Tensor, places: list[int], values: Tensor
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of f with some columns set to each of several values, averaged over rows."""
    rows = X[torch.from_numpy(np.random.default_rng(3).permutation(len(X))[:BACKGROUND])]
    mean, std = [], []
    for value in values:
        there = rows.clone()
        there[:, places] = value
        mean.append(float(f(there).mean()))
        std.append(float(covariance(there).mean().clamp_min(0).sqrt()))
    return np.array(mean), np.array(std)


def level_shape(
    f: Function,
    covariance: Function,
    X: Tensor,
    places: list[int],
    levels: Sequence[str],
) -> Shape:
    """At which level of a column of texts the mean is lowest, and at which it is highest, beyond its uncertainty."""
    values = torch.unique(X[:, places], dim=0)
    names = [levels[int(v.argmax())] for v in values] if len(places) > 1 else list(levels)
    mean, std = _averaged(f, covariance, X, places, values)
    low, high = int(mean.argmin()), int(mean.argmax())
    rise, error = float(mean[high] - mean[low]), float(np.hypot(std[high], std[low]))
    is_clear = rise > CLEAR * error and len(names) == len(values)
    return (
        Shape("levels", None, rise, error, (names[low], names[high])) if is_clear else Shape("none", None, rise, error)
    )


def shape(line: Curve, x: FloatArray) -> Shape:
    """The shape of a curve beyond its uncertainty; `x` are the values of the column in the rows."""
    mean, std = line.mean, line.std
    low, high = int(mean.argmin()), int(mean.argmax())
    rise, error = float(mean[high] - mean[low]), float(np.hypot(std[high], std[low]))
    turns = _turns(line, TURN * rise, CLEAR) if rise > CLEAR * error else []
    if len(turns) == 3:
        kind = "lowest" if mean[turns[1]] < mean[turns[0]] else "highest"
        return Shape(kind, float(line.x[turns[1]]), rise, error)
    if len(turns) != 2:
        return Shape("none", None, rise, error)
    kind, end = ("rises", high) if mean[turns[0]] < mean[turns[1]] else ("falls", low)
    moving = np.flatnonzero(np.abs(mean - mean[end]) > FLAT * rise)
    first_flat = int(moving.max(initial=0)) + 1
    is_long = first_flat < len(mean) and float((x >= line.x[first_flat]).mean()) >= LEAST_FLAT
    return Shape(kind, float(line.x[first_flat]) if is_long and len(mean) >= MIN_VALUES else None, rise, error)


def _turns(line: Curve, least: float, clear: float) -> list[int]:
    """Where a curve begins, turns and ends; ups and downs that are small or uncertain are passed over."""
    mean, std = line.mean, line.std

    def moved(i: int, j: int) -> bool:
        return abs(mean[j] - mean[i]) > max(least, clear * float(np.hypot(std[i], std[j])))

    turns: list[int] = []
    direction, extreme = 0, {1: 0, -1: 0}  # the highest and the lowest point since the last turn
    for i in range(len(mean)):
        extreme = {sign: i if sign * (mean[i] - mean[at]) > 0 else at for sign, at in extreme.items()}
        for sign in (1, -1):  # a clear fall from the highest point of a rise is a turn there, and the other way round
            if direction in (0, sign) and extreme[sign] < i and moved(extreme[sign], i):
                turns.append(extreme[sign])
                direction, extreme = -sign, {1: i, -1: i}
                break
    return [*turns, extreme[direction]] if turns else []
