"""A quick fit of one kernel, and a series to explain, for the tests of explanations."""

import numpy as np
import pandas as pd

import kitt
from kitt.fitting.gp import GP

QUICK = {"draws": 20, "starts": 2, "max_iterations": 60}


def fit(text: str, X: dict, y: np.ndarray, **options) -> GP:
    dataset = kitt.Dataset.from_frame(pd.DataFrame({**X, "sales": y}), "sales")
    return kitt.fit(text, dataset, random_state=0, **{**QUICK, **options})


def months(n: int = 120) -> tuple[dict, np.ndarray]:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 100, n)
    X = {"month": t, "other": rng.normal(size=n)}
    return X, 0.05 * t + np.sin(2 * np.pi * t / 12) + 0.1 * rng.normal(size=n) + 1000
