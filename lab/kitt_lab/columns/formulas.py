"""Random functions of a few columns: expression trees, sums of products of functions of one column, and joint functions.

A tree is drawn from a `Style` over reference rows. Each inner node is standardised over these rows, so that an operation
meets arguments of its own scale, and no function is constant, infinite or dominated by one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Random = np.random.Generator

_WAVES = 24  # of which a smooth or rough random function is made
_LARGEST = 8.0  # standard deviations beyond which no node goes


class Function(Protocol):
    def __call__(self, X: Array) -> Array:
        """Rows (M, D) -> values (M,)."""


# --- functions of one value ------------------------------------------------------------------------------------------

Unary = Callable[[Array], Array]


def _shifted(formula: Callable[[Array], Array]) -> Callable[[Random], Unary]:
    """The formula at b (u + a), with a random place a and a random steepness b."""

    def draw(random: Random) -> Unary:
        a, b = random.normal(0, 0.8), random.choice([-1, 1]) * np.exp(random.normal(0, 0.4))
        return lambda u: formula(b * (u + a))

    return draw


def _waves(frequencies: Callable[[Random], Array]) -> Callable[[Random], Unary]:
    """A random function that is a sum of waves: a draw from a Gaussian process whose spectrum has these frequencies."""

    def draw(random: Random) -> Unary:
        omega, phase = frequencies(random), random.uniform(0, 2 * np.pi, _WAVES)
        weight = random.normal(size=_WAVES)
        return lambda u: np.cos(np.multiply.outer(u, omega) + phase) @ weight

    return draw


def _wave(random: Random) -> Unary:
    """A wave, half of the time with a harmonic."""
    omega, phases = np.exp(random.uniform(np.log(2.0), np.log(14.0))), random.uniform(0, 2 * np.pi, 2)
    second = random.choice([0.0, random.uniform(0.2, 0.7)])
    return lambda u: np.sin(omega * u + phases[0]) + second * np.sin(2 * omega * u + phases[1])


def _levels(random: Random) -> Unary:
    """A few levels, with steps between them."""
    steps = np.sort(random.normal(0, 1, random.integers(1, 6)))
    heights = random.normal(size=len(steps) + 1)
    return lambda u: heights[np.searchsorted(steps, u)]


UNARY: dict[str, Callable[[Random], Unary]] = {
    "line": lambda random: lambda u: u,
    "square": _shifted(np.square),
    "cube": _shifted(lambda u: u**3),
    "exponential": _shifted(np.exp),
    "sine": _shifted(np.sin),
    "wave": _wave,
    "sigmoid": _shifted(lambda u: np.tanh(2 * u)),
    "threshold": _shifted(lambda u: (u > 0).astype(float)),
    "levels": _levels,
    "corner": _shifted(np.abs),
    "hinge": _shifted(lambda u: np.maximum(u, 0)),
    "bump": _shifted(lambda u: np.exp(-(u**2))),
    "inverse": _shifted(lambda u: 1 / (1 + u**2)),
    "power": _shifted(lambda u: np.abs(u) ** 1.5),
    "root": _shifted(lambda u: np.sqrt(np.abs(u))),
    "logarithm": _shifted(lambda u: np.log(0.05 + np.abs(u))),
    "arc": _shifted(np.arctan),
    "chirp": _shifted(lambda u: np.sin(u**2)),
    "smooth path": _waves(lambda random: random.normal(size=_WAVES) / random.uniform(0.4, 1.5)),
    "rough path": _waves(lambda random: random.standard_t(random.choice([1, 3]), _WAVES) / random.uniform(0.3, 1.5)),
}


# --- functions of two values -----------------------------------------------------------------------------------------


def _sum(random: Random) -> Callable[[Array, Array], Array]:
    b = random.choice([-1, 1]) * np.exp(random.normal(0, 0.8))
    return lambda u, v: u + b * v


def _product(random: Random) -> Callable[[Array, Array], Array]:
    a, b = random.normal(0, 1.2, 2)
    return lambda u, v: (u + a) * (v + b)


def _ratio(random: Random) -> Callable[[Array, Array], Array]:
    a, b = random.normal(0, 1.2, 2)
    return lambda u, v: (u + a) / (0.6 + np.abs(v + b))


def _maximum(random: Random) -> Callable[[Array, Array], Array]:
    a = random.normal(0, 0.5)
    return lambda u, v: np.maximum(u, v + a)


def _distance(random: Random) -> Callable[[Array, Array], Array]:
    a, b = random.normal(0, 1, 2)
    return lambda u, v: np.hypot(u + a, v + b)


def _switch(random: Random) -> Callable[[Array, Array], Array]:
    a, b = random.normal(0, 0.5), random.normal(0, 0.5)
    return lambda u, v: np.where(v > a, u, b)


BINARY = {
    "sum": _sum,
    "product": _product,
    "ratio": _ratio,
    "maximum": _maximum,
    "distance": _distance,
    "switch": _switch,
}


# --- trees -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """A column as it is."""

    column: int

    def __call__(self, X: Array) -> Array:
        return X[:, self.column]


@dataclass(frozen=True)
class Node:
    """A function of the values of other nodes, standardised over the reference rows."""

    formula: Callable[..., Array]
    children: tuple[Function, ...]
    mean: float = 0.0
    scale: float = 1.0

    def __call__(self, X: Array) -> Array:
        value = self.formula(*(child(X) for child in self.children))
        return np.clip((value - self.mean) / self.scale, -_LARGEST, _LARGEST)

    def standardised(self, rows: Array) -> Node:
        with np.errstate(all="ignore"):
            value = self.formula(*(child(rows) for child in self.children))
        low, high = np.quantile(value, [0.02, 0.98])
        value = np.clip(value, low, high)  # a few far rows say nothing about the scale of the others
        return replace(self, mean=float(value.mean()), scale=float(value.std()) + 1e-9)


@dataclass(frozen=True)
class Joint:
    """A draw from a Gaussian process over some columns together, as a sum of plane waves."""

    columns: tuple[int, ...]
    omega: Array  # (columns, waves)
    phase: Array
    weight: Array

    def __call__(self, X: Array) -> Array:
        return np.cos(X[:, self.columns] @ self.omega + self.phase) @ self.weight

    @classmethod
    def draw(cls, columns: Sequence[int], random: Random) -> Joint:
        k, waves = len(columns), 4 * _WAVES
        omega = random.normal(size=(k, waves))
        if random.uniform() < 0.4:  # a Matern, of any smoothness
            omega /= np.sqrt(random.gamma(nu := random.choice([0.5, 1.5, 2.5]), 1 / nu, waves))
        lengthscales = np.sqrt(k) * np.exp(random.normal(0.1, 0.6, k))
        phase = random.uniform(0, 2 * np.pi, waves)
        return cls(tuple(columns), omega / lengthscales[:, None], phase, random.normal(size=waves))


Chances = dict[str, float]


@dataclass(frozen=True)
class Style:
    """The functions of one and of two values that trees are made of, and how they are joined.

    `shape` is "tree" (nodes are joined in random order), "terms" (a sum of products of functions of one column) or "joint".
    """

    shape: str
    unary: Chances
    binary: Chances
    bent: float = 0.7  # chance that a leaf is not the column itself
    outer: float = 0.2  # chance that a function of one value is applied to an inner node
    repeats: float = 0.3  # further leaves, as a share of the columns


_SMOOTH = {"square": 2.0, "cube": 1, "exponential": 2, "sine": 2, "sigmoid": 1, "bump": 1, "inverse": 1, "hinge": 1}
_SHARP = {"threshold": 1.0, "corner": 1, "levels": 1, "wave": 1}
_OF_COLUMNS = {"line": 4.0, "square": 2, "smooth path": 3, "rough path": 2, "wave": 2.5, "levels": 2}
_OTHER = {"root": 1.0, "logarithm": 1, "arc": 1, "chirp": 1, "power": 1, "exponential": 1, "wave": 1, "threshold": 1}

Mixture = tuple[tuple[Style, float], ...]
TRAINING: Mixture = (
    (Style("tree", _SMOOTH, {"sum": 3, "product": 3, "ratio": 1}), 0.22),
    (Style("tree", _SMOOTH | _SHARP, {"sum": 3, "product": 1, "maximum": 0.5, "switch": 0.5}, repeats=0.6), 0.16),
    (Style("tree", _SMOOTH | _SHARP, {"sum": 1}, bent=0.6, outer=0.1), 0.12),
    (Style("terms", _OF_COLUMNS, {}), 0.38),
    (Style("joint", {}, {}), 0.12),
)
HELD_OUT: Mixture = (  # functions of one value, ways to join and shapes that training has not
    (Style("tree", _OTHER, {"sum": 2, "product": 2, "distance": 2}, bent=0.8, outer=0.3), 0.5),
    (Style("tree", _OTHER, {"sum": 4, "product": 1}, bent=0.5, outer=0.05, repeats=0.8), 0.5),
)


def draw_function(mixture: Mixture, rows: Array, active: Sequence[int], random: Random) -> Function:
    """A function of the active columns of the standardised reference rows (M, D)."""
    if not active:
        return lambda X: np.zeros(len(X))
    weights = np.array([weight for _, weight in mixture])
    style = mixture[random.choice(len(mixture), p=weights / weights.sum())][0]
    if style.shape == "joint":
        return Node(lambda u: u, (Joint.draw(active, random),)).standardised(rows)
    return (_terms if style.shape == "terms" else _tree)(style, rows, active, random)


def _pick(chances: Chances, random: Random) -> str:
    weights = np.array(list(chances.values()), float)
    return list(chances)[random.choice(len(weights), p=weights / weights.sum())]


def _bent(style: Style, child: Function, rows: Array, random: Random) -> Function:
    return Node(UNARY[_pick(style.unary, random)](random), (child,)).standardised(rows)


def _joined(name: str, left: Function, right: Function, rows: Array, random: Random) -> Node:
    return Node(BINARY[name](random), (left, right)).standardised(rows)


def _tree(style: Style, rows: Array, active: Sequence[int], random: Random) -> Function:
    """Leaves for all active columns and some of them again, joined two at a time in random order."""
    leaves = [*active, *random.choice(active, random.binomial(len(active), style.repeats))]
    nodes: list[Function] = [Leaf(int(column)) for column in leaves]
    nodes = [_bent(style, node, rows, random) if random.uniform() < style.bent else node for node in nodes]
    while len(nodes) > 1:
        left, right = (nodes.pop(random.integers(len(nodes))) for _ in range(2))
        node = _joined(_pick(style.binary, random), left, right, rows, random)
        nodes.append(_bent(style, node, rows, random) if random.uniform() < style.outer else node)
    return nodes[0]


def _terms(style: Style, rows: Array, active: Sequence[int], random: Random) -> Function:
    """A sum of functions of one column, and of products of two or three of them."""
    order = [int(column) for column in random.permutation(active)]
    sets: list[list[int]] = []
    together = random.choice([0.0, 0.3, 0.7])  # chance that a term has one more column
    while order:
        size = 1 + random.binomial(2, together)
        sets.append(order[:size])
        order = order[size:]
    for _ in range(random.poisson(together)):  # pairs of columns that have other terms already
        sets.append([int(column) for column in random.choice(active, min(2, len(active)), replace=False)])
    terms: list[Function] = []
    for columns in sets:
        factors = [_bent(style, Leaf(column), rows, random) for column in columns]
        term = factors[0]
        for factor in factors[1:]:
            term = _joined("product", term, factor, rows, random)
        terms.append(term)
    total = terms[0]
    for term in terms[1:]:
        total = Node(_weighted(float(np.exp(random.normal(0, 0.8)))), (total, term))
    return Node(lambda u: u, (total,)).standardised(rows)


def _weighted(weight: float) -> Callable[[Array, Array], Array]:
    return lambda u, v: u + weight * v
