"""What an explanation consists of: words, columns, noise and a comparison, in the units of the table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kitt.files import finite
from kitt.language.grammar import Expression, Word
from kitt.table.scaling import FloatArray

ACTIVE = 0.05  # share of a word's variance below which a column does not count


@dataclass(frozen=True)
class Effect:
    """How a word, or all of them together, depends on one column of the table; in the column's units."""

    column: str
    sensitivity: (
        float  # share of the variance that comes from moving this column alone (total Sobol index, Jansen, 1999)
    )
    direction: float | None = None  # 1 rises, -1 falls, between them neither; None for a column of levels
    span: float | None = None  # from the lowest to the highest value
    lengthscale: float | None = None  # over which the word changes
    periods: tuple[float, ...] = ()  # at which its kernel repeats
    repeats: bool = False  # so does its mean, at the shortest of them; told of the strongest column of a word
    slope: tuple[float, float] | None = None  # of a straight line, with its standard deviation

    @property
    def is_active(self) -> bool:
        return self.sensitivity >= ACTIVE


@dataclass(frozen=True, eq=False)
class Part:
    """One word of the sum."""

    word: Word
    share: float  # of the variance of observations; with that of the noise they add up to 1; < 0: it cancels another
    spread: float  # standard deviation over the rows, in units of the target
    uncertainty: float  # posterior standard deviation of its shape, its level aside
    mean: FloatArray  # at the rows; the means of all parts and the mean of the target add up to the prediction
    std: FloatArray
    effects: tuple[Effect, ...]  # of all columns, the strongest first

    @property
    def active(self) -> tuple[Effect, ...]:
        return tuple(effect for effect in self.effects if effect.is_active)

    @property
    def is_certain(self) -> bool:
        return self.spread > self.uncertainty


@dataclass(frozen=True)
class Noise:
    """What no column explains, in units of the target."""

    share: float
    level: float  # standard deviation, root of the mean square over the rows
    low: float  # 5 and 95 % quantiles over the rows
    high: float
    column: str | None = None  # with which it changes most
    direction: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The log density of left-out rows, in nats per row, minus that of the better of the two plain kernels."""

    plain: Expression
    gain: float
    error: float  # standard error

    @property
    def is_clear(self) -> bool:
        return abs(self.gain) > 2 * self.error


@dataclass(frozen=True, eq=False)
class Explanation:
    """What `kitt.explain` found in a model, in the units of the table.

    Attributes
    ----------
    target : str
        The name of the target.
    expression : Expression
        The kernel that is explained, the one with the largest weight, which is `weight`.
    others : tuple of (Expression, float)
        The other kernels with their weights, by decreasing weight.
    parts : tuple of Part
        One per word of the kernel, by decreasing share of the variance.
    columns : tuple of Effect
        How the sum of all words depends on each column, the strongest first.
    noise : Noise
        What no column explains.
    rows : array of int
        Positions of the rows at which the model was evaluated.
    comparison : Comparison or None
        How much better left-out rows are predicted than by a plain kernel; None if no plain kernel was fitted.
    dates : frozenset of str
        Columns that are dates, and therefore in days.
    caveats : tuple of str
        Reasons for doubt.
    transformed : float
        Weight of the kernels that were fitted to a transform of the target; they are not among the parts.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> X = np.random.default_rng(0).uniform(-2, 2, (50, 2))
    >>> explanation = kitt.explain(kitt.fit("RBF", (X, np.sin(2 * X[:, 0])), random_state=0))
    >>> explanation.columns[0].column
    'x1'
    >>> sorted(explanation.to_dict())[:4]
    ['caveats', 'columns', 'comparison', 'expression']
    """

    target: str
    expression: Expression
    weight: float
    others: tuple[tuple[Expression, float], ...]
    parts: tuple[Part, ...]
    columns: tuple[Effect, ...]
    noise: Noise
    rows: NDArray[np.intp]
    comparison: Comparison | None
    dates: frozenset[str]
    caveats: tuple[str, ...]
    transformed: float = 0.0

    @cached_property
    def text(self) -> str:
        """The explanation as a paragraph of English."""
        from kitt.explain.prose import paragraph

        return paragraph(self)

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """All numbers and texts but the arrays, as JSON types."""
        parts = [
            {
                "word": str(part.word),
                "share": part.share,
                "spread": part.spread,
                "uncertainty": part.uncertainty,
                "effects": [asdict(effect) for effect in part.effects],
            }
            for part in self.parts
        ]
        better = self.comparison and {**asdict(self.comparison), "plain": str(self.comparison.plain)}
        values = {
            "target": self.target,
            "expression": str(self.expression),
            "weight": self.weight,
            "transformed": self.transformed,
            "others": [{"expression": str(e), "weight": w} for e, w in self.others],
            "parts": parts,
            "columns": [asdict(effect) for effect in self.columns],
            "noise": asdict(self.noise),
            "comparison": better,
            "caveats": list(self.caveats),
            "text": self.text,
        }
        return finite(values)
