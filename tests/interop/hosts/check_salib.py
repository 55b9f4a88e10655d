"""Shares of columns of fitted models, `Model.sensitivity`, beside SALib's estimates from the predictions of these models."""

import warnings
from collections.abc import Callable
from itertools import combinations

import numpy as np
from SALib.analyze import sobol
from SALib.sample import sobol as sample

import kitt

POINTS = 2**13  # of SALib's design, for each column and more
RANGE = 1.96  # standard errors that SALib's half intervals have


def ishigami(x: np.ndarray) -> np.ndarray:
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def g_function(x: np.ndarray) -> np.ndarray:
    a = np.array([0.0, 1.0, 4.5, 9.0])
    return ((np.abs(4 * x - 2) + a) / (1 + a)).prod(1)


def check(name: str, function: Callable[[np.ndarray], np.ndarray], columns: int, ends: tuple[float, float]) -> None:
    """Every share lies within two standard errors of the difference."""
    X = np.random.default_rng(0).uniform(*ends, (150, columns))
    model = kitt.suggest(X, function(X), fit=True).fitted
    names = [f"x{d + 1}" for d in range(columns)]
    problem = {"num_vars": columns, "names": names, "bounds": [list(ends)] * columns}
    design = sample.sample(problem, POINTS, calc_second_order=True, seed=0)
    theirs = sobol.analyze(problem, model.predict(design)[0], calc_second_order=True, seed=0)
    ours = model.sensitivity(dict.fromkeys(names, ends))
    pairs = {frozenset(pair.columns): (pair.share, pair.error) for pair in ours.pairs}
    compared = [
        (f"{kind} {column}", shares[d], errors[d], theirs[key][d], theirs[f"{key}_conf"][d] / RANGE)
        for kind, key, shares, errors in (
            ("first", "S1", ours.first, ours.first_error),
            ("total", "ST", ours.total, ours.total_error),
        )
        for d, column in enumerate(names)
    ]
    for i, j in combinations(range(columns), 2):
        share, error = pairs.get(frozenset((names[i], names[j])), (0.0, 0.0))
        compared.append(
            (f"pair {names[i]} {names[j]}", share, error, theirs["S2"][i, j], theirs["S2_conf"][i, j] / RANGE)
        )
    print(name)
    for what, own, error, other, other_error in compared:
        apart = abs(own - other) / np.hypot(error, other_error)
        shares = f"{own:7.4f} ± {error:.4f}, by SALib {other:7.4f} ± {other_error:.4f}"
        print(f"  {what:10}  {shares}, {apart:.1f} standard errors")
        assert apart < 2, f"{name}: the share '{what}' is {shares}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    check("ishigami", ishigami, 3, (-np.pi, np.pi))
    check("g", g_function, 4, (0.0, 1.0))
