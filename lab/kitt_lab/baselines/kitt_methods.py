"""KITT as methods of the benchmark: `kitt`, what `KITTRegressor()` does, and the paper's `kitt-e` and `kitt-ed`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

from kitt.errors import FitError
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import Failure
from kitt.fitting.gp import GP
from kitt.fitting.options import Options, Weighting
from kitt.kernels.grammar import WORDS, Expression, Word, parse
from kitt.model.mixture import Mixture
from kitt.model.weights import log_probabilities, weights
from kitt.network.caption import Caption, Captions, caption
from kitt.network.checkpoint import load, read_facts
from kitt.pipeline import suggest_dataset
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.baselines.base import FittedMethod, Predictive
from kitt_lab.baselines.random_word import drawn_words
from kitt_lab.fits import fit_all

HIDDEN = parse("RBF + Linear*White").words  # the paper's code adds these to every candidate; its text does not say so


@dataclass(frozen=True, eq=False)
class Average:
    """A mixture, and the same models with other weights, to be scored beside it (only on request, because it takes time)."""

    mixture: Mixture
    log_probabilities: Sequence[float]  # of each model, by the network

    @cached_property
    def variants(self) -> Mapping[str, Predictive]:
        return variants(self.mixture.models, self.log_probabilities)

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.mixture.predict(X)

    def log_density(self, X: FloatArray, y: FloatArray) -> FloatArray:
        return self.mixture.log_density(X, y)

    def quantiles(self, X: FloatArray, levels: FloatArray) -> FloatArray:
        return self.mixture.quantiles(X, levels)


def variants(models: Sequence[GP], log_probabilities: Sequence[float]) -> dict[str, Predictive]:
    """The models under every weighting, and the first alone."""
    averages = {m: Mixture.of(models, weights(models, m, log_probabilities)) for m in get_args(Weighting)}
    return {"first": models[0], **averages}


@dataclass(frozen=True)
class PaperKITT:
    """The paper's inference: the k most probable captions, each fitted, averaged by their marginal likelihood."""

    network: str = "default"
    head: Literal["classifier", "decoder"] = "classifier"
    k: int = 3
    weights: Weighting = "lml"
    search: str = "sample"
    ranking: str = "probability"
    prior: str = "default"
    objective: Literal["map", "ml"] = "map"
    original: bool = False  # add what the paper's code adds to every candidate

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        network = load(self.network)  # reading the weights, done once, is not part of choosing a kernel
        clock = time.perf_counter()
        asked = {"head": self.head, "search": self.search, "ranking": self.ranking, "random_state": random_state}
        said = caption(train.X, train.y, self.k, network=network, **asked).ranked  # type: ignore[arg-type]
        chosen = time.perf_counter()
        models, probabilities, failures = self._fit_all(train, said, random_state)
        chance = [math.log(max(p, 1e-12)) for p in probabilities]
        mixture = Mixture.of(models, weights(models, self.weights, chance))
        average = Average(mixture, chance)
        details = {**_details(mixture, failures), "captions": {str(c.expression): c.probability for c in said}}
        details["checkpoint"] = _checkpoint(self.network)
        return FittedMethod(average, train.d, _best(mixture), chosen - clock, time.perf_counter() - chosen, details)

    def _fit_all(
        self, train: Dataset, said: Sequence[Caption], seed: int
    ) -> tuple[list[GP], list[float], list[Failure]]:
        """A model and a probability for each caption; equal expressions are fitted once."""
        wanted: dict[frozenset[Word], tuple[Expression, float]] = {}
        for c in said:
            expression = self._model_of(c.expression)
            key = frozenset(expression.words)
            wanted[key] = expression, c.probability + (wanted[key][1] if key in wanted else 0.0)
        config = FitConfig(prior=self.prior, objective=self.objective)
        models, failures = fit_all([e for e, _ in wanted.values()], train, config, random_state=seed)
        if not models:
            raise FitError("no caption could be fitted: " + "; ".join(map(str, failures)))
        return models, [wanted[frozenset(model.expression.words)][1] for model in models], failures

    def _model_of(self, expression: Expression) -> Expression:
        added = tuple(word for word in HIDDEN if word not in expression.words)
        return Expression(expression.words + added) if self.original else expression


@dataclass(frozen=True)
class KITT:
    """The pipeline with its own defaults, except where a setting says otherwise."""

    options: Options = field(default_factory=Options)
    captions: str = "network"  # or `once`, the network's without adding words; `random`, as many random words; or a sum

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        load(self.options.network)
        options = replace(self.options, random_state=random_state)
        started = time.perf_counter()
        captions = self._replaced(train, options)
        chosen = time.perf_counter() - started
        said = suggest_dataset(train, options, captions=captions)
        average = Average(said.mixture, log_probabilities(said.mixture.models, said.captions))
        details = {
            **_details(said.mixture, said.failures),
            "captions": {str(c.expression): c.probability for c in said.captions.ranked},
            "strangeness": said.captions.strangeness,
            "checkpoint": _checkpoint(self.options.network),
        }
        fitting = sum(seconds for stage, seconds in said.seconds.items() if stage != "caption")
        return FittedMethod(average, train.d, _best(said.mixture), chosen + said.seconds["caption"], fitting, details)

    def _replaced(self, train: Dataset, options: Options) -> Captions | None:
        """The captions in place of the network's, if any; they are equally probable, and so are all words."""
        if self.captions == "network":
            return None
        if self.captions == "once":
            return caption(train.X, train.y, options.k, **options.of_captions(fit=True))
        is_random = self.captions == "random"
        said = drawn_words(train, options.k, options.random_state) if is_random else [parse(self.captions)]
        ranked = tuple(Caption(expression, 1 / len(said)) for expression in said)
        return Captions(ranked, (1 / len(WORDS),) * len(WORDS), 0, None, None, None)


def kitt(captions: str = "network", **options: Any) -> KITT:
    """KITT with some options of `suggest`, and perhaps with other captions than the network's."""
    return KITT(Options.of(**options), captions)


def _best(mixture: Mixture) -> str:
    return str(mixture.models[mixture.best].expression)


def _details(mixture: Mixture, failures: Sequence[Failure]) -> dict[str, Any]:
    parts = zip(mixture.models, mixture.weights.tolist(), strict=True)
    fields = ("expression", "weight", "lml", "bic", "loo", "seconds")
    values = [
        (str(m.expression), w, m.log_marginal_likelihood, m.bic, m.loo_log_density, m.fitted.seconds) for m, w in parts
    ]
    return {
        "models": [dict(zip(fields, value, strict=True)) for value in values],
        "failures": [str(failure) for failure in failures],
    }


def _checkpoint(network: str) -> dict[str, Any]:
    facts = read_facts(network)
    return {"name": facts.name, "steps": facts.steps, "hours": facts.training_seconds / 3600}
