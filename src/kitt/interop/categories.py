"""Categorical inputs of points, which are coded 0, 1, 2 and so on: KITT's kernels see an indicator for each category."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from kitt.errors import InvalidInputError


class Categories:
    """The categorical inputs of points by their positions, with the number of categories of each."""

    def __init__(self, counts: Mapping[int, int], dims: int) -> None:
        if wrong := {d: k for d, k in counts.items() if not (0 <= d < dims and k > 1)}:
            raise InvalidInputError(
                f"expected positions of categorical inputs from 0 to {dims - 1}, with two categories or more; got {wrong}"
            )
        self.counts, self.dims = dict(sorted(counts.items())), dims

    def transform(self) -> Any:
        """The input transform of BoTorch that replaces codes by indicators."""
        from botorch.models.transforms.input import NumericToCategoricalEncoding

        encoders: Any = {d: partial(one_hot, num_classes=k) for d, k in self.counts.items()}
        return NumericToCategoricalEncoding(self.dims, self.counts, encoders)

    @property
    def names(self) -> list[str]:
        """The names of the encoded columns."""
        indicators = ([f"x{d + 1}={code}" for code in range(self.counts.get(d, 0))] for d in range(self.dims))
        return [name for d, own in enumerate(indicators) for name in own or [f"x{d + 1}"]]

    def encode(self, X: Tensor) -> Tensor:
        """Points (n, D) with indicators; rows with missing values are missing altogether."""
        known = X.isfinite().all(-1)
        for d, k in self.counts.items():
            codes = X[known, d]
            if not ((codes == codes.round()) & (codes >= 0) & (codes < k)).all():
                raise InvalidInputError(
                    f"expected codes 0 to {k - 1} of the categories of input {d}; got others, from {codes.min():g} to "
                    f"{codes.max():g}"
                )
        encoded: Tensor = self.transform()(X.where(known.unsqueeze(-1), 0.0))
        return encoded.where(known.unsqueeze(-1), torch.nan)

    def encode_box(self, bounds: Any) -> Any:
        """The lowest and the largest values (2, D) of the encoded columns; none without bounds."""
        if bounds is None or not self.counts:
            return bounds
        box = np.asarray(torch.as_tensor(bounds), dtype=np.float64)
        unit = np.array([[0.0], [1.0]])
        parts = [unit.repeat(self.counts[d], 1) if d in self.counts else box[:, [d]] for d in range(self.dims)]
        return np.hstack(parts)


def with_codes(model: Any, categories: Categories) -> Any:
    """A model of BoTorch for encoded points, which takes points with codes from now on."""
    from botorch.models.transforms.input import ChainedInputTransform

    own = getattr(model, "input_transform", None)
    codes = categories.transform()
    model.input_transform = codes if own is None else ChainedInputTransform(codes=codes, own=own)
    model.input_transform.eval()
    return model
