"""Forecasts of series: kernels that go on beyond the last value, judged by how they foretold the past."""

from kitt.forecast.pipeline import ForecastConfig, forecast
from kitt.forecast.result import Forecast

__all__ = ["Forecast", "ForecastConfig", "forecast"]
