"""Tables that no kernel drew: networks, formulas and trees of correlated columns, skewed or rounded targets, uneven noise.

Real tables are not draws from our prior either. What a wrong kernel costs is measured on these too (`cost`), so that the
advice does not rest on the network being right about its own world.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from kitt.lab.simulate import standardise, tabular_inputs

T = TypeVar("T")
NOISE = (1e-6, 0.7)  # its variance beside that of the signal, log-uniform


def foreign_table(n: int, d: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs (n, d), standardised, and targets (n,) of zero mean and unit variance."""
    dice = _Dice(generator)
    X = _inputs(dice, n, d)
    active = X[:, torch.randperm(d, generator=generator)[: dice.integer(1, d)]]
    y = standardise(dice.one_of(_FUNCTIONS)(dice, active), 0)
    y = standardise(dice.one_of(_LINKS)(y), 0)
    share = math.exp(dice.uniform(*map(math.log, NOISE)))
    spread = torch.exp(active[:, 0]) if dice.chance(0.25) else torch.ones_like(y)  # uneven noise, or even
    y = y + math.sqrt(share) * spread / spread.square().mean().sqrt() * dice.normal(n)
    if dice.chance(0.15):  # marks, counts
        y = (y * dice.uniform(0.8, 4.0)).round()
    return X, standardise(y, 0)


class _Dice:
    """A generator's draws, by name."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.generator, dtype=torch.float64))

    def chance(self, probability: float) -> bool:
        return self.uniform(0, 1) < probability

    def integer(self, low: int, high: int) -> int:
        """Both ends included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def one_of(self, options: tuple[T, ...]) -> T:
        return options[self.integer(0, len(options) - 1)]


def _inputs(dice: _Dice, n: int, d: int) -> Tensor:
    """Columns as in `simulate`; half of the time some are functions of the others, up to a little noise."""
    if d == 1 or dice.chance(0.5):
        return tabular_inputs(1, n, d, dice.generator)[0]
    own = tabular_inputs(1, n, dice.integer(1, d - 1), dice.generator)[0]
    derived = torch.tanh(standardise(own @ dice.normal(own.shape[1], d - own.shape[1]), 0))
    noise = torch.exp(dice.normal(d - own.shape[1]) - 3)
    X = torch.cat([own, derived + noise * dice.normal(*derived.shape)], 1)
    return standardise(X, 0)


def _network(dice: _Dice, X: Tensor) -> Tensor:
    """One or two hidden layers; the columns matter unequally."""
    activation = dice.one_of((torch.tanh, torch.relu, torch.sin))
    h = X * torch.exp(0.7 * dice.normal(X.shape[1])) * dice.uniform(0.3, 1.5)
    for _ in range(dice.integer(1, 2)):
        width = dice.integer(4, 32)
        h = activation(h @ dice.normal(h.shape[1], width) / math.sqrt(h.shape[1]) + dice.normal(width))
    return h @ dice.normal(h.shape[1])


_SHAPES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda x: x,
    torch.square,
    torch.abs,
    lambda x: torch.exp(0.7 * x.clamp(-4, 4)),
    lambda x: torch.sigmoid(4 * x),
    lambda x: (x > 0).double(),
    lambda x: torch.sin(3 * x),
    lambda x: 1 / (1 + x.square()),
)


def _formula(dice: _Dice, X: Tensor) -> Tensor:
    """A sum of one to five terms, each a product of shapes of one to three columns."""
    total = torch.zeros(len(X), dtype=X.dtype)
    for _ in range(dice.integer(1, 5)):
        term = torch.ones_like(total)
        for _ in range(dice.integer(1, 3)):
            term = term * dice.one_of(_SHAPES)(X[:, dice.integer(0, X.shape[1] - 1)] + 0.5 * dice.normal(1))
        total += standardise(term, 0) * dice.normal(1)
    return total


def _trees(dice: _Dice, X: Tensor) -> Tensor:
    """A sum of trees of two to four questions each."""
    total = torch.zeros(len(X), dtype=X.dtype)
    for _ in range(dice.integer(2, 30)):
        depth = dice.integer(2, 4)
        leaf = torch.zeros(len(X), dtype=torch.long)
        for _ in range(depth):
            column = X[:, dice.integer(0, X.shape[1] - 1)]
            leaf = 2 * leaf + (column > column[dice.integer(0, len(X) - 1)])
        total += dice.normal(2**depth)[leaf]
    return total


_FUNCTIONS = (_network, _formula, _trees)
_LINKS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda y: y,
    lambda y: y,  # twice as often
    lambda y: torch.exp(0.7 * y.clamp(-4, 4)),
    lambda y: y * y.abs().sqrt(),
)
