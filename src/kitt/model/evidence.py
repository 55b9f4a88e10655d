"""Cross-validation of a whole model: how well it predicts rows that none of its parameters has seen.

The rows are divided into twenty folds, those of a large table into ten. For each fold the kernels are fitted again to the
other rows, from their present parameters as warm starts, and weighted again; then they predict the rows of the fold. Waves
in several columns are searched again from the start, because a warm start would carry information about the rows left out.
Leave-one-out at the fitted parameters, from which the weights come, would be too optimistic here. Folds are too pessimistic
on small tables, because they learn from fewer rows. There, the difference between five and twenty folds estimates what
further rows gain, and log densities are extrapolated to all rows by a third of that difference; from ten folds it would be
the whole of a smaller difference, with a larger error (`kitt bench evidence` has the figures). Evidence is computed only on
request. With many rows only some of the folds are evaluated: how many depends on the numbers of rows and kernels, and not on
the speed of the machine.

Of a large table, kernels, parameters and weights come from a subset of the rows. The others have had no influence on them,
so nothing is fitted again: the posteriors are conditioned on all rows but some of those, which they then predict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitt.clock import Clock
from kitt.fitting.candidates import PLAIN as PLAIN_KERNELS
from kitt.fitting.candidates import prior_of
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import Fitter
from kitt.fitting.fitted import FoundNoise
from kitt.fitting.folds import FoldsConfig, is_wave, on_these_rows, refitted, split
from kitt.fitting.gp import GP, without_rows
from kitt.fitting.options import Progress
from kitt.formatting import counted
from kitt.kernels.exact import normal_log_density
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.model.weights import MIN_TAIL, stack
from kitt.table.means import mean_and_error
from kitt.table.scaling import FloatArray
from kitt.table.table import Table

PLAIN = PLAIN_KERNELS[0]  # the kernel that the gain is relative to
# The folds were chosen on 75 tables of the atlas at 200 rows, by splits 1 and 2, both halves alike.
MANY_FOLDS = 20  # of a table that is extrapolated
_FEW_FOLDS = 5  # second number of folds, for the extrapolation
# From a table whose parameters come from a subset, this many of the other rows, or this share of all rows, are left out:
_UNUSED_ROWS = 5000  # standard errors of about 0.01 nats
_UNUSED_SHARE = 0.1  # few enough that the other rows predict about as well as all
_LEAST_VARIANCE = 1e-6  # for a target that is constant outside one fold
_SEARCHES = 8.0  # fits from a warm start that one search from the start costs


@dataclass(frozen=True)
class EvidenceConfig:
    """How much evidence is gathered, and how kernels are fitted again for it."""

    folds: FoldsConfig = field(default_factory=FoldsConfig)
    extrapolated_rows: int = 1000  # only tables with at most this many rows are extrapolated
    work: float = 3e8  # of all folds: their fits times rows to the power of 2.5; half a minute of one core
    seconds: float = math.inf  # a deadline, after which no further fold is started


@dataclass(frozen=True, eq=False)
class Evidence:
    """Predictions of rows of the table by models that were fitted without them.

    Attributes
    ----------
    rows : ndarray of int
        The rows that were left out and predicted.
    mean, std : ndarray
        What was predicted for each of them, in units of the target.
    pit : ndarray
        The predictive probability of a value below the observed one (probability integral transform).
    log_density, plain, no_signal : ndarray
        The log density of each observed value, in units of the target: under the model, under a plain RBF kernel with
        constant noise and the same small tail, and under a normal distribution that uses no column. For a small table
        the first two are extrapolated to what models of all rows would reach, and only their means are meaningful.
    observed : ndarray
        The target of these rows.
    folds : int
        How many of the `of_folds` folds were evaluated.
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

    def __repr__(self) -> str:
        rows = f"<Evidence from {counted(len(self.rows), 'left-out row')}"
        return f"{rows}: R² {self.r2:.2f}, {self.density:.3g} nats per row, 90 % intervals hold {self.coverage():.0%}>"

    @property
    def density(self) -> float:
        """Mean log density of left-out rows, nats per row, in units of the target."""
        return float(self.log_density.mean())

    @property
    def gain(self) -> tuple[float, float]:
        """Mean gain in log density over the plain RBF kernel, nats per row, and its standard error."""
        return mean_and_error(self.log_density - self.plain)

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
    def residuals(self) -> FloatArray:
        """Observed minus predicted, in predictive standard deviations."""
        return (self.observed - self.mean) / self.std

    @property
    def _unit(self) -> float:
        """A unit in which no square overflows or underflows."""
        return float(max(np.abs(self.observed).max(), np.abs(self.mean).max())) or 1.0

    def coverage(self, level: float = 0.9) -> float:
        """The share of left-out rows inside their central predictive interval of this probability."""
        return float(np.mean(np.abs(self.pit - 0.5) <= level / 2))


