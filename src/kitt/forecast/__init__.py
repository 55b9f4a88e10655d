"""Forecasts of series: kernels that go on beyond the last value, judged by how they foretold the past."""

from kitt.forecast.forecaster import KITTForecaster
from kitt.forecast.many import Forecasts, forecast_many
from kitt.forecast.pipeline import ForecastConfig, forecast
from kitt.forecast.result import Forecast

__all__ = ["Forecast", "ForecastConfig", "Forecasts", "KITTForecaster", "forecast", "forecast_many"]
