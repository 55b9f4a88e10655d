"""What a fit maximises: the table, the settings, and the log marginal likelihood with its gradient and its curvature."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from kitt.data import Dataset, Standardiser
from kitt.errors import FitError, InvalidInputError
from kitt.gp import Likelihood, cholesky, fisher_information
from kitt.grammar import Expression
from kitt.kernels import Kernel
from kitt.priors import Parameter, preset
from kitt.starts import FlatPrior

DENSE = 500  # parameters, at most, whose curvature is a matrix
_FISHER_ROWS = 64  # from which it is estimated
_BATCH = 64  # likelihoods at a time
_STEP, _LEAST = 1e-4, 0.1  # of differences of the prior's score; curvature of any parameter

# Raw parameters stay in this box, beyond which nothing changes but rounding.
BOX: dict[Parameter, tuple[float, float]] = {
    Parameter.LENGTHSCALE: (-7.0, 9.0),
    Parameter.PERIOD: (-6.0, 6.0),
    Parameter.FREQUENCY: (-100.0, 100.0),
    Parameter.VARIANCE: (-14.0, 12.0),
    Parameter.SLOPE: (-16.0, 12.0),
    Parameter.SHIFT: (-100.0, 100.0),
    Parameter.NOISE: (-18.0, 5.0),
}


@dataclass(frozen=True)
class FitConfig:
    """How to fit. The defaults were measured on the UCI tables."""

    objective: Literal["map", "ml"] = "map"
    prior: str = "default"
    method: Literal["bfgs", "l-bfgs"] = "bfgs"
    draws: int = 150  # from the prior, beside the guesses; the paper's 1000 find a better optimum now and then
    starts: int = 6  # optimised on some of the rows
    coarse_rows: int = 300
    finished: int = 1  # optimised on all rows
    max_iterations: int = 200
    tolerance: float = 0.01  # nats; stop when a few iterations gain less
    deadline: float | None = None  # seconds for each fit
    exact_rows: int = 3000  # above, hyperparameters from a subset and a sparse posterior
    subset_rows: int = 1200
    inducing: int = 600

    def __post_init__(self) -> None:
        preset(self.prior)
        for name, value, allowed in (
            ("objective", self.objective, ("map", "ml")),
            ("method", self.method, ("bfgs", "l-bfgs")),
        ):
            if value not in allowed:
                raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        counts = ("starts", "coarse_rows", "finished", "max_iterations", "exact_rows", "subset_rows", "inducing")
        for name in (*counts, "tolerance"):
            if not getattr(self, name) > 0:
                raise InvalidInputError(f"{name} must be positive, got {getattr(self, name)}")
        if self.draws < 0 or (self.deadline is not None and not self.deadline > 0):
            raise InvalidInputError("draws must not be negative, and a deadline must be a positive number of seconds")

    @classmethod
    def of(cls, config: FitConfig | None, options: dict[str, Any]) -> FitConfig:
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in options if name not in known]:
            raise InvalidInputError(f"no fit option is called {', '.join(unknown)}; the options are {', '.join(known)}")
        return replace(config or cls(), **options)


@dataclass(frozen=True)
class Table:
    """Standardised data as tensors, and what they were."""

    X: Tensor
    y: Tensor
    shortest: Tensor  # (D,) period of each column of the whole table: two steps between its levels, on average
    columns: tuple[str, ...]
    target: str = "y"
    standardiser: Standardiser | None = None

    @classmethod
    def of(cls, data: Dataset | Table | tuple[ArrayLike, ArrayLike]) -> Table:
        """A Dataset is standardised here; a pair (X, y) of arrays is taken as it is."""
        if isinstance(data, Table):
            return data
        if isinstance(data, Dataset):
            s = Standardiser.fit(data.X, data.y)
            X, y = torch.tensor(s.transform_x(data.X)), torch.tensor(s.transform_y(data.y))
            return cls(X, y, _shortest(X), tuple(data.names), data.target, s)
        X, y = (torch.as_tensor(np.array(part, dtype=np.float64)) for part in data)
        if X.dim() != 2 or y.shape != X.shape[:1] or not (torch.isfinite(X).all() and torch.isfinite(y).all()):
            raise InvalidInputError(f"expected finite X (N, D) and y (N,), got {tuple(X.shape)} and {tuple(y.shape)}")
        return cls(X, y, _shortest(X), tuple(f"x{d + 1}" for d in range(X.shape[1])))

    def rows(self, count: int, generator: torch.Generator) -> Table:
        """A random subset, or everything if it is not larger."""
        if len(self.y) <= count:
            return self
        index = torch.randperm(len(self.y), generator=generator)[:count]
        return replace(self, X=self.X[index], y=self.y[index])


def _shortest(X: Tensor) -> Tensor:
    steps = torch.tensor([max(len(column.unique()) - 1, 1) for column in X.mT], dtype=X.dtype)
    return 2 * (X.amax(0) - X.amin(0)).clamp_min(1e-6) / steps


class DeadlineError(Exception):
    """A budget is spent."""


@dataclass
class Budget:
    """Time left, and likelihoods evaluated so far."""

    end: float = math.inf
    evaluations: int = 0

    def spend(self) -> None:
        if self.spent:
            raise DeadlineError
        self.evaluations += 1

    @property
    def spent(self) -> bool:
        return time.monotonic() > self.end


class Objective:
    """Log marginal likelihood, with the log prior density added for MAP: to be maximised."""

    def __init__(self, expression: Expression, table: Table, config: FitConfig) -> None:
        self.kernel, self.table = Kernel(expression, table.X.shape[1]), table
        self.likelihood = Likelihood(self.kernel, table.X, table.y)
        self.prior = FlatPrior.of(preset(config.prior), self.kernel)
        self.uses_prior = config.objective == "map"
        bounds = [BOX[s.parameter] for s in self.kernel.slots for _ in range(s.size)]
        self.low, self.high = torch.tensor(bounds, dtype=torch.float64).unbind(1)
        for slot in (s for s in self.kernel.slots if s.parameter is Parameter.PERIOD):  # none between the levels
            self.low[slot.slice] = table.shortest.log().clamp(*BOX[Parameter.PERIOD])

    def clamp(self, theta: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(theta, self.low), self.high)

    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self.likelihood.value_and_gradient(theta)
        if self.uses_prior:
            value, gradient = value + self.prior.log_density(theta), gradient + self.prior.score(theta)
        return value, gradient

    def inverse_curvature(self, theta: Tensor) -> Tensor:
        """About the inverse Hessian (P, P): the Fisher information of some of the rows, scaled to all, and the prior's.

        The prior's alone where parameters are very many.
        """
        X = self.table.X
        bend = self.prior.score(theta - _STEP) - self.prior.score(theta + _STEP)
        information = torch.diag((bend / (2 * _STEP)).clamp_min(0) + _LEAST)
        if len(theta) > DENSE:
            return information.inverse()
        some = X[torch.linspace(0, len(X) - 1, min(len(X), _FISHER_ROWS)).long()]
        information += fisher_information(self.kernel, theta, some) * (len(X) / len(some))
        scale = torch.diagonal(information).rsqrt()
        correlation = information * torch.outer(scale, scale)
        return torch.cholesky_inverse(cholesky(correlation, "the parameters")) * torch.outer(scale, scale)

    def scores(self, thetas: Tensor, budget: Budget) -> Tensor:
        """Values (S,) of many starts; minus infinity where there is none."""
        scores: list[Tensor] = []
        for part in thetas.split(_BATCH):
            if budget.spent and scores:  # guesses come before draws: those are always scored
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
        """Values (S,) and gradients (S, P) of many points; minus infinity and zero where there are none."""
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
        return Likelihood(self.kernel, X.expand(count, *X.shape), y.expand(count, -1))
