"""The language of kernels: eight primitives, 34 words (a primitive or a product of two), sums of distinct words.

An `Expression` is a kernel without parameter values. Its text form is canonical on output (``Linear*RBF + Periodic``) and
tolerant on input (``per + rbf × lin``). Parameters are defined in `kernels`, and files in `fitted_kernel`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
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
STATIONARY = (Primitive.RBF, Primitive.MATERN12, Primitive.MATERN32, Primitive.MATERN52)

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


class Arrangement(StrEnum):
    """How a word acts on the columns of a table: on all at once, or on each and on sets of them, which are summed up."""

    JOINT = "joint"  # one function of all columns
    EACH = "each"  # a sum of functions of one column
    PAIRS = "pairs"  # a sum of functions of one column, of two columns, and of all
    ALL = "all"  # a sum of functions of every set of columns


Columns = tuple[int, ...]  # places of columns; none: all columns


@dataclass(frozen=True, order=True)
class Word:
    """A primitive, or a product of two, in canonical order; and how it acts on the columns.

    Parameters
    ----------
    factors : tuple of Primitive
    arrangement : Arrangement
        "joint", unless the word is a single RBF or Matern.
    columns : tuple of tuples of int
        For each factor the places of the columns that it sees; an empty tuple stands for all columns.
    """

    factors: tuple[Primitive, ...]
    arrangement: Arrangement = Arrangement.JOINT
    columns: tuple[Columns, ...] = ()

    def __post_init__(self) -> None:
        columns = self.columns or ((),) * len(self.factors)
        pairs = sorted(zip(self.factors, (tuple(sorted(set(c))) for c in columns), strict=True))
        factors = tuple(factor for factor, _ in pairs)
        object.__setattr__(self, "factors", factors)
        object.__setattr__(self, "arrangement", Arrangement(self.arrangement))
        object.__setattr__(self, "columns", tuple(c for _, c in pairs) if any(c for _, c in pairs) else ())
        if factors not in _VOCABULARY:
            raise GrammarError(_why_not_a_word(factors))
        if self.arrangement is not Arrangement.JOINT and (
            len(factors) > 1 or factors[0] not in STATIONARY or self.columns
        ):
            raise GrammarError(_why_not_arranged(str(self.arrangement.value)))

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Word({str(self)!r})"

    def text(self, names: Sequence[str] = ()) -> str:
        """This word, with these names of all columns; without names, columns are called x1, x2 and so on."""
        if self.arrangement is not Arrangement.JOINT:
            return f"{self.factors[0].value}({self.arrangement.value})"
        places = self.columns or ((),) * len(self.factors)
        return "*".join(
            f"{factor.value}({', '.join(_shown_name(names[d] if names else f'x{d + 1}') for d in own)})"
            if own
            else factor.value
            for factor, own in zip(self.factors, places, strict=True)
        )

    def columns_of(self, factor: int, dims: int) -> Columns:
        """The places of the columns that a factor sees, of `dims` columns."""
        return (self.columns[factor] if self.columns else ()) or tuple(range(dims))

    @property
    def is_plain(self) -> bool:
        """Whether this is one of the 34 words, which act on all columns at once."""
        return self.arrangement is Arrangement.JOINT and not self.columns

    @property
    def index(self) -> int:
        """The position in `WORDS`, which is the integer that the networks use."""
        if not self.is_plain:
            raise GrammarError(f"{self} is none of the {len(WORDS)} words that the networks know")
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
    def parse(cls, text: str, columns: Sequence[str] = ()) -> Expression:
        """Read an expression from text, as `kitt.parse` does."""
        return parse(text, columns)

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

    def text(self, names: Sequence[str] = ()) -> str:
        """This sum, with these names of all columns; without names, columns are called x1, x2 and so on."""
        return " + ".join(word.text(names) for word in self.words)

    def __str__(self) -> str:
        return self.text()

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


def parse(text: str, columns: Sequence[str] = ()) -> Expression:
    """Read a kernel expression from text.

    Parameters
    ----------
    text : str
        Words with ``+`` between them. A word is a primitive or a product of two, with ``*``, ``×`` or ``·`` between the
        factors, or ``²`` or ``^2`` for a square. Upper and lower case are the same, and common other names of the
        primitives are understood. In parentheses after a primitive stand the columns that it sees, or, after RBF or a
        Matern, how it acts on all of them: ``each``, ``pairs`` or ``all``.
    columns : sequence of str
        The names of the columns of the table. Without them, columns are called x1, x2 and so on.

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
    >>> parse("periodic(month) + lin(year)*rbf(temp) + rbf(each)", columns=["year", "month", "temp"])
    Expression('Periodic(x2) + Linear(x1)*RBF(x3) + RBF(each)')
    """
    if not isinstance(text, str):
        raise GrammarError(f"expected an expression as text, such as 'Linear*RBF + White', got {type(text).__name__}")
    words: list[Word] = []
    start = 0
    for piece in _split(text, "+"):
        words.append(_parse_word(text, piece, start, tuple(columns)))
        start += len(piece) + 1
    return Expression(tuple(words))


_TIMES = "*×·"
_IGNORED = re.compile(r"[\s_/.()-]")
_POSITION = re.compile(r"x([1-9][0-9]{0,5})")
_QUOTED = re.compile(r"[+*×·,()\"\s]")  # a name with one of these stands in quotation marks


def _shown_name(name: str) -> str:
    return '"' + name.replace('"', "'") + '"' if _QUOTED.search(name) or not name else name


def _split(text: str, separators: str) -> Iterator[str]:
    """The pieces of a text between separators that stand outside of parentheses and quotation marks."""
    depth, quoted, begin = 0, False, 0
    for i, character in enumerate(text):
        quoted ^= character == '"'
        depth += 0 if quoted else (character == "(") - (character == ")")
        if character in separators and depth <= 0 and not quoted:
            yield text[begin:i]
            begin = i + 1
    yield text[begin:]


def _parse_word(text: str, piece: str, start: int, names: tuple[str, ...]) -> Word:
    begin = start + len(piece) - len(piece.lstrip())
    if not piece.strip():
        raise GrammarError(_point(text, start, "expected a word here, such as RBF or Linear*Periodic"))
    inner = piece.strip()
    while inner.startswith("(") and inner.endswith(")"):
        inner = inner[1:-1].strip()
    if inner.startswith("(") or inner.count("(") != inner.count(")") or len(list(_split(inner, "+"))) > 1:
        raise GrammarError(_point(text, begin, "a sum in parentheses is not understood: multiply it out"))
    start = text.index(inner, begin) if inner else begin
    factors: list[Primitive] = []
    columns: list[Columns] = []
    arrangement = Arrangement.JOINT
    for part in _split(inner, _TIMES):
        primitives, own = _parse_factor(text, part, start, names)
        if isinstance(own, Arrangement):
            arrangement, own = own, ()
        factors, columns = factors + primitives, columns + [own] * len(primitives)
        start += len(part) + 1
    if tuple(sorted(factors)) not in _VOCABULARY:
        raise GrammarError(_point(text, begin, _why_not_a_word(tuple(sorted(factors)))))
    try:
        return Word(tuple(factors), arrangement, tuple(columns))
    except GrammarError as error:
        raise GrammarError(_point(text, begin, str(error))) from error


def _parse_factor(
    text: str, part: str, start: int, names: tuple[str, ...]
) -> tuple[list[Primitive], Columns | Arrangement]:
    begin = start + len(part) - len(part.lstrip())
    name, power, exponent = part.replace("²", "^2").partition("^")
    if not name.strip():
        raise GrammarError(_point(text, begin, "expected a primitive here, such as RBF or Linear"))
    own: Columns | Arrangement = ()
    primitive = _ALIASES.get(_IGNORED.sub("", name).lower())
    if primitive is None and "(" in name:
        head, _, inside = name.partition("(")
        primitive = _ALIASES.get(_IGNORED.sub("", head).lower())
        if primitive is not None:
            own = _parse_columns(text, inside.strip().removesuffix(")"), start + len(head) + 1, names)
        name = head
    if primitive is None:
        raise GrammarError(_point(text, begin, _unknown(name.strip())))
    if power and _IGNORED.sub("", exponent) != "2":
        raise GrammarError(_point(text, begin, "a word is a primitive or a product of two: the only power is ^2"))
    return ([primitive, primitive] if power else [primitive]), own


def _parse_columns(text: str, inside: str, start: int, names: tuple[str, ...]) -> Columns | Arrangement:
    """What stands in the parentheses after a primitive: an arrangement, or columns."""
    for arrangement in Arrangement:
        if inside.strip().lower() == arrangement.value and inside.strip() not in names:
            return arrangement
    return tuple(_parse_column(text, piece.strip(), start, names) for piece in _split(inside, ","))


def _parse_column(text: str, name: str, start: int, names: tuple[str, ...]) -> int:
    plain = name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name
    if plain in names:
        return names.index(plain)
    position = _POSITION.fullmatch(plain)
    if position and (not names or int(position[1]) <= len(names)):
        return int(position[1]) - 1
    near = difflib.get_close_matches(plain, names, n=1, cutoff=0.4)
    there = f"; the columns are {', '.join(names)[:_SHOWN]}" if names else ", such as x1, or each, pairs or all"
    hint = f"; did you mean {near[0]}?" if near else there
    raise GrammarError(_point(text, start, f"expected a column here, got '{plain[:_SHOWN]}'{hint}"))


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


def _why_not_arranged(arrangement: str) -> str:
    single = ", ".join(p.value for p in STATIONARY)
    return f"only a single one of {single} acts on {arrangement} of the columns: write for example RBF({arrangement})"
