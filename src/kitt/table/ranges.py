"""New rows that lie far outside the range of the rows that a model was fitted to."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from kitt.errors import InvalidInputError
from kitt.table.encoding import Column, Encoding
from kitt.table.reading import Notes
from kitt.table.scaling import FloatArray

FAR = 0.5  # of the range of a column: a row that is further beyond it is far; set by hand
_DAYS = 2.0  # range of a column of dates, below which its ends are written with minutes
_MINUTES = 2.0  # range of a column of dates, below which its ends are written with seconds


def far_rows_note(encoding: Encoding, new: FloatArray, rows: FloatArray) -> Notes:
    """A note if any of the new rows (M, D) lies far outside the range of the rows (N, D), in a column of numbers or dates.

    Texts have no range; levels that are new have a note of their own, which `Encoding.encode` gives.
    """
    place = {name: d for d, name in enumerate(encoding.names)}
    columns = {column: place[column.name] for column in encoding.columns if column.kind in ("number", "date")}
    if not columns or not len(new) or not len(rows):
        return ()
    low, high = rows.min(0), rows.max(0)
    reach = FAR * (high - low)
    is_far = ((new < low - reach) | (new > high + reach)) & (high > low)
    named = [f"'{c.name}' ({_range(c, low[d], high[d])})" for c, d in columns.items() if is_far[:, d].any()]
    if not named:
        return ()
    far = int(is_far[:, [*columns.values()]].any(1).sum())
    lie = "the row lies" if len(new) == 1 else f"{far} of {len(new)} rows {'lies' if far == 1 else 'lie'}"
    depends = "its prediction depends" if far == 1 else "their predictions depend"
    return (
        f"{lie} far outside the range of the training rows, by more than {100 * FAR:.0f} % of the range of "
        f"{' or of '.join(named)}: no training row is close, and {depends} on how the kernels continue beyond the data",
    )


def _range(column: Column, low: float, high: float) -> str:
    """The ends of a column as they are written in the table; times of day where the range is short."""
    if column.kind == "number":
        return f"{low:.6g} to {high:.6g}"
    times = [np.datetime64(column.origin, "s") + np.timedelta64(round(86400 * end), "s") for end in (low, high)]
    width = high - low
    unit: Literal["D", "m", "s"] = "D" if width >= _DAYS else "m" if 1440 * width >= _MINUTES else "s"
    return " to ".join(np.datetime_as_string(time, unit).replace("T", " ") for time in times)


def checked_box(bounds: Any, dims: int) -> FloatArray:
    """Bounds of shape (2, D) as finite numbers, the lower below the upper."""
    try:
        box = np.asarray(torch.as_tensor(bounds).detach().cpu(), dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInputError(f"expected bounds of shape (2, {dims}), got {bounds!r}") from None
    if box.shape != (2, dims) or not np.isfinite(box).all() or not (box[0] < box[1]).all():
        raise InvalidInputError(
            f"expected finite bounds of shape (2, {dims}), the lower below the upper; got {box.tolist()}"
        )
    return box
