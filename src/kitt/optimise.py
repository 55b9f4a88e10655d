"""The parameters that fit best: type-II maximum likelihood or MAP, coarse to fine, from many starts.

Draws and guesses (`starts`) are scored on about a hundred rows, the best few optimised for a few steps on a few
hundred, the best of those finished on all. Solutions on the few hundred are remembered: a sum starts from its first
words, a noise word from the fit without it (prior draws miss it by a hundred nats on Yacht). Paper, Inference, step 4.
"""

from __future__ import annotations

import math
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from torch import Tensor

from kitt.data import Dataset, Standardiser
from kitt.errors import FitError, InvalidInputError
from kitt.gp import Likelihood, Posterior, leave_one_out
from kitt.grammar import Expression, Word, parse
from kitt.kernels import Kernel
from kitt.priors import Parameter, preset
from kitt.starts import FlatPrior, Profile, extended, first

_SCORED_ROWS = 128  # on which all draws and guesses are compared
_BATCH = 64  # of them at a time
_PATIENCE = 4  # iterations that must together gain more than the tolerance
_ROUNDS = ((12, 2), (30, 2))  # on some rows: iterations, and how many go on
_REFERENCE = parse("Matern52")

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
    method: Literal["l-bfgs", "bfgs"] = "l-bfgs"
    draws: int = 200  # from the prior; the paper's 1000 are no better than these and the guesses
    starts: int = 4  # optimised on some of the rows
    coarse_rows: int = 200
    max_iterations: int = 200  # on all rows
    tolerance: float = 0.01  # nats; stop when a few iterations gain less
    deadline: float | None = None  # seconds for each fit
    exact_rows: int = 3000  # above, hyperparameters from a subset and a sparse posterior
    subset_rows: int = 1200
    inducing: int = 600

    def __post_init__(self) -> None:
        preset(self.prior)
        for name, value, allowed in (
            ("objective", self.objective, ("map", "ml")),
            ("method", self.method, ("l-bfgs", "bfgs")),
        ):
            if value not in allowed:
                raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        for name in ("starts", "coarse_rows", "max_iterations", "exact_rows", "subset_rows", "inducing", "tolerance"):
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
            return cls(X, y, tuple(data.names), data.target, s)
        X, y = (torch.as_tensor(np.array(part, dtype=np.float64)) for part in data)
        if X.dim() != 2 or y.shape != X.shape[:1] or not (torch.isfinite(X).all() and torch.isfinite(y).all()):
            raise InvalidInputError(f"expected finite X (N, D) and y (N,), got {tuple(X.shape)} and {tuple(y.shape)}")
        return cls(X, y, tuple(f"x{d + 1}" for d in range(X.shape[1])))

    def rows(self, count: int, generator: torch.Generator) -> Table:
        """A random subset, or everything if it is not larger."""
        if len(self.y) <= count:
            return self
        index = torch.randperm(len(self.y), generator=generator)[:count]
        return replace(self, X=self.X[index], y=self.y[index])


# --- optimisation ---------------------------------------------------------------------------------------------------


class _DeadlineError(Exception):
    pass


@dataclass
class Budget:
    """Time left, and likelihoods evaluated so far."""

    end: float = math.inf
    evaluations: int = 0

    def spend(self) -> None:
        if self.spent:
            raise _DeadlineError
        self.evaluations += 1

    @property
    def spent(self) -> bool:
        return time.monotonic() > self.end


@dataclass(frozen=True)
class Solution:
    theta: Tensor
    value: float
    gradient: Tensor
    converged: bool


