"""Ranking of captions by expected loss instead of probability.

Wrong captions differ in their cost: a word that is too flexible loses hundredths of a nat per row, one that is too rigid
loses whole nats. A checkpoint may hold a head that predicts scenarios of the loss of each caption, learned from real tables
(`network.advice`). A checkpoint without that head ranks by probability, as the paper does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

RANKINGS = ("expected-loss", "probability")


# Chosen by cross-validation over the tables of tasks of `kitt bench losses`. The last one is as large as tables of noise
# require (`kitt_lab/bench/noise.py`, docs/notebook/training.md).
_OWN_LOSS_WEIGHT = 0.2  # weight of a further caption's own expected loss, beside its gain over those chosen
_CLOSE_LOSS = 0.01  # among losses this close, in nats per row, the caption of the largest belief comes first
_CLOSE_NOISE = 0.03  # the same for noise alone, because a signal that is not there misleads


def ranked(
    scenarios: Tensor,
    signals: Sequence[frozenset[int]],
    probabilities: Sequence[float],
    k: int,
) -> tuple[list[int], Tensor]:
    """The positions of k captions, the best first, and the expected loss of every caption (C,).

    `scenarios` (S, C) has the loss of each caption in each scenario; the captions come in decreasing order of probability.
    A signal is the set of a caption's words that are not noise. Captions with the same signal differ in words of noise
    alone, and every kernel is also fitted with noise that changes: only the most probable of them is ranked, before all
    others, and the belief in it is the sum of their probabilities. The loss of noise alone shrinks with the belief in it.
    """
    total: dict[frozenset[int], float] = defaultdict(float)
    first: dict[frozenset[int], int] = {}
    for position, (signal, probability) in enumerate(zip(signals, probabilities, strict=True)):
        total[signal] += probability
        first.setdefault(signal, position)
    belief = torch.tensor([total[signal] for signal in signals], dtype=torch.float64)
    is_noise = torch.tensor([not signal for signal in signals])
    scenarios = scenarios * torch.where(is_noise, 1 - belief, 1.0)  # if it is noise, nothing is lost by saying so
    distinct = list(first.values())
    close = torch.where(is_noise, _CLOSE_NOISE, _CLOSE_LOSS)
    order = [distinct[i] for i in rank(scenarios[:, distinct], belief[distinct], close[distinct], k)]
    others = [position for position in range(len(signals)) if position not in first.values()]
    return (order + others)[:k], scenarios.mean(0)


def rank(scenarios: Tensor, belief: Tensor, close: Tensor, k: int) -> list[int]:
    """The positions of k captions, the best first, given the loss of each in each scenario (S, C) and the belief in it (C,).

    The captions come in decreasing order of probability. The first that is chosen has the smallest mean loss or, among
    those that are `close` (C,) to it, the largest belief; each further one most reduces the mean over scenarios of the
    smallest loss among those chosen. The most probable caption is always one of them, if there is more than one.
    """
    own_loss = scenarios.mean(0)
    is_close = own_loss <= own_loss.min() + close
    chosen = [int(torch.where(is_close, belief, -1.0).argmax())]
    least = scenarios[:, chosen[0]]
    while len(chosen) < min(k, scenarios.shape[1]):
        left = torch.minimum(scenarios, least[:, None]).mean(0) + _OWN_LOSS_WEIGHT * own_loss
        left[chosen] = math.inf
        is_last = len(chosen) == k - 1
        chosen.append(0 if is_last and 0 not in chosen else int(left.argmin()))
        least = torch.minimum(least, scenarios[:, chosen[-1]])
    return chosen
