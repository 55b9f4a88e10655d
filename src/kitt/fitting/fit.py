"""Expression + table -> FittedGP: parameters from `optimise`, the posterior on all rows, and how good it is.

Up to `FitConfig.exact_rows` rows everything is exact; above, the parameters come from a random subset of the rows and
the posterior on all of them is sparse (`sparse`), which the model's warnings say.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from torch import Tensor

from kitt.errors import InvalidInputError, KittError
from kitt.fitting.config import Budget, FitConfig
from kitt.fitting.noise import NoiseModel, fit_noise
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import CoarseSolutions, Solution
from kitt.fitting.table import Table
from kitt.gp.exact import LeaveOneOut, Posterior, leave_one_out
from kitt.gp.sparse import SparsePosterior, choose_inducing
from kitt.language.fitted_kernel import FittedKernel
from kitt.language.grammar import Expression, Word, parse
from kitt.language.kernels import Kernel
from kitt.language.priors import NOISE_FLOOR, Parameter
from kitt.table.dataset import Dataset
from kitt.table.scaling import IDENTITY, Warp

FloatArray = NDArray[np.float64]
RandomState = int | torch.Generator | None
_ENTRIES = 2**22  # of the covariance between training rows and new ones, worked on at once
_TRIAL_ROWS = 7000  # by which the time of a sparse posterior is measured
_SPREAD_ROWS = 500  # on which the variance of each word is measured
_FAR = 1e30  # standard deviations from which products of inputs overflow
_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class FittedGP:
    """A Gaussian process with its numbers, conditioned on its table.

    Likelihoods, BIC and leave-one-out refer to the standardised target; predictions and `log_density` to the original.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 6, 40)
    >>> gp = kitt.fit("RBF", kitt.Dataset.from_arrays(x[:, None], 10 + np.sin(x)), random_state=0)
    >>> mean, variance = gp.predict([[3.0]])
    >>> bool(abs(mean[0] - 10 - np.sin(3.0)) < 0.01), gp.parameter_count
    (True, 3)
    """

    fitted_kernel: FittedKernel  # words in decreasing order of their variance over the rows
    X: Tensor  # (N, D) and (N,), standardised: the rows that it is conditioned on
    y: Tensor
    inducing: Tensor | None  # (M, D) points through which it sees the rows; None: it is exact
    log_prior: float  # density of the parameters
    gradient_norm: float  # largest component of the objective's gradient, where optimisation stopped
    evaluations: int  # of the likelihood with its gradient, on some of the rows or on all
    seconds: float
    converged: bool
    warnings: tuple[str, ...] = ()
    warp: Warp = IDENTITY  # transform of the standardised target, to which y and everything on its scale refers
    stored_noise: NoiseModel | None = None  # noise model of a file, which is not fitted again
    stored_loo: LeaveOneOut | None = None  # predictions of left-out rows by fits without them (`fitting.folds`)

    @property
    def expression(self) -> Expression:
        return self.fitted_kernel.expression

    @property
    def parameter_count(self) -> int:
        """Of the kernel, noise included."""
        return self.fitted_kernel.kernel.size

    @property
    def rows(self) -> int:
        return len(self.y)

    @cached_property
    def posterior(self) -> Posterior | SparsePosterior:
        """Computed when first asked for: a model of a file that has no weight is never asked."""
        kernel, theta = self.fitted_kernel.kernel, self.fitted_kernel.theta
        if self.inducing is None:
            return Posterior.fit(kernel, theta, self.X, self.y)
        return SparsePosterior.fit(kernel, theta, self.X, self.y, self.inducing)

    @property
    def log_posterior(self) -> float:
        """Of the parameters: log marginal likelihood plus the log density of the prior."""
        return self.log_marginal_likelihood + self.log_prior

    @cached_property
    def log_marginal_likelihood(self) -> float:
        """Of the standardised target; of a sparse model, the variational bound."""
        slope = float(self.warp.log_slope(self.warp.inverse(self.y.numpy())).sum())
        if isinstance(self.posterior, SparsePosterior):
            return self.posterior.log_marginal_likelihood + slope
        log_det = 2 * torch.diagonal(self.posterior.L).log().sum()
        return slope - 0.5 * float(self.y @ self.posterior.alpha + log_det + len(self.y) * _LOG_2PI)

    @cached_property
    def loo(self) -> LeaveOneOut:
        """Every row predicted from all the others; by a sparse model, with the inducing points kept."""
        if self.stored_loo is not None:
            return self.stored_loo
        if isinstance(self.posterior, SparsePosterior):
            return self.posterior.leave_one_out(self.X, self.y)
        return leave_one_out(self.posterior, self.y)

    @property
    def bic(self) -> float:
        """−2 log likelihood + p log n, p counting every parameter, noise included: lower is better."""
        return -2 * self.log_marginal_likelihood + self.parameter_count * math.log(self.rows)

    @cached_property
    def loo_log_densities(self) -> FloatArray:
        """Log density (N,) of each row's standardised target given all other rows."""
        return self.loo.log_density.numpy() + self.warp.log_slope(self.warp.inverse(self.y.numpy()))

    @property
    def loo_log_density(self) -> float:
        """Their sum."""
        return float(self.loo_log_densities.sum())

    @property
    def noise_model(self) -> NoiseModel | None:
        """How the noise changes from row to row; None if it does not."""
        if self.stored_noise is not None or self.fitted_noise is None:
            return self.stored_noise
        return self.fitted_noise[0]

    @cached_property
    def fitted_noise(self) -> tuple[NoiseModel, FloatArray] | None:
        """The noise model of the leave-one-out residuals, and its cross-fitted logarithm at the rows."""
        mean, variance = self.loo.mean.numpy(), self.loo.variance.numpy()
        return fit_noise(self.X.numpy(), self.y.numpy(), mean, variance)

    def predict(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (M,) at raw inputs (M, D), in original units; not `noisy`: of the function alone."""
        mean, variance = self.standardised(X, noisy)
        s = self.fitted_kernel.standardiser
        return (mean, variance) if s is None else (s.inverse_mean(mean), s.inverse_variance(variance))

    def standardised(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (M,) on the scale of the standardised target, which no unit can overflow."""
        mean, latent, total = self.moments(self.inputs(X))
        return unwarped(self.warp, mean, total if noisy else latent)

    def moments(self, Z: Tensor) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, variance of the function and variance of an observation (M,) at standardised inputs, on the scale of y."""
        kernel, theta = self.fitted_kernel.kernel, self.fitted_kernel.theta
        size = max(1, _ENTRIES // len(self.posterior.L))
        parts = [(*self.posterior.predict(chunk, False), kernel.noise(theta, chunk)) for chunk in Z.split(size)]
        mean, latent, noise = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
        return mean, latent, latent + noise

    def covariance(self, X: ArrayLike, noisy: bool = True) -> FloatArray:
        """Joint covariance (M, M) at raw inputs, in original units; through a transform of the target, by its slope."""
        Z = self.inputs(X)
        covariance, mean = self.posterior.covariance(Z, noisy).numpy(), self.moments(Z)[0]
        slope = np.exp(-self.warp.log_slope(self.warp.inverse(mean)))
        return self._variance(covariance * np.outer(slope, slope))

    def root_covariance(self, X: ArrayLike, noisy: bool = True) -> FloatArray:
        """R with R Rᵀ the joint covariance (M, M) on the standardised scale: what draws are made with."""
        covariance = self.posterior.covariance(self.inputs(X), noisy)
        values, vectors = torch.linalg.eigh(
            covariance
        )  # a posterior is often singular, where Cholesky would need jitter
        return (vectors * values.clamp_min(0).sqrt()).numpy()

    def component(self, word: int, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of one signal word alone, in the scale of the (transformed) target but without its mean."""
        mean, variance = self.posterior.component(word, self.inputs(X))
        scale = 1.0 if self.fitted_kernel.standardiser is None else self.fitted_kernel.standardiser.y_scale
        return mean.numpy() * scale, self._variance(variance.numpy())

    def log_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log predictive density (M,) of observations y at X, noise included, in original units."""
        s = self.fitted_kernel.standardiser
        u = np.asarray(y, np.float64) if s is None else s.transform_y(y)
        mean, _, variance = self.moments(self.inputs(X))
        density = -0.5 * ((self.warp.forward(u) - mean) ** 2 / variance + np.log(variance) + _LOG_2PI)
        return density + self.warp.log_slope(u) + (0.0 if s is None else s.log_density_offset)

    def to(self, library: str) -> Any:
        """This kernel as a live object of another library: gpytorch, botorch, sklearn, gpflow or gpjax."""
        import kitt

        return kitt.export.live(self.fitted_kernel, library)

    def code(self, library: str) -> str:
        """Source text that builds this kernel in another library and needs nothing of this one."""
        import kitt

        return kitt.export.code(self.fitted_kernel, library)

    def inputs(self, X: ArrayLike) -> Tensor:
        """Raw inputs (M, D), checked and standardised."""
        raw, D = np.asarray(X, np.float64), len(self.fitted_kernel.columns)
        if raw.ndim != 2 or raw.shape[1] != D or not np.isfinite(raw).all():
            raise InvalidInputError(f"expected finite inputs of shape (M, {D}), got shape {raw.shape}")
        s = self.fitted_kernel.standardiser
        with np.errstate(over="ignore"):
            Z = raw.copy() if s is None else s.transform_x(raw)
        if len(far := np.argwhere(np.abs(Z) > _FAR)):
            row, column = far[0]
            raise InvalidInputError(
                f"row {row} lies more than {_FAR:g} standard deviations from the rows fitted to, in column "
                f"'{self.fitted_kernel.columns[column]}': nothing can be said about it; leave it out"
            )
        return torch.from_numpy(Z)

    def _variance(self, variance: FloatArray) -> FloatArray:
        s = self.fitted_kernel.standardiser
        return variance if s is None else s.inverse_variance(variance)


_NODES = ndtri((np.arange(32) + 0.5) / 32)  # equally probable values of a standard normal


def unwarped(warp: Warp, mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the standardised target whose transform is normal with these: by 32 equally probable values.

    So the largest and smallest hundredth do not count, which the inverse of a transform can carry to anywhere.
    """
    if warp.is_identity:
        return mean, variance
    values = warp.inverse(mean[..., None] + np.sqrt(variance)[..., None] * _NODES)
    return values.mean(-1), values.var(-1)


@dataclass(frozen=True)
class Failure:
    """An expression that could not be fitted, and why."""

    expression: Expression
    reason: str

    def __str__(self) -> str:
        return f"{self.expression} was left out: {self.reason}"


class Fitter:
    """Fits expressions to one table, one after the other; a sum starts from what was found for its first words.

    `data` is a Dataset, or standardised (X, y); `options` are those of FitConfig.
    """

    def __init__(
        self,
        data: Dataset | Table | tuple[ArrayLike, ArrayLike],
        config: FitConfig | None = None,
        *,
        random_state: RandomState = None,
        end: float = math.inf,
        **options: Any,
    ) -> None:
        self.table, self.end = Table.of(data), end
        self.coarse = CoarseSolutions(self.table, FitConfig.of(config, options), _seed(random_state))
        self.fitted: list[tuple[Expression, FittedGP]] = []  # each as it was asked for
        self.failures: list[Failure] = []

    def fit(self, expression: Expression | str, start: Tensor | None = None) -> FittedGP:
        """Fit one expression; from `start`, its flat parameters in the order of `solution`, without any search."""
        asked = _expression(expression)
        self.fitted.append((asked, model := _fit(asked, self.table, self.coarse, start, self.end)))
        return model

    def solution(self, expression: Expression) -> Tensor | None:
        """The flat parameters found for an expression on some of the rows, if it was asked for before."""
        found = self.coarse.found.get(Expression(_searched(expression)))
        return None if found is None else found[0].theta

    def coarse_score(self, expression: Expression | str) -> float:
        """What a few hundred rows say for an expression: its log posterior there, less the BIC's price of its parameters,
        and what a noise model gains on it."""
        asked, budget = _expression(expression), Budget(self.end)
        try:
            best = self.coarse.solutions(_searched(asked), budget)[0]
            loo = self.coarse.leave_one_out(_searched(asked))
        except (KittError, RuntimeError, ArithmeticError):
            return -math.inf
        rows = self.coarse.table
        score = best.value - 0.5 * len(best.theta) * math.log(len(rows.y))
        mean, variance = loo.mean.numpy(), loo.variance.numpy()
        if (noise := fit_noise(rows.X.numpy(), rows.y.numpy(), mean, variance)) is None:
            return score
        squares = (rows.y.numpy() - mean) ** 2 / variance
        return score - 0.5 * float((noise[1] + squares * (np.exp(-noise[1]) - 1)).sum())

    def residual_table(self, expression: Expression) -> Table:
        """The few hundred rows with what an expression leaves of the target, each row predicted from the others."""
        rows = self.coarse.table
        return replace(rows, y=rows.y - self.coarse.leave_one_out(_searched(expression)).mean)

    def attempt(self, expression: Expression | str, start: Tensor | None = None) -> None:
        """What cannot be fitted is reported and left out."""
        asked = _expression(expression)
        try:
            self.fit(asked, start)
        except (KittError, RuntimeError, ArithmeticError) as error:
            self.failures.append(Failure(asked, str(error)))


def fit(
    expression: Expression | str,
    data: Dataset | Table | tuple[ArrayLike, ArrayLike],
    config: FitConfig | None = None,
    *,
    random_state: RandomState = None,
    **options: Any,
) -> FittedGP:
    """Fit one kernel to a table.

    Parameters
    ----------
    expression : Expression or str
        A sum of words, such as "Linear + RBF*Periodic".
    data : Dataset, or pair of arrays (X, y)
        Arrays are taken as standardised already.
    config : FitConfig, optional
        How to fit.
    random_state : int, torch.Generator or None
        Of draws and subsets of rows.
    **options
        Fields of `FitConfig` that differ from those of `config`.

    Returns
    -------
    FittedGP

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 10, 50)
    >>> print(kitt.fit("Linear", kitt.Dataset.from_arrays(x[:, None], 3 * x + 1), random_state=0).expression)
    Linear
    """
    return Fitter(data, config, random_state=random_state, **options).fit(expression)


def fit_all(
    expressions: Iterable[Expression | str],
    data: Dataset | Table | tuple[ArrayLike, ArrayLike],
    config: FitConfig | None = None,
    *,
    random_state: RandomState = None,
    **options: Any,
) -> tuple[list[FittedGP], list[Failure]]:
    """Fit each expression as `fit` does, sharing starts. What cannot be fitted is reported and left out."""
    fitter = Fitter(data, config, random_state=random_state, **options)
    for expression in expressions:
        fitter.attempt(expression)
    return [model for _, model in fitter.fitted], fitter.failures


def _fit(
    expression: Expression, table: Table, coarse: CoarseSolutions, start: Tensor | None = None, end: float = math.inf
) -> FittedGP:
    config, began = coarse.config, time.monotonic()
    end = min(end, began + (config.deadline or math.inf))
    budget = Budget(end if coarse.is_all else began + config.search_share * (end - began))
    words = _searched(expression)
    if start is None:
        is_small = len(table.y) <= config.direct_rows and config.trials == 1
        start = coarse.start(words, budget) if is_small else coarse.solutions(words, budget)[0].theta
    budget.end = end
    is_exact = len(table.y) <= config.exact_rows
    used = table if is_exact else table.rows(config.subset_rows, coarse.generator("subset"))
    objective = Objective(Expression(words), used, config)
    solution = coarse.refine(objective, start, budget)
    kernel, theta = _ordered(objective.kernel, solution.theta, used.X)
    log_prior = float(objective.prior.log_density(solution.theta))
    notes = tuple(_warnings(kernel, theta, table, objective, solution, budget))
    Z = None
    if not is_exact:
        Z = choose_inducing(kernel, theta, table.X, config.inducing, coarse.generator("inducing"))
        notes += (
            f"parameters from {len(used.y)} of {len(table.y)} rows; the posterior on all rows is sparse, "
            f"with {len(Z)} inducing points, and the likelihood its variational bound",
        )
    model = FittedGP(
        fitted_kernel=FittedKernel.from_theta(
            kernel.expression, theta, table.columns, table.target, table.standardiser
        ),
        X=table.X,
        y=table.y,
        inducing=Z,
        log_prior=log_prior,
        gradient_norm=float(solution.gradient.abs().max()),
        evaluations=budget.evaluations,
        seconds=time.monotonic() - began,
        converged=solution.converged,
        warnings=notes,
        warp=table.warp,
    )
    _ = model.posterior  # a kernel without one cannot be fitted
    return model


def on_all_rows(model: FittedGP, table: Table, inducing: int, seed: int, seconds: float = math.inf) -> FittedGP:
    """A GP that was fitted to some of the rows, with a sparse posterior on all of them, or on as many as time allows."""
    began = time.monotonic()
    kernel, theta = model.fitted_kernel.kernel, model.fitted_kernel.theta
    generator = torch.Generator().manual_seed(seed)
    Z = choose_inducing(kernel, theta, table.X, inducing, generator)
    rows = table
    if seconds < math.inf and len(table.y) > _TRIAL_ROWS:
        trial = time.monotonic()
        SparsePosterior.fit(kernel, theta, table.X[:_TRIAL_ROWS], table.y[:_TRIAL_ROWS], Z)
        now = time.monotonic()
        rows = table.rows(max(_TRIAL_ROWS, int(_TRIAL_ROWS * (began + seconds - now) / (now - trial))), generator)
    y = torch.from_numpy(model.warp.forward(rows.y.numpy()))
    on = f"{len(y)} of them" if len(y) < len(table.y) else "all of them"
    note = (
        f"parameters and weights from {model.rows} of {len(table.y)} rows; the posterior on {on} is sparse, with {len(Z)} "
        f"inducing points, and the likelihood its variational bound{'; the deadline left no time for more' * (on[0] != 'a')}"
    )
    new = replace(model, X=rows.X, y=y, inducing=Z, stored_noise=model.noise_model, warnings=(*model.warnings, note))
    _ = new.posterior
    return new


def _searched(expression: Expression) -> tuple[Word, ...]:
    """In the order of the search: noise starts from the fit without it."""
    return (*expression.signal, *(word for word in expression if word.is_noise))


def start_of(fitted: FittedKernel) -> Tensor:
    """The flat parameters of a fitted kernel as a start for fitting its expression again."""
    order = [fitted.expression.words.index(word) for word in _searched(fitted.expression)]
    return _reordered(fitted.kernel, fitted.theta, order)


def _reordered(kernel: Kernel, theta: Tensor, order: list[int]) -> Tensor:
    """The flat parameters of a sum for another order of its words; the noise stays last."""
    parts = [torch.cat([theta[s.slice] for s in kernel.slots if s.word == i] or [theta[:0]]) for i in order]
    return torch.cat([*parts, theta[-1:]])


def _ordered(kernel: Kernel, theta: Tensor, X: Tensor) -> tuple[Kernel, Tensor]:
    """Words by decreasing spread over the inputs, trace(K)/N − mean(K): what the order of a sum means."""
    X = X[:_SPREAD_ROWS]
    spread = kernel.word_diagonals(theta, X).mean(-1)
    signal = [i for i, word in enumerate(kernel.expression) if not word.is_noise]
    for i, term in zip(signal, kernel.terms(theta, X), strict=True):
        spread[i] -= term.matrix(term, same=True).mean()
    order = spread.argsort(descending=True, stable=True).tolist()
    words = tuple(kernel.expression.words[i] for i in order)
    return Kernel(Expression(words), kernel.dims), _reordered(kernel, theta, order)


def _warnings(
    kernel: Kernel, theta: Tensor, table: Table, objective: Objective, solution: Solution, budget: Budget
) -> Iterable[str]:
    if not solution.converged:
        why = "the deadline" if budget.spent else "the largest number of iterations"
        yield f"stopped at {why}, before the objective was flat: the parameters are the best so far"
    if float(kernel.noise(theta, table.X).min()) < 2 * NOISE_FLOOR:
        yield "the noise is at its floor: the target is nearly free of noise, or repeats; uncertainty may be too small"
    for slot in objective.kernel.slots:
        if slot.parameter not in (Parameter.LENGTHSCALE, Parameter.PERIOD):
            continue
        for bound, word in ((objective.low, "short"), (objective.high, "long")):
            ends = (solution.theta - bound)[slot.slice].abs() < 1e-6
            if at := [name for name, is_end in zip(table.columns, ends.tolist(), strict=True) if is_end]:
                yield f"{slot.name} is as {word} as it may be for {', '.join(at)}"


def _expression(expression: Expression | str) -> Expression:
    return parse(expression) if isinstance(expression, str) else expression


def _seed(random_state: RandomState) -> int:
    if isinstance(random_state, torch.Generator):
        return int(torch.randint(2**62, (1,), generator=random_state))
    return int(np.random.SeedSequence(random_state).generate_state(1)[0])
