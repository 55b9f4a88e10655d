"""Several kernels are fitted to one table, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import ArrayLike

from kitt.fitting.config import FitConfig
from kitt.fitting.fit import Failure, Fitter, RandomState
from kitt.fitting.gp import GP
from kitt.kernels.grammar import Expression
from kitt.table.dataset import Dataset
from kitt.table.table import Table


def fit_all(
    expressions: Iterable[Expression | str],
    data: Dataset | Table | tuple[ArrayLike, ArrayLike],
    config: FitConfig | None = None,
    *,
    random_state: RandomState = None,
    **options: Any,
) -> tuple[list[GP], list[Failure]]:
    """Fit each expression as `fit` does, sharing starts. What cannot be fitted is reported and left out."""
    fitter = Fitter(data, config, random_state=random_state, **options)
    attempts = [fitter.attempt(expression) for expression in expressions]
    return [a for a in attempts if isinstance(a, GP)], [a for a in attempts if isinstance(a, Failure)]
