"""`random-word`: a word drawn blindly from the vocabulary, and fitted (paper, Table of strategies)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kitt.fitting.config import FitConfig
from kitt.fitting.fit import fit
from kitt.lab.baselines.base import FittedMethod
from kitt.lab.baselines.rbf_ard import fitted_method
from kitt.language.grammar import WORDS, Expression
from kitt.table.dataset import Dataset


@dataclass(frozen=True)
class RandomWord:
    prior: str = "default"
    objective: Literal["map", "ml"] = "map"

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        word = WORDS[np.random.default_rng(random_state).integers(len(WORDS))]
        config = FitConfig(prior=self.prior, objective=self.objective)
        return fitted_method(fit(Expression((word,)), train, config, random_state=random_state), train)
