"""Ways to choose a kernel on real tasks: the learned head, cross-validated over tables, and what it is compared with.

*Capture* is the share of the possible gain over always choosing Matern32 that a way of choosing achieves. It is computed on
tasks where some word gains at least 0.03 nats per row, and a task counts at most one nat per row; *elsewhere* is the loss on
the other tasks. Capture is reported for the first word, for the best of three words by BIC with changing noise and, if
available, expected loss, much as the pipeline compares captions (*verified*), and for the best of three in hindsight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from torch import Tensor

from kitt.kernels.grammar import WORDS
from kitt.network.checkpoint import load
from kitt_lab.advice import cross_validate
from kitt_lab.bench.comparisons import bootstrap_interval
from kitt_lab.bench.tables import Grid
from kitt_lab.examples import LOSS_CAP, Examples, read_examples

V = len(WORDS)
HEAD = "learned head"
WORTHWHILE = 0.03  # nats per row that some word must gain over the reference
MANY_ROWS = 160  # from which a task is one of the larger ones
K = 3
_DRAWS = 20  # of random words
Advisor = tuple[str, np.ndarray, Tensor | None]  # name, choices (draws, T, K) of words, expected losses (T, V)
_INDEX = {str(word): word.index for word in WORDS}


def run_advice(
    corpus: Path, data: Path, model: str, report: Callable[[int, int], None] | None = None
) -> list[dict[str, Any]]:
    """Compare the advisors on the tasks that the corpus holds."""
    return compare(read_examples(corpus, data, load(model), report))


def compare(examples: Examples) -> list[dict[str, Any]]:
    """A row for each advisor: on all tasks, on those whose target is the last column of a table, and on the larger ones."""
    masks = {
        "all": np.ones(len(examples), dtype=bool),
        "own target": examples.is_own_target,
        f"{MANY_ROWS} rows": examples.rows >= MANY_ROWS,
    }
    advisors = list(_advisors(examples))
    return [
        {"of": label, "tasks": int(mask.sum()), **_measured(advisor, examples, mask)}
        for label, mask in masks.items()
        for advisor in advisors
    ]


def _measured(advisor: Advisor, examples: Examples, mask: np.ndarray) -> dict[str, Any]:
    name, chosen, expected = advisor
    losses = expected if name == HEAD else None  # the other scores are no losses
    row: dict[str, Any] = {
        "advisor": name,
        "Spearman": None if expected is None else spearman(expected, examples, mask),
    }
    ways = {"first": chosen[:, :, :1], "verified": verify(chosen, examples, losses), f"best of {K}": chosen}
    for way, words in ways.items():
        share, elsewhere = capture(words, examples, mask)
        low, high = capture_interval(words, examples, mask)
        row |= {way: share, f"{way}, from": low, f"{way}, to": high, f"{way} elsewhere": elsewhere}
        if way != "verified":
            row[f"{way} alone"] = loss_alone(words, examples, mask)
    return row


def advice_grids(rows: Sequence[Mapping[str, Any]]) -> list[Grid]:
    """The rows of `compare` as tables, one for each group of tasks."""
    head = ("choice by", "Spearman", "first", "verified", f"best of {K} in hindsight", "alone")
    grids = []
    for label in dict.fromkeys(row["of"] for row in rows):
        here = [row for row in rows if row["of"] == label]
        title = f"Capture (95 % over tables) and loss elsewhere: {label}, {here[0]['tasks']} tasks"
        cells = (
            (
                row["advisor"],
                "" if row["Spearman"] is None else f"{row['Spearman']:.3f}",
                *(_capture_text(row, way) for way in ("first", "verified", f"best of {K}")),
                f"{row['first alone']:.3f}",
            )
            for row in here
        )
        grids.append(Grid(title, head, tuple(cells)))
    return grids


def _capture_text(row: Mapping[str, Any], way: str) -> str:
    low, high = row[f"{way}, from"], row[f"{way}, to"]
    return f"{row[way]:.2f} ({low:.2f} to {high:.2f}), {row[f'{way} elsewhere']:+.3f}"


def _advisors(examples: Examples) -> Iterator[Advisor]:
    """All ways to choose that are compared."""
    T = len(examples)
    advice = cross_validate(examples, K)
    yield HEAD, advice.chosen.numpy()[None], advice.expected
    probabilities = examples.log_probabilities
    by_bic = examples.bic.argsort(1)
    yield f"best BIC of {V} fits", by_bic[:, :K].numpy()[None], examples.bic
    order = probabilities.argsort(1, descending=True)
    yield "most probable word", order[:, :K].numpy()[None], -probabilities
    yield "RBF", np.full((1, T, K), _INDEX["RBF"]), None
    rng = np.random.default_rng(0)
    draws = [[rng.permutation(V)[:K] for _ in range(T)] for _ in range(_DRAWS)]
    yield "random words", np.array(draws), None


def _gains(examples: Examples) -> np.ndarray:
    """The gain of each word over Matern32 (T, V), nats per row, capped on both sides."""
    nlpd = examples.nlpd[:, :V].double().numpy()
    reference = np.nan_to_num(nlpd[:, [_INDEX["Matern32"]]], nan=np.inf)
    gains = np.clip(reference - nlpd, -LOSS_CAP, LOSS_CAP)
    return np.nan_to_num(gains, nan=-LOSS_CAP)


def capture(chosen: np.ndarray, examples: Examples, mask: np.ndarray) -> tuple[float, float]:
    """Capture and loss elsewhere of the best in hindsight of the chosen words (draws, T, k), averaged over draws."""
    best, got = _best_and_got(chosen, examples)
    there, rest = mask & (best >= WORTHWHILE), mask & (best < WORTHWHILE)
    elsewhere = float(-got[rest].mean()) if rest.any() else np.nan
    return _share(got[there].sum(), best[there].sum()), elsewhere


def capture_interval(chosen: np.ndarray, examples: Examples, mask: np.ndarray) -> tuple[float, float]:
    """95 % interval of the capture, over tables drawn with replacement."""
    best, got = _best_and_got(chosen, examples)
    there = mask & (best >= WORTHWHILE)
    if not there.any():
        return np.nan, np.nan
    names = np.unique(np.array(examples.tables)[there], return_inverse=True)[1]
    sums = [np.bincount(names, weights=values[there]) for values in (got, best)]
    return bootstrap_interval(len(sums[0]), lambda drawn: _share(*(total[drawn].sum() for total in sums)))


def loss_alone(chosen: np.ndarray, examples: Examples, mask: np.ndarray) -> float:
    """The mean loss of the best in hindsight of the chosen words (draws, T, k), each fitted by itself."""
    alone = examples.alone[:, :V].numpy()
    return float(np.mean([np.take_along_axis(alone, one, 1).min(1)[mask].mean() for one in chosen]))


def _best_and_got(chosen: np.ndarray, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """The gain of the best word, and that of the best of the chosen ones, for each task (T,)."""
    gains = _gains(examples)
    return gains.max(1), np.mean([np.take_along_axis(gains, one, 1).max(1) for one in chosen], axis=0)


def _share(got: float, possible: float) -> float:
    return float(got / possible) if possible else np.nan


def verify(chosen: np.ndarray, examples: Examples, losses: Tensor | None = None) -> np.ndarray:
    """The word with the best BIC on the training rows, (draws, T, 1), among the chosen ones (draws, T, k).

    `losses` (T, V), the expected loss of each word per row, is added to it.
    """
    bic = examples.bic.numpy()
    if losses is not None:
        bic = bic + 2 * examples.rows[:, None] * losses.numpy()
    best = np.stack([np.take_along_axis(bic, one, 1).argmin(1) for one in chosen])
    return np.take_along_axis(chosen, best[:, :, None], 2)


def spearman(expected: Tensor, examples: Examples, mask: np.ndarray) -> float:
    """Rank correlation of expected and actual losses over the words, mean over those of the tasks where both vary."""
    correlations = []
    for said, lost in zip(expected.numpy()[mask], examples.loss[:, :V].numpy()[mask], strict=True):
        a, b = rankdata(said), rankdata(lost)
        if a.std() > 0 and b.std() > 0:
            correlations.append(np.corrcoef(a, b)[0, 1])
    return float(np.mean(correlations)) if correlations else np.nan
