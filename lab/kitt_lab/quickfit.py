"""Quick fits for a corpus of many tables: the best one or two guesses are optimised for a few steps on all rows.

This is the only file of the corpus that depends on the internals of `fitting`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.fitting.ascent import ascend
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import UNFIT
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import _distinct
from kitt.fitting.starts import Profile, extended, first
from kitt.kernels.exact import ExactPosterior
from kitt.kernels.grammar import Expression, Word, parse
from kitt.kernels.kernel import Kernel
from kitt.table.table import Table
from kitt_lab.tasks import TaskData

_REFERENCE = parse("Matern52")
TOLERANCE = 0.1  # nats that a few steps must together gain


@dataclass(frozen=True)
class Effort:
    starts: int
    steps: int


WORD, CHANGING_NOISE, SECOND_WORD = Effort(2, 10), Effort(1, 6), Effort(2, 8)


@dataclass(frozen=True)
class QuickFit:
    """Leave-one-out predictions of the training rows and predictions of the test rows by one kernel, standardised."""

    expression: Expression
    theta: Tensor  # (P,)
    value: float  # of the objective, nats
    log_marginal_likelihood: float
    loo_mean: Tensor  # (N,)
    loo_variance: Tensor
    mean: Tensor  # (M,)
    variance: Tensor

    @property
    def bic_score(self) -> float:
        """Log marginal likelihood minus half the logarithm of the number of rows per parameter; higher is better."""
        return self.log_marginal_likelihood - 0.5 * len(self.theta) * math.log(len(self.loo_mean))


class QuickFitter:
    """Fits kernels to one task. The order of the calls matters, because they share one Generator."""

    def __init__(self, data: TaskData, seed: int, config: FitConfig | None = None) -> None:
        self.table, self.config = Table.of((data.X, data.y)), config or FitConfig()
        self.test_inputs = torch.from_numpy(data.test_inputs)
        self.generator = torch.Generator().manual_seed(seed)
        self.profile = self._profile()

    def word(self, word: Word) -> QuickFit | None:
        """The fit of a word; None if it cannot be fitted."""
        return self._fit(Expression((word,)), first(word, self.profile), WORD)

    def add(self, head: QuickFit, word: Word, effort: Effort) -> QuickFit | None:
        """The fit of the sum of a fitted kernel and another word."""
        residual = self.table.y - head.loo_mean
        starts = extended(head.theta, word, self.profile, residual, self.generator)
        return self._fit(Expression((*head.expression.words, word)), starts, effort)

    def _profile(self) -> Profile:
        crude = Profile.of(self.table.X, self.table.y, self.table.shortest, self.generator)
        kernel = Kernel(_REFERENCE, self.table.X.shape[1])
        return crude.refined(kernel.unflatten(self._climb(_REFERENCE, first(_REFERENCE.words[0], crude), WORD)[0]))

    def _climb(self, expression: Expression, starts: Tensor, effort: Effort) -> tuple[Tensor, float]:
        objective = Objective(expression, self.table, self.config)
        starts = objective.clamp(starts)
        ranked = starts[objective.scores(starts, Clock.unlimited()).argsort(descending=True, stable=True)]
        chosen = _distinct(objective.kernel, ranked, effort.starts)
        H = torch.stack([objective.inverse_curvature(theta) for theta in chosen])
        box = (objective.low, objective.high)
        points, values = ascend(objective.batch, box, chosen, H, effort.steps, TOLERANCE)
        best = int(values.argmax())
        return points[best], float(values[best])

    def _fit(self, expression: Expression, starts: Tensor, effort: Effort) -> QuickFit | None:
        y = self.table.y
        try:
            theta, value = self._climb(expression, starts, effort)
            posterior = ExactPosterior.fit(Kernel(expression, self.table.X.shape[1]), theta, self.table.X, y)
            loo, predicted = posterior.leave_one_out(), posterior.predict(self.test_inputs)
        except UNFIT:
            return None
        evidence = posterior.log_marginal_likelihood
        return QuickFit(expression, theta, value, evidence, loo.mean, loo.variance, *predicted)
