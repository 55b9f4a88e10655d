"""The parameters that fit best: type-II maximum likelihood or MAP, coarse to fine, from many starts.

Guesses and draws (`starts`) are scored on about a hundred rows. The best few, perhaps after some steps of an optimiser on
those rows, are scored on a few hundred; the best is optimised there, and then on all rows. Solutions on the few hundred
rows are cached: a sum starts from its first words, and a noise word from the fit without it (prior draws miss it by a
hundred nats on Yacht). Paper, Inference, step 5.
"""

from __future__ import annotations

import math
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import FitError
from kitt.fitting.ascent import ascend
from kitt.fitting.config import FitConfig
from kitt.fitting.objective import DENSE_PARAMETERS, Objective
from kitt.fitting.starts import (
    SHORTEST_LENGTHSCALE,
    Profile,
    extended,
    first,
    rough_columns,
    roughened,
    shortened,
)
from kitt.kernels.exact import ExactPosterior, LeaveOneOut
from kitt.kernels.grammar import Expression, Word, parse
from kitt.kernels.kernel import Kernel
from kitt.table.table import Table
from kitt.threads import threads_for

_LINE_SEARCH_FAILED = 2  # scipy's status, after which the optimiser is restarted from the best point
_FAR_WORSE = 1e3  # nats below the worst point so far, where there is no likelihood
_REFERENCE = parse("Matern52")
_SCORED_ROWS = 100  # rows on which all draws and guesses are compared; set by hand
_FIRST_STEPS = 5  # optimiser steps, on those rows, of the Matern52 that gives other starts; set by hand
_SCREENING_STEPS = 10  # optimiser steps, on those rows, of each word that acts on columns; set by hand
_COARSE_ITERATIONS = 30  # of the best start on some of the rows, its first iterations included; set by hand
_STEEP_GRADIENT = 1.0  # with a larger entry of the gradient, twice as many iterations without gain; set by hand
_COARSE_TOLERANCE = 10.0  # tolerance on some of the rows, in units of `FitConfig.tolerance`; set by hand
_BATCH_TOLERANCE = 20.0  # the same of the steps on the scored rows; set by hand
_MIN_DISTANCE = 0.2  # in some unconstrained parameter, between starts that go on; set by hand
_MEMORY = 30  # steps that L-BFGS-B remembers; set by hand
_GRADIENT_TOLERANCE = 1e-3  # largest entry of a gradient that counts as zero; set by hand
_RUNS = 2  # of the optimiser at most, if its line search fails; set by hand


@dataclass(frozen=True)
class Solution:
    theta: Tensor
    value: float
    gradient: Tensor
    converged: bool
    evaluations: int  # likelihoods with gradient that were computed for it


class _OverError(Exception):
    """Raised inside scipy's optimiser when the clock is over."""


