"""Kernels fitted again without some of the rows, from the parameters they have: predictions that no parameter has seen."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from kitt.errors import FitError, KittError
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import Fitter, start_of
from kitt.fitting.fitted import FittedGP, on_all_rows
from kitt.fitting.table import Table
from kitt.gp.exact import LeaveOneOut

Rows = NDArray[np.intp]
_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class FoldsConfig:
    """How a kernel is fitted again; chosen on tables of `kitt bench atlas` at 200 rows."""

    folds: int = 10
    most_rows: int = 1000  # of a fold
    iterations: int = 10  # of the optimiser, from a warm start
    tolerance: float = 0.1  # nats, as `FitConfig.tolerance`
    seed: int = 0


def split(rows: int, config: FoldsConfig) -> Iterator[tuple[Rows, Rows]]:
    """Training and left-out rows of each fold; a fold of a large table leaves out no more than `most_rows`."""
    order = np.random.default_rng([config.seed, rows]).permutation(rows)
    folds = min(config.folds, rows)
    for k in range(folds):
        test = order[k::folds][: config.most_rows]
        yield np.setdiff1d(order, test), np.sort(test)


def refitted(model: FittedGP, rows: Table, prior: str, config: FoldsConfig) -> FittedGP:
    """The same kernel, fitted to these rows alone; to a subset of them where they are very many."""
    few = transformed_as(model, rows)
    if len(few.y) > FitConfig.exact_rows:
        few = few.rows(FitConfig.subset_rows, torch.Generator().manual_seed(config.seed))
    fitter = Fitter(few, prior=prior, max_iterations=config.iterations, tolerance=config.tolerance, random_state=0)
    try:
        return fitter.fit(model.expression, start_of(model.fitted_kernel))
    except (KittError, RuntimeError, ArithmeticError) as error:
        raise FitError(f"{model.expression} could not be fitted without some of the rows: {error}") from error


def transformed_as(model: FittedGP, rows: Table) -> Table:
    """Rows whose target is transformed as that of a model."""
    y = torch.from_numpy(model.warp.forward(rows.warp.inverse(rows.y.numpy())))
    return replace(rows, y=y, warp=model.warp)


def conditioned(model: FittedGP, rows: Table, config: FoldsConfig) -> FittedGP:
    """On all of these rows, if it was fitted to some of them."""
    return model if model.rows == len(rows.y) else on_all_rows(model, rows, FitConfig.inducing, config.seed)


def held_out(
    model: FittedGP, table: Table, prior: str, config: FoldsConfig, end: float = math.inf
) -> tuple[Rows, LeaveOneOut]:
    """The left-out rows that were judged until `end`, in order, and what the kernel predicted for each without its fold."""
    found: list[tuple[Rows, torch.Tensor, torch.Tensor]] = []
    for train, test in split(len(table.y), config):
        if found and time.monotonic() > end:
            break
        rows = replace(table, X=table.X[train], y=table.y[train])
        moments = conditioned(refitted(model, rows, prior, config), rows, config).moments(table.X[test])
        found.append((test, torch.from_numpy(moments[0]), torch.from_numpy(moments[2])))
    places = np.concatenate([test for test, _, _ in found])
    order = np.argsort(places)
    mean = torch.cat([part[1] for part in found])[order]
    variance = torch.cat([part[2] for part in found])[order]
    y = transformed_as(model, table).y[places[order]]
    density = -0.5 * ((y - mean) ** 2 / variance + variance.log() + _LOG_2PI)
    return places[order], LeaveOneOut(mean, variance, density)


def with_folds(model: FittedGP, table: Table, prior: str, config: FoldsConfig) -> FittedGP:
    """The same model, whose rows are left out in folds with the parameters fitted again, instead of one by one."""
    return replace(model, stored_loo=held_out(model, table, prior, config)[1])
