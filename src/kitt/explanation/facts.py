"""What an explanation consists of: words, columns, noise and a comparison, in the units of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from kitt.files import finite
from kitt.kernels.grammar import Expression, Word
from kitt.model.curves import CLEAR, Curve, Shape
from kitt.model.sensitivity import Interaction
from kitt.table.scaling import FloatArray

# When something is stated; set by hand. `kitt bench claims` counts how often claims are true with these values.
MIN_GAIN = 0.01  # nats per row that a part must gain on left-out rows
ERRORS = 2.0  # standard errors that it must gain as well, unless it was chosen among several
NATS, OF_VARIANCE, OF_ERROR = "nats per row", "share of variance", "share of absolute error"
MARGINS = {NATS: 0.05, OF_VARIANCE: 0.1, OF_ERROR: 0.1}  # what is less than this, beyond its error, is called absent
POWER = 0.84  # standard errors beyond a limit, of which the limit is exceeded in four of five tables
LEAST_MORE = 1.2  # times as many rows, that are said to decide what these rows do not
ACTIVE = 0.05  # share of a word's variance from which it depends on a column


def errors_among(count: int, units: int | None = None) -> float:
    """Standard errors that the best of several exceeds by chance as rarely as a single one exceeds `ERRORS`.

    If they are estimated from few units, such as cycles, it takes more of them (Student's t).
    """
    level = NormalDist().cdf(-ERRORS) / max(count, 1)
    return -NormalDist().inv_cdf(level) if units is None else -float(stdtrit(max(units - 1, 1), level))


@dataclass(frozen=True)
class Repetition:
    """A part of the target that comes back with a period along a column; left-out cycles support it."""

    column: str
    period: float  # in units of the column
    cycles: float  # in the table
    check: Check
    share: float | None = None  # of the variance of observations, that the fitted mean repeats
    level: str | None = None  # whether the level of the cycles "rises" or "falls" along the column


@dataclass(frozen=True)
class Effect:
    """How a word, or all of them together, depends on one column of the table; in the column's units."""

    column: str
    sensitivity: float  # share of the variance that moving this column alone makes (total Sobol index, Jansen, 1999)
    direction: float | None = None  # 1 rises, -1 falls, between them neither; None for a column of levels
    span: float | None = None  # from the lowest to the highest value
    lengthscale: float | None = None  # over which the word changes
    periods: tuple[float, ...] = ()  # at which its kernel repeats
    slope: tuple[float, float] | None = None  # of a straight line, with its standard deviation
    alone: float | None = None  # share of the variance by this column whatever the others are (first Sobol index)
    alone_error: float | None = None  # standard deviation of it: of the posterior, and of the estimate
    sensitivity_error: float | None = None  # standard deviation of `sensitivity`, of all words together
    shape: Shape | None = None  # of the mean along the column
    curve: Curve | None = None  # the mean along the column, averaged over the rows
    disagreeing: tuple[str, ...] = ()  # heavy kernels whose own curve differs by more than half of the average one

    @property
    def is_active(self) -> bool:
        return self.sensitivity >= ACTIVE

    @property
    def is_clear(self) -> bool:
        """Whether the mean depends on the column beyond its uncertainty."""
        return self.sensitivity > CLEAR * (self.sensitivity_error or 0.0)


@dataclass(frozen=True, eq=False)
class Part:
    """One word of the sum."""

    word: Word
    share: float  # of the variance of observations; with that of the noise they add up to 1; 0: it cancels others
    spread: float  # standard deviation over the rows, in units of the target
    uncertainty: float  # posterior standard deviation of its shape, its level aside
    mean: FloatArray  # at the rows, centred; the means of all parts and the offset add up to the prediction
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
    column: str | None = None  # with which it changes most, or the predicted value
    direction: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The log density of left-out rows, in nats per row, minus that of a plain kernel (`Model.evidence`)."""

    plain: Expression
    gain: float
    error: float  # standard error

    @property
    def is_clear(self) -> bool:
        return abs(self.gain) > 2 * self.error


class Answer(StrEnum):
    """What left-out rows say about a claim."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    ABSENT = "shown to be absent"  # what there is of it is less than a margin, beyond its error


@dataclass(frozen=True)
class Check:
    """What a part gains: the log density of left-out rows under the model minus that under the model without it, per row."""

    # signal; hidden (a signal beside far rows) or typical (beside rows that scatter widely); repeats, smooth, rough, noise
    # or column
    claim: str
    about: str  # the word or the column; how many rows are far
    gain: float
    error: float  # its standard error
    rows: int  # that were left out
    unit: str = NATS  # of the gain; of a signal, the share of the variance of left-out rows (R²)
    errors: float = ERRORS  # standard errors that the gain must exceed; more, if it was chosen among several
    limit: float | None = None  # what there can be at most for another reason than the error of the gain
    more_rows: int = 0  # that this other reason asks for before absence can be shown

    @property
    def is_supported(self) -> bool:
        return self.gain > max(MIN_GAIN, self.errors * self.error)

    @property
    def answer(self) -> Answer:
        if self.is_supported:
            return Answer.SHOWN
        return Answer.ABSENT if self.most < MARGINS[self.unit] else Answer.NOT_SHOWN

    @property
    def most(self) -> float:
        """The upper limit of what is there, with about 97.5 % confidence."""
        return max(self.gain + ERRORS * self.error, self.limit or 0.0)

    @property
    def rows_to_decide(self) -> int | None:
        """The number of rows from which the answer would probably be another one than "not shown"; None if it is now."""
        if self.answer is not Answer.NOT_SHOWN or not self.rows or not math.isfinite(self.error):
            return None
        relative = (self.errors + POWER) * self.error / max(self.gain, MARGINS[self.unit])
        return max(int(self.rows * max(relative**2, LEAST_MORE)), self.more_rows)


@dataclass(frozen=True, eq=False)
class Explanation:
    """What `kitt.explain` found in a model, in the units of the table.

    Effects, interactions and noise are those of the average of all kernels, which is what predicts; parts are those of
    the heaviest kernel.

    Attributes
    ----------
    target : str
        The name of the target.
    expression : Expression
        The heaviest kernel of the untransformed target; its weight is `weight`.
    others : tuple of (Expression, float)
        The other kernels with their weights, by decreasing weight.
    parts : tuple of Part
        One per word of the heaviest kernel, by decreasing share of the variance.
    effects : tuple of Effect
        How the mean depends on each column, the most important first: columns that left-out rows show to be needed by
        what they gain there, then the others by their share of the variance.
    noise : Noise
        What no column explains.
    rows : array of int
        Positions of the rows at which the model was evaluated.
    comparison : Comparison or None
        How much better left-out rows are predicted than by a plain kernel; None if no plain kernel was fitted.
    dates : mapping of str to str
        The columns that are dates, which are in days since the date given here.
    caveats : tuple of str
        Reasons for doubt.
    transformed : float
        Weight of the kernels that were fitted to a transform of the target; they are not among the parts.
    offset : float
        The constant that is added to the sum of the centred parts to give the prediction.
    explained : float or None
        Share of the variance of left-out rows that is predicted (R²); None without checks.
    level : (float, float)
        Mean and standard deviation of the target.
    interactions : tuple of Interaction
        Pairs of columns that matter together, the strongest first.
    repetitions : tuple of Repetition
        What comes back with a period that left-out cycles support, the clearest first.
    checks : tuple of Check
        The gain of each claim on left-out rows; a claim that is not supported is not in the text.
    unchecked : tuple of str
        What was not checked because of a deadline.
    position : int
        The position of the heaviest kernel among those of the model.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> X = np.random.default_rng(0).uniform(-2, 2, (50, 2))
    >>> explanation = kitt.explain(kitt.fit("RBF", X, np.sin(2 * X[:, 0]), random_state=0))
    >>> explanation.effects[0].column
    'x1'
    >>> sorted(explanation.to_dict())[:4]
    ['caveats', 'checks', 'comparison', 'effects']
    """

    target: str
    expression: Expression
    weight: float
    others: tuple[tuple[Expression, float], ...]
    parts: tuple[Part, ...]
    effects: tuple[Effect, ...]
    noise: Noise
    rows: NDArray[np.intp]
    comparison: Comparison | None
    dates: Mapping[str, str]
    caveats: tuple[str, ...]
    transformed: float = 0.0
    offset: float = 0.0
    explained: float | None = None
    level: tuple[float, float] = (0.0, 0.0)
    interactions: tuple[Interaction, ...] = ()
    repetitions: tuple[Repetition, ...] = ()
    checks: tuple[Check, ...] = ()
    unchecked: tuple[str, ...] = ()
    position: int = 0

    def check(self, claim: str, about: str | None = None) -> Check | None:
        """The check of a claim, if it was made."""
        return next((c for c in self.checks if c.claim == claim and about in (None, c.about)), None)

    def is_supported(self, claim: str, about: str | None = None) -> bool:
        """Whether a claim was checked on left-out rows and supported by them."""
        check = self.check(claim, about)
        return check is not None and check.is_supported

    @property
    def is_signal(self) -> bool:
        """Whether there is evidence that the columns explain anything; without a check, whether the fit has a signal."""
        check = self.check("signal")
        return bool(self.parts) and (check is None or check.is_supported)

    @cached_property
    def text(self) -> str:
        """The explanation as a paragraph of English."""
        from kitt.explanation.prose import paragraph

        return paragraph(self)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__  # what a notebook shows

    def to_dict(self) -> dict[str, Any]:
        """All numbers and texts but the arrays, as JSON types."""
        parts = [
            {
                "word": str(part.word),
                "share": part.share,
                "spread": part.spread,
                "uncertainty": part.uncertainty,
                "effects": [_plain(effect) for effect in part.effects],
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
            "effects": [_plain(effect) for effect in self.effects],
            "interactions": [asdict(pair) for pair in self.interactions],
            "repetitions": [asdict(repetition) for repetition in self.repetitions],
            "checks": [_answered(check) for check in self.checks],
            "unchecked": list(self.unchecked),
            "explained": self.explained,
            "noise": asdict(self.noise),
            "comparison": better,
            "caveats": list(self.caveats),
            "text": self.text,
        }
        return finite(values)


def _answered(check: Check) -> dict[str, Any]:
    """A check with its answer as JSON types."""
    known = {name: value for name, value in asdict(check).items() if name not in ("limit", "more_rows")}
    return {**known, "answer": str(check.answer), "most": check.most, "rows_to_decide": check.rows_to_decide}


def _plain(effect: Effect) -> dict[str, Any]:
    """An effect as JSON types."""
    plain = asdict(replace(effect, curve=None))
    return plain if effect.curve is None else {**plain, "curve": effect.curve.to_dict()}