def gather(
    mixture: Mixture,
    table: Table,
    progress: Progress | None = None,
    config: EvidenceConfig | None = None,
) -> Evidence:
    """The evidence for a mixture that was fitted to a table."""
    c, report = config or EvidenceConfig(), progress or (lambda what, share: None)
    clock = Clock(c.seconds)
    if (unused := _unused(mixture, len(table.y), c)) is not None:
        report("predicting left-out rows", 0.0)
        values = _judge_unused(mixture, table, unused, c.folds)
        report("predicting left-out rows", 1.0)
        return Evidence(**values, folds=1, of_folds=1, seconds=clock.spent)

    def judged(folds: FoldsConfig, first: float, share: float) -> list[dict[str, NDArray[Any]]]:
        parts: list[dict[str, NDArray[Any]]] = []
        chosen, spent = list(split(len(table.y), folds))[: _affordable(mixture, len(table.y), c)], clock.spent
        for k, (train, test) in enumerate(chosen):
            if parts and (clock.spent - spent) / (2 * len(parts)) > clock.left:  # half of a fold would be late
                break
            report("predicting left-out rows", first + share * k / len(chosen))
            parts.append(_judge(mixture, table, train, test, c.folds))
        return parts

    is_small = len(table.y) <= c.extrapolated_rows
    folds = replace(c.folds, folds=MANY_FOLDS) if is_small else c.folds
    parts = judged(folds, 0.0, 0.8 if is_small else 1.0)
    values = _together(parts)
    if is_small and len(values["rows"]) == len(table.y):
        fewer = _together(judged(replace(c.folds, folds=_FEW_FOLDS), 0.8, 0.2))
        if len(fewer["rows"]) == len(table.y):
            for name in ("log_density", "plain"):
                values[name] = values[name] + (values[name] - fewer[name]) * _step(c, len(table.y))
    report("predicting left-out rows", 1.0)
    return Evidence(**values, folds=len(parts), of_folds=min(folds.folds, len(table.y)), seconds=clock.spent)


def _affordable(mixture: Mixture, rows: int, c: EvidenceConfig) -> int:
    """The number of folds that the work allows, at least two."""
    used = [m for k, m in enumerate(mixture.models) if mixture.weights[k]]
    fits = sum(_SEARCHES if is_wave(m) else 1.0 for m in used)
    return max(2, int(c.work / (fits * float(min(rows, FitConfig.exact_rows)) ** 2.5)))


def _step(c: EvidenceConfig, rows: int) -> float:
    """The factor of the extrapolation: the step to all rows relative to the step from few folds to many."""
    many, few = min(MANY_FOLDS, rows), min(_FEW_FOLDS, rows)
    return (1 / many) / (1 / few - 1 / many) if few < many else 0.0


