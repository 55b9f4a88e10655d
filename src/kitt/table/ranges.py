"""New rows that lie far outside the range of the rows that a model was fitted to."""

from __future__ import annotations

import numpy as np

from kitt.table.encoding import Column, Encoding
from kitt.table.reading import Notes, listed
from kitt.table.scaling import FloatArray

_FAR = 0.5  # of the range of a column: a row that is further beyond it is far


def far_rows_note(encoding: Encoding, new: FloatArray, rows: FloatArray) -> Notes:
    """A note if any of the new rows (M, D) lies far outside the range of the rows (N, D), in a column of numbers or dates.

    Texts have no range; levels that are new have a note of their own, which `Encoding.encode` gives.
    """
    place = {name: d for d, name in enumerate(encoding.names)}
    columns = {column: place[column.name] for column in encoding.columns if column.kind in ("number", "date")}
    if not columns or not len(new) or not len(rows):
        return ()
    low, high = rows.min(0), rows.max(0)
    reach = _FAR * (high - low)
    is_far = ((new < low - reach) | (new > high + reach)) & (high > low)
    named = [f"'{c.name}' ({_range(c, low[d], high[d])})" for c, d in columns.items() if is_far[:, d].any()]
    if not named:
        return ()
    far = int(is_far[:, [*columns.values()]].any(1).sum())
    one = len(new) == 1
    return (
        f"{'the row lies' if one else f'{far} of {len(new)} rows lie'} far outside the range of the training rows, by more "
        f"than half of that range, in {listed(named)}: no training row is close, and "
        f"{'the prediction depends' if one else 'these predictions depend'} on how the kernels continue beyond the data",
    )


def _range(column: Column, low: float, high: float) -> str:
    """The ends of a column as they are written in the table."""
    if column.kind == "number":
        return f"{low:.6g} to {high:.6g}"
    days = [np.datetime64(column.origin, "s") + np.timedelta64(round(86400 * end), "s") for end in (low, high)]
    return " to ".join(str(day.astype("datetime64[D]")) for day in days)
