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

from kitt.ascent import ascend
from kitt.data import Dataset, Standardiser
from kitt.errors import FitError, InvalidInputError
from kitt.gp import Likelihood, Posterior, cholesky, fisher_information, leave_one_out
from kitt.grammar import Expression, Word, parse
from kitt.kernels import Kernel
from kitt.priors import Parameter, preset
from kitt.starts import FlatPrior, Profile, extended, first

_SCORED_ROWS = 100  # on which all draws and guesses are compared
_FISHER_ROWS, _DENSE = 64, 500  # rows from which the curvature is estimated, and of how many parameters at most
_BATCH = 64  # of them at a time
_PATIENCE = 4  # iterations that must together gain more than the tolerance
_STEPS = 10  # on those rows, of the best starts together
_TRIED, _TRIAL, _COARSE = 3, 12, 30  # on some of the rows: starts, iterations of each, iterations of the best
_STEP, _LEAST = 1e-4, 0.1  # of differences of the prior's score; curvature of any parameter
_LOST = 2  # scipy's status when the line search fails: once more from the best point
_MIRRORS = 3  # times that signs are turned round and the climb goes on
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
    method: Literal["bfgs", "l-bfgs"] = "bfgs"
    draws: int = 150  # from the prior; the paper's 1000 are no better than these and the guesses
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
        if len(theta) > _DENSE:
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


