"""What a fit finds, and the rows that a Gaussian process is conditioned on: the two halves of a `GP`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kitt.fitting.noise import NoiseModel
from kitt.kernels.exact import ExactPosterior, LeaveOneOut
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.posterior import Posterior
from kitt.kernels.priors import Preset
from kitt.kernels.sparse import SparsePosterior
from kitt.table.scaling import IDENTITY, Warp
from kitt.table.table import Table


@dataclass(frozen=True)
class Fitted:
    """A kernel with its parameters, the transform of the target that they are for, and how the fit went."""

    kernel: FittedKernel  # words in decreasing order of their variance over the rows
    warp: Warp = IDENTITY  # transform of the standardised target, on whose scale the parameters are
    log_prior: float = 0.0  # log prior density of the parameters
    free_parameters: float | None = None  # how many parameters the rows determine, and not the prior; None: all
    gradient_norm: float = 0.0  # largest component of the objective's gradient, where optimisation stopped
    evaluations: int = 0  # number of likelihoods with gradient that were computed, on some of the rows or on all
    seconds: float = 0.0
    converged: bool = True
    warnings: tuple[str, ...] = ()
    rows_at_fit: int | None = None  # how many of the rows, the first ones, the parameters were fitted to; None: all
    # Places of the rows that alone have determined kernel, parameters and weights; None if all have, or if not known.
    places_at_fit: Tensor | None = None
    is_plain: bool = False  # whether the kernel is a plain default, not proposed by the network
    prior: str | Preset = "default"  # with which, and
    objective: str = "map"  # by which the parameters were fitted


@dataclass(frozen=True)
class TrainingRows:
    """The standardised rows that a GP is conditioned on, and what is known of these rows already."""

    X: Tensor  # (N, D)
    y: Tensor  # (N,), on the scale of the transformed target
    inducing: Tensor | None = None  # (M, D) inducing points of a sparse posterior; None if the posterior is exact
    posterior: Posterior | None = None  # None: it is computed at first use
    left_out: LeaveOneOut | None = None  # predictions of left-out rows by fits without them (`fitting.folds`)
    noise: Tensor | None = None  # (N,) known variances of the noise of y; None: the noise is that of the kernel

    @property
    def mean_noise(self) -> float:
        """The mean of the known variances, which is what is known of the noise of another observation; 0 if none is."""
        return 0.0 if self.noise is None else float(self.noise.mean())

    @classmethod
    def conditioned(cls, kernel: FittedKernel, rows: Table, inducing: Tensor | None = None) -> TrainingRows:
        """The rows of a table with the posterior of a kernel; a FitError if rounding errors leave the kernel none."""
        posterior = posterior_of(kernel, rows.X, rows.y, rows.noise, inducing)
        return cls(rows.X, rows.y, inducing, posterior, noise=rows.noise)


@dataclass(frozen=True)
class FoundNoise:
    """How noise changes from row to row, where an earlier fit has found that out; no model: it does not change."""

    model: NoiseModel | None


def posterior_of(
    kernel: FittedKernel, X: Tensor, y: Tensor, noise: Tensor | None, inducing: Tensor | None
) -> Posterior:
    """The posterior of a kernel on standardised rows: exact, or sparse with inducing points."""
    if inducing is None:
        return ExactPosterior.fit(kernel.kernel, kernel.theta, X, y, noise)
    return SparsePosterior.fit(kernel.kernel, kernel.theta, X, y, inducing, noise)
