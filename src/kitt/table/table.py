"""The table that is fitted: standardised once, as tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt.table.scaling import IDENTITY, Standardiser, Warp


@dataclass(frozen=True)
class Table:
    """Standardised data as tensors, and how they were standardised."""

    X: Tensor
    y: Tensor
    shortest: Tensor  # (D,) shortest period of each column: twice the mean distance between its distinct values
    columns: tuple[str, ...]
    target: str = "y"
    standardiser: Standardiser | None = None
    warp: Warp = IDENTITY  # transform of the standardised target, of which y is the result
    noise: Tensor | None = None  # (N,) known variances of the noise of y; None: the noise is estimated

    @classmethod
    def of(cls, data: Dataset | Table | tuple[ArrayLike, ArrayLike], standardiser: Standardiser | None = None) -> Table:
        """Standardise a Dataset, by its own rows or as given; a pair (X, y) of arrays is used unchanged."""
        if isinstance(data, Table):
            return data
        if isinstance(data, Dataset):
            s = standardiser or Standardiser.fit(data.X, data.y)
            X, (y, noise) = torch.tensor(s.transform_x(data.X)), target_of(data, s)
            return cls(X, y, _shortest(X), tuple(data.names), data.target, s, noise=noise)
        X, y = (torch.as_tensor(np.array(part, dtype=np.float64)) for part in data)
        is_finite = bool(torch.isfinite(X).all() and torch.isfinite(y).all())
        if X.dim() != 2 or y.shape != X.shape[:1] or len(y) < 2 or not is_finite:
            shapes = f"{tuple(X.shape)} and {tuple(y.shape)}"
            raise InvalidInputError(f"expected finite X (N, D) and y (N,) of at least two rows, got {shapes}")
        return cls(X, y, _shortest(X), tuple(f"x{d + 1}" for d in range(X.shape[1])))

    def warped(self) -> Table | None:
        """A table with these inputs and the target transformed (`Warp.fit`); None where no transform beats the identity."""
        zero = -np.inf if self.standardiser is None else float(self.standardiser.transform_y(0.0))
        warp = Warp.fit(self.y.numpy(), zero)
        return None if warp.is_identity else self.transformed(warp)

    def transformed(self, warp: Warp) -> Table:
        """These rows with another transform of the target; a known variance is transformed as at the row's own target."""
        u = self.warp.inverse(self.y.numpy())
        factor = np.exp(2 * (warp.log_slope(u) - self.warp.log_slope(u)))
        noise = None if self.noise is None else self.noise * torch.from_numpy(factor)
        return replace(self, y=torch.from_numpy(warp.forward(u)), warp=warp, noise=noise)

    def rows(self, count: int, generator: torch.Generator) -> Table:
        """A random subset of the rows, or all rows if there are no more than requested."""
        if len(self.y) <= count:
            return self
        return self.at(torch.randperm(len(self.y), generator=generator)[:count])

    def at(self, places: Tensor | NDArray[np.intp]) -> Table:
        """The rows at these places."""
        return replace(
            self, X=self.X[places], y=self.y[places], noise=None if self.noise is None else self.noise[places]
        )


def target_of(rows: Dataset, standardiser: Standardiser | None) -> tuple[Tensor, Tensor | None]:
    """The standardised target (N,) of some rows, and the variances of its noise, if they are known."""
    s = standardiser or Standardiser.identity(rows.d)
    noise = None if rows.noise is None else torch.tensor(rows.noise / s.y_scale / s.y_scale)
    return torch.tensor(s.transform_y(rows.y)), noise


def _shortest(X: Tensor) -> Tensor:
    steps = torch.tensor([max(len(column.unique()) - 1, 1) for column in X.mT], dtype=X.dtype)
    return 2 * (X.amax(0) - X.amin(0)).clamp_min(1e-6) / steps
