"""Cross-validation of fitted kernels: parameters are fitted again without each fold, starting from their present values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kitt.clock import Clock
from kitt.errors import FitError
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import UNFIT, Fitter, start_of
from kitt.fitting.gp import GP, on_all_rows
from kitt.kernels.exact import LeaveOneOut
from kitt.kernels.grammar import Primitive
from kitt.table.scaling import FloatArray
from kitt.table.table import Table

Rows = NDArray[np.intp]
Predict = Callable[[Table, Table], tuple[FloatArray, FloatArray]]  # mean and variance of rows, after fitting others


MOST_ROWS = 1000  # that a fold leaves out; chosen on tables of `kitt bench atlas` at 200 rows


@dataclass(frozen=True)
class FoldsConfig:
    """How a kernel is fitted again; chosen on tables of `kitt bench atlas` at 200 rows."""

    folds: int = 10
    iterations: int = 10  # of the optimiser, from a warm start
    tolerance: float = 0.1  # nats, as `FitConfig.tolerance`
    seed: int = 0


def split(rows: int, config: FoldsConfig) -> Iterator[tuple[Rows, Rows]]:
    """Training and left-out rows of each fold; a fold of a large table leaves out no more than `MOST_ROWS`."""
    order = np.random.default_rng([config.seed, rows]).permutation(rows)
    folds = min(config.folds, rows)
    for k in range(folds):
        test = order[k::folds][:MOST_ROWS]
        yield np.setdiff1d(order, test), np.sort(test)


def is_wave(model: GP) -> bool:
    """Whether a kernel has waves in several columns: of so many possible ones, some wave fits any rows by chance."""
    repeats = (Primitive.PERIODIC, Primitive.COSINE)
    return len(model.fitted_kernel.columns) > 1 and any(p in repeats for w in model.expression for p in w.factors)


def refitted(
    model: GP,
    rows: Table,
    config: FoldsConfig,
    warm: bool = True,
    clock: Clock | None = None,
    guesses_of: Fitter | None = None,
) -> GP:
    """The kernel of a model fitted to these rows alone, or to a subset of them where there are very many.

    The prior is that of the model. The fit starts from its parameters, or, if not `warm`, from a search on these rows
    only, which shares its guesses with a fitter of these rows, if the model does not transform the target. It ends in time.
    """
    few = rows.transformed(model.warp)
    if len(few.y) > FitConfig.exact_rows:
        few = few.rows(FitConfig.subset_rows, torch.Generator().manual_seed(config.seed))
    options: dict[str, Any] = {"max_iterations": config.iterations, "tolerance": config.tolerance} if warm else {}
    options |= {"prior": model.fitted.prior, "objective": model.fitted.objective}
    shared = guesses_of if model.warp.is_identity else None
    fitter = Fitter(few, random_state=0, clock=clock, guesses_of=shared, **options)
    try:
        return fitter.fit(model.expression, start_of(model.fitted_kernel) if warm else None)
    except UNFIT as error:
        raise FitError(f"{model.expression} could not be fitted without some of the rows: {error}") from error


def on_these_rows(model: GP, rows: Table, config: FoldsConfig) -> GP:
    """The model conditioned on all of these rows, if its parameters come from a subset of them."""
    return model if model.rows == len(rows.y) else on_all_rows(model, rows, FitConfig.inducing, config.seed)


def left_out_folds(
    model: GP, table: Table, config: FoldsConfig, clock: Clock | None = None
) -> tuple[Rows, LeaveOneOut]:
    """The rows of the folds that were evaluated in time, in order, and the prediction of each by the model fitted again."""

    def predict(rows: Table, test: Table) -> tuple[FloatArray, FloatArray]:
        again = on_these_rows(refitted(model, rows, config, clock=clock), rows, config)
        mean, _, variance = again.moments(test.X, test.noise)
        return mean, variance

    places, mean, variance = predict_folds(table, split(len(table.y), config), predict, clock)
    y = table.transformed(model.warp).y[places]
    return places, LeaveOneOut.of(y, torch.from_numpy(mean), torch.from_numpy(variance))


def predict_folds(
    table: Table, folds: Iterable[tuple[Rows, Rows]], predict: Predict, clock: Clock | None = None
) -> tuple[Rows, FloatArray, FloatArray]:
    """The left-out rows of all folds that were evaluated in time, in order, and their predicted means and variances."""
    predictions: list[tuple[Rows, FloatArray, FloatArray]] = []
    for train, test in folds:
        if predictions and clock is not None and clock.is_over:
            break
        predictions.append((test, *predict(table.at(train), table.at(test))))
    places, mean, variance = (np.concatenate(part) for part in zip(*predictions, strict=True))
    order = np.argsort(places)
    return places[order], mean[order], variance[order]


def with_folds(model: GP, table: Table, config: FoldsConfig, clock: Clock | None = None) -> GP:
    """A model with predictions of left-out folds, by refitted parameters, in place of leave-one-out predictions."""
    places, predictions = left_out_folds(model, table, config, clock)
    if len(places) < len(table.y):
        raise FitError(f"{model.expression} could not be fitted without each of the folds before the deadline")
    return replace(model, training=replace(model.training, left_out=predictions))
