"""Conditioning a fitted model on other rows without fitting it again, and criteria for when to fit it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import gammaincc, ndtri
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import InvalidInputError
from kitt.fitting import gp
from kitt.fitting.fit import Failure
from kitt.fitting.fitted import FoundNoise, TrainingRows
from kitt.fitting.gp import GP
from kitt.fitting.options import Options
from kitt.kernels.exact import joined
from kitt.model.mixture import Mixture
from kitt.model.predictive import Predictive
from kitt.table.cells import read_numbers
from kitt.table.dataset import Dataset, values_of
from kitt.table.frames import as_frame
from kitt.table.reading import Notes, column_names
from kitt.table.scaling import FloatArray, Standardiser
from kitt.table.table import Table

# When a new fit is advised; by convention, not tuned.
_GROWTH = 2.0  # number of rows relative to the number that was fitted to
_P_VALUE = 1e-3  # of the new rows under the model, below which a new fit is advised
_WORTH_BEGINNING = 0.5  # share of the time that a model took, for which the next one must have time; set by hand
_LATE = "the deadline left no time to condition it on all rows"
_NOTE = "the parameters were fitted to the first {} rows; {} were added since"


@dataclass(frozen=True)
class RefitReason:
    """Why the parameters should be fitted again; as text, a sentence."""

    kind: Literal["more rows", "improbable rows"]
    text: str

    def __str__(self) -> str:
        return self.text


def new_rows(old: Dataset, table: Any, y: ArrayLike | None, noise: ArrayLike | None = None) -> tuple[Dataset, Notes]:
    """Encode raw rows for the model of old ones, with notes on levels not seen before.

    Without y, the table must contain the target. Variances of the noise are known for both or for neither; without
    `noise`, that of the old rows is taken if it is one value.
    """
    encoding = old.encoding
    if isinstance(table, Dataset):
        if y is not None or noise is not None:
            raise InvalidInputError(
                "expected y and noise beside a raw table; got a Dataset, which has its own: leave them out"
            )
        return table if old.mean is None or table.mean is not None else table.without_mean(old.mean), ()
    if y is None:
        frame = None if as_frame(table) is None else encoding.named(table)
        if frame is None or encoding.target not in frame:
            given = "an array" if frame is None else f"the columns {', '.join(column_names(frame))}"
            raise InvalidInputError(
                f"expected a table with the target '{encoding.target}'; got {given}",
                "add that column, or give y beside the inputs",
                {"command line": "add that column"},
            )
        table = frame
        read = read_numbers(table[encoding.target])
        y = table[encoding.target] if read is None else read[0]
    X, notes = encoding.encode(table)
    values = values_of(y, len(X), f"the target '{encoding.target}'")
    if noise is None and old.noise is not None and np.ptp(old.noise) == 0:
        noise = old.noise[0]
    known = (
        None if noise is None else np.full(len(X), noise) if np.ndim(noise) == 0 else values_of(noise, len(X), "noise")
    )
    values = values - old.mean_at(X)
    return Dataset(X, values, encoding.names, encoding.target, encoding, noise=known, mean=old.mean), notes


def updated(mixture: Mixture, new: Dataset) -> tuple[Mixture, Predictive]:
    """The mixture conditioned on more rows, and the predictive distribution of each new row given all rows before it."""
    models, moments = [], {}
    changing = {c.model for c in mixture.components if c.changing_noise}
    for k, model in enumerate(mixture.models):
        more, *predicted = _extended(model, new, k in mixture.used, k in changing)
        models.append(more)
        moments[k] = (model.inputs(new.X).numpy(), *(part.numpy() for part in predicted))
    mean = np.stack([moments[c.model][1] for c in mixture.components])
    variance = mixture.observed_variances(moments)
    warps = tuple(mixture.models[c.model].warp for c in mixture.components)
    weights = np.array([c.weight for c in mixture.components])
    return replace(mixture, models=tuple(models)), Predictive(weights, mean, np.sqrt(variance), warps, mixture.tail)


def _extended(model: GP, new: Dataset, used: bool, is_changing: bool) -> tuple[GP, Tensor, Tensor]:
    """A GP conditioned on more rows, and mean and variance of each before it was observed, on the scale of its target.

    Its posterior is extended, and its noise model kept, where they are used; without use, there is no prediction.
    """
    s, nothing = model.fitted_kernel.standardiser, torch.empty(0)
    Z = model.inputs(new.X)
    added = Table.of(new, s or Standardiser.identity(new.d)).transformed(model.warp)
    y = torch.cat([model.y, added.y])
    first = model.fitted.rows_at_fit or model.rows
    notes = [text for text in model.warnings if text != _NOTE.format(first, model.rows - first)]
    notes.append(_NOTE.format(first, len(y) - first))
    noise = joined(model.training.noise, added.noise)
    posterior, mean, variance = model.posterior.extended(Z, added.y, added.noise) if used else (None, nothing, nothing)
    more = GP(
        replace(model.fitted, rows_at_fit=first, warnings=tuple(notes)),
        TrainingRows(torch.cat([model.X, Z]), y, model.training.inducing, posterior, noise=noise),
        FoundNoise(model.noise_model) if is_changing else model.found_noise,
    )
    return more, mean, variance


def refit_reasons(mixture: Mixture, predicted: Predictive, new: Dataset) -> Iterator[RefitReason]:
    """Why the parameters should be fitted again; empty if they need not be."""
    model = mixture.models[mixture.best]
    first = model.fitted.rows_at_fit or model.rows
    if model.rows >= _GROWTH * first:
        text = f"there are {model.rows} rows now, and the parameters were fitted to {first}: fit again"
        yield RefitReason("more rows", text)
    s = model.fitted_kernel.standardiser
    u = new.y if s is None else s.transform_y(new.y)
    if p_value(predicted, u) < _P_VALUE:
        text = (
            f"the new rows ({new.n}) are improbable under the model: by chance, rows would lie so far from their "
            f"predictions less than once in {1 / _P_VALUE:g} times: fit again"
        )
        yield RefitReason("improbable rows", text)


def p_value(predicted: Predictive, u: FloatArray) -> float:
    """The p-value of rows under their predictive distributions: the probability of rows at least as far out."""
    level = np.clip(predicted.cdf(u[:, None])[:, 0], 1e-12, 1 - 1e-12)
    return float(gammaincc(0.5 * len(u), 0.5 * np.square(ndtri(level)).sum()))  # chi-square with a degree for each row


def on_all_rows(
    mixture: Mixture, table: Table, places: Tensor | None, options: Options, clock: Clock
) -> tuple[Mixture, tuple[Failure, ...]]:
    """The mixture with the models of nonzero weight conditioned on all rows, or on as many as time allows; and models that
    were left out for lack of time.

    They were fitted to the rows at `places`; None if these are all rows.
    """
    if places is None:
        return mixture, ()
    models, late, seconds = list(mixture.models), [], 0.0
    inducing = min(options.fit_config.inducing, len(places))  # so that it takes no longer than the fits
    order = sorted(mixture.used, key=lambda k: -mixture.weights[k])
    for i, k in enumerate(order):
        if clock.left < _WORTH_BEGINNING * seconds:
            late.append(k)
            continue
        began, share = clock.spent, clock.share(1 / (len(order) - i))
        models[k] = gp.on_all_rows(models[k], table, inducing, options.random_state, share, places)
        seconds = clock.spent - began
    kept = tuple(c for c in mixture.components if c.model not in late)
    left_out = (Failure(models[k].expression, _LATE, models[k].fitted.is_plain) for k in late)
    return replace(mixture, models=tuple(models), components=kept), tuple(left_out)
