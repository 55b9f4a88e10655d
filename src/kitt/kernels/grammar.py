"""The language of kernels: eight primitives, 34 words (a primitive or a product of two), sums of distinct words.

An `Expression` is a kernel without parameter values. Its text form is canonical on output (``Linear*RBF + Periodic``) and
tolerant on input (``per + rbf × lin``). Parameters are defined in `kernels`, and files in `fitted_kernel`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import combinations_with_replacement

from kitt.errors import GrammarError


class Primitive(Enum):
    """The paper's eight primitive kernels; the order is that of the vocabulary."""

    LINEAR = "Linear"
    RBF = "RBF"
    MATERN12 = "Matern12"
    MATERN32 = "Matern32"
    MATERN52 = "Matern52"
    PERIODIC = "Periodic"
    COSINE = "Cosine"
    WHITE = "White"

    def __lt__(self, other: Primitive) -> bool:
        return _ORDER[self] < _ORDER[other]

    @property
    def is_bandwidth(self) -> bool:
        """Whether its lengthscales shrink in a product (paper, supplement, Priors): RBF, the Materns and Periodic."""
        return self not in (Primitive.LINEAR, Primitive.COSINE, Primitive.WHITE)


_ORDER = {primitive: i for i, primitive in enumerate(Primitive)}

_ALIASES = {
    "lin": Primitive.LINEAR,
    "shiftedlinear": Primitive.LINEAR,
    "se": Primitive.RBF,
    "squaredexponential": Primitive.RBF,
    "gaussian": Primitive.RBF,
    "eq": Primitive.RBF,
    "exponential": Primitive.MATERN12,
    "exp": Primitive.MATERN12,
    "per": Primitive.PERIODIC,
    "expsinesquared": Primitive.PERIODIC,
    "cos": Primitive.COSINE,
    "noise": Primitive.WHITE,
    "whitenoise": Primitive.WHITE,
    "whitekernel": Primitive.WHITE,
    "wn": Primitive.WHITE,
}
_ALIASES |= {primitive.value.lower(): primitive for primitive in Primitive}
_ALIASES |= {
    f"{prefix}{nu}": primitive
    for prefix in ("m", "mat", "matern", "matérn")
    for nu, primitive in (("12", Primitive.MATERN12), ("32", Primitive.MATERN32), ("52", Primitive.MATERN52))
}


@dataclass(frozen=True, order=True)
class Word:
    """A primitive, or a product of two, in canonical order."""

    factors: tuple[Primitive, ...]

    def __post_init__(self) -> None:
        factors = tuple(sorted(self.factors))
        object.__setattr__(self, "factors", factors)
        if factors not in _VOCABULARY:
            raise GrammarError(_why_not_a_word(factors))

    def __str__(self) -> str:
        return "*".join(factor.value for factor in self.factors)

    def __repr__(self) -> str:
        return f"Word({str(self)!r})"

    @property
    def index(self) -> int:
        """The position in `WORDS`, which is the integer that the networks use."""
        return _INDEX[self]

    @property
    def is_noise(self) -> bool:
        """Whether the covariance between different points is zero: White and Linear*White."""
        return Primitive.WHITE in self.factors

    @property
    def bandwidth_factors(self) -> int:
        return sum(factor.is_bandwidth for factor in self.factors)


