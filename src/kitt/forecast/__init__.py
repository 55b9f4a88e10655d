"""Forecasts of series: kernels that extrapolate, weighted and checked by forecasts from past origins."""

from kitt.forecast.forecaster import KITTForecaster
from kitt.forecast.many import Forecasts, forecast_many
from kitt.forecast.pipeline import ForecastConfig, forecast
from kitt.forecast.result import Forecast

__all__ = ["Forecast", "ForecastConfig", "Forecasts", "KITTForecaster", "forecast", "forecast_many"]
