"""A fitted Gaussian process: a kernel with its parameter values, conditioned on rows, and its predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from torch import Tensor

from kitt import export
from kitt.clock import Clock
from kitt.errors import InvalidInputError
from kitt.fitting.fitted import Fitted, FoundNoise, TrainingRows, posterior_of
from kitt.fitting.noise import NoiseModel, fit_noise
from kitt.formatting import counted
from kitt.kernels.exact import LeaveOneOut, at, normal_log_density
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import Expression
from kitt.kernels.posterior import Posterior
from kitt.kernels.sparse import SparsePosterior, choose_inducing
from kitt.table.dataset import values_of
from kitt.table.scaling import FloatArray, Warp
from kitt.table.table import Table

_ENTRIES = 2**22  # of the covariance between training rows and new ones, worked on at once
_LOO_ROWS = (
    5000  # rows from which a leave-one-out density is estimated, with a standard error of about 0.01 nats per row
)
_TRIAL_ROWS = 7000  # rows from which the time of a sparse posterior is estimated
_FAR = 1e30  # standard deviations from which products of inputs overflow


@dataclass(frozen=True)
class GP:
    """A Gaussian process with fitted parameters, conditioned on its table.

    Likelihoods, BIC and leave-one-out refer to the standardised target; predictions and `log_density` to the original.

    Attributes
    ----------
    fitted : Fitted
        What was fitted: kernel, parameters, transform of the target, and how the fit went.
    training : TrainingRows
        The rows that it is conditioned on.
    fitted_kernel : FittedKernel
        The expression with its parameters; its words are in decreasing order of their variance over the rows.
    expression : Expression
        The kernel without its parameters.
    log_marginal_likelihood, log_posterior, bic, loo_log_density : float
        How well it fits.
    converged : bool
        Whether the optimiser stopped by itself.
    warnings : tuple of str
        Reasons for caution, as sentences.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 6, 40)
    >>> gp = kitt.fit("RBF", kitt.Dataset.from_arrays(x[:, None], 10 + np.sin(x)), random_state=0)
    >>> mean, std = gp.predict([[3.0]])
    >>> bool(abs(mean[0] - 10 - np.sin(3.0)) < 0.01), gp.parameter_count
    (True, 3)
    """

    fitted: Fitted
    training: TrainingRows
    found_noise: FoundNoise | None = None  # None: a noise model is fitted to the leave-one-out residuals when asked for

    def __repr__(self) -> str:
        """The kernel, without the rows."""
        return f"<GP: {self.expression}, {counted(self.rows, 'row')}>"

    @property
    def fitted_kernel(self) -> FittedKernel:
        return self.fitted.kernel

    @property
    def expression(self) -> Expression:
        return self.fitted.kernel.expression

    @property
    def warp(self) -> Warp:
        """The transform of the standardised target, on whose scale `y` and the parameters are."""
        return self.fitted.warp

    @property
    def X(self) -> Tensor:  # noqa: N802
        """The standardised inputs (N, D) that it is conditioned on."""
        return self.training.X

    @property
    def y(self) -> Tensor:
        """The standardised and transformed target (N,)."""
        return self.training.y

    @property
    def converged(self) -> bool:
        return self.fitted.converged

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.fitted.warnings

    @property
    def parameter_count(self) -> int:
        """The number of parameters of the kernel, noise included."""
        return self.fitted_kernel.kernel.size

    @property
    def free_parameters(self) -> float:
        """How many of the parameters the rows determine, and not the prior; all, for maximum likelihood."""
        return float(self.parameter_count) if self.fitted.free_parameters is None else self.fitted.free_parameters

    @property
    def rows(self) -> int:
        return len(self.y)

    @cached_property
    def posterior(self) -> Posterior:
        """Computed at first use unless it is known: a model that was read from a file with weight zero never needs it."""
        known = self.training
        if known.posterior is not None:
            return known.posterior
        return posterior_of(self.fitted_kernel, known.X, known.y, known.noise, known.inducing)

    @property
    def log_posterior(self) -> float:
        """Log marginal likelihood plus log prior density of the parameters."""
        return self.log_marginal_likelihood + self.fitted.log_prior

    @cached_property
    def log_marginal_likelihood(self) -> float:
        """The likelihood of the standardised target; for a sparse model, its variational bound."""
        slope = float(self.warp.log_slope(self.warp.inverse(self.y.numpy())).sum())
        return self.posterior.log_marginal_likelihood + slope

    @cached_property
    def loo(self) -> LeaveOneOut:
        """The prediction of every row from all others; a sparse model keeps its inducing points."""
        known = self.training.left_out
        return self.posterior.leave_one_out() if known is None else known

    @property
    def bic(self) -> float:
        """−2 log likelihood + p log n, p the number of free parameters, noise included: lower is better."""
        return -2 * self.log_marginal_likelihood + self.free_parameters * math.log(self.rows)

    @cached_property
    def loo_log_densities(self) -> FloatArray:
        """Log density (N,) of each row's standardised target given all other rows."""
        return self.loo.log_density.numpy() + self.warp.log_slope(self.warp.inverse(self.y.numpy()))

    @cached_property
    def loo_log_density(self) -> float:
        """The sum of `loo_log_densities`; of a sparse model with very many rows, estimated from a random sample of them."""
        is_exact = self.training.inducing is None
        if self.rows <= _LOO_ROWS or self.training.left_out is not None or is_exact:
            return float(self.loo_log_densities.sum())
        some = torch.randperm(self.rows, generator=torch.Generator().manual_seed(0))[:_LOO_ROWS]
        density = self.posterior.leave_one_out(some).log_density.numpy()
        slopes = self.warp.log_slope(self.warp.inverse(self.y[some].numpy()))
        return float((density + slopes).mean() * self.rows)

    @property
    def noise_model(self) -> NoiseModel | None:
        """How the noise changes from row to row; None if it does not."""
        if self.found_noise is not None:
            return self.found_noise.model
        return None if self.fitted_noise is None else self.fitted_noise[0]

    @cached_property
    def fitted_noise(self) -> tuple[NoiseModel, FloatArray] | None:
        """The noise model of the leave-one-out residuals, and its cross-fitted logarithm at the rows."""
        mean, variance = self.loo.mean.numpy(), self.loo.variance.numpy()
        return fit_noise(self.X.numpy(), self.y.numpy(), mean, variance)

    def predict(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation (M,) at raw inputs (M, D), in original units; without noise unless `noisy`."""
        (mean, variance), s = self.standardised(X, noisy), self.fitted_kernel.standardiser
        std = np.sqrt(variance)
        return (mean, std) if s is None else (s.inverse_mean(mean), s.inverse_std(std))

    def standardised(self, X: ArrayLike, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (M,) on the scale of the standardised target, where no unit can cause an overflow."""
        mean, latent, total = self.moments(self.inputs(X))
        return unwarped(self.warp, mean, total if noisy else latent)

    def moments(self, Z: Tensor, noise: Tensor | None = None) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, variance of the function and variance of an observation (M,) at standardised inputs, on the scale of y.

        `noise` (M,) are known variances of the noise of these observations; by default the mean of those of the rows.
        """
        kernel, theta = self.fitted_kernel.kernel, self.fitted_kernel.theta
        size = max(1, _ENTRIES // len(self.posterior.basis))
        parts = [(*self.posterior.predict(chunk, False), kernel.noise(theta, chunk)) for chunk in Z.split(size)]
        mean, latent, fitted = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
        known = self.training.mean_noise if noise is None else noise.numpy()
        return mean, latent, latent + fitted + known

    def covariance(self, X: ArrayLike, noisy: bool = True) -> FloatArray:
        """Joint covariance (M, M) at raw inputs, in original units; a transform of the target is linearised at the mean."""
        Z = self.inputs(X)
        covariance, mean = self.posterior.covariance(Z, noisy).numpy(), self.moments(Z)[0]
        covariance = covariance + noisy * self.training.mean_noise * np.eye(len(mean))
        slope = np.exp(-self.warp.log_slope(self.warp.inverse(mean)))
        return self._variance(covariance * np.outer(slope, slope))

    def root_covariance(self, X: ArrayLike, noisy: bool = True) -> FloatArray:
        """R such that R Rᵀ is the joint covariance (M, M) on the standardised scale; draws use it."""
        covariance = self.posterior.covariance(self.inputs(X), noisy)
        values, vectors = torch.linalg.eigh(
            covariance
        )  # a posterior is often singular, where Cholesky would need jitter
        return (vectors * values.clamp_min(0).sqrt()).numpy()

    def component(self, word: int, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of one signal word alone, on the scale of the (transformed) target without its mean."""
        mean, variance = self.posterior.component(word, self.inputs(X))
        scale = 1.0 if self.fitted_kernel.standardiser is None else self.fitted_kernel.standardiser.y_scale
        return mean.numpy() * scale, self._variance(variance.numpy())

    def log_density(self, X: ArrayLike, y: ArrayLike, noise: Tensor | None = None) -> FloatArray:
        """Log predictive density (M,) of observations y at X, noise included, in original units; `noise` as in `moments`."""
        s = self.fitted_kernel.standardiser
        mean, _, variance = self.moments(self.inputs(X), noise)
        observed = values_of(y, len(mean))
        u = observed if s is None else s.transform_y(observed)
        density = normal_log_density(self.warp.forward(u), mean, variance)
        return density + self.warp.log_slope(u) + (0.0 if s is None else s.log_density_offset)

    def as_plain(self, is_plain: bool = True) -> GP:
        """This GP, whose kernel is a plain default, or is not."""
        return replace(self, fitted=replace(self.fitted, is_plain=is_plain))

    def to(self, library: str) -> Any:
        """This kernel as a live object of another library: gpytorch, botorch, sklearn, gpflow or gpjax."""
        self._check_scale()
        return export.live(self.fitted_kernel, library)

    def code(self, library: str) -> str:
        """Source text that builds this kernel in another library and needs nothing of this one."""
        self._check_scale()
        return export.code(self.fitted_kernel, library)

    def _check_scale(self) -> None:
        if not self.warp.is_identity:
            raise InvalidInputError(
                f"expected a kernel of the target as it is, got {self.expression} of its {self.warp.kind} transform, which "
                "no other library knows: export another kernel of the model"
            )

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


_NODES = ndtri((np.arange(32) + 0.5) / 32)  # equally probable values of a standard normal, with its variance:
_NODES /= _NODES.std()


def unwarped(warp: Warp, mean: Any, variance: Any, xp: Any = np) -> tuple[Any, Any]:
    """Mean and variance of the standardised target, given those of its normally distributed transform.

    They are averages over 32 equally probable values. So the extreme hundredths of the distribution, which the inverse
    transform can map to arbitrarily large values, have no influence. All are arrays of the module `xp`, numpy or torch.
    """
    if warp.is_identity:
        return mean, variance
    with np.errstate(over="ignore"):
        values = warp.inverse_in(xp, mean[..., None] + xp.sqrt(variance)[..., None] * xp.asarray(_NODES))
    centre = values.mean(-1)
    return centre, xp.square(values - centre[..., None]).mean(-1)


def on_all_rows(
    model: GP, table: Table, inducing: int, seed: int, clock: Clock | None = None, places: Tensor | None = None
) -> GP:
    """A GP fitted to some of the rows, with a sparse posterior on all of them or on as many as time allows.

    `places` are those of the rows that it was fitted to, where they are known.
    """
    kernel, theta = model.fitted_kernel.kernel, model.fitted_kernel.theta
    generator = torch.Generator().manual_seed(seed)
    Z = choose_inducing(kernel, theta, table.X, inducing, generator)
    rows = table
    if clock is not None and clock.seconds < math.inf and len(table.y) > _TRIAL_ROWS:
        trial = Clock.unlimited()
        SparsePosterior.fit(kernel, theta, table.X[:_TRIAL_ROWS], table.y[:_TRIAL_ROWS], Z)
        rows = table.rows(max(_TRIAL_ROWS, int(_TRIAL_ROWS * clock.left / trial.spent)), generator)
    rows = rows.transformed(model.warp)
    on = f"{len(rows.y)} of them" if len(rows.y) < len(table.y) else "all of them"
    note = (
        f"parameters and weights from {model.rows} of {len(table.y)} rows; the posterior on {on} is sparse, with {len(Z)} "
        f"inducing points, and the likelihood its variational bound{'; the deadline left no time for more' * (on[0] != 'a')}"
    )
    known_places = places if len(rows.y) == len(table.y) else None
    fitted = replace(model.fitted, places_at_fit=known_places, warnings=(*model.warnings, note))
    return GP(fitted, TrainingRows.conditioned(fitted.kernel, rows, Z), FoundNoise(model.noise_model))


def without_rows(model: GP, places: NDArray[np.intp]) -> GP:
    """A GP conditioned on all of its rows but those at these places; its parameters stay what they are."""
    some = torch.from_numpy(places)
    rest = torch.ones(model.rows, dtype=torch.bool).index_fill_(0, some, False)
    known, posterior = model.training, model.posterior.without(some)
    return replace(
        model,
        training=TrainingRows(model.X[rest], model.y[rest], known.inducing, posterior, noise=at(known.noise, rest)),
    )
