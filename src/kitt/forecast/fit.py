"""One candidate fitted to a series: MAP with priors of its own and some parameters held, from one start.

A series has one column and few values, its periods are known, and good starting values too: a fit takes a few dozen
likelihoods, without any search.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kitt.fitting.config import Budget, FitConfig
from kitt.fitting.fitted import FittedGP
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import maximise
from kitt.fitting.starts import FlatPrior
from kitt.fitting.table import Table
from kitt.forecast.candidates import Candidate, Layout
from kitt.language.fitted_kernel import FittedKernel
from kitt.table.scaling import FloatArray, Warp, centre_and_scale

FIT = FitConfig(tolerance=0.1, max_iterations=40)  # the first 80 % of the series of `kitt bench atlas --kind series`


class HeldObjective(Objective):
    """Log posterior with the priors of a layout, in which held parameters do not move."""

    def __init__(self, layout: Layout, table: Table) -> None:
        super().__init__(layout.kernel.expression, table, FIT)
        self.prior = FlatPrior(layout.priors)
        fixed = torch.from_numpy(layout.fixed)
        self.is_held = ~torch.isnan(fixed)
        self.low = torch.where(self.is_held, fixed, self.low)
        self.high = torch.where(self.is_held, fixed, self.high)

    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = super().value_and_gradient(theta)
        return value, gradient.masked_fill(self.is_held, 0.0)

    def inverse_curvature(self, theta: Tensor) -> Tensor:
        H = super().inverse_curvature(theta)
        return H.masked_fill(self.is_held[:, None] | self.is_held, 0.0) + torch.diag(self.is_held.to(H))


@dataclass(frozen=True, eq=False)
class Fit:
    """A candidate with its Gaussian process."""

    candidate: Candidate
    layout: Layout
    model: FittedGP
    theta: Tensor  # the parameters, to start other fits from

    @property
    def evidence(self) -> float:
        """Log marginal likelihood minus the BIC penalty of the fitted parameters."""
        return self.model.log_marginal_likelihood - 0.5 * self.layout.free * float(np.log(self.model.rows))


def fit(candidate: Candidate, layout: Layout, table: Table, start: Tensor | None = None) -> Fit:
    """Fit a candidate to a standardised table, transformed already where it is of the logarithm."""
    began, budget = time.monotonic(), Budget()
    objective = HeldObjective(layout, table)
    first = torch.from_numpy(layout.start) if start is None else start
    found = maximise(objective, objective.clamp(first), FIT.max_iterations, FIT.tolerance, budget)
    kernel = FittedKernel.from_theta(
        layout.kernel.expression, found.theta, table.columns, table.target, table.standardiser
    )
    model = FittedGP(
        fitted_kernel=kernel,
        X=table.X,
        y=table.y,
        inducing=None,
        log_prior=float(objective.prior.log_density(found.theta)),
        gradient_norm=float(found.gradient.abs().max()),
        evaluations=budget.evaluations,
        seconds=time.monotonic() - began,
        converged=found.converged,
        warp=table.warp,
    )
    _ = model.posterior  # a kernel without one cannot be used
    return Fit(candidate, layout, model, found.theta)


def conditioned(fit: Fit, table: Table) -> Fit:
    """The same parameters given other rows of the same scale, with the target as it is or transformed."""
    y = torch.from_numpy(fit.model.warp.forward(table.y.numpy()))
    return replace(fit, model=replace(fit.model, X=table.X, y=y))


def log_warp(u: FloatArray, zero: float, reach: float = 20.0) -> Warp:
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
