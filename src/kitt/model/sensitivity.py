"""What the columns do to the fitted mean: shares of single columns and of pairs.

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

from kitt.formatting import percent
from kitt.table.encoding import Encoding
from kitt.table.scaling import FloatArray

Function = Callable[[Tensor], Tensor]  # (M, D) standardised inputs -> (M,), or (M, M) of a covariance
Blocks = Sequence[tuple[int, ...]]  # groups of columns that are exchanged together
Groups = list[tuple[str, list[int]]]  # columns of the table, with the columns of X that stand for them

# From how many points the shares of columns are computed; set by hand.
POINTS = 1024  # for shares: standard errors of about 1 % of products and sums
MANY_POINTS = 8192  # where they are asked for by themselves
SAMPLES = 8  # of which the points consist at least; standard errors come from the differences between samples
SAMPLE = 512  # points of one, of many
MANY_COLUMNS = 40  # a wider table is evaluated at fewer rows and points
PAIRED = 5  # columns of which all pairs are considered
DRAWN_COLUMNS = 8  # the strongest, whose shares have the uncertainty of the posterior too
DRAWN_POINTS = 64  # for the shares of a function that is drawn from the posterior
DRAWS = 64


@dataclass(frozen=True)
class Interaction:
    """Two columns of which the effect of one depends on the value of the other."""

    columns: tuple[str, str]
    share: float  # of the variance of the mean, beyond what each of the two does by itself
    error: float  # standard deviation of it: of the posterior, and of the estimate


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Sobol indices of the mean of a model: shares of its variance, if the columns were independent of each other.

    Attributes
    ----------
    columns : tuple of str
        The columns of the table.
    first, first_error : ndarray
        The share of each column by itself, and its standard deviation: of the posterior, and of the estimate.
    total, total_error : ndarray
        The share of everything that a column takes part in.
    pairs : tuple of Interaction
        What pairs of columns do together beyond what each does by itself, the strongest first.
    """

    columns: tuple[str, ...]
    first: FloatArray
    first_error: FloatArray
    total: FloatArray
    total_error: FloatArray
    pairs: tuple[Interaction, ...]

    def __str__(self) -> str:
        """A table, the column with the largest total share first."""
        width = max(map(len, ("column", *self.columns, *(" and ".join(p.columns) for p in self.pairs))))
        lines = [f"{'column':{width}}  {'by itself':>14}  {'with others':>14}"]
        for g in np.argsort(-self.total):
            cells = ((self.first[g], self.first_error[g]), (self.total[g], self.total_error[g]))
            lines.append(f"{self.columns[g]:{width}}  " + "  ".join(f"{_with_error(*cell):>14}" for cell in cells))
        lines += [f"{' and '.join(p.columns):{width}}  {_with_error(p.share, p.error):>14}" for p in self.pairs]
        return "\n".join(lines)

    __repr__ = __str__


def _with_error(share: float, error: float) -> str:
    return f"{percent(float(share))} ± {percent(float(error))}"


def sensitivity(
    f: Function, X: Tensor, groups: Groups, covariance: Function | None = None, points: int = POINTS
) -> Sensitivity:
    """First, second and total indices of a posterior mean f, each by the estimator that varies less.

    Their errors are those of the estimate and, given the posterior's joint covariance, those of f itself: how much the
    indices vary between functions that are drawn from the posterior.
    """
    count = points if len(groups) <= MANY_COLUMNS else points // 4
    samples = max(SAMPLES, count // SAMPLE)
    A, B = _independent(X, groups, count, samples)
    names = tuple(name for name, _ in groups)
    single = [(g,) for g in range(len(groups))]
    values = f(_design(A, B, groups, single)).reshape(-1, count)
    if not float(values[:2].var(correction=0)) > 0:
        zero = np.zeros(len(groups))
        return Sensitivity(names, zero, zero, zero, zero, ())
    if len(groups) == 1:
        return Sensitivity(names, np.ones(1), np.zeros(1), np.ones(1), np.zeros(1), ())
    small, large, _ = _first(values)
    jansen = _error(large, samples) < _error(small, samples)
    alone, total, _ = (term.mean(-1).numpy() for term in _terms(values, single, jansen))
    alone = np.clip(alone, 0.0, total)
    pairs = list(combinations(sorted(np.argsort(total - alone)[::-1][:PAIRED].tolist()), 2))
    values = torch.cat([values, f(_design(A, B, groups, pairs)).reshape(-1, count)[2:]])
    terms = _terms(values, [*single, *pairs], jansen)
    errors = [_error(term, samples).numpy() for term in terms]
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
    bound = np.array([min((total[g] - alone[g], g) for g in pair) for pair in pairs])  # (pairs, 2): bound, column
    closer = bound[:, 1].astype(int).tolist()
    of_bound = np.hypot(errors[0][closer], errors[1][closer])
    errors[2] = np.where(beyond > bound[:, 0], np.maximum(errors[2], of_bound), errors[2])
    together = _bounded(beyond, bound[:, 0], 1 - alone.sum())
    interactions = [
        Interaction((groups[i][0], groups[j][0]), share, error)
        for (i, j), share, error in zip(pairs, together.tolist(), errors[2].tolist(), strict=True)
        if share > 0
    ]
    strongest_first = tuple(sorted(interactions, key=lambda pair: -pair.share))
    return Sensitivity(names, alone, errors[0], np.minimum(total, 1.0), errors[1], strongest_first)


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


def _bounded(share: FloatArray, bound: FloatArray, left: float) -> FloatArray:
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


def groups_of(names: Sequence[str], encoding: Encoding | None) -> Groups:
    """Columns of the table with the columns of X that stand for them: several for one of levels."""
    if encoding is None:
        return [(name, [d]) for d, name in enumerate(names)]
    place = {name: d for d, name in enumerate(names)}
    return [(c.name, [place[output] for output in c.outputs]) for c in encoding.columns if c.outputs]
