"""`tree-search`: the greedy search of Duvenaud et al. (2013), the usual method today, implemented as well as we can.

Level by level, the best expression is changed in every possible way, each child is fitted from its parent's parameters, and
the best of them by BIC is changed next. To waste no time, all children are fitted on a few hundred rows, and only the most
promising on all (at most 2,000). It ends at its depth, after some levels that bring nothing, or when time is up.
Two grammars: `words`, KITT's own (all columns, ARD), and `columns`, base kernels on single columns as in the original.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from kitt.errors import FitError, InvalidInputError
from kitt.table.dataset import Dataset
from kitt_lab.baselines.base import FittedMethod, Predictive


@dataclass(frozen=True)
class Solved:
    """An expression of a grammar with its best parameters so far. On some of the rows only, `bic` is an estimate."""

    state: Any
    theta: Tensor
    likelihood: float
    bic: float
    is_final: bool = False
    start: Tensor | None = None  # where the best fit on some of the rows began


class Grammar(Protocol):
    """A language of kernels on one table. States are hashable; `end` is when a fit has to be over, by `time.time`."""

    def roots(self) -> Sequence[Hashable]: ...

    def children(self, state: Any) -> Sequence[Hashable]: ...

    def coarse(self, state: Any, parent: Solved | None, end: float) -> Solved | None: ...

    def refine(self, solved: Solved, end: float) -> Solved | None: ...

    def predictive(self, solved: Solved) -> Predictive: ...


@dataclass(frozen=True)
class TreeSearch:
    """Settings of the search. `jobs` is joblib's n_jobs; None takes what `joblib.parallel_config` says, dask included."""

    grammar: Literal["words", "columns"] = "words"
    depth: int = 8
    patience: int = 2  # levels in a row that may bring nothing
    finalists: int = 5  # of a level, fitted on all rows; 0: all of them
    max_words: int = 3
    max_rows: int = 2000
    coarse_rows: int = 300
    seconds: float | None = None
    jobs: int | None = None
    prior: str = "default"
    objective: Literal["map", "ml"] = "map"

    def __post_init__(self) -> None:
        if self.grammar not in ("words", "columns"):
            raise InvalidInputError(f"the grammar of a tree search is words or columns, got '{self.grammar}'")
        if (
            min(self.depth, self.finalists) < 0
            or min(self.patience, self.max_words, self.max_rows, self.coarse_rows) < 1
        ):
            raise InvalidInputError("depth and finalists must not be negative, and the other limits must be positive")
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidInputError(f"the time budget must be a positive number of seconds, got {self.seconds}")

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        started, end = time.perf_counter(), time.time() + (math.inf if self.seconds is None else self.seconds)
        language = self._language(train, random_state)
        search = Search(language, self, end)
        best = search.run()
        chosen = time.perf_counter()
        predictive = language.predictive(best)
        details = {
            "bic": best.bic,
            "likelihood": best.likelihood,
            "levels": search.levels,
            "fitted": search.fitted,
            "stopped": search.stopped,
        }
        return FittedMethod(
            predictive, train.d, str(best.state), chosen - started, time.perf_counter() - chosen, details
        )

    def _language(self, train: Dataset, seed: int) -> Grammar:
        if self.grammar == "columns":
            from kitt_lab.baselines.tree_columns import Columns

            return Columns.of(train, self.max_rows, self.coarse_rows, seed)
        from kitt_lab.baselines.tree_words import Words

        return Words.of(train, self, seed)


@dataclass
class Search:
    """The state of one search."""

    language: Grammar
    settings: TreeSearch
    end: float  # by `time.time`
    levels: list[dict[str, Any]] = field(default_factory=list)  # what each level found, for the record
    fitted: int = 0
    stopped: str = "depth"
    seen: set[Hashable] = field(default_factory=set)

    def run(self) -> Solved:
        root = self._level(self.language.roots(), None)
        if root is None:
            raise FitError("no base kernel of the tree search could be fitted to this table")
        best, front, stale = root, root, 0
        for _ in range(self.settings.depth):
            children = [child for child in self.language.children(front.state) if child not in self.seen]
            next_front = self._level(children, front) if children else None
            if next_front is None:
                self.stopped = "time" if self._left() <= 0 else "nothing left to try"
                break
            front, stale = next_front, 0 if _better(next_front, best) else stale + 1
            best = next_front if stale == 0 else best
            if stale >= self.settings.patience:
                self.stopped = "time" if self._left() <= 0 else "no more gain"
                break
        return best

    def _level(self, states: Sequence[Hashable], parent: Solved | None) -> Solved | None:
        """The best of these expressions, or None if time is up before any is fitted on all rows."""
        self.seen.update(states)
        if parent is not None and self._left() <= 0:
            return None
        half = time.time() + self._left() / 2  # the other half is for the finalists
        ends = [
            math.inf if parent is None and i == 0 else half for i in range(len(states))
        ]  # at least one expression must be fitted
        tasks = [(state, parent, end) for state, end in zip(states, ends, strict=True)]
        ranked = sorted(_each(self.language.coarse, tasks, self.settings.jobs), key=lambda solved: solved.bic)
        self.fitted += len(ranked)
        finalists = [(solved, self.end) for solved in ranked[: self.settings.finalists or None]]
        final = _each(self.language.refine, finalists, self.settings.jobs)
        best = min(final or (ranked if parent is None else []), key=lambda solved: solved.bic, default=None)
        if best is not None:
            self.levels.append({"best": str(best.state), "bic": best.bic, "tried": len(states)})
        return best

    def _left(self) -> float:
        return self.end - time.time()


def _better(next_front: Solved, best: Solved) -> bool:
    return (next_front.is_final, -next_front.bic) > (best.is_final, -best.bic)


def _each(
    function: Callable[..., Solved | None], arguments: Iterable[tuple[Any, ...]], jobs: int | None
) -> list[Solved]:
    """The results of a function for each argument, in parallel, without failures."""
    from joblib import Parallel, delayed

    return [solved for solved in Parallel(jobs)(delayed(function)(*each) for each in arguments) if solved is not None]
