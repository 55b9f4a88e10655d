"""`polynomial-chaos`: sparse polynomial chaos by OpenTURNS, with the terms chosen by least-angle regression.

Each column is uniform over the range of its training rows. The total degree is the one with the smallest error of leaving
one row out, which is also the variance of a prediction, the same everywhere.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from kitt.errors import FitError, InvalidInputError, MissingExtraError
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod, GaussianPredictive, standardised

LEAST_VARIANCE = 1e-12  # of a prediction, relative to that of the target; below, rounding decides


@dataclass(frozen=True, eq=False)
class Expansion:
    """A fitted expansion, its terms, and the mean squared error of leaving one row out."""

    degree: int
    terms: int
    error: float
    function: Any

    def predict(self, Z: FloatArray) -> FloatArray:
        return np.asarray(self.function(Z))[:, 0]


@dataclass(frozen=True)
class PolynomialChaos:
    """LARS and corrected leave-one-out on the terms of a hyperbolic set, for every total degree up to `degree`."""

    degree: int = 8
    quasi_norm: float = 0.75  # of the hyperbolic set; 1: all terms up to the total degree
    breadth: float = 4.0  # most candidate terms, over the number of rows

    def __post_init__(self) -> None:
        if self.degree < 1 or not 0 < self.quasi_norm <= 1 or self.breadth <= 0:
            raise InvalidInputError(
                f"expected a degree of at least 1, a quasi-norm above 0 and up to 1 and a breadth above 0, got "
                f"{self.degree}, {self.quasi_norm} and {self.breadth}"
            )

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        try:
            import openturns as ot
        except ImportError as error:
            raise MissingExtraError("openturns", None, "comparing with polynomial chaos") from error
        ot.Log.Show(ot.Log.NONE)
        started = time.perf_counter()
        scaling, X, y = standardised(train)
        expansions = [e for e in self._expansions(ot, X, y) if math.isfinite(e.error)]
        if not expansions:
            raise FitError(f"no expansion has fewer terms than the {train.n} rows: give more rows")
        best = min(expansions, key=lambda expansion: expansion.error)
        variance = max(best.error, LEAST_VARIANCE)
        predictive = GaussianPredictive(scaling, lambda Z: (best.predict(Z), np.full(len(Z), variance)))
        details = {"degree": best.degree, "terms": best.terms}
        text = f"polynomial of degree {best.degree}, {best.terms} terms"
        return FittedMethod(predictive, train.d, text, 0.0, time.perf_counter() - started, details)

    def _expansions(self, ot: Any, X: FloatArray, y: FloatArray) -> list[Expansion]:
        """One for each degree, as long as there are not too many candidate terms."""
        box = [ot.Uniform(float(low), float(high)) for low, high in zip(X.min(0), X.max(0), strict=True)]
        numbering = ot.HyperbolicAnisotropicEnumerateFunction(X.shape[1], self.quasi_norm)
        families = [ot.StandardDistributionPolynomialFactory(column) for column in box]
        basis = ot.OrthogonalProductPolynomialFactory(families, numbering)
        expansions: list[Expansion] = []
        for degree in range(1, self.degree + 1):
            size = numbering.getBasisSizeFromTotalDegree(degree)  # slow where there are very many terms
            if expansions and size > self.breadth * len(X):
                break
            selection = ot.LeastSquaresMetaModelSelectionFactory(ot.LARS(), ot.CorrectedLeaveOneOut())
            algorithm = ot.FunctionalChaosAlgorithm(
                X,
                y[:, None],
                ot.JointDistribution(box),
                ot.FixedStrategy(basis, size),
                ot.LeastSquaresStrategy(selection),
            )
            algorithm.run()
            expansions.append(_expansion(degree, algorithm.getResult(), X, y))
        return expansions


def _expansion(degree: int, result: Any, X: FloatArray, y: FloatArray) -> Expansion:
    """With the error of leaving one row out, which for least squares needs no second fit: residuals over 1 - leverage."""
    terms, function = result.getReducedBasis(), result.getMetaModel()
    if len(terms) >= len(X):
        return Expansion(degree, len(terms), math.inf, function)
    inputs = result.getTransformation()(X)
    orthogonal, _ = np.linalg.qr(np.column_stack([np.asarray(term(inputs))[:, 0] for term in terms]))
    leverage = np.minimum((orthogonal**2).sum(axis=1), 1 - 1e-9)
    residuals = (y - np.asarray(function(X))[:, 0]) / (1 - leverage)
    return Expansion(degree, len(terms), float(np.mean(residuals**2)), function)
