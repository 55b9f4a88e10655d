"""`random-word`: a word drawn at random from the vocabulary, and fitted (paper, Table of strategies)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kitt.fitting.config import FitConfig
from kitt.fitting.fit import fit
from kitt.kernels.grammar import WORDS, Expression
from kitt.table.dataset import Dataset
from kitt_lab.baselines.base import FittedMethod
from kitt_lab.baselines.rbf_ard import fitted_method


def drawn_words(train: Dataset, count: int, random_state: int) -> list[Expression]:
    """Distinct words drawn at random; they differ between tables, even for the same random state."""
    generator = np.random.default_rng([random_state, zlib.crc32(train.y.tobytes())])
    return [Expression((WORDS[i],)) for i in generator.choice(len(WORDS), count, replace=False)]


@dataclass(frozen=True)
class RandomWord:
    prior: str = "default"
    objective: Literal["map", "ml"] = "map"

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        (word,) = drawn_words(train, 1, random_state)
        config = FitConfig(prior=self.prior, objective=self.objective)
        return fitted_method(fit(word, train, config=config, random_state=random_state), train)
