"""Forecasts of series: kernels that extrapolate, weighted and checked by forecasts from past origins.

Files in the order of the pipeline, each importing only from those before it:

- reading: `times`, `frequency`, `series`, `covariates`
- structure: `structures`, `fit`, `seasons`, `changepoint`
- result: `evaluate`, `level`, `words`, `result`, `picture`
- all of it: `pipeline`, `forecaster`, `tables`, `many`
"""

from kitt.forecasting.forecaster import KITTForecaster
from kitt.forecasting.many import Forecasts, forecast_many
from kitt.forecasting.pipeline import forecast
from kitt.forecasting.result import Forecast

__all__ = ["Forecast", "Forecasts", "KITTForecaster", "forecast", "forecast_many"]
