"""Run exported source and compare what it gives with what is expected. Needs numpy and the library, nothing of ours.

`python check.py FILE` checks the cases that `cases.py` wrote, and says which fail.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


def matrix(library: str, kernel: Any, *points: np.ndarray) -> np.ndarray:
    """K(X), or K(X, Z), as the library writes it."""
    if library in ("gpytorch", "botorch"):
        import torch

        with torch.no_grad():  # with gradients, the distance of a point to itself is 1e-8 in a MaternKernel
            return kernel(*map(torch.as_tensor, points)).to_dense().numpy()
    if library == "gpjax":
        return np.asarray(kernel.gram(*points).as_matrix() if len(points) == 1 else kernel.cross_covariance(*points))
    return np.asarray(kernel(*points))


def error(got: np.ndarray, expected: np.ndarray) -> float:
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    return float(np.abs(got - expected).max() / max(1.0, np.abs(expected).max()))


def run(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Execute the source as a module of its own; the names it defines, and the errors of what they give."""
    module = sys.modules["exported"] = ModuleType("exported")
    names: dict[str, Any] = vars(module)
    exec(compile(case["source"], "exported.py", "exec"), names)
    X, y, Z, K, cross, mean, variance = (
        np.array(case[key]) for key in ("X", "y", "Z", "matrix", "cross", "mean", "variance")
    )
    model = names["gp"](names["kernel"], names["noise"], X, y, *([] if "standardise" in names else [names["y_mean"]]))
    got = [np.asarray(array) for array in names["predict"](model, Z)]
    errors = {
        "matrix": error(matrix(case["library"], names["kernel"], X), K),
        "cross": error(matrix(case["library"], names["kernel"], X, Z), cross),
        "mean": error(got[0], mean),
        "variance": error(got[1], variance),
    }
    return names | {"model": model}, errors


def failures(errors: dict[str, float]) -> list[str]:
    limits = {"matrix": 1e-8, "cross": 1e-8, "mean": 1e-6, "variance": 1e-6}
    return [f"{key} off by {errors[key]:.1e}" for key in limits if not errors[key] <= limits[key]]


def improves(library: str, names: dict[str, Any]) -> tuple[float, float]:
    """The log marginal likelihood before and after a few steps of the library's own optimiser, on all parameters."""
    model = names["model"]
    if library == "gpflow":
        import gpflow

        before = float(model.log_marginal_likelihood())
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables, options={"maxiter": 5})
        return before, float(model.log_marginal_likelihood())
    import gpjax

    data = model.train_data
    joint = model.prior * model.likelihood
    trained, _ = gpjax.fit_scipy(
        model=joint,
        objective=lambda m, d: -gpjax.objectives.conjugate_mll(m, d),
        train_data=data,
        max_iters=5,
        verbose=False,
    )
    return float(model.log_marginal_likelihood), float(trained.condition(data).log_marginal_likelihood)


def main(path: str) -> int:
    cases = json.loads(Path(path).read_text())
    library = cases[0]["library"]
    failed, worst, names = 0, dict.fromkeys(("matrix", "cross", "mean", "variance"), 0.0), {}
    for case in cases:
        try:
            names, errors = run(case)
            problems = failures(errors)
            worst = {key: max(worst[key], errors[key]) for key in worst}
        except Exception as problem:
            problems = [f"{type(problem).__name__}: {problem}"]
        failed += bool(problems)
        if problems:
            print(f"{library}, {case['name']}: {'; '.join(problems)}")
    print(f"{library}: {len(cases) - failed} of {len(cases)} cases agree; largest errors", end=" ")
    print(", ".join(f"{key} {value:.1e}" for key, value in worst.items()))
    before, after = improves(library, names)
    print(f"{library}: log marginal likelihood {before:.3f}, after five steps of its optimiser {after:.3f}")
    return int(failed > 0 or not after > before or any(name in sys.modules for name in ("torch", "kitt")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
