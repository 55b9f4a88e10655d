"""`best-bic`: all 34 words are fitted, and the one with the best BIC is chosen: the work that the network saves."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kitt.errors import FitError
from kitt.fitting.config import FitConfig
from kitt.kernels.grammar import WORDS, Expression
from kitt.table.dataset import Dataset
from kitt_lab.baselines.base import FittedMethod
from kitt_lab.baselines.rbf_ard import fitted_method
from kitt_lab.fits import fit_all


@dataclass(frozen=True)
class BestBIC:
    prior: str = "default"

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started = time.perf_counter()
        words = [Expression((word,)) for word in WORDS]
        models, failures = fit_all(words, train, FitConfig(prior=self.prior), random_state=random_state)
        if not models:
            raise FitError("none of the 34 words could be fitted: " + "; ".join(map(str, failures)))
        best = min(models, key=lambda model: model.bic)
        return fitted_method(best, train, time.perf_counter() - started - best.fitted.seconds)