class Objective:
    """Log marginal likelihood, with the log prior density added for MAP: to be maximised."""

    def __init__(self, expression: Expression, table: Table, config: FitConfig) -> None:
        self.kernel, self.table = Kernel(expression, table.X.shape[1]), table
        self.likelihood = Likelihood(self.kernel, table.X, table.y)
        self.prior = FlatPrior.of(preset(config.prior), self.kernel)
        self.uses_prior = config.objective == "map"
        bounds = [BOX[s.parameter] for s in self.kernel.slots for _ in range(s.size)]
        self.low, self.high = torch.tensor(bounds, dtype=torch.float64).unbind(1)

    def clamp(self, theta: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(theta, self.low), self.high)

    def value_and_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self.likelihood.value_and_gradient(theta)
        if self.uses_prior:
            value, gradient = value + self.prior.log_density(theta), gradient + self.prior.score(theta)
        return value, gradient

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
        B, (N, D) = len(thetas), self.table.X.shape
        try:
            return Likelihood(self.kernel, self.table.X.expand(B, N, D), self.table.y.expand(B, N)).value(thetas)
        except FitError:
            if B == 1:
                return thetas.new_full((1,), -math.inf)
            return torch.cat([self._likelihoods(half) for half in thetas.split((B + 1) // 2)])


def maximise(
    objective: Objective, start: Tensor, iterations: int, tolerance: float, budget: Budget, method: str = "l-bfgs"
) -> Solution:
    """Climb from `start`; at the deadline, the best point so far. A point that cannot be evaluated is a wall."""
    best = Solution(objective.clamp(start), -math.inf, torch.full_like(start, math.inf), False)
    values: list[float] = []

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        budget.spend()
        theta = objective.clamp(torch.from_numpy(x.copy()))
        try:
            value, gradient = objective.value_and_gradient(theta)
        except FitError:
            if not values:
                raise
            return -min(values) + 1e3, np.zeros_like(x)
        values.append(float(value))
        if values[-1] > best.value:
            best = Solution(theta, values[-1], gradient, False)
        return -values[-1], -gradient.numpy()

    trail: list[float] = []

    def stop_when_flat(intermediate_result: Any) -> None:
        trail.append(float(intermediate_result.fun))
        if len(trail) > _PATIENCE and trail[-1 - _PATIENCE] - trail[-1] < tolerance:
            raise StopIteration

    options: dict[str, Any] = {"maxiter": iterations, "gtol": 1e-3}
    box = None
    if method == "l-bfgs":
        options |= {"ftol": 0.0, "maxcor": 30, "maxfun": 2 * iterations + 20}
        box = list(zip(objective.low.tolist(), objective.high.tolist(), strict=True))
    setting: Any = {"method": {"l-bfgs": "L-BFGS-B", "bfgs": "BFGS"}[method], "bounds": box, "options": options}
    try:
        result = minimize(negative, best.theta.numpy(), jac=True, callback=stop_when_flat, **setting)
    except _DeadlineError:
        return best
    return replace(best, converged=result.nit < iterations)


class Search:
    """Solutions on a subset of the rows, remembered; a sum starts from its first words."""

    def __init__(self, table: Table, config: FitConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        generator = self.generator("rows")
        self.table = table.rows(config.coarse_rows, generator)
        self.few = self.table.rows(_SCORED_ROWS, generator)
        self.found: dict[Expression, list[Solution]] = {}
        self._profile: Profile | None = None

    def generator(self, purpose: object) -> torch.Generator:
        """One for each purpose, so that what was fitted before does not matter."""
        return torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {purpose}".encode()))

    def profile(self, budget: Budget) -> Profile:
        """Lengthscales, variance and noise from a Matern52, which is what most words resemble most."""
        if self._profile is None:
            crude = Profile.of(self.table.X, self.table.y, self.generator("profile"))
            best = self._optimise(_REFERENCE, first(_REFERENCE.words[0], crude), budget)[0]
            values = Kernel(_REFERENCE, self.table.X.shape[1]).unflatten(best.theta)
            lengthscale = values["Matern52[0].lengthscale"].clamp(0.05, 50.0)
            self._profile = crude.refined(lengthscale, float(values["Matern52.variance"]), float(values["noise"]))
        return self._profile

    def solutions(self, words: tuple[Word, ...], budget: Budget) -> list[Solution]:
        """Best first. The words come in the order in which they are added."""
        expression = Expression(words)
        if expression not in self.found:
            profile, generator = self.profile(budget), self.generator(expression)
            if len(words) == 1:
                starts = first(words[0], profile)
            else:
                heads = self.solutions(words[:-1], budget)
                starts = self._extended(words, heads[0], profile, generator)
            draws = FlatPrior.of(preset(self.config.prior), Kernel(expression, self.table.X.shape[1]))
            starts = torch.cat([starts, draws.sample(self.config.draws, generator)])
            self.found[expression] = self._optimise(expression, starts, budget)
        return self.found[expression]

    def _extended(self, words: tuple[Word, ...], head: Solution, profile: Profile, rng: torch.Generator) -> Tensor:
        kernel = Kernel(Expression(words[:-1]), self.table.X.shape[1])
        posterior = Posterior.fit(kernel, head.theta, self.table.X, self.table.y)
        residual = self.table.y - leave_one_out(posterior, self.table.y).mean
        return extended(head.theta, words[-1], profile, residual, rng)

    def _optimise(self, expression: Expression, starts: Tensor, budget: Budget) -> list[Solution]:
        """The best starts climb a little, the best of those further: best first."""
        objective = Objective(expression, self.few, self.config)
        starts = objective.clamp(starts)
        ranked = starts[objective.scores(starts, budget).argsort(descending=True, stable=True)]
        climbers = _distinct(objective.kernel, ranked, self.config.starts)
        objective = Objective(expression, self.table, self.config)
        for iterations, survivors in _ROUNDS:
            tried = []
            for start in climbers:
                with suppress(FitError):
                    tried.append(maximise(objective, start, iterations, 10 * self.config.tolerance, budget))
            tried.sort(key=lambda s: -s.value)
            climbers = [s.theta for s in tried[:survivors]]
        if not tried:
            raise FitError(f"{expression} has no finite likelihood at any of {len(starts)} starts: leave it out")
        return tried


def _distinct(kernel: Kernel, ranked: Tensor, count: int) -> list[Tensor]:
    """The first `count` that differ in more than variances and noise."""
    shape = torch.cat([torch.arange(s.start, s.slice.stop) for s in kernel.slots if s.factor is not None] or [torch.tensor([0])])
    chosen: list[Tensor] = []
    for theta in ranked:
        if all((theta - other)[shape].abs().max() > 0.2 for other in chosen):
            chosen.append(theta)
        if len(chosen) == count:
            break
    return chosen
