"""A series: trend, season and a forecast

Ten years of a monthly series, with a trend and a season whose size grows. A table with a single input column is also tried
as trend, season and remainder, and the sum that is found carries on beyond the last row.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kitt

rng = np.random.default_rng(0)
year = 2010 + np.arange(120) / 12
visitors = 40 + 3 * (year - 2010) + (4 + (year - 2010)) * np.sin(2 * np.pi * year) + rng.normal(0, 2, 120)

table = pd.DataFrame({"year": year, "visitors": visitors})
suggestion = kitt.suggest(table[:96], target="visitors", fit=True)  # the last two years are left out
print(kitt.explain(suggestion))

mean, std = suggestion.fitted.predict(table)
inside = np.abs(visitors[96:] - mean[96:]) < 2 * std[96:]
print(f"{inside.sum()} of the {len(inside)} months that were left out lie within two standard deviations.")

plt.fill_between(year, mean - 2 * std, mean + 2 * std, alpha=0.3, label="two standard deviations")
plt.plot(year, mean, label="prediction")
plt.plot(year[:96], visitors[:96], "k.", label="rows it was fitted to")
plt.plot(year[96:], visitors[96:], "r.", label="rows that were left out")
plt.xlabel("year")
plt.ylabel("visitors")
plt.legend()
