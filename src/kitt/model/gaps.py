"""Rows whose inputs are not all known: predictions averaged over the values that the unknown ones have in other rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kitt.formatting import counted
from kitt.model.predictive import Predictive
from kitt.table.reading import Notes
from kitt.table.scaling import FloatArray

_ROWS = 32  # of the table, whose values take the place of unknown ones; set by hand


def averaged(predictive: Callable[[FloatArray], Predictive], X: FloatArray, rows: FloatArray) -> Predictive:
    """The distribution at inputs X (M, D) with gaps: the mixture of those with the gaps filled from some rows (N, D).

    All gaps of a row are filled from one other row, so that unknown inputs keep their dependence on each other.
    """
    some = rows[np.unique(np.linspace(0, len(rows) - 1, _ROWS).round().astype(int))]
    filled = np.where(np.isnan(X), some[:, None, :], X)  # (S, M, D)
    S, M, D = filled.shape
    made = predictive(filled.reshape(-1, D))

    def each(values: FloatArray) -> FloatArray:
        """(K, S M) as (K S, M)."""
        return values.reshape(-1, S, M).reshape(-1, M)

    weights, warps = np.repeat(made.weights / S, S), tuple(warp for warp in made.warps for _ in range(S))
    return Predictive(weights, each(made.mean), each(made.std), warps, made.tail)


def gaps_note(X: FloatArray, names: tuple[str, ...]) -> Notes:
    """A note if some inputs of X (M, D) are not known."""
    gaps = np.isnan(X)
    if not gaps.any():
        return ()
    where = ", ".join(f"{name} ({count})" for name, count in zip(names, gaps.sum(0), strict=True) if count)
    rows = int(gaps.any(1).sum())
    by = "predicted by averaging over the values of the fitted rows there"
    return (f"{counted(rows, 'row')} of {len(X)} without a value of {where}: {by}",)
