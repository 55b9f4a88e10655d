"""A mean function of one's own: it is subtracted from the target before anything is fitted, and added to predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kitt.errors import InvalidInputError
from kitt.table.scaling import FloatArray, centre_and_scale

MeanFunction = Callable[[FloatArray], FloatArray]  # X (M, D) in the units of the table -> means (M,) of the target
Mean = Literal["constant", "linear"] | MeanFunction


@dataclass(frozen=True)
class LinearMean:
    """A linear function of all columns."""

    constant: float
    slopes: tuple[float, ...]

    def __call__(self, X: FloatArray) -> FloatArray:
        return self.constant + X @ np.array(self.slopes)

    @classmethod
    def fit(cls, X: FloatArray, y: FloatArray) -> LinearMean:
        """By least squares; of columns that carry the same information, the smallest slopes."""
        centre, scale = centre_and_scale(X)
        slopes = np.linalg.lstsq((X - centre) / scale, y - y.mean(), rcond=None)[0] / scale
        return cls(float(y.mean() - centre @ slopes), tuple(slopes.tolist()))

    def to_dict(self) -> dict[str, Any]:
        return {"constant": self.constant, "slopes": list(self.slopes)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> LinearMean:
        return cls(float(fields["constant"]), tuple(map(float, fields["slopes"])))


def mean_function(mean: Mean | None, X: FloatArray, y: FloatArray) -> MeanFunction | None:
    """The function that is meant, for rows; none for a constant, which is subtracted from every target."""
    if mean is None or mean == "constant":
        return None
    if mean == "linear":
        return LinearMean.fit(X, y)
    if not callable(mean):
        raise InvalidInputError(
            f"expected the mean as 'constant', 'linear' or a function of X (M, D) with values (M,); got {mean!r}"
        )
    return mean


def values_at(function: MeanFunction, X: FloatArray) -> FloatArray:
    """The values (M,) of a mean function, checked."""
    values = np.asarray(function(X), dtype=np.float64)
    if values.shape != (len(X),) or not np.isfinite(values).all():
        raise InvalidInputError(
            f"expected {len(X)} finite values of the mean function, one for each row of X; got an array of shape "
            f"{values.shape}{' with others' * (values.shape == (len(X),))}"
        )
    return values
