"""A model for BoTorch

KITT names and fits the kernels of the points that were measured so far; BoTorch then asks where to measure next. The whole
model is handed over, in the units of the points.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from botorch.acquisition import qLogExpectedImprovement

import kitt

rng = np.random.default_rng(0)


def measure(x):
    return np.sin(3 * x) + 0.5 * np.cos(7 * x) + 0.02 * rng.normal(size=np.shape(x))


x = rng.uniform(0, 4, 14)
y = measure(x)
fitted = kitt.suggest(x[:, None], y, fit=True, effort="quick").fitted
print("The heaviest kernel is", fitted.best.expression)

model = fitted.to_botorch()
improvement = qLogExpectedImprovement(model, best_f=y.max())

grid = np.linspace(0, 4, 300)
with torch.no_grad():
    gain = improvement(torch.tensor(grid[:, None, None])).numpy()
best = grid[gain.argmax()]
print(f"Measure next at x = {best:.2f}; the largest value so far is {y.max():.2f}.")

mean, std = fitted.predict(grid[:, None], noisy=False)
figure, (above, below) = plt.subplots(2, sharex=True)
above.plot(grid, mean)
above.fill_between(grid, mean - 2 * std, mean + 2 * std, alpha=0.3)
above.plot(x, y, "k.")
above.axvline(best, color="red", linestyle=":")
above.set_ylabel("y")
below.plot(grid, gain)
below.axvline(best, color="red", linestyle=":")
below.set_ylabel("log expected\nimprovement")
below.set_xlabel("x")
