"""One structure is fitted to a series: maximum a posteriori with priors of its own, some parameters held, from one start.

A series has few values, its periods are known, and good starting values too: Newton's method with the average information
as curvature needs half a dozen likelihoods, without any search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import FitError
from kitt.fitting.fitted import Fitted, TrainingRows
from kitt.fitting.gp import GP
from kitt.fitting.starts import FlatPrior
from kitt.forecasting.structures import Layout, Structure
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.lags import Evaluation, LagLikelihood
from kitt.table.scaling import FloatArray, Warp, centre_and_scale
from kitt.table.table import Table
from kitt.threads import threads_for

# How far a fit goes; set by hand, compared with longer fits on the simulated series of `kitt_lab.bench.many_series`.
_TOLERANCE = 0.05  # nats that another step is expected to gain, below which a fit ends
_MAX_EVALUATIONS = 40
_MIN_CURVATURE = 0.1  # the least curvature of the prior of a parameter
_LONGEST_STEP = 2.0  # the most that a step changes an unconstrained parameter
_LEAST_DAMPING = 0.01  # damping of Levenberg and Marquardt, in units of the curvature
_LEAST_AFTER_FAILURE = 0.5  # the least damping after a step that gained too little
_DAMPING_FACTOR = 4.0  # the damping is multiplied or divided by this
# A step that gains less than the first of these shares of what was expected is damped more next time, one that gains
# more than the second is damped less.
_GAIN_SHARES = (0.1, 0.5)


class LogPosterior:
    """The log posterior of the free parameters of a layout, with gradient and curvature."""

    def __init__(self, layout: Layout, table: Table) -> None:
        held = torch.from_numpy(layout.fixed)
        self.is_free = torch.isnan(held)
        self.likelihood = LagLikelihood(layout.kernel, table.X, table.y, layout.of_time, held)
        self.prior = FlatPrior(layout.priors)
        self.evaluations = 0

    def evaluate(self, theta: Tensor) -> Evaluation:
        self.evaluations += 1
        likelihood = self.likelihood.evaluate(theta)
        score, bend = (values[self.is_free] for values in self.prior.score_and_curvature(theta))
        bend = bend.clamp_min(_MIN_CURVATURE)  # a Cauchy prior has none far from its middle
        return Evaluation(
            likelihood.value + float(self.prior.log_density(theta)),
            likelihood.gradient + score.numpy(),
            likelihood.curvature + np.diag(bend.numpy()),
        )


@dataclass(frozen=True, eq=False)
class Fit:
    """A structure with its fitted Gaussian process."""

    structure: Structure
    layout: Layout
    gp: GP
    theta: Tensor  # the parameters, to start other fits from

    @property
    def evidence(self) -> float:
        """Log marginal likelihood minus the BIC penalty of the fitted parameters."""
        return self.gp.log_marginal_likelihood - 0.5 * self.layout.free * float(np.log(self.gp.rows))


def fit_structure(structure: Structure, layout: Layout, table: Table, start: Tensor | None = None) -> Fit:
    """Fit a structure to a standardised table, whose target is transformed already if the structure is of the logarithm."""
    began = Clock.unlimited()
    posterior = LogPosterior(layout, table)
    with threads_for(len(table.y)):
        theta, gradient, converged = _maximise(posterior, torch.from_numpy(layout.start) if start is None else start)
    kernel = FittedKernel.from_theta(layout.kernel.expression, theta, table.columns, table.target, table.standardiser)
    fitted = Fitted(
        kernel,
        table.warp,
        log_prior=float(posterior.prior.log_density(theta)),
        gradient_norm=float(np.abs(gradient).max()),
        evaluations=posterior.evaluations,
        seconds=began.spent,
        converged=converged,
    )
    return Fit(structure, layout, GP(fitted, TrainingRows.conditioned(kernel, table)), theta)


def _maximise(
    posterior: LogPosterior, theta: Tensor, tolerance: float = _TOLERANCE, max_evaluations: int = _MAX_EVALUATIONS
) -> tuple[Tensor, FloatArray, bool]:
    """Parameters, gradient, and whether it converged: Newton's method with Levenberg and Marquardt's damping."""
    here, damping, (little, much) = posterior.evaluate(theta), _LEAST_DAMPING, _GAIN_SHARES
    while posterior.evaluations < max_evaluations:
        step = np.linalg.solve(here.curvature + damping * np.diag(np.diag(here.curvature)), here.gradient)
        if 0.5 * step @ here.gradient < tolerance:
            return theta, here.gradient, True
        step *= min(1.0, _LONGEST_STEP / np.abs(step).max())
        expected = step @ here.gradient - 0.5 * step @ here.curvature @ step
        trial = theta.masked_scatter(posterior.is_free, theta[posterior.is_free] + torch.from_numpy(step))
        try:
            there = posterior.evaluate(trial)
        except FitError:
            there = replace(here, value=-np.inf)
        gain = there.value - here.value
        if gain > 0:
            theta, here = trial, there
        if gain < little * expected:
            damping = max(_DAMPING_FACTOR * damping, _LEAST_AFTER_FAILURE)
        elif gain > much * expected:
            damping = max(damping / _DAMPING_FACTOR, _LEAST_DAMPING)
    return theta, here.gradient, False


def with_rows(fit: Fit, table: Table) -> Fit:
    """The fit with its parameters as they are, conditioned on other rows of a table with the same scale."""
    y = torch.from_numpy(fit.gp.warp.forward(table.y.numpy()))
    return replace(fit, gp=GP(fit.gp.fitted, TrainingRows(table.X, y)))


def log_warp(u: FloatArray, zero: float, reach: float) -> Warp:
    """The logarithm of a positive target, whose zero lies at `zero` on the standardised scale.

    `reach` is how many ranges of the past above its largest value a forecast may rise.
    """
    unit = float(np.median(u - zero))
    high = float(u.max() + reach * (u.max() - u.min()))
    raw = Warp("log", zero, unit, 0.0, low=zero, high=high)
    mean, scale = centre_and_scale(raw.forward(u))
    return replace(raw, mean=float(mean), scale=float(scale))


def transformed(table: Table, warp: Warp) -> Table:
    """The table with its target transformed."""
    return replace(table, y=torch.from_numpy(warp.forward(table.y.numpy())), warp=warp)
