"""Forecasts of series: kernels that extrapolate, weighted and checked by forecasts from past origins."""

from kitt.forecasting.forecaster import KITTForecaster
from kitt.forecasting.many import Forecasts, forecast_many
from kitt.forecasting.pipeline import ForecastConfig, forecast
from kitt.forecasting.result import Forecast

__all__ = ["Forecast", "ForecastConfig", "Forecasts", "KITTForecaster", "forecast", "forecast_many"]
