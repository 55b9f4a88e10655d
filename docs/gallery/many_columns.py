"""Many columns, of which few matter

Friedman's function depends on the first five of thirty columns. Every column has a lengthscale of its own, and the
explanation says which share of the variance of the prediction comes from moving each column alone.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1

import kitt

X, y = make_friedman1(150, n_features=30, noise=0.5, random_state=0)
suggestion = kitt.suggest(X, y, fit=True, k=2)
print(suggestion)

explanation = kitt.explain(suggestion)
shares = {effect.column: effect.sensitivity for effect in explanation.effects}
strongest = sorted(shares, key=shares.get, reverse=True)[:5]
print("The five strongest columns are", ", ".join(sorted(strongest)))

names = [f"x{i}" for i in range(1, 31)]
plt.bar(names, [shares[name] for name in names])
plt.xticks(rotation=90, fontsize=7)
plt.ylabel("share of the variance (total Sobol index)")
