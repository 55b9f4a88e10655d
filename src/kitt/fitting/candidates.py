"""What to fit: a pure function of the captions, of their scores on a few hundred rows, and of the effort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kitt.kernels.grammar import Expression, Primitive, Word, parse

PLAIN = tuple(map(parse, ("RBF", "Matern52")))  # the usual default kernels, fitted with BoTorch's priors
# Words that act on columns, of which the evidence chooses the best arrangement, and then whether it is as smooth; on the
# simulators of `kitt bench simulators` these are the best.
COLUMN_WORDS = tuple(map(parse, ("RBF(each)", "RBF(pairs)", "RBF(all)")))
ROUGHER = Primitive.MATERN52
NO_SIGNAL = parse("White")
CHANGING_NOISE = parse("Linear*White").words
MOST_WORDS = 6  # proposed words that are tried as the next one of a sum; set by hand


# Less CPU for equal density, on tables of `kitt bench atlas` and `kitt bench simulators`.
SHORT_SEARCH: Mapping[str, Any] = {"tolerance": 0.4}


@dataclass(frozen=True)
class Effort:
    """How much is fitted; chosen on 216 tables of `kitt bench atlas` at 200 rows and on the tables of `kitt bench uci`."""

    verified: int  # captions that are compared on a few hundred rows
    kept: int  # best of these, which are fitted to all rows if there are more than a few hundred
    changing_noise: int  # number of the best of these that are also fitted with Linear*White
    warped: int  # number of the best of these that are also fitted to a transform of the target
    arranged: int  # number of the best words that act on columns that are fitted
    plain: int  # plain kernels that are fitted
    growth: int  # words that may be added to the best caption
    residual_rows: int  # smallest number of rows for which the network captions the residual of the best caption
    # Fields of `FitConfig` that differ from the usual ones.
    search: Mapping[str, Any] = field(default_factory=lambda: SHORT_SEARCH)
    folds_rows: int = 0  # up to this many rows, weights come from refitted folds instead of leave-one-out
    clear_folds_rows: int = 0  # up to this many rows, where there is little noise: `kitt bench simulators`


THOROUGH_SEARCH: Mapping[str, Any] = {  # many starts and late stopping: `kitt bench words` on UCI
    "draws": 150,
    "starts": 6,
    "batch_steps": 10,
    "trials": 3,
    "tolerance": 0.01,
    "patience": 4,
}
EFFORTS: Mapping[str, Effort] = {
    "quick": Effort(
        verified=1,
        kept=1,
        changing_noise=0,
        warped=1,
        arranged=1,
        plain=1,
        growth=0,
        residual_rows=0,
    ),
    "normal": Effort(
        verified=3,
        kept=1,
        changing_noise=1,
        warped=1,
        arranged=1,
        plain=2,
        growth=1,
        residual_rows=300,
        clear_folds_rows=60,
    ),
    "thorough": Effort(
        verified=3,
        kept=3,
        changing_noise=3,
        warped=2,
        arranged=4,
        plain=2,
        growth=3,
        residual_rows=0,
        search=THOROUGH_SEARCH,
        folds_rows=500,
    ),
}


def prior_of(is_plain: bool) -> str:
    """The name of the prior with which a kernel is fitted."""
    return "botorch" if is_plain else "default"


@dataclass(frozen=True)
class Candidate:
    """A kernel to fit, its prior, and whether the target is transformed."""

    expression: Expression
    prior: str = "default"
    warped: bool = False

    @property
    def is_plain(self) -> bool:
        return self.prior != "default"

    def __str__(self) -> str:
        return f"{self.expression}{' of the transformed target' * self.warped}"


def candidates(
    captions: Sequence[Expression],
    scores: Mapping[Expression, float],
    effort: Effort,
    kept: int | None = None,
    arranged: Sequence[Expression] = (),
    own: Sequence[Expression] = (),
) -> tuple[Candidate, ...]:
    """The best captions; the very best also with changing noise and with a transformed target; the user's own kernels; words
    that act on columns; plain kernels; noise alone.

    `scores` are those of the captions on a few hundred rows. Captions without a score come last, in the given order. The
    words that act on columns, `arranged`, have been chosen already.
    `kept` captions are fitted: by default those of the effort. Noise alone is always fitted; if it has the best score, it
    takes the place of a caption, but not if nothing was scored.
    """
    ranked = sorted(captions if scores else filter(_has_signal, captions), key=lambda e: -scores.get(e, float("-inf")))
    signal = list(filter(_has_signal, ranked[: effort.kept if kept is None else kept]))
    named = [Candidate(e) for e in signal]
    named += [Candidate(with_changing_noise(e)) for e in signal[: effort.changing_noise]]
    warped = [Candidate(e, warped=True) for e in signal[: effort.warped]]
    plain = [Candidate(e, prior=prior_of(True)) for e in PLAIN[: effort.plain]]
    columns = list(map(Candidate, arranged))
    return tuple(dict.fromkeys([*named, *map(Candidate, own), *columns, *warped, *plain, Candidate(NO_SIGNAL)]))


def _has_signal(expression: Expression) -> bool:
    return bool(expression.signal)


def without_noise(expression: Expression) -> Expression:
    """The signal of a kernel, whose noise the noise model describes too; noise alone stays what it is."""
    return Expression(expression.signal) if expression.signal else expression


def with_changing_noise(expression: Expression) -> Expression:
    """The expression with Linear*White added to its words."""
    return Expression(tuple(dict.fromkeys((*expression, *CHANGING_NOISE))))


def rougher(word: Expression) -> Expression:
    """A word that acts on columns, with a less smooth primitive."""
    return Expression(tuple(replace(one, factors=(ROUGHER,)) for one in word))


def longer(best: Expression, proposed: Sequence[Expression]) -> list[Expression]:
    """The best kernel extended by one word, for each word that the network proposes for its residual."""
    words: list[Word] = [word for expression in proposed for word in expression if not word.is_noise]
    new = [word for word in dict.fromkeys(words) if word not in best.words][:MOST_WORDS]
    return [Expression((*best.signal, word, *(w for w in best if w.is_noise))) for word in new]
