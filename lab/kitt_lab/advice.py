"""Trains the prediction of each kernel's loss (`network.advice.AdviceHead`) on a corpus, and cross-validates it.

Ridge regression on the features and a random layer of them, one penalty for each principal component of the losses of all
words, chosen by folds over tables: most components are noise, and are left at their mean. A task counts in proportion to its
rows, because with few of them it is mostly chance which kernel is best. With some 500 tasks that was better than small
trained networks, with squared errors or the energy score, one or an ensemble of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.kernels.grammar import WORDS
from kitt.network.advice import AdviceConfig, AdviceHead
from kitt.network.ranking import ranked
from kitt_lab.examples import LOSS_CAP, Examples, folds_of

V = len(WORDS)
PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # of which one is chosen by cross-validation
INNER_FOLDS = 4  # over tables, for penalties and residuals


@dataclass(frozen=True)
class LearningConfig:
    """How the head is learned; chosen by cross-validation over the tables of a corpus of 540 tasks."""

    hidden: int = 512
    scenarios: int = 512  # at most
    seed: int = 0


@dataclass(frozen=True)
class Advice:
    """Predictions for tasks that were left out."""

    expected: Tensor  # (T, V) loss of each word
    chosen: Tensor  # (T, k) words such that the best of them should lose little, by increasing expected loss


def select(examples: Examples, rows: np.ndarray) -> Examples:
    """Some of the tasks: rows is a mask (T,)."""
    mask = torch.from_numpy(rows)
    return replace(
        examples,
        tables=tuple(name for name, kept in zip(examples.tables, rows, strict=True) if kept),
        is_own_target=examples.is_own_target[rows],
        **{name: getattr(examples, name)[mask] for name in ("features", "multi_hot", "loss", "nlpd", "alone", "bic")},
    )


def learn_head(examples: Examples, config: LearningConfig | None = None) -> AdviceHead:
    """The head learned from all examples."""
    config = config or LearningConfig()
    if (different := len(set(examples.tables))) < 2:
        raise InvalidInputError(f"advice is learned from tasks of at least two different tables, got {different}")
    generator = torch.Generator().manual_seed(config.seed)
    count = min(config.scenarios, len(examples))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        head = AdviceHead(AdviceConfig(examples.features.shape[1], V, config.hidden, count))
    head.requires_grad_(False)
    _fix_inner(head, examples.features, generator)
    A, roots = head.inner(examples.features).double(), examples.loss[:, :V].double().sqrt()
    fold = folds_of(examples.tables, INNER_FOLDS, "inner ")
    weights = torch.from_numpy(examples.rows).double()
    slopes, bias, left_out = _regress(A, roots, weights, torch.from_numpy(fold), config)
    head.out.weight.copy_(slopes.mT)
    head.out.bias.copy_(bias)
    order = torch.randperm(len(examples), generator=generator)[:count]
    head.residuals.copy_((roots - left_out)[order])
    head.cap.fill_(LOSS_CAP**0.5)
    _learn_sums(head, examples)
    return head.eval()


def _fix_inner(head: AdviceHead, features: Tensor, generator: torch.Generator) -> None:
    """Set the random layer, and the scales of its inputs and outputs."""
    head.normalise.measure(features)
    head.hidden.weight.copy_(torch.randn(head.hidden.weight.shape, generator=generator))
    head.hidden.bias.copy_(torch.randn(head.hidden.bias.shape, generator=generator))
    head.normalise_hidden.measure(head.hidden_units(head.normalise(features)))


def _regress(
    A: Tensor, Y: Tensor, weights: Tensor, fold: Tensor, config: LearningConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Slopes (I, V) and constants (V,) of Y (T, V) on A (T, I), and cross-validated predictions of each row (T, V)."""
    fitted = Ridge.fit(A, Y, weights, PENALTIES)
    said = Y.mean(0).expand(len(PENALTIES), *Y.shape).clone()
    means = Y.mean(0).expand_as(Y).clone()
    for k in range(INNER_FOLDS):
        out, rest = fold == k, fold != k
        if out.any() and rest.any():
            others = Ridge.fit(A[rest], Y[rest], weights[rest], PENALTIES)
            means[out], said[:, out] = others.mean, others(A[out])
    components = torch.linalg.svd((Y - fitted.mean) * weights[:, None].sqrt(), full_matrices=False).Vh  # (V or T, V)
    errors = weights @ ((said - Y) @ components.mT).square()  # (penalties, components)
    is_useful = errors.amin(0) < weights @ ((means - Y) @ components.mT).square()
    best = torch.nn.functional.one_hot(errors.argmin(0), len(PENALTIES)).to(Y) * is_useful[:, None]
    parts = components.mT @ (best.mT[:, :, None] * components)  # (penalties, V, V): those that each penalty has
    slopes = (fitted.slopes @ parts).sum(0)
    return slopes, fitted.mean - fitted.centre @ slopes, means + ((said - means) @ parts).sum(0)


