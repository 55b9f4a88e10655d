"""In a scikit-learn pipeline

`KITTRegressor` passes scikit-learn's own checks of estimators, so it works in pipelines and in cross-validation, and its
parameters can be searched.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kitt import KITTRegressor

X, y = load_diabetes(return_X_y=True)
X, y = X[:150], y[:150]
quick = KITTRegressor(k=1, sums=False, random_state=0)
models = {
    "KITT": quick,
    "KITT on five components": make_pipeline(StandardScaler(), PCA(5), quick),
    "ridge regression": make_pipeline(StandardScaler(), RidgeCV()),
    "gradient boosting": GradientBoostingRegressor(random_state=0),
}
folds = KFold(3, shuffle=True, random_state=0)
scores = {name: cross_val_score(model, X, y, cv=folds, scoring="r2") for name, model in models.items()}
for name, values in scores.items():
    print(f"{name:24} R² {values.mean():.2f} (folds: {', '.join(f'{value:.2f}' for value in values)})")

plt.barh(list(scores), [values.mean() for values in scores.values()])
plt.xlabel("R², mean of three folds")
