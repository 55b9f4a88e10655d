"""What a fit maximises: the log marginal likelihood, or posterior, with its gradient and its curvature."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import FitError
from kitt.fitting.config import FitConfig
from kitt.fitting.starts import FlatPrior
from kitt.kernels.exact import Likelihood, at, cholesky, fisher_information
from kitt.kernels.grammar import Expression
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import Parameter, preset
from kitt.table.table import Table

DENSE_PARAMETERS = 500  # with more parameters, L-BFGS-B is used instead of BFGS; set by hand
_FISHER_ROWS = 64  # rows from which the Hessian that BFGS starts from is estimated: `kitt bench fit`
_MIN_CURVATURE = 0.1  # smallest curvature of any parameter: `kitt bench fit`
_BATCH = 64  # about the largest number of likelihoods that are computed in one batch, and
_ENTRIES = 2**18  # of the entries of their covariances: 2 MB, which allocators keep and caches hold

# Unconstrained parameters stay in this box; outside it only rounding errors would change.
BOX: dict[Parameter, tuple[float, float]] = {
    Parameter.LENGTHSCALE: (-7.0, 9.0),
    Parameter.PERIOD: (-6.0, 6.0),
    Parameter.FREQUENCY: (-100.0, 100.0),
    Parameter.VARIANCE: (-14.0, 12.0),
    Parameter.SLOPE: (-16.0, 12.0),
    Parameter.SHIFT: (-100.0, 100.0),
    Parameter.AMPLITUDE: (-20.0, 12.0),
    Parameter.OFFSET: (-20.0, 12.0),
    Parameter.PAIRS: (-20.0, 12.0),
    Parameter.JOINT: (-20.0, 12.0),
    Parameter.NOISE: (-30.0, 5.0),
}


class Objective:
    """Log marginal likelihood, with the log prior density added for MAP: to be maximised."""

    def __init__(self, expression: Expression, table: Table, config: FitConfig) -> None:
        self.config = config
        self.kernel, self.table = Kernel(expression, table.X.shape[1]), table
        self.likelihood = Likelihood(self.kernel, table.X, table.y, table.noise)
        chosen = preset(config.prior)
        self.prior = FlatPrior.of(chosen if table.noise is None else chosen.with_known_noise(), self.kernel)
        self.uses_prior = config.objective == "map"
        bounds = [BOX[s.parameter] for s in self.kernel.slots for _ in range(s.size)]
        self.low, self.high = torch.tensor(bounds, dtype=torch.float64).unbind(1)
        for slot in (s for s in self.kernel.slots if s.parameter is Parameter.PERIOD):  # none between the levels
            self.low[slot.slice] = table.shortest[list(slot.columns)].log().clamp(*BOX[Parameter.PERIOD])

    def clamp(self, theta: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(theta, self.low), self.high)

    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self.likelihood.value_and_gradient(theta)
        if self.uses_prior:
            value, gradient = value + self.prior.log_density(theta), gradient + self.prior.score(theta)
        return value, gradient

    def information(self, theta: Tensor, rows: int) -> Tensor:
        """The information (P, P) on the parameters in a number of rows like these, estimated from some, and in the prior.

        With very many parameters it is that in the prior alone.
        """
        information = torch.diag(self._prior_information(theta) + _MIN_CURVATURE)
        return information if len(theta) > DENSE_PARAMETERS else information + self._information_of(theta, rows)

    def _prior_information(self, theta: Tensor) -> Tensor:
        """The information (P,) on each parameter in the prior."""
        return self.prior.score_and_curvature(theta)[1].clamp_min(0)

    def _information_of(self, theta: Tensor, rows: int) -> Tensor:
        """The Fisher information (P, P) in a number of rows like these, estimated from some."""
        X = self.table.X
        some = torch.linspace(0, len(X) - 1, min(len(X), _FISHER_ROWS)).long()
        return fisher_information(self.kernel, theta, X[some], at(self.table.noise, some)) * (rows / len(some))

    def free_parameters(self, theta: Tensor) -> float:
        """How many of the parameters the rows determine, and not the prior: tr F (F + P)⁻¹, F and P the information in each.

        Without a prior, and with very many parameters, all of them.
        """
        if not self.uses_prior or len(theta) > DENSE_PARAMETERS:
            return float(len(theta))
        rows = self._information_of(theta, len(self.table.y))
        prior = torch.diag(self._prior_information(theta) + _MIN_CURVATURE)
        return float(torch.linalg.solve(rows + prior, rows).trace())

    def inverse_curvature(self, theta: Tensor) -> Tensor:
        """An approximate inverse Hessian (P, P)."""
        information = self.information(theta, len(self.table.y))
        scale = torch.diagonal(information).rsqrt()
        correlation = information * torch.outer(scale, scale)
        return torch.cholesky_inverse(cholesky(correlation, "the parameters")) * torch.outer(scale, scale)

    def log_evidence(self, theta: Tensor, value: float, rows: int) -> float:
        """Laplace's approximation of the log evidence of a number of rows like these, given the log posterior of these rows.

        A parameter that only its prior determines costs almost nothing, or, with a Cauchy prior, half a nat. With very many
        parameters, each costs as much as in BIC.
        """
        log_prior = float(self.prior.log_density(theta))
        likelihood = value - log_prior if self.uses_prior else value
        if len(theta) > DENSE_PARAMETERS:
            volume = -0.5 * len(theta) * math.log(rows)
        else:
            information = self.information(theta, rows)
            volume = 0.5 * (len(theta) * math.log(2 * math.pi) - float(torch.logdet(information)))
        return likelihood * rows / len(self.table.y) + log_prior + volume

    def scores(self, thetas: Tensor, clock: Clock) -> Tensor:
        """Values (S,) of many starts; minus infinity where the likelihood cannot be computed."""
        scores: list[Tensor] = []
        size = max(2, min(_BATCH, _ENTRIES // len(self.table.y) ** 2))  # a batch of one rounds differently
        for part in thetas.tensor_split(max(1, len(thetas) // size)):
            if clock.is_over and scores:  # the first batch, of guesses, is always scored
                part = part[:0]
            scores.append(self._likelihoods(part))
        value = torch.cat(scores)
        value = torch.cat([value, value.new_full((len(thetas) - len(value),), -math.inf)])
        return value + self.prior.log_density(thetas) if self.uses_prior else value

    def _likelihoods(self, thetas: Tensor) -> Tensor:
        try:
            return self._batched(len(thetas)).value(thetas)
        except FitError:
            if len(thetas) == 1:
                return thetas.new_full((1,), -math.inf)
            return torch.cat([self._likelihoods(half) for half in thetas.split((len(thetas) + 1) // 2)])

    def batch(self, thetas: Tensor) -> tuple[Tensor, Tensor]:
        """Values (S,) and gradients (S, P) of many points; minus infinity and zero where they cannot be computed."""
        try:
            value, gradient = self._batched(len(thetas)).value_and_gradient(thetas)
        except FitError:
            if len(thetas) == 1:
                return thetas.new_full((1,), -math.inf), torch.zeros_like(thetas)
            halves = [self.batch(half) for half in thetas.split((len(thetas) + 1) // 2)]
            return torch.cat([value for value, _ in halves]), torch.cat([gradient for _, gradient in halves])
        if self.uses_prior:
            value, gradient = value + self.prior.log_density(thetas), gradient + self.prior.score(thetas)
        return value, gradient

    def _batched(self, count: int) -> Likelihood:
        X, y = self.table.X, self.table.y
        return Likelihood(self.kernel, X.expand(count, *X.shape), y.expand(count, -1), self.table.noise)
