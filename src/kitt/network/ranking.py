"""Which captions to fit first: not the most probable ones, but those whose error is expected to cost least.

Errors are not alike: a word that is too flexible costs hundredths of a nat per row, one that is too rigid costs whole nats.
A checkpoint holds a head that has learned from real tables what each kernel loses (`network.advice`), as scenarios of the
loss of each caption. A checkpoint without that head ranks by probability, as the paper does.
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

    own_loss_weight: float = 0.2  # of a further caption's own expected loss, beside what it adds to those chosen before
    trust: float = 0.5  # in the network: a caption of probability p loses what was learned, times 1 − trust p
    close_loss: float = 0.01  # nats per row within which losses are alike, and the most probable caption comes first


DEFAULT = RankingConfig()


def trusted(scenarios: Tensor, probabilities: Tensor, config: RankingConfig = DEFAULT) -> Tensor:
    """What captions lose (S, C), given also how probable (C,) the network finds each: the true kernel loses nothing."""
    return scenarios * (1 - config.trust * probabilities)


def rank(scenarios: Tensor, k: int, config: RankingConfig = DEFAULT) -> list[int]:
    """The places of k captions, the best first, given what each loses in each scenario (S, C).

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
