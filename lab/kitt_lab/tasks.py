"""Thousands of regression tasks from real tables: any numeric column is the target of some rows, given some other columns.

A task is a function of a folder of CSV files and a seed. A few have a shuffled target, so that the columns explain nothing,
and a few are simulated, so that the true kernel is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kitt.errors import InvalidInputError
from kitt.network.advice import ROWS
from kitt.table.scaling import FloatArray, Standardiser
from kitt_lab.simulate import simulate, world_data
from kitt_lab.world import read_numbers

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class TaskConfig:
    """How tasks are drawn: as varied as the tables of users, and small enough for thousands of fits."""

    max_columns: int = 16
    rows: tuple[int, int] = ROWS  # for training, uniform; at most two thirds of a table
    shuffled: float = 0.12  # share whose target is shuffled over the rows, so that the columns explain nothing
    simulated: float = 0.15  # share of tasks that are drawn from kernels


CONFIG = TaskConfig()
OWN_TARGET = 0.5  # share whose target is the table's last column; of the others, any column
SOME_COLUMNS = 0.5  # share that keep a random number of the other columns; the others keep all of them
TEST_ROWS = 400
MIN_LEVELS = 10  # distinct values of the target
SIMULATED_COLUMNS = 8  # largest number of columns of a simulated table; a third of them have one
SAME_RANK = 0.9995  # rank correlation from which a column counts as the target under another name
_SIMULATED = "simulated-"  # prefix of the name of a simulated table; rows, columns and a seed follow


@dataclass(frozen=True)
class Task:
    """Which rows and columns of which table."""

    table: str
    target: int  # its columns, counted from 0
    columns: Rows
    train: Rows
    test: Rows
    is_shuffled: bool = False  # whether the target's values are permuted over the rows

    @property
    def is_real(self) -> bool:
        """Whether the target is neither simulated nor shuffled."""
        return not self.is_shuffled and not self.table.startswith(_SIMULATED)


@dataclass(frozen=True)
class TaskData:
    """The data of a task, standardised by the training rows."""

    X: FloatArray  # (N, D)
    y: FloatArray  # (N,)
    test_inputs: FloatArray
    test_targets: FloatArray


def table_names(folder: str | Path) -> list[str]:
    names = sorted(path.stem for path in Path(folder).glob("*.csv"))
    if not names:
        raise InvalidInputError(f"expected CSV files in {folder}, found none")
    return names


@lru_cache(maxsize=512)
def read_table(folder: str, name: str) -> FloatArray:
    """The numbers of a file, or of a simulated table; the target is the last column."""
    if name.startswith(_SIMULATED):
        rows, columns, seed = map(int, name.removeprefix(_SIMULATED).split("-"))
        drawn = simulate(world_data(folder), 1, rows, columns, torch.Generator().manual_seed(seed))
        return torch.cat([drawn.X[0], drawn.y[0, :, None]], 1).double().numpy()
    return read_numbers(Path(folder) / f"{name}.csv")


def draw_task(folder: str | Path, seed: int, config: TaskConfig = CONFIG) -> Task | None:
    """The task of a seed; None if its target has few levels, or a column is the target under another name."""
    names = table_names(folder)
    if np.random.default_rng([seed, 2]).random() < config.simulated:
        return _simulated_task(seed, config)
    rng = np.random.default_rng(seed)
    name = names[rng.integers(len(names))]
    table = read_table(str(folder), name)
    n, width = table.shape
    target = width - 1 if rng.random() < OWN_TARGET else int(rng.integers(width))
    columns = [j for j in range(width) if j != target]
    if not columns:
        return None
    rng.shuffle(columns)
    if rng.random() < SOME_COLUMNS:
        columns = columns[: int(rng.integers(1, len(columns) + 1))]
    most = min(config.rows[1], (2 * n) // 3)
    fewest = min(config.rows[0], most)
    rows = int(rng.integers(fewest, most + 1))
    order = rng.permutation(n)
    train, test = order[:rows], order[rows : rows + TEST_ROWS]
    kept = [j for j in columns[: config.max_columns] if _varies(table[train, j])]
    task = Task(name, target, np.array(kept, dtype=np.int64), train, test, bool(rng.random() < config.shuffled))
    return task if kept and _is_worthwhile(task, table[train], config) else None


def _simulated_task(seed: int, config: TaskConfig) -> Task:
    rng = np.random.default_rng([seed, 3])
    columns = 1 if rng.random() < 1 / 3 else int(rng.integers(2, SIMULATED_COLUMNS + 1))
    rows = int(rng.integers(config.rows[0], config.rows[1] + 1))
    order = rng.permutation(rows + TEST_ROWS)
    name = f"{_SIMULATED}{len(order)}-{columns}-{seed}"
    return Task(name, columns, np.arange(columns), order[:rows], order[rows:])


def _varies(x: FloatArray) -> bool:
    return bool(x.std() > 1e-12) and len(np.unique(x)) > 1


def _is_worthwhile(task: Task, values: FloatArray, config: TaskConfig) -> bool:
    """Whether the target has enough levels and is no monotone function of a continuous column."""
    y = values[:, task.target]
    if len(np.unique(y)) < MIN_LEVELS:
        return False
    rank = y.argsort().argsort()
    for x in values[:, task.columns].T:
        if len(np.unique(x)) > 0.5 * len(x):
            correlation = np.corrcoef(rank, x.argsort(kind="stable").argsort())[0, 1]
            if abs(correlation) > SAME_RANK:
                return False
    return True


def data_of(folder: str | Path, task: Task) -> TaskData:
    table = read_table(str(folder), task.table)
    X, y = table[:, task.columns], table[:, task.target]
    if task.is_shuffled:
        y = y[np.random.default_rng(int(task.train[0])).permutation(len(y))]
    scale = Standardiser.fit(X[task.train], y[task.train])
    train, test = ((scale.transform_x(X[rows]), scale.transform_y(y[rows])) for rows in (task.train, task.test))
    return TaskData(*train, *test)
