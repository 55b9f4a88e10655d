"""One candidate fitted to a series: MAP with priors of its own and some parameters held, from one start.

A series has few values, its periods are known, and good starting values too: Newton's method with the average information
as curvature needs half a dozen likelihoods, without any search.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kitt.errors import FitError
from kitt.fitting.gp import GP
from kitt.fitting.starts import FlatPrior
from kitt.forecasting.candidates import Candidate, Layout
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.lags import Evaluation, LagLikelihood
from kitt.table.scaling import FloatArray, Warp, centre_and_scale
from kitt.table.table import Table
from kitt.threads import threads_for


@dataclass(frozen=True)
class NewtonConfig:
    """How far a fit goes; set by hand, compared with longer fits on the simulated series of `kitt_lab.bench.many_series`."""

    tolerance: float = 0.05  # nats that another step is expected to gain, below which a fit ends
    max_evaluations: int = 40
    min_curvature: float = 0.1  # of the prior of a parameter
    longest_step: float = 2.0  # of any unconstrained parameter
    least_damping: float = 0.01  # Levenberg and Marquardt's, in units of the curvature
    least_after_failure: float = 0.5  # the same after a step that gained too little
    damping_factor: float = 4.0
    # A step that gains less than the first of these shares of what was expected is damped more next time, one that gains
    # more than the second is damped less.
    gain_shares: tuple[float, float] = (0.1, 0.5)


NEWTON = NewtonConfig()


class LogPosterior:
    """Of the free parameters of a layout: likelihood and priors, with gradient and curvature."""

    def __init__(self, layout: Layout, table: Table) -> None:
        held = torch.from_numpy(layout.fixed)
        self.is_free = torch.isnan(held)
        self.likelihood = LagLikelihood(layout.kernel, table.X, table.y, layout.of_time, held)
        self.prior = FlatPrior(layout.priors)
        self.evaluations = 0

    def evaluate(self, theta: Tensor) -> Evaluation:
        self.evaluations += 1
        found = self.likelihood.evaluate(theta)
        score, bend = (values[self.is_free] for values in self.prior.score_and_curvature(theta))
        bend = bend.clamp_min(NEWTON.min_curvature)  # a Cauchy prior has none far from its middle
        return Evaluation(
            found.value + float(self.prior.log_density(theta)),
            found.gradient + score.numpy(),
            found.curvature + np.diag(bend.numpy()),
        )


@dataclass(frozen=True, eq=False)
class Fit:
    """A candidate with its Gaussian process."""

    candidate: Candidate
    layout: Layout
    model: GP
    theta: Tensor  # the parameters, to start other fits from

    @property
    def evidence(self) -> float:
        """Log marginal likelihood minus the BIC penalty of the fitted parameters."""
        return self.model.log_marginal_likelihood - 0.5 * self.layout.free * float(np.log(self.model.rows))


def fit(candidate: Candidate, layout: Layout, table: Table, start: Tensor | None = None) -> Fit:
    """Fit a candidate to a standardised table, transformed already where it is of the logarithm."""
    began = time.monotonic()
    posterior = LogPosterior(layout, table)
    with threads_for(len(table.y)):
        theta, gradient, converged = _maximise(posterior, torch.from_numpy(layout.start) if start is None else start)
    kernel = FittedKernel.from_theta(layout.kernel.expression, theta, table.columns, table.target, table.standardiser)
    model = GP(
        fitted_kernel=kernel,
        X=table.X,
        y=table.y,
        inducing=None,
        log_prior=float(posterior.prior.log_density(theta)),
        gradient_norm=float(np.abs(gradient).max()),
        evaluations=posterior.evaluations,
        seconds=time.monotonic() - began,
        converged=converged,
        warp=table.warp,
    )
    _ = model.posterior  # a kernel without one cannot be used
    return Fit(candidate, layout, model, theta)


def _maximise(posterior: LogPosterior, theta: Tensor, config: NewtonConfig = NEWTON) -> tuple[Tensor, FloatArray, bool]:
    """Parameters, gradient, and whether it converged: Newton's method with Levenberg and Marquardt's damping."""
    here, damping, (little, much) = posterior.evaluate(theta), config.least_damping, config.gain_shares
    while posterior.evaluations < config.max_evaluations:
        step = np.linalg.solve(here.curvature + damping * np.diag(np.diag(here.curvature)), here.gradient)
        if 0.5 * step @ here.gradient < config.tolerance:
            return theta, here.gradient, True
        step *= min(1.0, config.longest_step / np.abs(step).max())
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
            damping = max(config.damping_factor * damping, config.least_after_failure)
        elif gain > much * expected:
            damping = max(damping / config.damping_factor, config.least_damping)
    return theta, here.gradient, False


def conditioned(fit: Fit, table: Table) -> Fit:
    """The same parameters given other rows of the same scale, with the target as it is or transformed."""
    y = torch.from_numpy(fit.model.warp.forward(table.y.numpy()))
    return replace(fit, model=replace(fit.model, X=table.X, y=y))


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
    return replace(table, y=torch.from_numpy(warp.forward(table.y.numpy())), warp=warp)
