"""How functions of one column are put together into a word that acts on columns: a formula for each arrangement.

A formula is ordinary code with + and *, which all libraries understand, so exports contain it as it stands. It is linear in
each weight and, for each column, in (g_d, z_d): no product has a column twice. From that alone follow its gradients, and the
means over columns that `effects` takes. The three arrangements here have quicker gradients of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from kitt.kernels.grammar import Arrangement
from kitt.kernels.priors import Parameter

Tensors = Sequence[Tensor]
Kept = tuple[Tensor, ...]


# The formulas: g and z have an array for each column, w has the weights.


def sum_of_each(g: Sequence[Any], z: Sequence[Any], w: Sequence[Any]) -> Any:
    """A function of each column: s + sum_d z_d, w = (s,)."""
    return w[0] + sum(z)


def sum_of_pairs(g: Sequence[Any], z: Sequence[Any], w: Sequence[Any]) -> Any:
    """Also one of each pair, and one of all columns: s + sum_d z_d + p sum_{d<e} z_d z_e + j prod_d g_d, w = (s, p, j)."""
    singles, pairs, joint = 0, 0, 1
    for alone, one in zip(g, z, strict=True):
        singles, pairs, joint = singles + one, pairs + one * singles, joint * alone
    return w[0] + singles + w[1] * pairs + w[2] * joint


def sum_of_all(g: Sequence[Any], z: Sequence[Any], w: Sequence[Any]) -> Any:
    """A function of every set of columns: v prod_d (1 + z_d), w = (v,)."""
    product = w[0]
    for one in z:
        product = product * (1 + one)
    return product


# The arrangements.


class Combination:
    """An arrangement: its formula, its weights, and its gradients.

    Attributes
    ----------
    formula : function of g, z and w
    weights : mapping of Parameter to int
        The parameters w, each with the power of the target's variance by which it changes with the target's unit.
    column_power : int
        The same power for the amplitudes and slopes in z.
    """

    formula: ClassVar[Callable[..., Any]]
    weights: ClassVar[Mapping[Parameter, int]]
    column_power: ClassVar[int] = 1

    def value(self, g: Tensors, z: Tensors, w: Tensors) -> tuple[Tensor, Kept]:
        """K, and what the gradients need."""
        return type(self).formula(g, z, w), ()

    def by_weight(self, g: Tensors, z: Tensors, w: Tensors, kept: Kept) -> list[Tensor]:
        """∂K by each weight."""
        return [self._by(g, z, w, 2, i) for i in range(len(w))]

    def by_column(self, g: Tensors, z: Tensors, w: Tensors, kept: Kept) -> Sequence[tuple[Tensor, Tensor | None]]:
        """∂K by each z_d, and by each log g_d where z_d stays as it is; None if that is zero."""
        return [(self._by(g, z, w, 1, d), g[d] * self._by(g, z, w, 0, d)) for d in range(len(z))]

    def _by(self, g: Tensors, z: Tensors, w: Tensors, which: int, place: int) -> Tensor:
        """The slope in one argument of a formula that is linear in it: its value at one less its value at zero."""
        ends = []
        for end in (torch.ones_like, torch.zeros_like):
            arguments = [list(g), list(z), list(w)]
            arguments[which][place] = end(arguments[which][place])
            ends.append(type(self).formula(*arguments))
        return ends[0] - ends[1]


class Each(Combination):
    formula = sum_of_each
    weights: ClassVar[Mapping[Parameter, int]] = {Parameter.OFFSET: 1}

    def by_weight(self, g: Tensors, z: Tensors, w: Tensors, kept: Kept) -> list[Tensor]:
        return [torch.ones_like(z[0])]

    def by_column(self, g: Tensors, z: Tensors, w: Tensors, kept: Kept) -> Sequence[tuple[Tensor, Tensor | None]]:
        return [(torch.ones_like(z[0]), None)] * len(z)


class Pairs(Combination):
    formula = sum_of_pairs
    weights: ClassVar[Mapping[Parameter, int]] = {Parameter.OFFSET: 1, Parameter.PAIRS: -1, Parameter.JOINT: 1}

    def value(self, g: Tensors, z: Tensors, w: Tensors) -> tuple[Tensor, Kept]:
        e1, e2, joint = z[0], torch.zeros_like(z[0]), g[0]
        for alone, one in zip(g[1:], z[1:], strict=True):
            e2 = torch.addcmul(e2, one, e1)
            e1 = e1 + one
            joint = joint * alone
        return w[0] + e1 + w[1] * e2 + w[2] * joint, (e1, e2, joint)

    def by_weight(self, g: Tensors, z: Tensors, w: Tensors, kept: Kept) -> list[Tensor]:
        return [torch.ones_like(kept[0]), kept[1], kept[2]]

    def by_column(self, g: Tensors, z: Tensors, w: Tensors, kept: Kept) -> Sequence[tuple[Tensor, Tensor | None]]:
        joint, base = w[2] * kept[2], 1 + w[1] * kept[0]
        return [(torch.addcmul(base, one, -w[1]), joint) for one in z]


class All(Combination):
    formula = sum_of_all
    weights: ClassVar[Mapping[Parameter, int]] = {Parameter.VARIANCE: 1}
    column_power = 0

    def value(self, g: Tensors, z: Tensors, w: Tensors) -> tuple[Tensor, Kept]:
        product = torch.ones_like(z[0])
        before = []
        for one in z:
            before.append(product)
            product = torch.addcmul(product, product, one)
        return w[0] * product, (product, *before)

    def by_weight(self, g: Tensors, z: Tensors, w: Tensors, kept: Kept) -> list[Tensor]:
        return [kept[0]]

    def by_column(self, g: Tensors, z: Tensors, w: Tensors, kept: Kept) -> Sequence[tuple[Tensor, Tensor | None]]:
        slopes, after = [], w[0] + torch.zeros_like(z[0])
        for one, before in zip(reversed(z), reversed(kept[1:]), strict=True):
            slopes.append((before * after, None))
            after = torch.addcmul(after, after, one)
        return slopes[::-1]


COMBINATIONS: Mapping[Arrangement, Combination] = {
    Arrangement.EACH: Each(),
    Arrangement.PAIRS: Pairs(),
    Arrangement.ALL: All(),
}