class _Ascent:
    """An objective as scipy calls it, and the best point so far. A point that cannot be evaluated is far worse than all."""

    def __init__(self, objective: Objective, start: Tensor, tolerance: float, clock: Clock) -> None:
        self.objective, self.tolerance, self.clock = objective, tolerance, clock
        self.best = Solution(objective.clamp(start), -math.inf, torch.full_like(start, math.inf), False, 0)
        self.evaluations = 0
        self.worst = math.inf
        self.trail: list[float] = []

    def negative(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        if self.clock.is_over:
            raise _OverError
        self.evaluations += 1
        theta = self.objective.clamp(torch.from_numpy(x.copy()))
        try:
            value, gradient = self.objective.value_and_gradient(theta)
        except FitError:
            if self.worst == math.inf:
                raise
            return -self.worst + _FAR_WORSE, np.zeros_like(x)
        gradient = torch.where(theta == torch.from_numpy(x), gradient, 0.0)  # the objective is constant outside the box
        self.worst = min(self.worst, float(value))
        if float(value) > self.best.value:
            self.best = Solution(theta, float(value), gradient, False, self.evaluations)
        return -float(value), -gradient.numpy()

    def stop_when_flat(self, intermediate_result: Any) -> None:
        """Stop after a few iterations with little gain, or after twice as many where the gradient is still large."""
        self.trail.append(float(intermediate_result.fun))
        c = self.objective.config
        patience = c.patience if self.best.gradient.abs().max() < _STEEP_GRADIENT else 2 * c.patience
        if len(self.trail) > patience and self.trail[-1 - patience] - self.trail[-1] < self.tolerance:
            raise StopIteration


def maximise(
    objective: Objective, start: Tensor, iterations: int, tolerance: float, clock: Clock, method: str = "bfgs"
) -> Solution:
    """Maximise the objective from `start`; when the clock is over, return the best point so far, or the start.

    BFGS starts with the Fisher information as its Hessian, which halves the number of evaluations. With very many parameters
    L-BFGS-B is used, which starts with the identity.
    """
    from scipy.optimize import minimize  # this import takes a third of a second, and captions do not need it

    ascent = _Ascent(objective, start, tolerance, clock)
    if clock.is_over:
        return ascent.best
    options: dict[str, Any] = {"maxiter": iterations, "gtol": _GRADIENT_TOLERANCE}
    setting: dict[str, Any] = {"method": "BFGS", "options": options}
    if len(start) > DENSE_PARAMETERS:
        method = "l-bfgs"
    if method == "l-bfgs":
        bounds = list(zip(objective.low.tolist(), objective.high.tolist(), strict=True))
        setting = {"method": "L-BFGS-B", "bounds": bounds, "options": options | {"ftol": 0.0, "maxcor": _MEMORY}}
    try:
        with threads_for(len(objective.table.y)):
            for _ in range(_RUNS):
                x = ascent.best.theta
                if method == "bfgs":
                    options["hess_inv0"] = objective.inverse_curvature(x).numpy()
                result = minimize(ascent.negative, x.numpy(), jac=True, callback=ascent.stop_when_flat, **setting)
                if result.status != _LINE_SEARCH_FAILED:
                    break
        converged = bool(result.nit < iterations)
    except _OverError:
        converged = False
    return replace(ascent.best, converged=converged, evaluations=ascent.evaluations)


class CoarseSolutions:
    """Cached solutions on a subset of the rows; a sum starts from the solution of its first words.

    The profile of the target may be that of another instance, with the same target and another prior.
    """

    def __init__(self, table: Table, config: FitConfig, seed: int, profile_of: CoarseSolutions | None = None) -> None:
        self.config, self.seed = config, seed
        self.guide = replace(config, objective="map")  # on few rows maximum likelihood overfits
        generator = self.generator("rows")
        self.table = table.rows(config.coarse_rows_of(len(table.y)), generator)
        self.is_all = len(self.table.y) == len(table.y)
        self.few = self.table.rows(_SCORED_ROWS, generator)
        self.known: dict[Expression, list[Solution]] = {}
        self._screened: dict[Word, Tensor] = {}  # parameters of words after a few steps on a hundred rows
        self._unfinished: set[Expression | None] = set()  # those, or None for the profile, that a deadline ended early
        self._profile: Profile | None = None
        self._profile_of = profile_of
        self.evaluations = 0  # likelihoods with gradient that were computed so far

    def generator(self, purpose: object) -> torch.Generator:
        """A generator for each purpose, so that results do not depend on what was fitted before."""
        return torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {purpose}".encode()))

    def profile(self, clock: Clock) -> Profile:
        """The profile with lengthscales, variance and noise of a fitted Matern52, which is close to most other words."""
        if self._profile_of is not None:
            return self._profile_of.profile(clock)
        if self._profile is None or self._is_unfinished(None, clock):
            self._profile = self._fitted_profile(clock)
            self._note(None, clock)
        return self._profile

    def _is_unfinished(self, what: Expression | None, clock: Clock) -> bool:
        return what in self._unfinished and not clock.is_over

    def _note(self, what: Expression | None, clock: Clock) -> None:
        (self._unfinished.add if clock.is_over else self._unfinished.discard)(what)

    @property
    def _coarse_tolerance(self) -> float:
        return _COARSE_TOLERANCE * self.config.tolerance

    def _middle(self, objective: Objective) -> Tensor:
        """The prior's median, (1, P)."""
        return objective.clamp(objective.prior.middle().unsqueeze(0))

    def _fitted_profile(self, clock: Clock) -> Profile:
        X, y, word, kernel = self.table.X, self.table.y, _REFERENCE.words[0], Kernel(_REFERENCE, self.table.X.shape[1])
        crude = Profile.of(X, y, self.table.shortest, self.generator("profile"), self.config.guesses)
        steps = _FIRST_STEPS
        theta = self._climb(_REFERENCE, first(word, crude), clock, self.few, steps)[0]
        smooth, sharper = crude.refined(kernel.unflatten(theta)), []
        if crude.is_dense:
            sharper.append(self._climb(_REFERENCE, shortened(word, crude), clock, self.table, steps)[0])
        with suppress(FitError):
            residual = y - ExactPosterior.fit(kernel, theta, X, y, self.table.noise).leave_one_out().mean
            columns = rough_columns(X, residual, self.config.guesses)
            if not clock.is_over and (families := roughened(word, smooth, columns)):
                sharper.append(self._best_of(families, clock))
        return replace(smooth, sharper=tuple(crude.refined(kernel.unflatten(t), SHORTEST_LENGTHSCALE) for t in sharper))

    def _best_of(self, families: list[Tensor], clock: Clock) -> Tensor:
        """The best solution for the reference kernel on these rows, from the best start of each family."""
        objective, solutions = Objective(_REFERENCE, self.table, self.guide), []
        for starts in map(objective.clamp, families):
            best = starts[objective.scores(starts, clock).argmax()]
            solutions.append(self._maximise(objective, best, _COARSE_ITERATIONS, self._coarse_tolerance, clock))
        return max(solutions, key=lambda solution: solution.value).theta

    def _maximise(self, objective: Objective, start: Tensor, *how: Any) -> Solution:
        solution = maximise(objective, start, *how)
        self.evaluations += solution.evaluations
        return solution

    def solutions(self, words: tuple[Word, ...], clock: Clock) -> list[Solution]:
        """The solutions of an expression, best first. Its words are added in the given order."""
        expression = Expression(words)
        if expression not in self.known or self._is_unfinished(expression, clock):
            with threads_for(len(self.table.y)):
                self.known[expression] = self._solutions(expression, clock)
            self._note(expression, clock)
        return self.known[expression]

    def screen(self, word: Word, clock: Clock) -> float:
        """The log evidence of a hundred rows after a few steps there, from which a fit of the word will start."""
        objective = Objective(Expression((word,)), self.few, self.guide)
        guesses = objective.clamp(first(word, self.profile(clock)))
        best = guesses[objective.scores(guesses, clock).argmax()]
        solution = self._maximise(objective, best, _SCREENING_STEPS, self._coarse_tolerance, clock)
        self._screened[word] = solution.theta
        return objective.log_evidence(solution.theta, solution.value, len(self.few.y))

    def start(self, words: tuple[Word, ...], clock: Clock) -> Tensor:
        """The best parameters that are known before this expression is optimised on more than a hundred rows."""
        if known := self.known.get(Expression(words)):
            return known[0].theta
        with threads_for(len(self.table.y)):
            objective = Objective(Expression(words), self.table, self.guide)
            points = self._points(objective, words, clock)
            return self._promising(objective, points, clock)[0]

    def _solutions(self, expression: Expression, clock: Clock) -> list[Solution]:
        """Optimise the most promising starts on some of the rows; best first."""
        c = self.config
        objective = Objective(expression, self.table, c if self.is_all else self.guide)
        points = self._points(objective, expression.words, clock)
        coarse = self._coarse_tolerance
        last = (c.max_iterations, c.tolerance) if self.is_all else (_COARSE_ITERATIONS, coarse)
        method = c.method if self.is_all else "bfgs"
        first_steps = last if c.trials == 1 else (c.trial_iterations, coarse)
        tried = []
        for start in self._promising(objective, points, clock):
            with suppress(FitError):
                tried.append(self._maximise(objective, start, *first_steps, clock, method))
        if not tried:
            raise FitError(f"{expression} has no finite likelihood at any of {len(points)} starts: leave it out")
        tried.sort(key=lambda s: -s.value)
        if c.trials > 1:
            tried[0] = self._maximise(objective, tried[0].theta, *last, clock, method)
        return tried

    def _points(self, objective: Objective, words: tuple[Word, ...], clock: Clock) -> Tensor:
        """The best starts of an expression on a hundred rows, after some steps of an optimiser there."""
        if all(slot.factor is None for slot in objective.kernel.slots):  # only variances: one start is enough
            return self._middle(objective)
        if len(words) == 1 and (screened := self._screened.get(words[0])) is not None:
            return screened.unsqueeze(0)
        profile, generator = self.profile(clock), self.generator(objective.kernel.expression)
        if len(words) == 1:
            guesses = first(words[0], profile)
        else:
            guesses = self._extended(words, self.solutions(words[:-1], clock)[0], profile, generator)
        draws = self.config.draws if len(words) == 1 else 0  # a draw does not know the words before the last
        starts = torch.cat([guesses, objective.prior.sample(draws, generator)]) if draws else guesses
        points = self._climb(objective.kernel.expression, starts, clock, self.few, self.config.batch_steps)
        if profile.sharper:  # a hundred rows do not show short lengthscales
            points = torch.cat([points, objective.clamp(guesses)])
        return points

    def log_evidence(self, words: tuple[Word, ...], solution: Solution, rows: int) -> float:
        """The log evidence of an expression that this number of rows would give, estimated from these."""
        config = self.config if self.is_all else self.guide
        return Objective(Expression(words), self.table, config).log_evidence(solution.theta, solution.value, rows)

    def leave_one_out(self, words: tuple[Word, ...]) -> LeaveOneOut:
        """The prediction of each of these rows from the others, by the solution for an expression."""
        kernel = Kernel(Expression(words), self.table.X.shape[1])
        theta = self.known[Expression(words)][0].theta
        rows = self.table
        return ExactPosterior.fit(kernel, theta, rows.X, rows.y, rows.noise).leave_one_out()

    def _extended(self, words: tuple[Word, ...], head: Solution, profile: Profile, rng: torch.Generator) -> Tensor:
        residual = self.table.y - self.leave_one_out(words[:-1]).mean
        return extended(head.theta, words[-1], profile, residual, rng)

    def refine(self, objective: Objective, start: Tensor, clock: Clock) -> Solution:
        """Optimise on all rows, from the best parameters so far."""
        c = self.config
        return self._maximise(objective, start, c.max_iterations, c.tolerance, clock, c.method)

    def _climb(self, expression: Expression, starts: Tensor, clock: Clock, rows: Table, steps: int) -> Tensor:
        """Optimise the best starts on some rows for a few steps, as one batch; best first."""
        objective = Objective(expression, rows, self.guide)

        def evaluate(thetas: Tensor) -> tuple[Tensor, Tensor]:
            self.evaluations += len(thetas)
            return objective.batch(thetas)

        starts = objective.clamp(starts)
        ranked = starts[objective.scores(starts, clock).argsort(descending=True, stable=True)]
        c = self.config
        chosen = _distinct(objective.kernel, ranked, c.starts)
        if clock.is_over or not steps:
            return chosen
        tolerance, box = _BATCH_TOLERANCE * c.tolerance, (objective.low, objective.high)
        H = torch.stack([objective.inverse_curvature(theta) for theta in chosen])
        points, values = ascend(evaluate, box, chosen, H, steps, tolerance, lambda: clock.is_over)
        return torch.cat([points[values.argsort(descending=True, stable=True)], chosen])

    def _promising(self, objective: Objective, points: Tensor, clock: Clock) -> Tensor:
        """The best few points and the prior's median, because a hundred rows can mislead and other libraries start there."""
        ranked = points[objective.scores(points, clock).argsort(descending=True, stable=True)]
        if self.config.trials < 3:
            return _distinct(objective.kernel, ranked, self.config.trials)
        chosen = _distinct(objective.kernel, ranked, self.config.trials - 1)
        return torch.cat([chosen, self._middle(objective)])


def _distinct(kernel: Kernel, ranked: Tensor, count: int) -> Tensor:
    """The first `count` points that differ enough in more than variances and noise."""
    shape = [i for s in kernel.slots if s.factor is not None for i in range(s.start, s.slice.stop)] or [0]
    chosen: list[Tensor] = []
    for theta in ranked:
        if all((theta - other)[shape].abs().max() > _MIN_DISTANCE for other in chosen):
            chosen.append(theta)
        if len(chosen) == count:
            break
    return torch.stack(chosen)
