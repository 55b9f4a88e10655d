"""KITT as a scikit-learn regressor: a thin wrapper of `suggest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from kitt.errors import InvalidInputError
from kitt.explanation import Explanation, explain
from kitt.fitting.options import Options
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.model.document import Model
from kitt.pipeline import suggest_dataset
from kitt.table.dataset import MIN_ROWS, Dataset, as_dataset
from kitt.table.encoding import check_complete
from kitt.table.frames import as_frame
from kitt.table.scaling import FloatArray


class KITTRegressor(RegressorMixin, BaseEstimator):
    """Gaussian-process regression with kernels that a pretrained network proposes for the table.

    Parameters
    ----------
    k : int
        Number of captions that the network proposes.
    weights : {"stacking", "bic", "lml", "network", "uniform"}
        How the fitted kernels are averaged.
    network : str or path
        Checkpoint of the network: a bundled name or a file.
    effort : {"quick", "normal", "thorough"}
        How much is fitted; see `kitt.fitting.candidates`.
    warp : bool
        Also fit a transform of the target, where that is closer to a normal distribution.
    objective : {"map", "ml"}
        Fit parameters by maximum a posteriori or by maximum likelihood.
    head, ranking : str
        Which head of the network proposes the kernels, and how captions are ranked; see `kitt.caption`.
    deadline : float or None
        Seconds for the whole call; None for as long as it takes.
    fit_options : mapping or None
        Further options of a fit: the fields of `kitt.fitting.config.FitConfig`.
    random_state : int, RandomState or None

    Attributes
    ----------
    suggestion_ : Suggestion
        The captions, the model and the warnings; `model_` is its model, which can be saved.
    kernels_ : tuple of FittedKernel
        The fitted kernels, with the weights `weights_`.
    n_features_in_, feature_names_in_
        As in all estimators of scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from kitt import KITTRegressor
    >>> x = np.linspace(0, 10, 60)
    >>> regressor = KITTRegressor(k=1, effort="quick", random_state=0).fit(x[:, None], np.sin(2 * x))
    >>> mean, std = regressor.predict([[1.0], [2.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([2.0, 4.0])).max() < 0.05)
    True
    """

    def __init__(
        self,
        k: int = Options.k,
        *,
        weights: str = Options.weights,
        network: str | PathLike[str] = Options.network,
        effort: str = Options.effort,
        warp: bool = Options.warp,
        objective: str = Options.objective,
        head: str = Options.head,
        ranking: str = Options.ranking,
        deadline: float | None = Options.deadline,
        fit_options: Mapping[str, Any] | None = Options.fit_options,
        random_state: Any = None,
    ) -> None:
        self.k = k
        self.weights = weights
        self.network = network
        self.effort = effort
        self.warp = warp
        self.objective = objective
        self.head = head
        self.ranking = ranking
        self.deadline = deadline
        self.fit_options = fit_options
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> KITTRegressor:
        """Propose, fit and average kernels for a table.

        Parameters
        ----------
        X : array of numbers of shape (N, D), or a data frame, which may have columns of text and dates
        y : array of shape (N,)

        Returns
        -------
        KITTRegressor
        """
        dataset = self._dataset(X, y)
        chosen = {name: value for name, value in self.get_params().items() if name != "random_state"}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.suggestion_ = suggest_dataset(dataset, Options.of(**chosen, random_state=seed))
        self.model_: Model = self.suggestion_.fitted
        self.kernels_: tuple[FittedKernel, ...] = self.model_.kernels
        self.weights_: FloatArray = np.array(self.model_.weights)
        return self

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        quantiles: Sequence[float] | None = None,
        noisy: bool = True,
    ) -> Any:
        """Predict new rows.

        Parameters
        ----------
        X : array of shape (M, D), or a data frame with the columns of `fit`
        return_std : bool
            Also return the standard deviation of each row, of shape (M,).
        return_cov : bool
            Also return the joint covariance, of shape (M, M).
        quantiles : sequence of float, optional
            Also return the quantiles at these Q levels, of shape (M, Q).
        noisy : bool
            Whether these refer to an observation, with its noise, or to the function alone.

        Returns
        -------
        mean : array of shape (M,)
            Or a pair of the mean and the one other result that was requested.
        """
        if return_std + return_cov + (quantiles is not None) > 1:
            raise InvalidInputError(
                "expected at most one of return_std, return_cov and quantiles; got several: call predict for each of them"
            )
        table = self._inputs(X)
        if quantiles is not None:
            mean, _, values = self.model_.summary(table, quantiles, noisy)
            return mean, values
        mean, std = self.model_.predict(table, noisy)
        if return_cov:
            return mean, self.model_.covariance(table, noisy)
        return (mean, std) if return_std else mean

    def log_density(self, X: Any, y: ArrayLike) -> FloatArray:
        """The log predictive density of each of M observations, of shape (M,)."""
        return self.model_.log_density(self._inputs(X), y)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, noisy: bool = True) -> FloatArray:
        """Joint draws from the predictive distribution, of shape (M, n_samples)."""
        table = self._inputs(X)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return self.model_.sample(table, n_samples, noisy, seed).T

    def explain(self) -> Explanation:
        """An explanation of the model, as `kitt.explain` returns it."""
        check_is_fitted(self)
        return explain(self.model_)

    def _dataset(self, X: Any, y: Any) -> Dataset:
        X, name = _pandas(X), str(getattr(y, "name", None) or "")
        if _has_words(X):
            validate_data(self, X, skip_check_array=True)  # sets n_features_in_ and feature_names_in_
            check_complete(X, "fill them in, with a SimpleImputer perhaps, or leave these rows out")
            return as_dataset(X, y)
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64, ensure_min_samples=MIN_ROWS)
        names = getattr(self, "feature_names_in_", None)
        target = name or "y"
        while names is not None and target in names:
            target += "_"
        return Dataset.from_arrays(X, y, names, target)

    def _inputs(self, X: Any) -> Any:
        check_is_fitted(self)
        X = _pandas(X)
        if _has_words(X):
            validate_data(self, X, reset=False, skip_check_array=True)
            return X
        return validate_data(self, X, reset=False, dtype=np.float64)


def _pandas(X: Any) -> Any:
    """A data frame of any library as a pandas frame; anything else is returned unchanged."""
    frame = as_frame(X)
    return X if frame is None else frame


def _has_words(X: Any) -> bool:
    """Whether X is a DataFrame with columns that are not numbers."""
    return hasattr(X, "dtypes") and hasattr(X, "columns") and any(dtype.kind not in "iufb" for dtype in X.dtypes)