class _Ascent:
    """What scipy sees of an objective, and the best point it has seen. A point that cannot be evaluated is a wall."""

    def __init__(self, objective: Objective, start: Tensor, tolerance: float, budget: Budget) -> None:
        self.objective, self.tolerance, self.budget = objective, tolerance, budget
        self.best = Solution(objective.clamp(start), -math.inf, torch.full_like(start, math.inf), False)
        self.worst = math.inf
        self.trail: list[float] = []

    def negative(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self.budget.spend()
        theta = self.objective.clamp(torch.from_numpy(x.copy()))
        try:
            value, gradient = self.objective.value_and_gradient(theta)
        except FitError:
            if self.worst == math.inf:
                raise
            return -self.worst + 1e3, np.zeros_like(x)
        gradient = torch.where(theta == torch.from_numpy(x), gradient, 0.0)  # nothing changes beyond the box
        self.worst = min(self.worst, float(value))
        if float(value) > self.best.value:
            self.best = Solution(theta, float(value), gradient, False)
        return -float(value), -gradient.numpy()

    def stop_when_flat(self, intermediate_result: Any) -> None:
        """A few iterations have gained little; twice as many where the gradient is still steep, as along a period."""
        self.trail.append(float(intermediate_result.fun))
        patience = _PATIENCE if self.best.gradient.abs().max() < 1 else 2 * _PATIENCE
        if len(self.trail) > patience and self.trail[-1 - patience] - self.trail[-1] < self.tolerance:
            raise StopIteration


def maximise(
    objective: Objective, start: Tensor, iterations: int, tolerance: float, budget: Budget, method: str = "bfgs"
) -> Solution:
    """Climb from `start`; at the deadline, the best point so far.

    BFGS begins with the Fisher information as its Hessian, which halves the evaluations. Very many parameters are left to
    L-BFGS-B, which begins with nothing.
    """
    ascent = _Ascent(objective, start, tolerance, budget)
    options: dict[str, Any] = {"maxiter": iterations, "gtol": 1e-3}
    setting: dict[str, Any] = {"method": "BFGS", "options": options}
    if len(start) > _DENSE:
        method = "l-bfgs"
    if method == "l-bfgs":
        bounds = list(zip(objective.low.tolist(), objective.high.tolist(), strict=True))
        setting = {"method": "L-BFGS-B", "bounds": bounds, "options": options | {"ftol": 0.0, "maxcor": 30}}
    try:
        for _ in range(2):
            x = ascent.best.theta
            if method == "bfgs":
                options["hess_inv0"] = objective.inverse_curvature(x).numpy()
            result = minimize(ascent.negative, x.numpy(), jac=True, callback=ascent.stop_when_flat, **setting)
            if result.status != _LOST:
                break
    except _DeadlineError:
        return ascent.best
    return replace(ascent.best, converged=result.nit < iterations)


def mirrored(objective: Objective, best: Solution, gain: float, budget: Budget) -> Tensor | None:
    """With the better sign of each shift: the way of an ascent to the other would lead through infinity, or zero."""
    theta, value = best.theta, best.value
    shifts = [i for s in objective.kernel.slots if s.parameter is Parameter.SHIFT for i in range(s.start, s.slice.stop)]
    for i in shifts:
        if budget.spent:
            break
        other = theta.clone()
        other[i] *= -1
        if (there := float(objective.scores(other.unsqueeze(0), budget))) > value + gain:
            theta, value = other, there
    return None if value == best.value else theta


class Search:
    """Solutions on a subset of the rows, remembered; a sum starts from its first words."""

    def __init__(self, table: Table, config: FitConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        self.guide = replace(config, objective="map")  # on few rows the likelihood alone goes astray
        generator = self.generator("rows")
        self.table = table.rows(config.coarse_rows, generator)
        self.is_all = len(self.table.y) == len(table.y)
        self.few = self.table.rows(_SCORED_ROWS, generator)
        self.found: dict[Expression, list[Solution]] = {}
        self._profile: Profile | None = None

    def generator(self, purpose: object) -> torch.Generator:
        """One for each purpose, so that what was fitted before does not matter."""
        return torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {purpose}".encode()))

    def profile(self, budget: Budget) -> Profile:
        """Lengthscales, variance and noise from a Matern52, which is what most words resemble most."""
        if self._profile is None:
            crude = Profile.of(self.table.X, self.table.y, self.table.shortest, self.generator("profile"))
            best = self._climb(_REFERENCE, first(_REFERENCE.words[0], crude), budget)[0]
            values = Kernel(_REFERENCE, self.table.X.shape[1]).unflatten(best)
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
            self.found[expression] = self._optimise(expression, starts, generator, budget)
        return self.found[expression]

    def _extended(self, words: tuple[Word, ...], head: Solution, profile: Profile, rng: torch.Generator) -> Tensor:
        kernel = Kernel(Expression(words[:-1]), self.table.X.shape[1])
        posterior = Posterior.fit(kernel, head.theta, self.table.X, self.table.y)
        residual = self.table.y - leave_one_out(posterior, self.table.y).mean
        return extended(head.theta, words[-1], profile, residual, rng)

    def _optimise(
        self, expression: Expression, guesses: Tensor, generator: torch.Generator, budget: Budget
    ) -> list[Solution]:
        """On some of the rows, the three most promising starts climb for a trial, then the best of them; best first."""
        tolerance = 10 * self.config.tolerance
        objective = Objective(expression, self.table, self.guide)
        starts = torch.cat([guesses, objective.prior.sample(self.config.draws, generator)])
        tried = []
        for start in self._promising(objective, self._climb(expression, starts, budget), budget):
            with suppress(FitError):
                tried.append(maximise(objective, start, _TRIAL, tolerance, budget))
        if not tried:
            raise FitError(f"{expression} has no finite likelihood at any of {len(starts)} starts: leave it out")
        tried.sort(key=lambda s: -s.value)
        if self.is_all:
            return [self.finish(Objective(expression, self.table, self.config), tried, budget), *tried[1:]]
        return [maximise(objective, tried[0].theta, _COARSE - _TRIAL, tolerance, budget), *tried[1:]]

    def finish(self, objective: Objective, tried: list[Solution], budget: Budget) -> Solution:
        """The best of the first few, on all rows, and of its mirror images."""
        c = self.config

        def climb(theta: Tensor) -> Solution:
            return maximise(objective, theta, c.max_iterations, c.tolerance, budget, c.method)

        best = max((climb(s.theta) for s in tried[: c.finished]), key=lambda s: s.value)
        for _ in range(_MIRRORS):
            if (other := mirrored(objective, best, 10 * c.tolerance, budget)) is None:
                break
            best = max(best, climb(other), key=lambda s: s.value)
        return best

    def _climb(self, expression: Expression, starts: Tensor, budget: Budget) -> Tensor:
        """The best starts on a hundred rows, and how far they climb there, all together, in a few steps: best first."""
        objective = Objective(expression, self.few, self.guide)

        def evaluate(thetas: Tensor) -> tuple[Tensor, Tensor]:
            budget.evaluations += len(thetas)
            return objective.batch(thetas)

        starts = objective.clamp(starts)
        ranked = starts[objective.scores(starts, budget).argsort(descending=True, stable=True)]
        chosen = _distinct(objective.kernel, ranked, self.config.starts)
        if budget.spent:
            return chosen
        tolerance, box = 20 * self.config.tolerance, (objective.low, objective.high)
        H = torch.stack([objective.inverse_curvature(theta) for theta in chosen])
        points, values = ascend(evaluate, box, chosen, H, _STEPS, tolerance, lambda: budget.spent)
        return torch.cat([points[values.argsort(descending=True, stable=True)], chosen])

    def _promising(self, objective: Objective, points: Tensor, budget: Budget) -> Tensor:
        """The best two, and the middle of the prior: a hundred rows can mislead, and that is where others start."""
        ranked = points[objective.scores(points, budget).argsort(descending=True, stable=True)]
        middle = objective.clamp(objective.prior.middle().unsqueeze(0))
        return torch.cat([_distinct(objective.kernel, ranked, _TRIED - 1), middle])


def _distinct(kernel: Kernel, ranked: Tensor, count: int) -> Tensor:
    """The first `count` that differ in more than variances and noise."""
    shape = [i for s in kernel.slots if s.factor is not None for i in range(s.start, s.slice.stop)] or [0]
    chosen: list[Tensor] = []
    for theta in ranked:
        if all((theta - other)[shape].abs().max() > 0.2 for other in chosen):
            chosen.append(theta)
        if len(chosen) == count:
            break
    return torch.stack(chosen)
