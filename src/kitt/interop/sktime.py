"""`KITTForecaster` for pipelines of sktime, which must be installed: its forecasts behind sktime's base class."""

from __future__ import annotations

from typing import Any

import numpy as np

from kitt.errors import MissingExtraError
from kitt.forecasting.pipeline import forecast
from kitt.forecasting.result import Forecast

try:
    from sktime.forecasting.base import BaseForecaster  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:
    raise MissingExtraError("sktime", None, "the forecaster for sktime") from error


class KITTForecaster(BaseForecaster):
    """Forecasts of a series by Gaussian processes whose kernels extrapolate beyond the last value.

    Parameters
    ----------
    season : float, sequence of float or None
        Periods in steps; None to find them in the data, 0 for none.
    changes : bool
        Whether steps and bends of the past may be part of the model.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from kitt.interop.sktime import KITTForecaster  # doctest: +SKIP
    >>> y = pd.Series(10 + np.tile([1.0, 4.0, 2.0, 7.0], 12))  # doctest: +SKIP
    >>> KITTForecaster(season=4).fit(y).predict(fh=[1, 2, 3, 4]).round().tolist()  # doctest: +SKIP
    [11.0, 14.0, 12.0, 17.0]
    """

    _tags = {  # noqa: RUF012 (sktime reads a dict)
        "authors": ["kitt"],
        "maintainers": ["kitt"],
        "scitype:y": "univariate",
        "capability:exogenous": False,
        "capability:missing_values": True,
        "capability:pred_int": True,
        "capability:pred_int:insample": True,
        "capability:insample": True,
        "requires-fh-in-fit": False,
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
        "python_dependencies": "kitt-gp",
    }

    def __init__(self, season: Any = None, changes: bool = True) -> None:
        self.season = season
        self.changes = changes
        super().__init__()

    def _fit(self, y: Any, X: Any, fh: Any) -> KITTForecaster:
        self.forecast_: Forecast = forecast(
            y.to_numpy(), np.arange(len(y)), 12, season=self.season, changes=self.changes
        )
        return self

    def _there(self, fh: Any) -> tuple[Forecast, Any]:
        """The forecast at the requested steps, also in the past, and their index."""
        steps = fh.to_relative(self.cutoff).to_numpy().astype(np.float64)
        index = fh.to_absolute(self.cutoff).to_pandas()
        return self.forecast_.at(len(self._y) - 1 + steps), index

    def _predict(self, fh: Any, X: Any) -> Any:
        import pandas as pd

        made, index = self._there(fh)
        return pd.Series(made.mean, index=index, name=self._y.name)

    def _predict_quantiles(self, fh: Any, X: Any, alpha: Any) -> Any:
        import pandas as pd

        made, index = self._there(fh)
        names = self._get_varnames()
        columns = pd.MultiIndex.from_product([names, alpha])
        return pd.DataFrame(made.quantiles(alpha), index=index, columns=columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings with which sktime tests it."""
        return [{"season": 0, "changes": False}, {"season": 4}]
