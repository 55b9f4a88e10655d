"""Ranking of captions by expected loss instead of probability.

Wrong captions differ in their cost: a word that is too flexible loses hundredths of a nat per row, one that is too rigid
loses whole nats. A checkpoint may hold a head that predicts scenarios of the loss of each caption, learned from real tables
(`network.advice`). A checkpoint without that head ranks by probability, as the paper does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

RANKINGS = ("expected-loss", "probability")


@dataclass(frozen=True)
class RankingConfig:
    """The numbers of the ranking; chosen by cross-validation over the tables of 1,149 tasks of `kitt bench losses`."""

    own_loss_weight: float = 0.2  # weight of a further caption's own expected loss, beside its gain over those chosen
    trust: float = 0.5  # trust in the network: losses of a caption of probability p are multiplied by 1 − trust p
    close_loss: float = 0.01  # among losses this close, in nats per row, the most probable caption comes first


DEFAULT = RankingConfig()


def trusted(scenarios: Tensor, probabilities: Tensor, config: RankingConfig = DEFAULT) -> Tensor:
    """The losses of captions (S, C), reduced by the probability of each (C,): the true kernel loses nothing."""
    return scenarios * (1 - config.trust * probabilities)


def rank(scenarios: Tensor, k: int, config: RankingConfig = DEFAULT) -> list[int]:
    """The positions of k captions, the best first, given the loss of each in each scenario (S, C).

    The captions come in decreasing order of probability. The first that is chosen is the one with the smallest mean loss;
    each further one most reduces the mean over scenarios of the smallest loss among those chosen. The most probable
    caption is always one of them, if there is more than one.
    """
    own_loss = scenarios.mean(0)
    is_close = own_loss <= own_loss.min() + config.close_loss
    chosen = [int(is_close.nonzero()[0])]
    least = scenarios[:, chosen[0]]
    while len(chosen) < min(k, scenarios.shape[1]):
        left = torch.minimum(scenarios, least[:, None]).mean(0) + config.own_loss_weight * own_loss
        left[chosen] = math.inf
        is_last = len(chosen) == k - 1
        chosen.append(0 if is_last and 0 not in chosen else int(left.argmin()))
        least = torch.minimum(least, scenarios[:, chosen[-1]])
    return chosen
