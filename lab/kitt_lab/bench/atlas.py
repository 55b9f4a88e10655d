"""The atlas: every method on hundreds of real tables, with few rows, in one thread.

The protocol: tables come in the order of the CRC-32 of their name; a table takes part if it has at least six tenths of
the requested rows; at most two thirds of its rows are training rows, and up to 400 others test rows; columns that are
constant on the training rows are left out; every method gets the same random state.
"""

from __future__ import annotations

import csv
import json
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt.threads import threads_for
from kitt_lab import baselines
from kitt_lab.bench.datasets import Rows, Source
from kitt_lab.bench.methods import Spec, method_cells
from kitt_lab.bench.metrics import distribution_scores
from kitt_lab.bench.runner import Cell

LEAST_SHARE = 0.6  # share of the requested rows that a table must have to take part
TEST_ROWS = 400
KINDS = ("table", "series")


# --- which tables ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Indexed:
    """A line of the index of an atlas."""

    name: str
    rows: int

    @property
    def number(self) -> int:
        """A number that orders the tables and defines their halves independently of their content."""
        return zlib.crc32(self.name.encode())


def index(directory: Path, kind: str = "table") -> list[Indexed]:
    """The tables, or the series, of an atlas in their order."""
    if kind not in KINDS:
        raise InvalidInputError(f"the kind is {' or '.join(KINDS)}, got '{kind}'")
    path = directory / "index.csv"
    if not path.is_file():
        raise InvalidInputError(
            f"expected an atlas in '{directory}', with an index.csv of kind, name, rows and columns, got none: "
            "build one with kitt bench atlas-data --out DIR"
        )
    with path.open(encoding="utf-8", newline="") as lines:
        try:
            entries = [Indexed(row["name"], int(row["rows"])) for row in csv.DictReader(lines) if row["kind"] == kind]
        except (KeyError, ValueError) as error:
            raise InvalidInputError(
                f"expected columns kind, name, rows (a number) and columns in '{path}', got {error}: "
                "build the atlas again with kitt bench atlas-data --out DIR"
            ) from error
    return sorted(entries, key=lambda entry: entry.number)


def sources(
    directory: Path,
    rows: int = 0,
    kind: str = "table",
    half: int | None = None,
    names: Sequence[str] | None = None,
) -> list[Source]:
    """The tables with enough rows, or one half of them (0: an even CRC-32), or those named; always in their order."""
    if half not in (None, 0, 1):
        raise InvalidInputError(f"expected half 0 or 1, got {half}")
    if half is not None and names is not None:
        raise InvalidInputError("expected --half or --tables, got both: leave one of them out")
    listed = index(directory, kind)
    entries = [entry for entry in listed if entry.rows >= LEAST_SHARE * rows]
    known = {entry.name for entry in entries}
    if unknown := sorted(set(names or ()) - {entry.name for entry in listed}):
        raise InvalidInputError(
            f"no {kind} in '{directory}' is called {', '.join(unknown)}: its index.csv has the names"
        )
    if small := [name for name in names or () if name not in known]:
        raise InvalidInputError(
            f"expected at least {LEAST_SHARE * rows:.0f} rows for --rows {rows}, got fewer in {', '.join(small)}: "
            "lower --rows, or leave them out"
        )
    wanted = known if names is None else set(names)
    chosen = [entry for entry in entries if entry.name in wanted and half in (None, entry.number % 2)]
    if not chosen:
        raise InvalidInputError(
            f"expected a {kind} with at least {LEAST_SHARE * rows:.0f} rows in '{directory}', got none: lower --rows, or "
            "take the other half"
        )
    return [Source(entry.name, directory / kind / f"{entry.name}.csv") for entry in chosen]


# --- which rows ------------------------------------------------------------------------------------------------------


def split_rows(name: str, n: int, rows: int, number: int) -> tuple[Rows, Rows]:
    """Training and test rows of split `number`."""
    if number < 0:
        raise InvalidInputError(f"splits are counted from 0, got {number}")
    order = np.random.default_rng([zlib.crc32(name.encode()), number]).permutation(n)
    train = min(rows, 2 * n // 3)
    return order[:train], order[train : train + TEST_ROWS]


def split(table: Source, rows: int, number: int) -> tuple[Dataset, Dataset]:
    """Training and test rows as tables of the columns that vary among the training rows."""
    whole = table.load()
    train, test = (whole.rows(part) for part in split_rows(table.name, whole.n, rows, number))
    keep = np.ptp(train.X, axis=0) > 0
    names = [name for name, kept in zip(whole.names, keep, strict=True) if kept]
    few = Dataset.from_arrays(train.X[:, keep], train.y, names, whole.target)
    return few, replace(few, X=test.X[:, keep], y=test.y)


# --- the cells -------------------------------------------------------------------------------------------------------


def atlas_cells(
    tables: Iterable[Source], splits: Iterable[int], methods: Sequence[Spec], rows: int, seed: int = 0
) -> list[Cell]:
    return method_cells("atlas", tables, splits, methods, str(rows), seed, evaluate)


def evaluate(table: Source, number: int, rule: str, spec: Spec, seed: int) -> dict[str, Any]:
    """Fit a method to the training rows, and score it on the test rows."""
    return measured(spec, *split(table, int(rule), number), seed)


def measured(spec: Spec, train: Dataset, test: Dataset, random_state: int) -> dict[str, Any]:
    """Scores, and the CPU seconds of selection, fitting and prediction together, all in one thread.

    They are those of the whole process, so that a worker of a cluster should have one thread (`--nthreads 1`).
    """
    _warm(spec.name, json.dumps(dict(spec.settings)))
    method = baselines.method(spec.name, **spec.settings)
    with threads_for(1), threadpool_limits(1):
        began = time.process_time()
        fitted = method.fit(train, random_state=random_state)
        fitted_at = time.process_time()
        fitted.predict(test.X)
        ended = time.process_time()
        scores = distribution_scores(fitted, test.X, test.y)
    return {
        **scores,
        "cpu_seconds": ended - began,
        "fit_cpu_seconds": fitted_at - began,
        "predict_cpu_seconds": ended - fitted_at,
        "kernel": fitted.kernel,
        "n_train": train.n,
        "n_test": test.n,
        "d": train.d,
        "random_state": random_state,
        "details": dict(fitted.details),
    }


@lru_cache(maxsize=64)
def _warm(name: str, settings: str) -> None:
    """Import modules and load the weights of the network before the time is measured."""
    X = np.linspace(-1.0, 1.0, 16)[:, None]
    baselines.method(name, **json.loads(settings)).fit(
        Dataset.from_arrays(X, np.sin(3 * X[:, 0])), random_state=0
    ).predict(X)
