"""Several outputs of one table: their names and columns, and a `Dataset` for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset, as_dataset, check_known
from kitt.table.encoding import array_of
from kitt.table.frames import as_frame
from kitt.table.reading import Notes, column_names, read_table, refusal


def has_several(y: Any, target: Any) -> bool:
    """Whether these are several outputs: a matrix of two columns or more, or a list of names."""
    if y is None:
        return isinstance(target, Sequence) and not isinstance(target, str)
    shape = array_of(y, "y").shape
    return len(shape) == 2 and shape[1] > 1


def outputs_of(Y: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The columns of Y by their names: given ones, those of a frame, or y1, y2 and so on."""
    frame = as_frame(Y)
    if frame is not None and (names is None or set(column_names(frame)) >= set(names)):
        named = frame.set_axis(column_names(frame), axis=1)
        return {name: named[name] for name in (named.columns if names is None else names)}
    values = array_of(Y, "Y")
    if values.ndim != 2 or (names is not None and values.shape[1] != len(names)):
        expected = f"Y of shape (N, {'outputs' if names is None else len(names)})"
        raise refusal(
            expected, f"shape {values.shape}", "give one row for each row of X, and one column for each output"
        )
    chosen = [f"y{j + 1}" for j in range(values.shape[1])] if names is None else names
    return dict(zip(chosen, values.T, strict=True))


def column_of(noise: Any, place: int, outputs: int) -> Any:
    """The known noise of one output: its column, where there is one for each, and otherwise what all outputs have."""
    if noise is None or np.ndim(noise) < 2:
        return noise
    values = np.asarray(noise)
    if values.shape[1] != outputs:
        raise refusal(f"noise of shape (N, {outputs})", f"shape {values.shape}", "give one column for each output")
    return values[:, place]


def datasets_of(
    X: Any,
    Y: Any,
    target: Sequence[str] | None,
    drop_missing: bool,
    exclude: Sequence[str],
    noise: Any,
) -> tuple[Dataset, ...]:
    """A `Dataset` for each output, of the rows that have it; the other outputs are no inputs of it."""
    if Y is None:
        return _datasets_in(X, list(target or ()), drop_missing, exclude, noise)
    columns = outputs_of(Y, target)
    return tuple(
        as_dataset(X, np.asarray(y), name, drop_missing, exclude, column_of(noise, j, len(columns)))
        for j, (name, y) in enumerate(columns.items())
    )


def _datasets_in(
    table: Any, names: Sequence[str], drop_missing: bool, exclude: Sequence[str], noise: Any
) -> tuple[Dataset, ...]:
    """A `Dataset` for each output that a frame or a file holds."""
    notes: Notes = ()
    frame = as_frame(table)
    if frame is None and not (isinstance(table, str | PathLike) or hasattr(table, "read")):
        raise InvalidInputError(
            f"expected Y with a column for each output, or a DataFrame or file that holds them; got {type(table).__name__}"
        )
    if frame is None:
        frame, notes = read_table(table)
    for name in names:
        check_known(name, column_names(frame), "target")
    made = []
    for j, name in enumerate(names):
        others = [*exclude, *(other for other in names if other != name)]
        own = Dataset.from_frame(frame, name, drop_missing, others, column_of(noise, j, len(names)))
        made.append(replace(own, notes=notes + own.notes))
    return tuple(made)
