"""The tables of the benchmark and how their rows are split: the protocol of the paper's code, for every method alike.

The manifest knows the eight UCI tables and three time series by checksum; any other folder of tables works too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset

CAP = 2000  # rows of a table that are used, training and test together (paper, Experiments)
SEED = 42  # of the first split; the next has the next
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")

Rows = NDArray[np.int64]
Rule = Callable[[int, int], tuple[Rows, Rows]]  # number of rows, number of the split -> training and test rows


@dataclass(frozen=True)
class Known:
    """A table as the manifest describes it."""

    name: str
    file: str
    rows: int
    columns: int
    target: str
    meaning: str
    sha256: str


@lru_cache
def manifest(suite: str) -> tuple[Known, ...]:
    text = (resources.files("kitt_lab.bench") / "manifest.json").read_text(encoding="utf-8")
    return tuple(Known(**entry) for entry in json.loads(text)[suite])


@dataclass(frozen=True)
class Source:
    """A table on disk."""

    name: str
    path: Path
    target: str | None = None  # None: the last column

    def load(self) -> Dataset:
        return _load(str(self.path), self.target)


@lru_cache(maxsize=16)
def _load(path: str, target: str | None) -> Dataset:
    return Dataset.read(path, target)


def data_directory(given: Path | str | None, suite: str = "uci") -> Path:
    """`given`, or else KITT_DATA_DIR; where it has a folder of the suite's name, that."""
    chosen = given or os.environ.get("KITT_DATA_DIR")
    if not chosen:
        raise InvalidInputError("where are the tables? Name their directory with --data, or in KITT_DATA_DIR")
    path = Path(chosen).expanduser()
    path = path / suite if (path / suite).is_dir() else path
    if not path.is_dir():
        raise InvalidInputError(f"expected a directory of tables, got '{path}', where there is none")
    return path


def sources(directory: Path, names: Iterable[str] | None = None, suite: str = "uci") -> list[Source]:
    """The tables of a directory, those of the manifest first; `names` selects and orders them."""
    files = {path.name: path for path in sorted(directory.iterdir()) if path.name.endswith(SUFFIXES)}
    sources_by_name: dict[str, Source] = {}
    for known in manifest(suite):
        if known.file in files:
            sources_by_name[known.name] = Source(known.name, _checked(files.pop(known.file), known), known.target)
    for name, path in files.items():
        stem = next(name.removesuffix(s) for s in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(s))
        sources_by_name.setdefault(stem, Source(stem, path))
    if not sources_by_name:
        raise InvalidInputError(f"no table in '{directory}': expected files that end with {', '.join(SUFFIXES)}")
    chosen = list(sources_by_name if names is None else names)
    if missing := [name for name in chosen if name not in sources_by_name]:
        raise InvalidInputError(
            f"no table {', '.join(missing)} in '{directory}'; there are {', '.join(sources_by_name)}"
        )
    return [sources_by_name[name] for name in chosen]


def _checked(path: Path, known: Known) -> Path:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != known.sha256:
        raise InvalidInputError(
            f"'{path}' is not the table '{known.name}' of the manifest: its SHA-256 is {digest}, expected {known.sha256}; "
            "fetch it again, or give your own table another file name"
        )
    return path


# --- which rows ------------------------------------------------------------------------------------------------------


def shuffled(n: int, split: int) -> Rows:
    return np.random.RandomState(SEED + split).permutation(n)


def paper_rows(n: int, split: int, cap: int = CAP) -> tuple[Rows, Rows]:
    """Nine tenths train. Above `cap` rows, `cap` of the shuffled ones are drawn, alike for every split."""
    order, cut = shuffled(n, split), int(0.9 * n)
    if n > cap:
        drawn = np.random.RandomState(0).choice(n, cap, replace=False)
        order, cut = order[drawn], int(0.9 * cap)
    return order[:cut], order[cut:]


def few_rows(n: int, split: int, train: int = 200, test: int = 400) -> tuple[Rows, Rows]:
    """Exactly `train` rows and at most `test` others; of a small table, at most nine tenths train."""
    order, cut = shuffled(n, split), min(train, int(0.9 * n))
    return order[:cut], order[cut : cut + test]


def capped_rows(n: int, split: int, train: int = 500) -> tuple[Rows, Rows]:
    """The paper's split with at most `train` of its training rows."""
    rows, test = paper_rows(n, split)
    return rows[:train], test


def interpolation_rows(n: int, split: int) -> tuple[Rows, Rows]:
    """A random fifth, anywhere in the series, is held out."""
    order, cut = shuffled(n, split), int(0.8 * n)
    return np.sort(order[:cut]), np.sort(order[cut:])


def extrapolation_rows(n: int, split: int) -> tuple[Rows, Rows]:
    """The last fifth of the series is held out, whatever the split."""
    cut = int(0.8 * n)
    return np.arange(cut), np.arange(cut, n)


RULES: dict[str, Rule] = {
    "paper": paper_rows,
    "200": few_rows,
    "500": capped_rows,
    "interpolation": interpolation_rows,
    "extrapolation": extrapolation_rows,
}


@dataclass(frozen=True)
class Split:
    """A table in two parts, and which test rows are copies of training rows, target included."""

    train: Dataset
    test: Dataset
    is_copy: NDArray[np.bool_]


def split(dataset: Dataset, rule: str, number: int) -> Split:
    """Split `number` of a table by the rule of that name."""
    if rule not in RULES:
        raise InvalidInputError(f"no rule of splitting is called '{rule}'; there are {', '.join(RULES)}")
    if number < 0:
        raise InvalidInputError(f"splits are counted from 0, got {number}")
    train, test = (dataset.rows(rows) for rows in RULES[rule](dataset.n, number))
    return Split(train, test, _copies(train, test))


def _copies(train: Dataset, test: Dataset) -> NDArray[np.bool_]:
    def rows(part: Dataset) -> list[Any]:
        return [row.tobytes() for row in np.column_stack([part.X, part.y])]

    seen = set(rows(train))
    return np.array([row in seen for row in rows(test)], dtype=bool)