@dataclass(frozen=True)
class Ridge:
    """Weighted ridge regressions, one for each penalty."""

    centre: Tensor  # (I,) weighted mean of the regressors
    mean: Tensor  # (V,) weighted mean of the targets
    slopes: Tensor  # (penalties, I, V)

    @classmethod
    def fit(cls, A: Tensor, Y: Tensor, weights: Tensor, penalties: tuple[float, ...]) -> Ridge:
        """All from one decomposition."""
        share = weights / weights.sum()
        centre, mean = share @ A, share @ Y
        scale = (weights / weights.mean()).sqrt()[:, None]
        A, Y = (A - centre) * scale, (Y - mean) * scale
        values, vectors = torch.linalg.eigh(A.mT @ A)
        inner = vectors.mT @ (A.mT @ Y)
        slopes = [vectors @ (inner / (values.clamp_min(0) + penalty)[:, None]) for penalty in penalties]
        return cls(centre, mean, torch.stack(slopes))

    def __call__(self, A: Tensor) -> Tensor:
        """Predictions (penalties, T, V)."""
        return self.mean + (A - self.centre) @ self.slopes


def _learn_sums(head: AdviceHead, examples: Examples) -> None:
    """The position of a sum between the smallest and the mean of its words, and the penalty of a word, by least squares."""
    words, sums, multi_hot = examples.loss[:, :V].sqrt(), examples.loss[:, V:].sqrt(), examples.multi_hot[:, V:]
    head.pull.fill_(1.0)
    least = head.combine(words, multi_hot)
    head.pull.fill_(0.0)
    mean = head.combine(words, multi_hot)
    there = multi_hot.any(-1)
    if int(there.sum()) < 20:
        head.pull.fill_(1.0)
        return
    F = torch.stack([(least - mean)[there], torch.ones(int(there.sum()))], 1)
    pull, price = torch.linalg.lstsq(F, (sums - mean)[there].unsqueeze(1)).solution.squeeze(1)
    head.pull.copy_(pull)
    head.price.copy_(price)


def cross_validate(examples: Examples, k: int = 3) -> Advice:
    """Predictions for each task by heads that were trained without its table."""
    T = len(examples)
    expected, chosen = torch.zeros(T, V), torch.zeros(T, k, dtype=torch.long)
    fold = examples.folds()
    for number in np.unique(fold):
        head = learn_head(select(examples, fold != number))
        for i in np.flatnonzero(fold == number):
            scenarios = head.scenarios(examples.features[i : i + 1], torch.eye(V))[0]
            probability = examples.log_probabilities[i].softmax(0)
            likeliest_first = probability.argsort(descending=True)
            signals = [frozenset(() if WORDS[w].is_noise else (w,)) for w in likeliest_first.tolist()]
            of_words = scenarios[:, likeliest_first].double()
            best, losses = ranked(of_words, signals, probability[likeliest_first].tolist(), k)
            expected[i, likeliest_first] = losses.float()
            chosen[i] = likeliest_first[best]
    return Advice(expected, chosen)
