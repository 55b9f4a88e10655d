"""Means and their standard errors, as all texts, checks and benchmarks give them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """The mean of some values and its standard error, which is not a number for a single value."""
    v = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=float)
    return float(v.mean()), float(v.std(ddof=1) / math.sqrt(len(v))) if len(v) > 1 else math.nan
