"""`rbf-ard`, `matern52-ard` and similar ones: one kernel for every table; and RBF with three noise models.

The paper's baseline is RBF-ARD with its own priors; `-botorch` is what a user of BoTorch gets, with lengthscale priors that
grow with the number of columns. Both are fitted as KITT's kernels are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import InvalidInputError
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import fit
from kitt.fitting.gp import GP
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import CoarseSolutions, maximise
from kitt.fitting.starts import extended
from kitt.kernels.exact import ExactPosterior
from kitt.kernels.grammar import Expression, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import Parameter
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt.table.table import Table
from kitt_lab.baselines.base import FittedMethod, GaussianPredictive


@dataclass(frozen=True)
class FixedKernel:
    """One expression for every table."""

    expression: str = "RBF"
    prior: str = "paper"
    objective: Literal["map", "ml"] = "map"
    deadline: float | None = None

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        config = FitConfig(prior=self.prior, objective=self.objective)
        gp = fit(self.expression, train, config=config, random_state=random_state, deadline=self.deadline)
        return fitted_method(gp, train)


def fitted_method(model: GP, train: Dataset, select_seconds: float = 0.0) -> FittedMethod:
    details = {
        "lml": model.log_marginal_likelihood,
        "bic": model.bic,
        "converged": model.converged,
        "evaluations": model.fitted.evaluations,
        "warnings": list(model.warnings),
    }
    return FittedMethod(model, train.d, str(model.expression), select_seconds, model.fitted.seconds, details)


def predictive_of(kernel: Kernel, theta: Tensor, table: Table) -> GaussianPredictive:
    """A kernel with its parameters, given all rows of a table."""
    posterior = ExactPosterior.fit(kernel, theta, table.X, table.y)
    assert table.standardiser is not None

    def moments(Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, variance = posterior.predict(torch.from_numpy(Z))
        return mean.numpy(), variance.numpy()

    return GaussianPredictive(table.standardiser, moments)


# --- noise that depends on the inputs (paper, Heteroscedastic noise) -------------------------------------------------

Noise = Literal["constant", "linear", "shifted"]
_HETEROSCEDASTIC = parse("RBF + Linear*White")


@dataclass(frozen=True)
class NoiseModel:
    """RBF-ARD with constant noise, with Linear*White through the middle of the table, or with Linear*White."""

    noise: Noise = "shifted"
    prior: str = "default"
    objective: Literal["map", "ml"] = "map"

    def __post_init__(self) -> None:
        if self.noise not in ("constant", "linear", "shifted"):
            raise InvalidInputError(f"noise must be constant, linear or shifted, got '{self.noise}'")

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        config = FitConfig(prior=self.prior, objective=self.objective)
        if self.noise == "linear":
            return _fit_unshifted(train, config, random_state)
        expression = Expression(_HETEROSCEDASTIC.words[:1]) if self.noise == "constant" else _HETEROSCEDASTIC
        return fitted_method(fit(expression, train, config=config, random_state=random_state), train)


class _Unshifted(Objective):
    """Every shift of a Linear is held at zero."""

    def __init__(self, expression: Expression, table: Table, config: FitConfig) -> None:
        super().__init__(expression, table, config)
        for slot in self.kernel.slots:
            if slot.parameter is Parameter.SHIFT:
                self.low[slot.slice] = self.high[slot.slice] = 0.0


def _fit_unshifted(train: Dataset, config: FitConfig, seed: int) -> FittedMethod:
    """A fit as in `fit`: the changing noise starts from the fit without it, first on some rows, then on all."""
    started, table, clock = time.perf_counter(), Table.of(train), Clock.unlimited()
    coarse_fits = CoarseSolutions(table, config, seed)
    plain, few = Expression(_HETEROSCEDASTIC.words[:1]), coarse_fits.table
    head = coarse_fits.solutions(plain.words, clock)[0].theta
    posterior = ExactPosterior.fit(Kernel(plain, train.d), head, few.X, few.y)
    residual = few.y - posterior.leave_one_out().mean
    noise, profile = _HETEROSCEDASTIC.words[1], coarse_fits.profile(clock)
    coarse = _Unshifted(_HETEROSCEDASTIC, few, config)
    starts = coarse.clamp(extended(head, noise, profile, residual, coarse_fits.generator("noise")))
    ranked = starts[coarse.scores(starts, clock).argsort(descending=True)]
    tried = [maximise(coarse, start, 40, 10 * config.tolerance, clock) for start in ranked[: config.starts]]
    fine = _Unshifted(_HETEROSCEDASTIC, table, config)
    best = maximise(
        fine, max(tried, key=lambda s: s.value).theta, config.max_iterations, config.tolerance, clock, config.method
    )
    details = {"lml": float(fine.likelihood.value(best.theta)), "converged": best.converged}
    predictive = predictive_of(fine.kernel, best.theta, table)
    return FittedMethod(
        predictive, train.d, "RBF + Linear*White, unshifted", 0.0, time.perf_counter() - started, details
    )
