"""Small tables for the tests of this folder."""

import io
from typing import Any

import numpy as np
import pandas as pd

from kitt.table.dataset import Dataset


def read(text: str | bytes, **options: Any) -> Dataset:
    return Dataset.read(io.BytesIO(text.encode() if isinstance(text, str) else text), **options)


def table(**columns: Any) -> pd.DataFrame:
    """Ten rows with a number `a`, the columns given, and the target `y`."""
    i = np.arange(10.0)
    return pd.DataFrame({"a": i, **columns, "y": i**2})