@dataclass(frozen=True)
class Expression:
    """A kernel without its parameters: a sum of distinct words.

    The order of the words is that of decreasing variance (paper, supplement, Architecture). Two expressions are equal if
    they have the same words in the same order; `same_sum` ignores the order.

    Parameters
    ----------
    words : tuple of Word
        At least one word, each of the 34 at most once.

    Examples
    --------
    >>> from kitt import Expression
    >>> expression = Expression.parse("Linear*RBF + White")
    >>> [str(word) for word in expression]
    ['Linear*RBF', 'White']
    >>> expression.same_sum(Expression.parse("White + RBF*Linear"))
    True
    >>> [str(word) for word in expression.signal]
    ['Linear*RBF']
    """

    words: tuple[Word, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))
        if not self.words:
            raise GrammarError("an expression needs at least one word, for example 'RBF' or 'Linear*RBF + Periodic'")
        for i, word in enumerate(self.words):
            if word in self.words[:i]:
                raise GrammarError(
                    f"the word {word} occurs twice in the sum, and each may occur only once: remove one of them"
                )

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Read an expression from text; the same as `kitt.parse`."""
        return parse(text)

    @classmethod
    def from_indices(cls, indices: Iterable[int]) -> Expression:
        """Build an expression from positions in `WORDS`."""
        return cls(tuple(WORDS[i] for i in indices))

    @property
    def indices(self) -> tuple[int, ...]:
        """The positions of the words in `WORDS`."""
        return tuple(word.index for word in self.words)

    @property
    def signal(self) -> tuple[Word, ...]:
        """The words that correlate different points: all but the noise words White and Linear*White."""
        return tuple(word for word in self.words if not word.is_noise)

    @property
    def noise_last(self) -> Expression:
        """This sum with its noise words last, which is the order in which it is fitted."""
        return Expression((*self.signal, *(word for word in self.words if word.is_noise)))

    def same_sum(self, other: Expression) -> bool:
        """Whether both are the same kernel, whatever the order of the words."""
        return set(self.words) == set(other.words)

    def __str__(self) -> str:
        return " + ".join(map(str, self.words))

    def __repr__(self) -> str:
        return f"Expression({str(self)!r})"

    def __iter__(self) -> Iterator[Word]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)


def _make_vocabulary() -> tuple[tuple[Primitive, ...], ...]:
    """Seven primitives, their 25 products without RBF², Periodic², Cosine², then two noise words (paper, Training)."""
    noise = Primitive.WHITE
    primitives = [p for p in Primitive if p is not noise]
    redundant = {(p, p) for p in (Primitive.RBF, Primitive.PERIODIC, Primitive.COSINE)}
    products = [pair for pair in combinations_with_replacement(primitives, 2) if pair not in redundant]
    return (*((p,) for p in primitives), *products, (noise,), (Primitive.LINEAR, noise))


_VOCABULARY = _make_vocabulary()
WORDS: tuple[Word, ...] = tuple(Word(factors) for factors in _VOCABULARY)
_INDEX = {word: i for i, word in enumerate(WORDS)}


_SHOWN = 100  # characters of a text that a message repeats, on either side of the error


def parse(text: str) -> Expression:
    """Read a kernel expression from text.

    Parameters
    ----------
    text : str
        Words with ``+`` between them. A word is a primitive or a product of two, with ``*``, ``×`` or ``·`` between the
        factors, or ``²`` or ``^2`` for a square. Upper and lower case are the same, and common other names of the
        primitives are understood.

    Returns
    -------
    Expression

    Raises
    ------
    GrammarError
        If the text is no sum of distinct words; the message points at the place and says what to write instead.

    Examples
    --------
    >>> from kitt import parse
    >>> print(parse("per + rbf × lin"))
    Periodic + Linear*RBF
    >>> parse("matern-5/2 + noise")
    Expression('Matern52 + White')
    """
    if not isinstance(text, str):
        raise GrammarError(f"expected an expression as text, such as 'Linear*RBF + White', got {type(text).__name__}")
    words: list[Word] = []
    start = 0
    for piece in text.split("+"):
        words.append(_parse_word(text, piece, start))
        start += len(piece) + 1
    return Expression(tuple(words))


_TIMES = re.compile(r"[*×·]")
_IGNORED = re.compile(r"[\s_/.()-]")


def _parse_word(text: str, piece: str, start: int) -> Word:
    begin = start + len(piece) - len(piece.lstrip())
    if not piece.strip():
        raise GrammarError(_point(text, start, "expected a word here, such as RBF or Linear*Periodic"))
    if piece.count("(") != piece.count(")"):
        raise GrammarError(_point(text, begin, "a sum in parentheses is not understood: multiply it out"))
    factors: list[Primitive] = []
    for part in _TIMES.split(piece):
        factors += _parse_factor(text, part, start)
        start += len(part) + 1
    key = tuple(sorted(factors))
    if key not in _VOCABULARY:
        raise GrammarError(_point(text, begin, _why_not_a_word(key)))
    return Word(key)


def _parse_factor(text: str, part: str, start: int) -> list[Primitive]:
    begin = start + len(part) - len(part.lstrip())
    name, power, exponent = part.replace("²", "^2").partition("^")
    if not name.strip():
        raise GrammarError(_point(text, begin, "expected a primitive here, such as RBF or Linear"))
    primitive = _ALIASES.get(_IGNORED.sub("", name).lower())
    if primitive is None:
        raise GrammarError(_point(text, begin, _unknown(name.strip())))
    if power and _IGNORED.sub("", exponent) != "2":
        raise GrammarError(_point(text, begin, "a word is a primitive or a product of two: the only power is ^2"))
    return [primitive, primitive] if power else [primitive]


def _point(text: str, position: int, message: str) -> str:
    """The message with the text around the position and a mark below it."""
    begin = max(0, position - _SHOWN)
    line = re.sub(r"\s", " ", text[begin : position + _SHOWN])
    return f"{message}\n  {line}\n  {' ' * (position - begin)}^"


def _unknown(name: str) -> str:
    name = name[:_SHOWN]
    near = difflib.get_close_matches(_IGNORED.sub("", name).lower(), _ALIASES, n=1, cutoff=0.4)
    hint = f"; did you mean {_ALIASES[near[0]].value}?" if near else "."
    return f"no primitive is called '{name}'{hint} The eight are {', '.join(p.value for p in Primitive)}"


def _why_not_a_word(factors: tuple[Primitive, ...]) -> str:
    name = "*".join(p.value for p in factors)
    if not factors:
        return "a word needs at least one primitive"
    if len(factors) > 2:
        return f"{name} has {len(factors)} factors; a word is a primitive or a product of two: split it into a sum"
    if Primitive.WHITE in factors:
        return f"{name} is not a word: white noise times a stationary kernel is white noise again: write White"
    return f"{name} is not a word: the square of {factors[0].value} is no new kernel: write {factors[0].value}"
