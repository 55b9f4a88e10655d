"""KITT as a forecaster in the style of scikit-learn and sktime: a thin wrapper of `forecast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kitt.errors import InvalidInputError
from kitt.forecasting.pipeline import check_horizon, forecast
from kitt.forecasting.result import Forecast

if TYPE_CHECKING:
    import pandas as pd


class KITTForecaster(BaseEstimator):
    """Forecasts of a series by Gaussian processes whose kernels extrapolate beyond the last value.

    Parameters
    ----------
    horizon : int
        How many steps ahead, if neither `fit` nor `predict` is given `fh`.
    season : float, sequence of float or None
        Periods in steps; None to find them in the data, 0 for none.
    changes : bool
        Whether steps and bends of the past may be part of the model.

    Attributes
    ----------
    forecast_ : Forecast
        The forecast, up to the largest step that was requested.

    Examples
    --------
    >>> import numpy as np
    >>> from kitt import KITTForecaster
    >>> y = 10 + np.tile([1.0, 4.0, 2.0, 7.0], 12) + 0.1 * np.random.default_rng(0).normal(size=48)
    >>> forecaster = KITTForecaster(season=4).fit(y, fh=[1, 2, 3, 4])
    >>> forecaster.predict().round().tolist()
    [11.0, 14.0, 12.0, 17.0]
    >>> forecaster.predict_interval(coverage=0.9).shape
    (4, 2)
    """

    def __init__(
        self, horizon: int = 12, *, season: float | Sequence[float] | None = None, changes: bool = True
    ) -> None:
        self.horizon = horizon
        self.season = season
        self.changes = changes

    def fit(self, y: Any, X: Any = None, fh: Any = None) -> KITTForecaster:
        """Find seasons and changes, fit the structures and weight them.

        Parameters
        ----------
        y : array or pandas Series of shape (N,)
            With an index of dates or numbers, if it has one.
        X : array or data frame of shape (N, D), optional
            Columns that will also be known for the steps ahead.
        fh : int or sequence of int, optional
            Steps ahead that will be requested, from 1.
        """
        self.y_, self.X_, self.fh_ = y, X, None if fh is None else _steps(fh)
        self.forecast_: Forecast | None = None  # with further columns, a forecast waits for those of the steps ahead
        if X is None:
            self.forecast_ = self._forecast(self._asked(None), None)
        return self

    def predict(self, fh: Any = None, X: Any = None) -> Any:
        """The means at the requested steps: a pandas Series if `y` was one, otherwise an array."""
        steps, made = self._made(fh, X)
        return self._wrapped(made.mean[steps - 1], made, steps)

    def predict_quantiles(self, fh: Any = None, X: Any = None, alpha: Any = (0.05, 0.5, 0.95)) -> Any:
        """Quantiles of shape (steps, levels): a data frame where `y` was a pandas Series, otherwise an array."""
        steps, made = self._made(fh, X)
        levels = np.atleast_1d(np.asarray(alpha, np.float64))
        return self._wrapped(made.quantiles(levels)[steps - 1], made, steps, levels.tolist())

    def predict_interval(self, fh: Any = None, X: Any = None, coverage: float = 0.9) -> Any:
        """Lower and upper ends of central intervals, of shape (steps, 2)."""
        steps, made = self._made(fh, X)
        ends = np.column_stack(made.interval(coverage))[steps - 1]
        return self._wrapped(ends, made, steps, ["lower", "upper"])

    def _made(self, fh: Any, X: Any) -> tuple[np.ndarray, Forecast]:
        check_is_fitted(self, "fh_")
        steps = self._asked(fh)
        made = self.forecast_
        if self.X_ is None and X is not None:
            raise InvalidInputError(
                "expected no X, since there was none in fit; got one: fit with X too, or leave it out"
            )
        if X is not None:
            made = self.forecast_ = self._forecast(steps, X)
        if made is None:
            raise InvalidInputError("expected X for the steps ahead, since there was one in fit; got none: give it too")
        if made.horizon < steps.max():
            made = self.forecast_ = self._forecast(steps, None)
        return steps, made

    def _forecast(self, steps: np.ndarray, future: Any) -> Forecast:
        options: dict[str, Any] = {"season": self.season, "changes": self.changes, "X": self.X_, "future": future}
        return forecast(self.y_, None, int(steps.max()), **options)

    def _asked(self, fh: Any) -> np.ndarray:
        if fh is not None:
            return _steps(fh)
        if self.fh_ is not None:
            return self.fh_
        check_horizon(self.horizon)
        return np.arange(1, self.horizon + 1)

    def _wrapped(self, values: np.ndarray, made: Forecast, steps: np.ndarray, columns: Any = None) -> Any:
        import pandas as pd

        if not isinstance(self.y_, pd.Series):
            return values
        index: pd.Index = made.index[steps - 1]
        if isinstance(self.y_.index, pd.PeriodIndex):
            frequency: Any = self.y_.index.freq
            index = pd.DatetimeIndex(index).to_period(frequency)
        if columns is None:
            return pd.Series(values, index=index, name=self.y_.name)
        return pd.DataFrame(values, index=index, columns=columns)


def _steps(fh: Any) -> np.ndarray:
    steps = np.atleast_1d(np.asarray(fh))
    if steps.ndim != 1 or not len(steps) or steps.dtype.kind not in "iu" or steps.min() < 1:
        raise InvalidInputError(f"expected steps ahead as whole numbers from 1 on; got {fh!r}")
    return steps
