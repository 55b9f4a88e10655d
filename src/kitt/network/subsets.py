"""Which rows of a large table the network reads: random subsets that do not depend on order, units or signs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kitt.table.scaling import FloatArray, Standardiser, centre_and_scale

MIN_ROWS = 64  # smallest number of rows of a subset of a large table; set by hand


@dataclass(frozen=True)
class Reading:
    """How many rows of a large table the network reads."""

    subsets: int  # random subsets of a large table; their log-probabilities are averaged
    work: float  # bound of N² (D + 6) for one subset of N rows, which is proportional to the time
    max_rows: int  # largest number of rows of a subset

    def rows(self, d: int) -> int:
        """The number of rows of one subset, such that the cost does not depend on the number of columns."""
        return int(min(self.max_rows, max(MIN_ROWS, math.sqrt(self.work / (d + 6)))))


READINGS = {  # `kitt bench latency` has their times, `kitt bench recovery` what they find
    "quick": Reading(subsets=2, work=0.7e6, max_rows=384),  # about a tenth of a second
    "careful": Reading(subsets=2, work=3.6e6, max_rows=600),  # less than half a second
    "all": Reading(subsets=1, work=math.inf, max_rows=5000),  # time and memory grow as the square of the rows
}


def subsets(
    X: FloatArray, y: FloatArray, random_state: int, reading: Reading = READINGS["quick"]
) -> list[NDArray[np.intp]] | None:
    """Indices of a few random subsets of a large table, or None for a small one.

    Rows are drawn by a hash of their standardised values, so that the subsets depend neither on the order of rows or columns
    nor on the units or the sign of a column. Copies of a row have different hashes.
    """
    cap = reading.rows(X.shape[1])
    if len(X) <= cap:
        return None
    key = _row_keys(y[:, None], 1) + _row_keys(X, 2)
    ordered, order = key.sort()
    position = torch.arange(len(key))
    is_new = torch.cat([torch.ones(1, dtype=torch.bool), ordered[1:] != ordered[:-1]])
    copy = torch.empty_like(key)  # how many equal rows come before each row
    copy[order] = position - torch.where(is_new, position, 0).cummax(0).values
    hashes = (_mixed(key + copy * _ODD, 3 + i + _SUBSET_SEEDS * random_state) for i in range(reading.subsets))
    return [hashed.topk(cap, largest=False).indices.numpy() for hashed in hashes]


def standardised(tables: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[Tensor, Tensor]:
    """Tables of equal size as tensors (B, N, D) and (B, N) in single precision, each standardised by itself."""
    scaled = []
    for X, y in tables:
        standardiser = Standardiser.fit(X, y)
        scaled.append((standardiser.transform_x(X), standardiser.transform_y(y)))
    inputs, targets = (torch.from_numpy(np.stack(parts)).float() for parts in zip(*scaled, strict=True))
    return inputs, targets


def _row_keys(values: FloatArray, seed: int) -> Tensor:
    """The sum over the columns of a hash of each value's distance from the mean, in millionths of standard deviations."""
    mean, scale = centre_and_scale(values) if len(values) <= _CAREFUL_ROWS else (values.mean(0), values.std(0))
    scale, keys = np.where(scale > 0, scale, 1.0), []
    for start in range(0, len(values), _CHUNK_ROWS):  # chunks that fit into the cache
        z = torch.tensor(values[start : start + _CHUNK_ROWS] / scale - mean / scale).abs_().mul_(1e6)
        keys.append(_mixed(z.nan_to_num_(0.0).clamp_(max=1e18).round_().long(), seed).sum(1))
    return torch.cat(keys)


_ODD = -0x61C8864680B583EB  # 2^64 over the golden ratio, as a signed integer
_SUBSET_SEEDS = 1000  # distance between the hash seeds of two random states
_CAREFUL_ROWS = 100_000  # with more rows, values close to the largest floats get no special treatment
_CHUNK_ROWS = 2**14


def _mixed(values: Tensor, seed: int) -> Tensor:
    """A hash of integers (the finaliser of SplitMix64, Steele et al., 2014); products wrap around."""
    z = values + (((seed + 1) * _ODD + 2**63) % 2**64 - 2**63)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        z = (z ^ (z >> shift)).mul_(factor)
    return z.bitwise_xor_(z >> 31)
