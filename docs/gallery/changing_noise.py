"""Noise that changes

Measurements of a curve become less precise as x grows. The word `Linear*White` is heteroscedastic noise whose standard
deviation grows along a direction, so the predictive intervals are narrow on the left and wide on the right.
"""

import matplotlib.pyplot as plt
import numpy as np

import kitt

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 4, 200))
y = np.sin(2 * x) + 0.15 * x * rng.normal(size=200)

suggestion = kitt.suggest(x[:, None], y, fit=True)
print(suggestion)
noise = kitt.explain(suggestion).noise
print(f"The noise has a standard deviation between {noise.low:.2f} and {noise.high:.2f} in 90 % of the rows.")

grid = np.linspace(0, 4, 200)[:, None]
quantiles = suggestion.fitted.quantiles(grid, [0.05, 0.95])
plt.plot(x, y, "k.", markersize=3)
plt.plot(grid, suggestion.fitted.predict(grid)[0], label="mean")
plt.fill_between(grid[:, 0], *quantiles.T, alpha=0.3, label="90 % of the observations")
plt.xlabel("x")
plt.ylabel("y")
plt.legend()