def _together(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The predictions of all folds, in the order of the table's rows."""
    order = np.argsort(np.concatenate([part["rows"] for part in parts]))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


def _unused(mixture: Mixture, rows: int, c: EvidenceConfig) -> NDArray[np.intp] | None:
    """Some of the rows that determined neither parameters nor weights; None if all rows did, or if it is not known."""
    used = [m for k, m in enumerate(mixture.models) if mixture.weights[k]]
    if any(m.training.inducing is None or m.fitted.places_at_fit is None or m.rows != rows for m in used):
        return None
    seen = np.concatenate([m.fitted.places_at_fit.numpy() for m in used if m.fitted.places_at_fit is not None])
    others = np.setdiff1d(np.arange(rows), seen)
    order = np.random.default_rng([c.folds.seed, rows]).permutation(others)
    chosen = order[: min(_UNUSED_ROWS, int(_UNUSED_SHARE * rows))]
    return np.sort(chosen) if len(chosen) else None


def _judge_unused(mixture: Mixture, table: Table, test: NDArray[np.intp], c: FoldsConfig) -> dict[str, NDArray[Any]]:
    """The entries of `Evidence` for rows that determined neither parameters nor weights."""
    rows = table.at(np.setdiff1d(np.arange(len(table.y)), test))
    models = [without_rows(m, test) if mixture.weights[k] else m for k, m in enumerate(mixture.models)]
    known = _plain(mixture)
    plain = Fitter(rows, prior=prior_of(True), random_state=c.seed).fit(PLAIN) if known is None else models[known]
    plain = (
        plain if plain.rows == len(rows.y) else replace(plain, found_noise=FoundNoise(None))
    )  # constant: none is fitted
    return _entries(replace(mixture, models=tuple(models)), on_these_rows(plain, rows, c), table, rows, test)


def _judge(
    mixture: Mixture,
    table: Table,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    c: FoldsConfig,
) -> dict[str, NDArray[Any]]:
    """The entries of `Evidence` for the rows of one fold, by models that are fitted again to the others."""
    rows = table.at(train)
    guesses_of = Fitter(rows, random_state=c.seed)
    used = {k: m for k, m in enumerate(mixture.models) if mixture.weights[k]}
    again = {k: refitted(m, rows, c, not is_wave(m), guesses_of=guesses_of) for k, m in used.items()}
    averaged = _averaged(mixture, again, rows, c)
    known = _plain(mixture)
    if known in again:
        plain = averaged.models[list(again).index(known)]
    elif known is not None:
        plain = on_these_rows(refitted(mixture.models[known], rows, c), rows, c)
    else:
        plain = Fitter(rows, prior=prior_of(True), random_state=c.seed, guesses_of=guesses_of).fit(PLAIN)
    return _entries(averaged, plain, table, rows, test)


def _plain(mixture: Mixture) -> int | None:
    """The position of the plain kernel, if it is among the models of a mixture."""
    return next((k for k, m in enumerate(mixture.models) if m.fitted.is_plain and m.expression == PLAIN), None)


def _entries(mixture: Mixture, plain: GP, table: Table, rows: Table, test: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
    """The entries of `Evidence` for rows at some places, by a mixture and a plain GP that are conditioned on the others."""
    left_out = table.at(test)
    s, u = table.standardiser, left_out.y.numpy()
    raw = left_out.X.numpy() if s is None else s.inverse_x(left_out.X.numpy())
    observed = u if s is None else s.inverse_mean(u)
    predictive = mixture.predictive_at(mixture.models[0].inputs(raw), rows=left_out)
    mean, std = mixture.moments_of(predictive)
    centre, spread = rows.y.mean().numpy(), rows.y.var(correction=0).clamp_min(_LEAST_VARIANCE).numpy()
    offset = 0.0 if s is None else s.log_density_offset
    return {
        "rows": test,
        "observed": observed,
        "mean": mean,
        "std": std,
        "pit": predictive.cdf(u[:, None])[:, 0],
        "log_density": predictive.log_density(u) + offset,
        "plain": with_tail(plain.log_density(raw, observed, left_out.noise) - offset, u) + offset,
        "no_signal": normal_log_density(u, centre, spread) + offset,
    }


def _averaged(mixture: Mixture, again: Mapping[int, GP], rows: Table, c: FoldsConfig) -> Mixture:
    """The mixture of refitted models, with new weights if they were stacked, conditioned on all of these rows."""
    models = tuple(again.values())
    new = Mixture(models, *stack(models)) if mixture.tail.weight else Mixture.of(models, mixture.weights[list(again)])
    return (
        new if models[0].rows == len(rows.y) else replace(new, models=tuple(on_these_rows(m, rows, c) for m in models))
    )


def with_tail(log_density: FloatArray, u: FloatArray) -> FloatArray:
    """Log densities with the smallest tail that a mixture has, so that a single row does not decide a comparison."""
    tail = Tail(MIN_TAIL)
    return np.logaddexp(math.log1p(-tail.weight) + log_density, math.log(tail.weight) + tail.log_density(u))
