"""What to fit: a pure function of the captions, of how well they did on a few hundred rows, and of the effort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kitt.language.grammar import Expression, Word, parse

PLAIN = tuple(map(parse, ("RBF", "Matern52")))  # the kernels users have today, with BoTorch's priors
NO_SIGNAL = parse("White")
CHANGING_NOISE = parse("Linear*White").words

EffortName = Literal["quick", "normal", "thorough"]


@dataclass(frozen=True)
class Effort:
    """How much is fitted. Chosen on 216 tables of `kitt bench atlas` at 200 rows and on the UCI tables of pipeline.md, 9."""

    verified: int  # captions that are compared on a few hundred rows
    kept: int  # of them, go on to be fitted
    changing_noise: bool  # whether they are also fitted with Linear*White
    warped: int  # of those kept, are also fitted to a transform of the target
    plain: int  # plain kernels
    growth: int  # words that may be added, each proposed by the network for what the best kernel leaves
    growth_rows: int  # from which on words are added
    search: Mapping[str, Any] = field(default_factory=dict)  # fields of `FitConfig` that differ from the usual ones
    folds_rows: int = 0  # up to which weights come from folds, fitted again, instead of leave-one-out


QUICK_SEARCH: Mapping[str, Any] = {  # 40 tables of `kitt bench atlas`: an eighth less CPU, the same density
    "draws": 8,
    "batch_steps": 3,
    "tolerance": 0.15,
    "patience": 2,
}
THOROUGH_SEARCH: Mapping[str, Any] = {  # many starts and late stopping: `kitt bench words` on UCI
    "draws": 150,
    "starts": 6,
    "batch_steps": 10,
    "trials": 3,
    "tolerance": 0.01,
    "patience": 4,
    "coarse_rows": 300,
}
EFFORTS: Mapping[str, Effort] = {
    "quick": Effort(
        verified=1, kept=1, changing_noise=False, warped=1, plain=1, growth=0, growth_rows=0, search=QUICK_SEARCH
    ),
    "normal": Effort(verified=3, kept=1, changing_noise=True, warped=1, plain=2, growth=1, growth_rows=300),
    "thorough": Effort(
        verified=3,
        kept=3,
        changing_noise=True,
        warped=2,
        plain=2,
        growth=3,
        growth_rows=0,
        search=THOROUGH_SEARCH,
        folds_rows=500,
    ),
}


def prior_of(is_plain: bool) -> str:
    """The name of the prior that a plain kernel, or another, is fitted with."""
    return "botorch" if is_plain else "default"


@dataclass(frozen=True)
class Candidate:
    """A kernel to fit, its prior, and whether to the target as it is or to a transform of it."""

    expression: Expression
    prior: str = "default"
    warped: bool = False

    @property
    def is_plain(self) -> bool:
        return self.prior != "default"

    def __str__(self) -> str:
        return f"{self.expression}{' of the transformed target' * self.warped}"


def candidates(
    captions: Sequence[Expression], scores: Mapping[Expression, float], effort: Effort
) -> tuple[Candidate, ...]:
    """The best captions with and without changing noise, on both scales of the target; plain kernels; no signal at all.

    `scores` are those of the captions on a few hundred rows; what has none keeps the network's order behind the others.
    """
    ranked = sorted(captions, key=lambda e: -scores.get(e, float("-inf")))[: effort.kept]
    signal = [e for e in ranked if e.signal]
    named = [Candidate(e) for e in signal]
    if effort.changing_noise:
        named += [Candidate(e) for e in map(with_changing_noise, signal) if e not in signal]
    warped = [Candidate(e, warped=True) for e in signal[: effort.warped]]
    plain = [Candidate(e, prior=prior_of(True)) for e in PLAIN[: effort.plain]]
    return tuple(dict.fromkeys([*named, *warped, *plain, Candidate(NO_SIGNAL)]))


def with_changing_noise(expression: Expression) -> Expression:
    """With Linear*White among its words."""
    return Expression(tuple(dict.fromkeys((*expression, *CHANGING_NOISE))))


def longer(best: Expression, proposed: Sequence[Expression], most: int = 3) -> list[Expression]:
    """The best kernel with one more word, for each word that the network names for what that kernel leaves."""
    words: list[Word] = [word for expression in proposed for word in expression if not word.is_noise]
    new = [word for word in dict.fromkeys(words) if word not in best.words][:most]
    return [Expression((*best.signal, word, *(w for w in best if w.is_noise))) for word in new]
