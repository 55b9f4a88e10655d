"""Exact copies of rows: a record that was entered twice is not a second observation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kitt.table.dataset import MIN_ROWS, Dataset
from kitt.table.scaling import FloatArray

_CONTINUOUS = 0.5  # share of distinct rows with a unique target from which the target counts as continuous


def without_copies(dataset: Dataset) -> Dataset:
    """The dataset with each row once, and with a note that says how many copies there were."""
    rows = first_of_copies(dataset.X, dataset.y)
    if rows is None:
        return dataset
    count = dataset.n - len(rows)
    are = (
        "is an exact copy of another and is left out" if count == 1 else "are exact copies of others and are used once"
    )
    note = (
        f"{count} of {dataset.n} rows {are}: as independent observations, copies make the noise look smaller than it is"
    )
    return replace(dataset.rows(rows), notes=(*dataset.notes, note))


def first_of_copies(X: FloatArray, y: FloatArray) -> NDArray[np.intp] | None:
    """The positions of rows that do not repeat an earlier row in every column and in the target; None if all rows differ.

    Where the target has few distinct values, equal rows may well be independent observations, so all rows are kept.
    """
    _, place, count = np.unique(y, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(count[place] > 1)
    if not len(repeated):
        return None
    both = np.ascontiguousarray(np.column_stack([X[repeated], y[repeated]]) + 0.0)  # no negative zeros
    _, first = np.unique(both.view(np.dtype((np.void, both.dtype.itemsize * both.shape[1]))), return_index=True)
    if len(first) == len(repeated):
        return None
    keep = np.ones(len(y), dtype=bool)
    keep[repeated] = False
    keep[repeated[first]] = True
    rows = np.flatnonzero(keep)
    is_continuous = len(np.unique(y[rows])) > _CONTINUOUS * len(rows)
    return rows if is_continuous and len(rows) >= MIN_ROWS else None
