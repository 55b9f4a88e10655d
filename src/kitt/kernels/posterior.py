"""What every posterior answers, exact or sparse: so nobody who asks has to know which of the two it is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from kitt.kernels.exact import Conditioned, LeaveOneOut
from kitt.kernels.sparse import RowsSummary


class Posterior(Conditioned, Protocol):
    """A GP conditioned on rows. Noise words and observation noise are independent between points."""

    @property
    def log_marginal_likelihood(self) -> float:
        """The log likelihood of the targets; of a sparse posterior, its variational bound."""
        ...

    @property
    def summary(self) -> RowsSummary | None:
        """What a sparse posterior can be restored from; None for an exact one, which needs the rows."""
        ...

    def predict(self, Z: Tensor, noisy: bool = True) -> tuple[Tensor, Tensor]:
        """Mean and variance at new points."""
        ...

    def covariance(self, Z: Tensor, noisy: bool = True) -> Tensor:
        """The joint covariance at new points."""
        ...

    def component(self, word: int, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of one signal word alone; the means of all words add up to the mean."""
        ...

    def component_mean(self, word: int, Z: Tensor) -> Tensor:
        """The mean of `component` alone."""
        ...

    def component_covariance(self, word: int, Z: Tensor) -> Tensor:
        """The joint covariance of one signal word alone."""
        ...

    def leave_one_out(self, places: Tensor | None = None) -> LeaveOneOut:
        """The prediction of each row, or of the rows at some places, from all others; noise included."""
        ...

    def extended(self, X: Tensor, y: Tensor, known: Tensor | None = None) -> tuple[Posterior, Tensor, Tensor]:
        """The posterior of these rows too, and mean and variance of each of them before it was observed.

        `known` are the variances of their noise, if they are known.
        An exact posterior predicts each from all rows before it; a sparse one predicts all of them from the old rows.
        """
        ...

    def without(self, places: Tensor) -> Posterior:
        """The posterior of all rows but those at some places."""
        ...
