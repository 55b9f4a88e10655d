"""A table with text and dates

Columns need not be numbers: dates become days, text with a few levels becomes indicator columns, and a column that never
changes is dropped. A note says what was done to each, and new rows are treated in the same way.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import kitt

rng = np.random.default_rng(0)
days = pd.date_range("2023-01-01", periods=150, freq="2D")
frame = pd.DataFrame(
    {
        "day": days,
        "weather": rng.choice(["sun", "cloud", "rain"], 150),
        "holiday": rng.choice([True, False], 150, p=[0.2, 0.8]),
        "city": "Vienna",
    }
)
season = 20 * np.sin(2 * np.pi * (days.day_of_year.to_numpy() - 100) / 365)
effect = frame["weather"].map({"sun": 25, "cloud": 10, "rain": 0})
frame["rides"] = 100 + season + effect + 15 * frame["holiday"] + rng.normal(0, 5, 150)

suggestion = kitt.suggest(frame, target="rides", fit=True, k=2)
print(*suggestion.warnings, sep="\n")
print()
print(kitt.explain(suggestion))

for weather in ("sun", "cloud", "rain"):
    new = pd.DataFrame({"day": days, "weather": weather, "holiday": False})
    mean, std = suggestion.fitted.predict(new, noisy=False)
    plt.plot(days, mean, label=weather)
    plt.fill_between(days, mean - 2 * std, mean + 2 * std, alpha=0.2)
plt.ylabel("rides, on a day that is no holiday")
plt.gcf().autofmt_xdate()
plt.legend()
