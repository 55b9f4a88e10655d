"""The language: the vocabulary, its text form, and what is said to a text that is not in it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitt.errors import GrammarError
from kitt.kernels.grammar import _ALIASES, WORDS, Expression, Primitive, Word, parse

expressions = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6, unique=True).map(
    lambda words: Expression(tuple(words))
)


@pytest.mark.parametrize("word", WORDS, ids=str)
def test_every_word_prints_as_it_parses(word: Word) -> None:
    assert parse(str(word)) == Expression((word,))
    assert WORDS[word.index] == word
    assert eval(repr(word), {"Word": lambda text: parse(text).words[0]}) == word


def test_words_come_in_the_order_of_the_vocabulary() -> None:
    assert [word.factors for word in WORDS[:7]] == [(p,) for p in Primitive][:7]
    assert [str(word) for word in WORDS[-2:]] == ["White", "Linear*White"]
    assert [word.is_noise for word in WORDS] == [False] * 32 + [True] * 2
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("linear*rbf + PER", "Linear*RBF + Periodic"),
        ("  SE×lin ", "Linear*RBF"),
        ("M32 · cos + Noise", "Matern32*Cosine + White"),
        ("Matérn 5/2 + matern_12", "Matern52 + Matern12"),
        ("M12²", "Matern12*Matern12"),
        ("Lin ^ 2", "Linear*Linear"),
        ("(white * shifted-linear) + (eq)", "Linear*White + RBF"),
        ("gaussian\n+\tWN", "RBF + White"),
    ],
)
def test_input_is_forgiving_and_output_canonical(text: str, canonical: str) -> None:
    assert str(parse(text)) == str(Expression.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "says", "caret"),
    [
        ("", "expected a word", 0),
        ("RBF + ", "expected a word", 5),
        ("RBF ++ Linear", "expected a word", 5),
        ("RBF*", "expected a primitive", 4),
        ("RBF**Linear", "expected a primitive", 4),
        ("Linear + perodic", "did you mean Periodic?", 9),
        ("Linear\n+ rfb", "did you mean RBF?", 9),
        ("xyzzy", "The eight are Linear, RBF,", 0),
        ("RBF + M32^3", "the only power is ^2", 6),
        ("Linear + rbf*se", "square of RBF is no new kernel", 9),
        ("per²", "square of Periodic", 0),
        ("White*RBF", "write White", 0),
        ("RBF*Linear*Cosine", "3 factors", 0),
        ("(RBF + Linear)*Periodic", "multiply it out", 0),
    ],
)
def test_a_bad_text_is_pointed_at(text: str, says: str, caret: int) -> None:
    with pytest.raises(GrammarError) as caught:
        parse(text)
    message, line, pointer = str(caught.value).split("\n")
    assert says in message
    assert line[2:] == text.replace("\n", " ")
    assert pointer.index("^") - 2 == caret


@pytest.mark.parametrize("wrong", [None, 3, b"RBF", ["RBF"]])
def test_only_text_is_parsed(wrong: object) -> None:
    with pytest.raises(GrammarError, match="as text"):
        parse(wrong)  # type: ignore[arg-type]


def test_a_word_stands_once_in_a_sum() -> None:
    with pytest.raises(GrammarError, match="RBF occurs twice"):
        parse("RBF + White + SE")
    with pytest.raises(GrammarError, match="at least one word"):
        Expression(())
    with pytest.raises(GrammarError, match="at least one primitive"):
        Word(())


def test_order_matters_for_equality_but_not_for_the_sum() -> None:
    a, b = parse("RBF + Linear*White"), parse("white*lin + rbf")
    assert a != b
    assert a.same_sum(b)
    assert not a.same_sum(parse("RBF"))
    assert a.signal == (WORDS[1],)
    assert list(a) == list(a.words)
    assert len(a) == 2


def test_a_long_hostile_text_is_refused_in_linear_time() -> None:
    """No clock: with quadratic backtracking this would take hours."""
    n = 1_000_000
    for text in (" " * n + "^", "RBF" + " " * n + "x", "*" * n, "(" * n, "RBF^" * n):
        with pytest.raises(GrammarError) as refused:
            parse(text)
        assert "^" in str(refused.value)
        assert len(str(refused.value)) < 600


@given(st.text() | st.text(alphabet="linearbfm1235cospw*×·+²^ ()\n\t"))
def test_any_text_parses_or_is_a_grammar_error(text: str) -> None:
    try:
        expression = parse(text)
    except GrammarError:
        return
    assert parse(str(expression)) == expression
    assert str(parse(str(expression))) == str(expression)


@given(expressions)
def test_indices_round_trip(expression: Expression) -> None:
    assert Expression.from_indices(expression.indices) == expression
    assert parse(str(expression)) == expression


@given(expressions, st.randoms(use_true_random=False))
def test_any_spelling_means_the_same(expression: Expression, rng: random.Random) -> None:
    def name(primitive: Primitive) -> str:
        alias = rng.choice([alias for alias, meant in _ALIASES.items() if meant is primitive])
        return "".join(rng.choice((letter.upper(), letter.lower())) for letter in alias)

    def space() -> str:
        return rng.choice(("", " ", "\t", "  "))

    def spell(word: Word) -> str:
        factors = list(word.factors)
        rng.shuffle(factors)
        if len(set(factors)) < len(factors) and rng.random() < 0.5:
            return name(factors[0]) + space() + rng.choice(("²", "^2", "^ 2"))
        return (space() + rng.choice("*×·") + space()).join(map(name, factors))

    text = "+".join(space() + spell(word) + space() for word in expression)
    assert parse(text) == expression
