"""Expression + table -> GP: parameters from `optimise`, the posterior on all rows, and how good it is.

Up to `FitConfig.exact_rows` rows everything is exact; above, the parameters come from a random subset of the rows and
the posterior on all of them is sparse (`gp.sparse`); a warning of the model says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import InvalidInputError, KittError
from kitt.fitting.config import FitConfig
from kitt.fitting.fitted import Fitted, TrainingRows
from kitt.fitting.gp import GP
from kitt.fitting.noise import fit_noise, gain
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import CoarseSolutions, Solution
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import Expression, Word, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import NOISE_FLOOR, Parameter, Preset
from kitt.kernels.sparse import choose_inducing
from kitt.table.dataset import Dataset, as_dataset
from kitt.table.table import Table

RandomState = int | torch.Generator | None
_SEARCH_SHARE = 0.5  # share of the time that the coarse search may take; set by hand
_SPREAD_ROWS = 500  # on which the variance of each word is measured

UNFIT = (KittError, RuntimeError, ArithmeticError, np.linalg.LinAlgError)  # what a table can do to a fit


@dataclass(frozen=True)
class Failure:
    """An expression that could not be fitted, and why."""

    expression: Expression
    reason: str
    is_plain: bool = False  # a plain default, not one that the network proposed

    def __str__(self) -> str:
        return f"{self.expression} was left out: {self.reason}"


class Fitter:
    """Fits expressions to one table; a sum starts from the solution of its first words, if that is known already.

    `data` is a Dataset, or standardised (X, y); `options` are those of FitConfig. When the clock is over, a fit ends with
    the best parameters so far. Guesses may be those of another fitter, of the same target with another prior.
    """

    def __init__(
        self,
        data: Dataset | Table | tuple[ArrayLike, ArrayLike],
        config: FitConfig | None = None,
        *,
        random_state: RandomState = None,
        clock: Clock | None = None,
        guesses_of: Fitter | None = None,
        **options: Any,
    ) -> None:
        self.table, self.clock = Table.of(data), clock or Clock.unlimited()
        profile_of = None if guesses_of is None else guesses_of.coarse
        self.coarse: CoarseSolutions = CoarseSolutions(
            self.table, FitConfig.of(config, options), _seed(random_state), profile_of
        )

    def on(self, some: Tensor | None, clock: Clock) -> Fitter:
        """This fitter, with all that it has learned, for some of its rows, None for all, and another clock."""
        other = copy(self)
        other.table, other.clock = self.table if some is None else self.table.at(some), clock
        return other

    def fit(self, expression: Expression | str, start: Tensor | None = None) -> GP:
        """Fit one expression. With `start`, flat parameters in the order of `solution`, there is no search."""
        return _fit(self._expression(expression), self.table, self.coarse, start, self.clock)

    def attempt(self, expression: Expression | str, start: Tensor | None = None) -> GP | Failure:
        """Fit one expression, or say why that is impossible."""
        try:
            return self.fit(expression, start)
        except UNFIT as error:
            return Failure(self._expression(expression), str(error))

    def _expression(self, expression: Expression | str) -> Expression:
        """An expression, or the one that a text names, in which columns have the names of the table."""
        return parse(expression, self.table.columns) if isinstance(expression, str) else expression

    @property
    def compares_all_rows(self) -> bool:
        """Whether the coarse search has all rows, so that what is scored is fitted."""
        return self.coarse.is_all

    @property
    def coarse_rows(self) -> int:
        """The number of rows of the coarse search."""
        return len(self.coarse.table.y)

    def solution(self, expression: Expression) -> Tensor | None:
        """The flat parameters found for an expression on some of the rows, if it was fitted or scored before."""
        solutions = self.coarse.known.get(expression.noise_last)
        return None if solutions is None else solutions[0].theta

    def noise(self, expression: Expression) -> float:
        """The mean variance of the noise that an expression finds on some of the rows; infinite if it has no fit."""
        try:
            theta, rows = self.coarse.solutions(expression.words, self.clock)[0].theta, self.coarse.table
            return float(Kernel(expression, rows.X.shape[1]).noise(theta, rows.X, rows.noise).mean())
        except UNFIT:
            return math.inf

    def coarse_score(self, expression: Expression | str) -> float:
        """The log evidence of an expression for the whole table, estimated from a few hundred of its rows, and what a noise
        model gains over constant noise."""
        words = self._expression(expression).noise_last.words
        rows, n = self.coarse.table, len(self.table.y)
        try:
            best = self.coarse.solutions(words, self.clock)[0]
            if self.clock.is_over:  # it was not optimised to its end, so that it cannot be compared
                return -math.inf
            loo = self.coarse.leave_one_out(words)
            evidence = self.coarse.log_evidence(words, best, n)
        except UNFIT:
            return -math.inf
        y, mean, variance = rows.y.numpy(), loo.mean.numpy(), loo.variance.numpy()
        noise = fit_noise(rows.X.numpy(), y, mean, variance)
        return evidence if noise is None else evidence + gain(noise[1], (y - mean) ** 2 / variance) * n / len(y)

    def screening_score(self, word: Word) -> float:
        """The log evidence of a hundred rows for a word, after a few steps of the optimiser."""
        try:
            return self.coarse.screen(word, self.clock)
        except UNFIT:
            return -math.inf

    def residual_table(self, expression: Expression) -> Table:
        """The rows of the coarse search with the leave-one-out residual of an expression as the target."""
        rows = self.coarse.table
        return replace(rows, y=rows.y - self.coarse.leave_one_out(expression.noise_last.words).mean)


def fit(
    expression: Expression | str,
    X: Any,
    y: Any = None,
    *,
    target: str | None = None,
    noise: Any = None,
    prior: str | Preset | None = None,
    config: FitConfig | None = None,
    random_state: RandomState = None,
    deadline: float | None = None,
    **options: Any,
) -> GP:
    """Fit one kernel to a table.

    Parameters
    ----------
    expression : Expression or str
        A sum of words, such as "Linear + RBF*Periodic".
    X, y, target
        The table, as for `suggest`: arrays, a frame or file with its `target`, or a Dataset. It is standardised here, unless
        it is a Table, which has been.
    noise : float, array of shape (N,) or str, optional
        Known variances of the noise, as for `suggest`.
    prior : str or Preset, optional
        The prior of the parameters, as for `suggest`; by default that of `config`.
    config : FitConfig, optional
        How to fit.
    random_state : int, torch.Generator or None
        Seed of draws and of subsets of rows.
    deadline : float, optional
        Seconds after which the fit ends with the best parameters so far; without it, as long as it takes.
    **options
        Fields of `FitConfig` that differ from those of `config`.

    Returns
    -------
    GP

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 10, 50)
    >>> print(kitt.fit("Linear", x[:, None], 3 * x + 1, random_state=0).expression)
    Linear
    """
    if deadline is not None and not deadline > 0:
        raise InvalidInputError(f"the deadline must be a positive number of seconds, got {deadline!r}")
    clock = Clock.unlimited().at_most(deadline)
    data = X if isinstance(X, Table) else as_dataset(X, y, target, noise=noise)
    if prior is not None:
        options["prior"] = prior
    return Fitter(data, config, random_state=random_state, clock=clock, **options).fit(expression)


def _fit(expression: Expression, table: Table, coarse: CoarseSolutions, start: Tensor | None, clock: Clock) -> GP:
    config, began, before = coarse.config, Clock.unlimited(), coarse.evaluations
    is_exact = len(table.y) <= config.exact_rows
    used = table if is_exact else table.rows(config.subset_rows, coarse.generator("subset"))
    objective = Objective(expression.noise_last, used, config)
    solution = _solve(objective, coarse, start, clock)
    kernel, theta = _ordered(objective.kernel, solution.theta, used.X)
    log_prior = float(objective.prior.log_density(solution.theta))
    notes = tuple(_warnings(kernel, theta, table, objective, solution, clock))
    Z = None
    if not is_exact:
        Z = choose_inducing(kernel, theta, table.X, config.inducing, coarse.generator("inducing"))
        notes += (
            f"parameters from {len(used.y)} of {len(table.y)} rows; the posterior on all rows is sparse, "
            f"with {len(Z)} inducing points, and the likelihood its variational bound",
        )
    fitted = Fitted(
        FittedKernel.from_theta(kernel.expression, theta, table.columns, table.target, table.standardiser),
        table.warp,
        log_prior=log_prior,
        free_parameters=objective.free_parameters(solution.theta),
        gradient_norm=float(solution.gradient.abs().max()),
        evaluations=coarse.evaluations - before,
        seconds=began.spent,
        converged=solution.converged,
        warnings=notes,
        prior=config.prior,
        objective=config.objective,
    )
    return GP(fitted, TrainingRows.conditioned(fitted.kernel, table, Z))


def _solve(objective: Objective, coarse: CoarseSolutions, start: Tensor | None, clock: Clock) -> Solution:
    """The parameters that fit best: from a given start, or by a search in a share of the time and an ascent in the rest."""
    words, config = objective.kernel.expression.words, coarse.config
    if start is None and coarse.is_all:
        return coarse.solutions(words, clock)[0]
    if start is None:
        is_small = len(objective.table.y) <= config.direct_rows and config.trials == 1
        search = clock.share(_SEARCH_SHARE)
        start = coarse.start(words, search) if is_small else coarse.solutions(words, search)[0].theta
    return coarse.refine(objective, start, clock)


def start_of(fitted: FittedKernel) -> Tensor:
    """The flat parameters of a fitted kernel as a start for fitting its expression again."""
    order = [fitted.expression.words.index(word) for word in fitted.expression.noise_last.words]
    return _reordered(fitted.kernel, fitted.theta, order)


def _reordered(kernel: Kernel, theta: Tensor, order: list[int]) -> Tensor:
    """The flat parameters of a sum for another order of its words; the observation noise stays last."""
    parts = [torch.cat([theta[s.slice] for s in kernel.slots if s.word == i] or [theta[:0]]) for i in order]
    return torch.cat([*parts, theta[-1:]])


def _ordered(kernel: Kernel, theta: Tensor, X: Tensor) -> tuple[Kernel, Tensor]:
    """The words by decreasing variance over the inputs, trace(K)/N − mean(K), which defines the order of a sum."""
    X = X[torch.linspace(0, len(X) - 1, min(len(X), _SPREAD_ROWS)).long()]
    spread = kernel.word_diagonals(theta, X).mean(-1)
    signal = [i for i, word in enumerate(kernel.expression) if not word.is_noise]
    for i, term in zip(signal, kernel.terms(theta, X), strict=True):
        spread[i] -= term.matrix(term, same=True).mean()
    order = spread.argsort(descending=True, stable=True).tolist()
    words = tuple(kernel.expression.words[i] for i in order)
    return Kernel(Expression(words), kernel.dims), _reordered(kernel, theta, order)


def _warnings(
    kernel: Kernel, theta: Tensor, table: Table, objective: Objective, solution: Solution, clock: Clock
) -> Iterable[str]:
    if not solution.converged:
        why = "the deadline" if clock.is_over else "the largest number of iterations"
        yield f"stopped at {why}, before the objective was flat: the parameters are the best so far"
    if float(kernel.noise(theta, table.X, table.noise).min()) < 2 * NOISE_FLOOR:
        yield "the noise is at its floor: the target is nearly free of noise, or repeats; uncertainty may be too small"
    for slot in objective.kernel.slots:
        if slot.parameter not in (Parameter.LENGTHSCALE, Parameter.PERIOD):
            continue
        for bound, word in ((objective.low, "short"), (objective.high, "long")):
            ends = (solution.theta - bound)[slot.slice].abs() < 1e-6
            seen = [table.columns[d] for d in slot.columns]
            if at := [name for name, is_end in zip(seen, ends.tolist(), strict=True) if is_end]:
                yield f"{slot.name} is as {word} as it may be for {', '.join(at)}"


def _seed(random_state: RandomState) -> int:
    if isinstance(random_state, torch.Generator):
        return int(torch.randint(2**62, (1,), generator=random_state))
    return int(np.random.SeedSequence(random_state).generate_state(1)[0])
