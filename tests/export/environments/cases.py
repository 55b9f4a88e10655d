"""What the exports must reproduce: fitted kernels with random parameters, and what this package makes of them.

`python cases.py LIBRARY FILE` writes the cases and their source as JSON, for `check.py` in an environment without kitt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kitt import export
from kitt.kernels.exact import ExactPosterior
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import STATIONARY, WORDS, Arrangement, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import DEFAULT
from kitt.table.scaling import Standardiser

N, M = 30, 12
MODERATE = (0.05, 3.0)  # of parameters whose priors are so broad that one part of the sum would hide all others
SUMS = (
    "RBF + Matern12",
    "Linear + Periodic + Cosine",
    "Linear*RBF + Cosine*Matern52 + Linear*Linear",
    "RBF + White",
    "White + Linear*White",
    "Linear*Periodic + White + Matern32*Matern52 + Linear*White",
)
ARRANGED = tuple(f"{p.value}({a.value})" for p in STATIONARY for a in Arrangement if a is not Arrangement.JOINT)
CHOSEN = (
    "Periodic(x2) + Linear(x1)*RBF(x3)",
    "Matern32(x1, x3)*Cosine(x2) + Linear(x1)*Linear + White",
    "RBF(pairs) + Linear(x2)*White + Matern52(all) + RBF*Periodic(x3)",
    "RBF(each) + Linear*Linear",
)
EXPRESSIONS = (*map(str, WORDS), *SUMS, *ARRANGED, *CHOSEN)


def fitted(expression: str, dims: int = 3, seed: int = 0) -> FittedKernel:
    """Parameters from the default prior, those of words that act on columns within a range; a standardiser that is not the
    identity."""
    generator = torch.Generator().manual_seed(seed)
    kernel = Kernel(parse(expression), dims)
    draws = {s.name: DEFAULT.distribution(s.parameter, s.context).sample((s.size,), generator) for s in kernel.slots}
    for s in kernel.slots:
        if s.context.summed and not s.parameter.is_signed:
            draws[s.name].clamp_(*MODERATE)
    values = {s.name: tuple(draws[s.name].tolist()) if s.columns else draws[s.name].item() for s in kernel.slots}
    values["noise"] = 0.01 + values["noise"]  # type: ignore[operator]
    standardiser = Standardiser(np.linspace(-1, 2, dims), np.linspace(0.5, 3, dims), 10.0, 4.0)
    names = tuple(f"x{d}" for d in range(dims))
    return FittedKernel(kernel.expression, values, names, "y", standardiser)


def points(rows: int, dims: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, dims, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def expected(kernel: FittedKernel, X: torch.Tensor, y: torch.Tensor, Z: torch.Tensor) -> dict[str, Any]:
    """Covariances with the noise words on the diagonal, but no observation noise; the prediction of an observation."""
    k, theta = kernel.kernel, kernel.theta
    noise = k.noise(theta, X) - kernel.parameters["noise"]
    mean, variance = ExactPosterior.fit(k, theta, X, y).predict(Z)
    arrays = {
        "X": X,
        "y": y,
        "Z": Z,
        "matrix": k.matrix(theta, X) + torch.diag(noise),
        "cross": k.matrix(theta, X, Z),
        "mean": mean,
        "variance": variance,
    }
    return {name: array.tolist() for name, array in arrays.items()}


def in_units(kernel: FittedKernel, values: dict[str, Any]) -> dict[str, Any]:
    """What `expected` gives, in the units of the table."""
    s = kernel.standardiser
    assert s is not None
    to_units = {
        **dict.fromkeys(("X", "Z"), s.inverse_x),
        **dict.fromkeys(("y", "mean"), s.inverse_mean),
        **dict.fromkeys(("matrix", "cross", "variance"), s.inverse_variance),
    }
    return {name: to_units[name](np.array(value)).tolist() for name, value in values.items()}


def case(expression: str, library: str, dims: int = 3, seed: int = 0, standardised: bool = False) -> dict[str, Any]:
    kernel = fitted(expression, dims, seed)
    X, y, Z = points(N, dims, 1), points(N, 1, 2)[:, 0], points(M, dims, 3)
    values = expected(kernel, X, y, Z)
    return {
        "name": f"{expression}, {dims} columns" + ", standardised" * standardised,
        "library": library,
        "source": export.code(kernel, library, standardised),
        **(values if standardised else in_units(kernel, values)),
    }


def repeated(library: str) -> dict[str, Any]:
    """Noise knows points by their row, not by their value: repeated rows, and predictions for the training rows."""
    kernel = fitted("RBF + White + Linear*White", 2)
    X, y = points(N, 2, 1), points(N, 1, 2)[:, 0]
    X[N // 2 :] = X[: N - N // 2]
    return {
        "name": "repeated rows",
        "library": library,
        "source": export.code(kernel, library),
        **in_units(kernel, expected(kernel, X, y, X.flip(0))),
    }


def cases(library: str) -> list[dict[str, Any]]:
    several = [case(expression, library, seed=i) for i, expression in enumerate(EXPRESSIONS)]
    single = [case(expression, library, dims=1, standardised=True) for expression in SUMS]
    return [*several, *single, repeated(library), case(CHOSEN[2], library, seed=1)]  # the last one is trained, too


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(cases(sys.argv[1])))
