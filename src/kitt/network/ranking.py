"""Which captions to fit first: not the most probable ones, but those whose error is expected to cost least.

Errors are not alike: a word that is too flexible costs hundredths of a nat per row, one that is too rigid costs whole nats.
A checkpoint holds a regression of the loss of every word on the network's log-probabilities and the size of the table
("costs"), and the left-out residuals of that regression on the simulated tables it was learned from ("loss_residuals"),
which say how wrong it may be. Each row of residuals is one scenario. `lab.corpus` learns both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

RANKINGS = ("prudent", "probability", "expected-loss")


@dataclass(frozen=True)
class RankingConfig:
    """The numbers of the rankings.

    Most were chosen by cross-validation on the corpus of `kitt bench costs` (docs/results/costs.jsonl), and where that did
    not decide, by `kitt bench regret` on the UCI tables (docs/training.md, "Choosing by more than probability").
    """

    loss_cap: float = 3.0  # nats per row: a larger loss counts as this much; no benchmark is on record
    trust: float = 0.9  # in the network's probabilities; the rest is for unusual tables: `bench costs`, `bench regret`
    improbability_price: float = 0.07  # nats per row, for a factor e of probability: `bench costs`, `bench regret`
    own_loss_weight: float = 0.2  # weight of a further caption's own loss: `bench costs`, `bench regret`
    min_relative_probability: float = 0.01  # of the first caption, to the most probable's: so that noise is named White
    word_price: float = 0.01  # nats per row that each further word of a sum costs; no benchmark is on record
    min_probability: float = 1e-4  # smaller ones are alike to the regression; no benchmark is on record
    corpus_rows: tuple[int, int] = (64, 300)  # the fewest and most training rows, and columns, of the tables that the
    corpus_columns: tuple[int, int] = (1, 14)  # regression was learned from: beyond them it is not extrapolated


DEFAULT = RankingConfig()


def features(probabilities: Tensor, sizes: Tensor, config: RankingConfig = DEFAULT) -> Tensor:
    """Logarithms of both, (..., V + 2); a size beyond those of the corpus counts as its largest or smallest."""
    low, high = (sizes.new_tensor(ends) for ends in zip(config.corpus_rows, config.corpus_columns, strict=True))
    return torch.cat([probabilities.double() + config.min_probability, sizes.clamp(low, high).double()], -1).log()


def expected_loss(table: Tensor, probabilities: Tensor, sizes: Tensor, config: RankingConfig = DEFAULT) -> Tensor:
    """Expected loss of choosing each word, (..., V), from the probabilities of all of them and (..., 2) rows and columns.

    The loss of a word that is probably the true one is bounded, whatever the regression predicts.
    """
    regressed = features(probabilities, sizes, config) @ table[:-1].double() + table[-1].double()
    return torch.minimum(regressed, config.loss_cap * (1 - config.trust * probabilities.double()))


def loss_scenarios(
    captions: Sequence[tuple[int, ...]],
    words: Tensor,
    size: tuple[int, int],
    tensors: Mapping[str, Tensor],
    config: RankingConfig = DEFAULT,
) -> Tensor:
    """The loss of each caption in each scenario, (S, C): that of its best word, plus a cost for each further word."""
    expected = expected_loss(tensors["costs"], words, torch.tensor(size), config)
    by_word = expected + tensors["loss_residuals"].double()
    return torch.stack([by_word[:, list(c)].amin(1) + config.word_price * (len(c) - 1) for c in captions], 1)


def cover(scenarios: Tensor, k: int, eligible: int, config: RankingConfig = DEFAULT) -> list[int]:
    """Choose k captions greedily, such that in most scenarios at least one of them loses little.

    The first is the caption with the smallest mean loss among the `eligible` first ones. Each further one is that which
    most reduces the mean over scenarios of the smallest loss among the chosen captions.
    """
    own_loss = scenarios.mean(0)
    chosen = [int(own_loss[:eligible].argmin())]
    least = scenarios[:, chosen[0]]
    while len(chosen) < min(k, scenarios.shape[1]):
        left = torch.minimum(scenarios, least[:, None]).mean(0) + config.own_loss_weight * own_loss
        left[chosen] = math.inf
        chosen.append(int(left.argmin()))
        least = torch.minimum(least, scenarios[:, chosen[-1]])
    return chosen


def rank(
    probabilities: Sequence[float], scenarios: Tensor, ranking: str, k: int, config: RankingConfig = DEFAULT
) -> list[int]:
    """The places of captions, the best first, given their probabilities in decreasing order and losses (S, C)."""
    if ranking == "expected-loss":
        return cover(scenarios, k, len(probabilities), config)
    if ranking == "prudent":
        price = -config.improbability_price * torch.tensor([max(p, 1e-12) for p in probabilities]).log()
        eligible = sum(p >= config.min_relative_probability * probabilities[0] for p in probabilities)
        return cover(scenarios + price, k, eligible, config)
    return list(range(len(probabilities)))
