"""What may be claimed of a model: how well it predicts rows that none of its parameters has seen.

The rows are dealt into ten folds. For each fold the kernels are fitted again to the other rows, from the parameters they
have as warm starts, and weighted again; then they predict the rows of the fold. Leave-one-out at the fitted parameters,
which the weights come from, promises too much for this purpose. Ten folds promise too little on small tables, because
they learn from nine tenths of the rows: there, five folds say how much a tenth of the rows is worth, and log densities are
extrapolated to all rows (`kitt bench evidence` has the figures). Nothing here is computed until somebody asks, and it has a
time budget of its own: with many rows only some of the folds are judged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitt.fitting.fit import Fitter
from kitt.fitting.fitted import FittedGP
from kitt.fitting.folds import FoldsConfig, conditioned, held_out, refitted, split
from kitt.fitting.table import Table
from kitt.language.grammar import Expression
from kitt.model.candidates import PLAIN as PLAIN_KERNELS
from kitt.model.candidates import prior_of
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.model.weights import DEFAULT as WEIGHTS
from kitt.model.weights import stack
from kitt.table.scaling import FloatArray

Progress = Callable[[str, float], None]
PLAIN = PLAIN_KERNELS[0]  # what the gain is over
_LOG_2PI = math.log(2 * math.pi)
_LEAST_VARIANCE = 1e-6  # of a target that is constant but for the rows of one fold


@dataclass(frozen=True)
class EvidenceConfig:
    """How evidence is gathered; chosen on tables of `kitt bench atlas` at 200 rows by `kitt bench evidence`."""

    folds: FoldsConfig = field(default_factory=FoldsConfig)
    fewer_folds: int = 5  # from which log densities are extrapolated
    extrapolated_rows: int = 1000  # of a table, at most, for that
    seconds: float = 20.0  # after which no further fold is begun


@dataclass(frozen=True, eq=False)
class Evidence:
    """Rows of the table as they were predicted by models that had not seen them.

    Attributes
    ----------
    rows : ndarray of int
        Which rows were left out, and judged.
    mean, std : ndarray
        What was predicted for each of them, in units of the target.
    pit : ndarray
        The probability that was given to a lower value than the one observed.
    log_density, plain, no_signal : ndarray
        The log density of each observed value, in units of the target: of the model, of a plain RBF kernel with
        constant noise and the same small tail, and of a normal distribution that knows no column. Of a small table
        they are extrapolated to what models of all rows would reach, and have a meaning as means only.
    observed : ndarray
        The target of these rows.
    folds : int
        How many folds were judged, of `of_folds`.
    """

    rows: NDArray[np.intp]
    observed: FloatArray
    mean: FloatArray
    std: FloatArray
    pit: FloatArray
    log_density: FloatArray
    plain: FloatArray
    no_signal: FloatArray
    folds: int
    of_folds: int
    seconds: float

    @property
    def density(self) -> float:
        """Mean log density of left-out rows, nats per row, in units of the target."""
        return float(self.log_density.mean())

    @property
    def gain(self) -> tuple[float, float]:
        """Log density over that of the plain RBF kernel, nats per row, and its standard error."""
        return _mean_and_error(self.log_density - self.plain)

    @property
    def gain_over_mean(self) -> tuple[float, float]:
        """Log density over that of a normal distribution that knows no column, and its standard error."""
        return _mean_and_error(self.log_density - self.no_signal)

    @property
    def rmse(self) -> float:
        """Root mean squared error, in units of the target."""
        unit = self._unit
        return unit * float(np.sqrt(np.mean((self.observed / unit - self.mean / unit) ** 2)))

    @property
    def r2(self) -> float:
        """Share of the variance of left-out rows that their predictions explain; negative if the mean is better."""
        spread = float((self.observed / self._unit).std())
        return 1 - (self.rmse / self._unit / spread) ** 2 if spread > 0 else 0.0

    @property
    def _unit(self) -> float:
        """In which no square overflows or vanishes."""
        return float(max(np.abs(self.observed).max(), np.abs(self.mean).max())) or 1.0

    def coverage(self, level: float = 0.9) -> float:
        """Share of left-out rows inside their central interval of this probability."""
        return float(np.mean(np.abs(self.pit - 0.5) <= level / 2))


def gather(
    mixture: Mixture,
    is_plain: Sequence[bool],
    table: Table,
    progress: Progress | None = None,
    config: EvidenceConfig | None = None,
) -> Evidence:
    """The evidence for a mixture that was fitted to a table; `is_plain` says which of its models have the plain prior."""
    c, report = config or EvidenceConfig(), progress or (lambda what, share: None)
    began = time.monotonic()
    end = began + c.seconds

    def judged(folds: FoldsConfig, first: float, share: float) -> list[dict[str, NDArray[Any]]]:
        parts: list[dict[str, NDArray[Any]]] = []
        chosen = list(split(len(table.y), folds))
        for k, (train, test) in enumerate(chosen):
            spent = time.monotonic() - began
            if parts and time.monotonic() + spent / (2 * len(parts)) > end:
                break
            report("predicting left-out rows", first + share * k / len(chosen))
            parts.append(_judge(mixture, is_plain, table, train, test, c.folds))
        return parts

    is_small = len(table.y) <= c.extrapolated_rows
    parts = judged(c.folds, 0.0, 0.65 if is_small else 1.0)
    values = _together(parts)
    if is_small and len(values["rows"]) == len(table.y):
        fewer = _together(judged(replace(c.folds, folds=c.fewer_folds), 0.65, 0.35))
        if len(fewer["rows"]) == len(table.y):
            for name in ("log_density", "plain"):
                values[name] = values[name] + (values[name] - fewer[name]) * _step(c)
    report("predicting left-out rows", 1.0)
    return Evidence(
        **values, folds=len(parts), of_folds=min(c.folds.folds, len(table.y)), seconds=time.monotonic() - began
    )


def _step(c: EvidenceConfig) -> float:
    """From the rows of many folds to all of them, in units of the difference between many folds and few."""
    many, few = c.folds.folds, c.fewer_folds
    return (1 / many) / (1 / few - 1 / many)


def _together(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The rows of all folds, in the order of the table."""
    order = np.argsort(np.concatenate([part["rows"] for part in parts]))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def left_out(
    model: FittedGP | Expression,
    table: Table,
    *,
    prior: str = "default",
    config: EvidenceConfig | None = None,
) -> FloatArray:
    """Log densities of the standardised target of left-out rows, under one kernel with its own noise alone.

    The kernel is fitted again without each fold, warm from `model`; an expression is first fitted to all rows. Two
    kernels are compared row by row: the folds depend on the number of rows alone.
    """
    c = config or EvidenceConfig()
    end = time.monotonic() + c.seconds
    first = Fitter(table, random_state=c.folds.seed, prior=prior).fit(model) if isinstance(model, Expression) else model
    rows, found = held_out(first, table, prior, c.folds, end)
    return found.log_density.numpy() + first.warp.log_slope(table.warp.inverse(table.y[rows].numpy()))


