"""What each column of a function does, computed from the function itself.

All shares are of the variance of the function over the rows that it is given. With f the function, x and x' two rows, and
x_S the row x that has the entries of x' in the columns S:

* the total effect of a column is E (f(x) − f(x_d))² / 2 (Sobol, 1993; Jansen, 1999): without it, a column does nothing;
* the joint effect of a pair is E (f(x) − f(x_d) − f(x_e) + f(x_de))² / 4 (Liu and Owen, 2006), and that of three columns
  the mean square of the third difference over 8.

The kind of a column is that of the curves of the function along it, at some rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kitt.network.column_network import ARRANGEMENTS, KINDS
from kitt_lab.columns.formulas import Array, Function, Random

NOTHING = 1e-3  # total effect below which a column does nothing
APART = 1e-2  # joint effect below which columns do not act together
JOINT = 0.1  # joint effect of more than two columns from which the function is one of all columns together
STRAIGHT = 0.02  # share of the variance of the curves that a line, a parabola, ... may leave
MOST_ACTIVE = 12  # columns among which pairs are looked for
_TRIPLES = 12  # sets of three columns that are looked at
_CURVES, _POINTS = 8, 44  # along each column
_CYCLES = np.exp(np.linspace(np.log(1.4), np.log(12.0), 40))  # of a wave over the range of a column


@dataclass(frozen=True)
class Labels:
    """What the columns of a table do."""

    kinds: Array  # (D,) places in KINDS
    effects: Array  # (D,) total effects
    joint: Array  # (D, D) joint effects of pairs
    arrangement: int  # place in ARRANGEMENTS

    @property
    def pairs(self) -> NDArray[np.bool_]:
        return np.asarray(self.joint >= APART)


def labels_of(function: Function, rows: Array, active: list[int], random: Random) -> Labels:
    """The labels of a function of the columns `active`, over rows (M, D)."""
    D = rows.shape[1]
    kinds, effects, joint = np.zeros(D, int), np.zeros(D), np.zeros((D, D))
    if not active:
        return Labels(kinds, effects, joint, 0)
    differences = Differences(function, rows, random)
    for d in active:
        effects[d] = differences.effect(d)
    acting = [d for d in active if effects[d] >= NOTHING]
    for d, e in combinations(sorted(acting, key=lambda d: -effects[d])[:MOST_ACTIVE], 2):
        joint[d, e] = joint[e, d] = differences.effect(d, e)
    for d in acting:
        kinds[d] = kind_of(*curves(function, rows, d, random))
    triples = list(combinations([d for d in acting if (joint[d] >= APART).sum() > 1], 3))
    chosen = random.permutation(len(triples))[:_TRIPLES]
    higher = sum(differences.effect(*triples[i]) for i in chosen) * len(triples) / max(len(chosen), 1)
    return Labels(kinds, effects, joint, _arrangement(joint, higher))


def _arrangement(joint: Array, higher: float) -> int:
    if joint.max() < APART:
        name = "sum"
    elif higher < APART:
        name = "pairs"
    else:
        name = "all orders" if higher < JOINT else "joint"
    return ARRANGEMENTS.index(name)


class Differences:
    """Mean squares of mixed differences between rows and the rows in another order."""

    def __init__(self, function: Function, rows: Array, random: Random) -> None:
        self.function, self.rows, self.other = function, rows, rows[random.permutation(len(rows))]
        value = function(rows)
        self.variance = value.var() + 1e-12
        self.values: dict[tuple[int, ...], Array] = {(): value}

    def at(self, columns: tuple[int, ...]) -> Array:
        if columns not in self.values:
            mixed = self.rows.copy()
            mixed[:, columns] = self.other[:, columns]
            self.values[columns] = self.function(mixed)
        return self.values[columns]

    def effect(self, *columns: int) -> float:
        columns = tuple(sorted(columns))
        sets = [s for size in range(len(columns) + 1) for s in combinations(columns, size)]
        difference = sum((-1) ** len(s) * self.at(s) for s in sets)
        return float(np.square(difference).mean() / 2 ** len(columns) / self.variance)


# --- kinds -----------------------------------------------------------------------------------------------------------


def curves(function: Function, rows: Array, d: int, random: Random) -> tuple[Array, Array]:
    """Places along a column, equally spaced or all its values if they are few, and the function there at some rows."""
    low, high = np.quantile(rows[:, d], [0.01, 0.99])
    values = np.unique(rows[:, d])
    places = values if len(values) <= _POINTS // 4 else np.linspace(low, high, _POINTS)
    others = rows[random.integers(len(rows), size=_CURVES)]
    grid = np.repeat(others, len(places), 0)
    grid[:, d] = np.tile(places, _CURVES)
    return places, function(grid).reshape(_CURVES, len(places))


def kind_of(places: Array, curves: Array) -> int:
    """The place in KINDS of the kind of these curves (C, P): the simplest that leaves little of their variance."""
    t = 2 * (places - places[0]) / (places[-1] - places[0]) - 1
    y = (curves - curves.mean(1, keepdims=True)).T
    total = np.square(y).sum() + 1e-12

    def left(*columns: Array) -> float:
        """The share that is left by a fit of these functions to each curve."""
        A = np.stack([np.ones_like(t), *columns], 1)
        return float(np.square(y - A @ np.linalg.lstsq(A, y, rcond=None)[0]).sum() / total)

    if left(t) < STRAIGHT:
        return KINDS.index("line")
    if len(t) <= 6:  # with so few values, everything is levels
        return KINDS.index("levels")
    if left(t, t**2) < STRAIGHT:
        return KINDS.index("curve")
    if _is_flat(y):
        return KINDS.index("levels")
    if left(*(t**k for k in range(1, 5))) >= 5 * STRAIGHT and _is_wave(t, y, total):
        return KINDS.index("wave")
    chebyshev = np.polynomial.chebyshev.chebvander(t, 8)[:, 1:]
    return KINDS.index("smooth" if left(*chebyshev.T) < STRAIGHT else "rough")


def _is_flat(y: Array) -> bool:
    """Whether the curves (P, C) are flat nearly everywhere."""
    steps = np.abs(np.diff(y, axis=0))
    return bool((steps > 1e-3 * np.ptp(y, axis=0).max()).mean() < 0.25)


def _is_wave(t: Array, y: Array, total: float) -> bool:
    """Whether a line and a wave of any frequency, with its harmonic, describe the curves (P, C) well."""
    phase = np.pi * np.multiply.outer(_CYCLES, t)
    one = np.ones_like(phase)
    A = np.stack([one, one * t, np.cos(phase), np.sin(phase), np.cos(2 * phase), np.sin(2 * phase)], -1)
    Q = np.linalg.qr(A)[0]  # (frequencies, P, 6)
    left = np.square(y).sum() - np.square(np.swapaxes(Q, 1, 2) @ y).sum((1, 2))
    return bool(left.min() / total < 5 * STRAIGHT)
