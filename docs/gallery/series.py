"""A series: trend, season and a forecast

Eight years of a monthly series, with a trend and a season whose size grows; the two years that follow are forecast. The
period of the season, and whether the logarithm describes the series better, are found in the data.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kitt

rng = np.random.default_rng(0)
month = pd.date_range("2010-01-01", periods=120, freq="MS")
years = np.arange(120) / 12
values = 40 + 3 * years + (4 + years) * np.sin(2 * np.pi * years) + rng.normal(0, 2, 120)
visitors = pd.Series(values, month, name="visitors")

forecast = kitt.forecast(visitors[:96], horizon=24)  # the last two years are left out
print(forecast.explain())

low, high = forecast.interval(0.9)
inside = (visitors[96:] > low) & (visitors[96:] < high)
print(f"{inside.sum()} of the {len(inside)} months that were left out lie in their 90 % intervals.")

plt.fill_between(month[96:], low, high, alpha=0.3, label="90 % intervals")
plt.plot(month[96:], forecast.median, label="forecast")
plt.plot(visitors[:96], "k.", label="values it was fitted to")
plt.plot(visitors[96:], "r.", label="values that were left out")
plt.ylabel("visitors")
plt.legend()