def _judge(
    mixture: Mixture,
    is_plain: Sequence[bool],
    table: Table,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    c: FoldsConfig,
) -> dict[str, NDArray[Any]]:
    """One fold: what `Evidence` holds of each of its rows."""
    rows, u = replace(table, X=table.X[train], y=table.y[train]), table.y[test].numpy()
    s = table.standardiser
    raw = table.X[test].numpy() if s is None else s.inverse_x(table.X[test].numpy())
    observed = u if s is None else s.inverse_mean(u)
    again = {k: refitted(m, rows, prior_of(is_plain[k]), c) for k, m in enumerate(mixture.models) if mixture.weights[k]}
    averaged = _averaged(mixture, again, rows, c)
    predictive = averaged.predictive(raw)
    mean, variance = averaged.predict(raw)
    known = next((k for k, m in enumerate(mixture.models) if is_plain[k] and m.expression == PLAIN), None)
    if known in again:
        plain = again[known]
    elif known is not None:
        plain = refitted(mixture.models[known], rows, prior_of(True), c)
    else:
        plain = Fitter(rows, prior=prior_of(True), random_state=c.seed).fit(PLAIN)
    centre, spread = float(rows.y.mean()), max(float(rows.y.var(correction=0)), _LEAST_VARIANCE)
    offset = 0.0 if s is None else s.log_density_offset
    return {
        "rows": test,
        "observed": observed,
        "mean": mean,
        "std": np.sqrt(variance),
        "pit": predictive.cdf(u[:, None])[:, 0],
        "log_density": predictive.log_density(u) + offset,
        "plain": with_tail(conditioned(plain, rows, c).log_density(raw, observed) - offset, u) + offset,
        "no_signal": -0.5 * ((u - centre) ** 2 / spread + math.log(spread) + _LOG_2PI) + offset,
    }


def _averaged(mixture: Mixture, again: Mapping[int, FittedGP], rows: Table, c: FoldsConfig) -> Mixture:
    """The models that were fitted again, weighted again if they were stacked, conditioned on all of these rows."""
    models = tuple(again.values())
    new = Mixture(models, *stack(models)) if mixture.tail.weight else Mixture.of(models, mixture.weights[list(again)])
    return new if models[0].rows == len(rows.y) else replace(new, models=tuple(conditioned(m, rows, c) for m in models))


def with_tail(log_density: FloatArray, u: FloatArray) -> FloatArray:
    """Of a model with the smallest tail that a mixture has, so that a single row does not decide a comparison."""
    tail = Tail(WEIGHTS.min_tail)
    return np.logaddexp(math.log1p(-tail.weight) + log_density, math.log(tail.weight) + tail.log_density(u))


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))
