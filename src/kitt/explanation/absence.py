"""How much the columns can explain at most: an upper confidence limit, without which nothing is said to be absent.

That left-out rows show nothing may be the fault of few rows. So the target is regressed on polynomials of the ranks of the
columns and on products of two columns, and the limit is that of the share of variance which the best combination of them
explains in the population: the noncentrality at which so small an F statistic is as rare as a confidence level allows
(Steiger and Fouladi, 1997). It holds for functions of this kind; those with many waves are searched by the fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.special import ncfdtr, ndtri
from scipy.stats import rankdata

from kitt.table.scaling import FloatArray

# Set by hand.
CONFIDENCE = 0.975
DEGREES = {1: 8, 2: 5}  # of the polynomials of one column, by the number of columns
DEGREE = 3  # with more columns
ROWS = 5000  # of a larger table, a random subset
_BISECTIONS = 60
_MOST_ROWS = 1_000_000


def upper_limit(X: FloatArray, y: FloatArray) -> float:
    """The share of the variance of y that smooth functions of the columns explain at most; 1 if there are too few rows.

    It is the larger of the limits for the target and for its normal scores, which far rows do not decide.
    """
    if 2 * _size(X) > len(y) or not np.ptp(y) > 0:
        return 1.0
    if len(y) > ROWS:
        some = np.random.default_rng(0).permutation(len(y))[:ROWS]
        X, y = X[some], y[some]
    ranks = [_ranks(x) for x in X.T]
    degree = DEGREES.get(X.shape[1], DEGREE)
    return _of_functions([*(_powers(r, degree) for r in ranks), *(a * b for a, b in combinations(ranks, 2))], y)


def column_limit(X: FloatArray, places: Sequence[int], others: Sequence[int], residual: FloatArray) -> float:
    """What a column could gain at most, in nats per row, beyond a model without it, from its residuals of left-out rows.

    A model that overlooks a column, or has too few rows to learn what it does, predicts as well without it, though the
    column may matter: then it is in the residuals of the model without it. They are regressed on polynomials of the column
    and on its products with a few others, up to the third degree.
    """
    size = _column_size(len(places), len(others))
    if 2 * size > len(residual) or not np.ptp(residual) > 0:
        return math.inf
    own, beside = [_ranks(X[:, d]) for d in places], [_ranks(X[:, d]) for d in others]
    functions = [_powers(r, DEGREE) for r in own]
    for r in own:
        functions += [f for o in beside for f in (o * r, o * _square(r), _square(o) * r)]
    return in_nats(_of_functions(functions, residual))


def in_nats(share: float) -> float:
    """What predicting this share of a variance gains, in nats per row."""
    return math.inf if share >= 1 else -0.5 * math.log1p(-share)


def rows_for_absence(X: FloatArray, margin: float) -> int:
    """The number of rows from which a target without any signal would probably be shown to have none."""
    return _rows(_size(X), margin)


def rows_for_column(places: int, others: int, nats: float) -> int:
    """The number of rows from which a column that does not matter would probably be shown not to."""
    return _rows(_column_size(places, others), 1 - math.exp(-2 * nats))


def _column_size(places: int, others: int) -> int:
    return places * (DEGREE + 3 * others)


def _rows(size: int, margin: float) -> int:
    low, high = 2 * size + 4, _MOST_ROWS
    while low < high:
        middle = (low + high) // 2
        free = middle - 1 - size
        expected = size / (middle - 1)  # the share that so many functions explain of noise
        low, high = (low, middle) if _limit(expected, size, free) < margin else (middle + 1, high)
    return low


def _size(X: FloatArray) -> int:
    """The number of functions in the basis, before those that depend on others are left out."""
    d = X.shape[1]
    return d * DEGREES.get(d, DEGREE) + d * (d - 1) // 2


def _of_functions(functions: Sequence[FloatArray], y: FloatArray) -> float:
    """The limit for the best combination of some functions of the rows, which need not be independent of each other."""
    whole = np.column_stack(functions)
    U, sizes, _ = np.linalg.svd(whole - whole.mean(0), full_matrices=False)
    basis = U[:, sizes > 1e-8 * max(float(sizes[0]), 1e-300)]
    free = len(y) - 1 - basis.shape[1]
    scores = ndtri(rankdata(y) / (len(y) + 1))
    return max(_limit(_explained(basis, values), basis.shape[1], free) for values in (y, scores))


def _ranks(x: FloatArray) -> FloatArray:
    """Ranks from -1 to 1."""
    return np.asarray(2 * (rankdata(x) - 0.5) / len(x) - 1)


def _square(ranks: FloatArray) -> FloatArray:
    """The polynomial of the second degree that is orthogonal to a line."""
    return 1.5 * ranks**2 - 0.5


def _powers(ranks: FloatArray, degree: int) -> FloatArray:
    return np.asarray(np.polynomial.legendre.legvander(ranks, degree)[:, 1:])


def _explained(basis: FloatArray, y: FloatArray) -> float:
    centred = y - y.mean()
    return float(np.square(basis.T @ centred).sum() / np.square(centred).sum())


def _limit(explained: float, size: int, free: int) -> float:
    """The upper confidence limit of the share of variance that `size` functions explain."""
    if size == 0:
        return 0.0
    F = (explained / size) / max((1 - explained) / free, 1e-300)
    low, high = 0.0, 4.0 * (size + free + size * F)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ncfdtr(size, free, middle, F) > 1 - CONFIDENCE else (low, middle)
    return high / (high + size + free + 1)
