"""Table -> ranked captions with probabilities (paper, Inference, steps 1 to 4), in a tenth of a second, without fitting.

The network encodes a table once; classifier, greedy decoding, sampling and beam search all read the same encodings. There
are two rankings: `probability`, as in the paper, and `expected-loss`, the default, which chooses k captions such that the
expected loss of the best of them, relative to the best kernel, is small.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from numbers import Integral
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.kernels.grammar import WORDS, Expression
from kitt.network.advice import advice_features
from kitt.network.checkpoint import LoadedModel, load
from kitt.network.columns import Columns, read_columns
from kitt.network.network import StemEncoder, StemOutput
from kitt.network.properties import Group, Property, alike, properties
from kitt.network.ranking import RANKINGS, ranked
from kitt.network.search import SEARCHES, Stepper, Sums, merge_orders
from kitt.network.subsets import READINGS, Reading, standardised, subsets
from kitt.table.dataset import MIN_ROWS
from kitt.table.reading import refusal
from kitt.table.scaling import FloatArray
from kitt.threads import threads_for

_GROUPS = 6  # largest number of groups of captions that are returned
HEADS = ("classifier", "decoder")


@dataclass(frozen=True)
class Caption:
    """An expression, its calibrated probability, and its expected loss."""

    expression: Expression
    probability: float
    expected_loss: float | None = None  # relative to the best word, nats per row; None if the checkpoint predicts none

    def __str__(self) -> str:
        return f"{self.expression} ({self.probability:.1%})"


@dataclass(frozen=True)
class Captions:
    """The network's output for a table; iterating over it yields the captions, best first.

    Attributes
    ----------
    ranked : tuple of Caption
        The captions, best first, in the chosen ranking. Each has an `expression`, a `probability` and an `expected_loss`
        in nats per row.
    words : tuple of float
        The calibrated probability of each of the 34 words, in the order of `kitt.WORDS`.
    rows_seen : int
        How many different rows the network read; from a large table it reads random subsets.
    strangeness : float or None
        How unlike the training data the table is, relative to the 99 % quantile of training data; above 1 is unusual.
    roughness : tuple of float or None
        The network's estimate of each column's inverse lengthscale.
    noise : float or None
        The network's estimate of the share of noise in the variance of the target.
    properties : tuple of Property
        Properties of the table in everyday words. Each has a `name`, a `meaning` and a `probability`, which is the total
        probability of all captions with that property. Empty for `head="classifier"`.
    groups : tuple of Group
        The captions that were found, with similar ones grouped together, the most probable group first.
    columns : Columns or None
        What each column does, which columns act together, and kernels composed of that, computed when it is first asked
        for; None if the checkpoint does not say it.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 10, 100)
    >>> captions = kitt.caption(x[:, None], np.sin(5 * x), k=2)
    >>> len(captions), captions.best == captions.ranked[0], len(captions.words)
    (2, True, 34)
    """

    ranked: tuple[Caption, ...]
    words: tuple[float, ...]
    rows_seen: int
    strangeness: float | None
    roughness: tuple[float, ...] | None
    noise: float | None
    properties: tuple[Property, ...] = ()
    groups: tuple[Group, ...] = ()
    _columns: Callable[[], Columns] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def columns(self) -> Columns | None:
        return None if self._columns is None else self._columns()

    def __repr__(self) -> str:
        return f"<Captions: {', '.join(f'{c.expression} {c.probability:.1%}' for c in self.ranked)}>"

    def __iter__(self) -> Iterator[Caption]:
        return iter(self.ranked)

    def __len__(self) -> int:
        return len(self.ranked)

    @property
    def best(self) -> Caption:
        """The first caption."""
        return self.ranked[0]

    @property
    def is_strange(self) -> bool:
        """Whether the table is unlike what the network was trained on, so that its captions are less reliable."""
        return self.strangeness is not None and self.strangeness > 1


def caption(
    X: FloatArray,
    y: FloatArray,
    k: int = 3,
    *,
    network: str | PathLike[str] | LoadedModel = "default",
    head: str = "decoder",
    search: str = "beam",
    ranking: str = "expected-loss",
    reading: str = "quick",
    random_state: int = 0,
    check: bool = True,
) -> Captions:
    """Predict the kernels of a table with the network, without fitting anything.

    Parameters
    ----------
    X : array of shape (N, D)
        Inputs in raw units, at least eight rows; `kitt.Dataset` turns other tables into numbers.
    y : array of shape (N,)
        The target in raw units, which must vary.
    k : int
        How many captions to return.
    network : str, path or LoadedModel
        The checkpoint of the network: a bundled name, "default" or "paper", or a file.
    head : {"decoder", "classifier"}
        The decoder predicts sums of up to three words, the classifier single words.
    search : {"beam", "greedy", "sample"}
        How the decoder searches for captions.
    ranking : {"expected-loss", "probability"}
        How captions are ranked: such that the best of the k has a small expected loss relative to the best kernel, or by
        probability, as in the paper.
    reading : {"quick", "careful", "all"}
        How many rows of a large table the network reads: as many as take about a tenth of a second, more of them in less
        than half a second, or up to 5,000, which takes minutes. Of a table of a few hundred rows it always reads all.
    random_state : int
        Seed of the subsets of a large table and of sampling.
    check : bool
        Refuse a table of fewer than eight rows or of a constant target, of which nothing can be known.

    Returns
    -------
    Captions

    Examples
    --------
    >>> import numpy as np, kitt
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(100, 2))
    >>> captions = kitt.caption(X, X @ [2.0, -1.0], head="classifier", ranking="probability")
    >>> print(captions.best.expression)
    Linear
    """
    options = {"head": head, "search": search, "ranking": ranking, "reading": reading}
    return caption_each([(X, y)], k, network=network, random_state=random_state, check=check, **options)[0]


def caption_each(
    tables: Sequence[tuple[FloatArray, FloatArray]],
    k: int,
    *,
    network: str | PathLike[str] | LoadedModel,
    head: str,
    search: str,
    ranking: str,
    reading: str,
    random_state: int,
    check: bool = True,
) -> list[Captions]:
    """What `caption` does for each of several tables, which the network reads in one batch if they have one size."""
    _check_options(k, head=head, search=search, ranking=ranking, reading=reading)
    checked = [_check_arrays(X, y) for X, y in tables]
    for X, y in checked if check else ():
        if len(X) < MIN_ROWS:
            raise refusal(f"at least {MIN_ROWS} rows", str(len(X)), "add rows")
        if y.min() == y.max():
            raise refusal("a target that varies", f"{y[0]} in every row", "give another y")
    loaded, seed = network if isinstance(network, LoadedModel) else load(os.fspath(network)), checked_seed(random_state)
    with torch.inference_mode(), threads_for(READINGS[reading].max_rows):
        views = encode_tables(loaded, checked, seed, READINGS[reading])
        return [_caption(loaded, v, k, head, search, ranking, torch.Generator().manual_seed(seed)) for v in views]


def checked_seed(seed: Any) -> int:
    """A seed that torch and numpy accept; a number of numpy becomes one of Python."""
    if not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise InvalidInputError(f"the seed must be a whole number of at least 0 and less than 2**63, got {seed!r}")
    return int(seed)


_ALLOWED = {"head": HEADS, "search": tuple(SEARCHES), "ranking": tuple(RANKINGS), "reading": tuple(READINGS)}


def _check_options(k: int, **chosen: str) -> None:
    if not isinstance(k, Integral) or k < 1:
        raise InvalidInputError(f"k, the number of captions, must be a whole number of at least 1, got {k!r}")
    for name, value in chosen.items():
        if value not in _ALLOWED[name]:
            raise InvalidInputError(f"{name} must be one of {', '.join(_ALLOWED[name])}, got '{value}'")


# --- the encodings of one table ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """Encodings of the subsets of one table, and the other outputs of the encoder."""

    encodings: Tensor  # (S, D, E)
    size: tuple[int, int]  # of the table
    rows: int  # number of different rows that were read
    strangeness: float | None
    roughness: Tensor | None
    noise: float | None
    columns: Callable[[], Columns] | None = None  # says what they do


def encode_table(
    loaded: LoadedModel, X: FloatArray, y: FloatArray, random_state: int, reading: Reading = READINGS["quick"]
) -> View:
    """Encode a table (paper, Inference, step 1); of a large table, encode a few random subsets of its rows."""
    return encode_tables(loaded, [_check_arrays(X, y)], random_state, reading)[0]


def encode_tables(
    loaded: LoadedModel,
    tables: Sequence[tuple[FloatArray, FloatArray]],
    random_state: int,
    reading: Reading,
) -> list[View]:
    """The encodings of several tables, from one batch if their subsets have one size."""
    drawn = [subsets(X, y, random_state, reading) for X, y in tables]
    read = [
        standardised([(X, y)] if places is None else [(X[i], y[i]) for i in places])
        for (X, y), places in zip(tables, drawn, strict=True)
    ]
    if len({X.shape[1:] for X, _ in read}) > 1:
        return [encode_tables(loaded, [table], random_state, reading)[0] for table in tables]
    batch, counts = (torch.cat(part) for part in zip(*read, strict=True)), [len(X) for X, _ in read]
    rows = [len(X) if i is None else len(np.unique(i)) for (X, _), i in zip(tables, drawn, strict=True)]
    sizes = [(X.shape[0], X.shape[1]) for X, _ in tables]
    encoder = loaded.model.encoder
    if not isinstance(encoder, StemEncoder):
        encodings = loaded.model.encode(*batch).split(counts)
        return [View(e, size, n, None, None, None) for e, size, n in zip(encodings, sizes, rows, strict=True)]
    said, limit = encoder.read(*batch), loaded.facts.extra.get("strangeness_limit")
    parts = (getattr(said, field.name).split(counts) for field in fields(StemOutput))
    views = []
    for (X, y), size, n, own in zip(tables, sizes, rows, zip(*parts, strict=True), strict=True):
        seen = StemOutput(*own)
        strange = None if limit is None else float(seen.strangeness.mean()) / limit
        asked = partial(read_columns, loaded.columns, seen, X, y, random_state) if loaded.columns else None
        roughness, noise = seen.roughness.mean(0).exp(), float(seen.noise.mean().exp())
        views.append(View(seen.encodings, size, n, strange, roughness, noise, asked))
    return views


def _check_arrays(X: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != (len(X),) or min(X.shape, default=0) < 1:
        raise InvalidInputError(
            f"expected X of shape (rows, columns) and y of shape (rows,), got {X.shape} and {y.shape}"
        )
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise InvalidInputError("expected finite numbers, got missing or infinite ones: leave those rows out")
    return X, y


# --- steps 2 to 4 --------------------------------------------------------------------------------------------------------


def _caption(
    loaded: LoadedModel,
    view: View,
    k: int,
    head: str,
    search: str,
    ranking: str,
    generator: torch.Generator,
) -> Captions:
    words = word_probabilities(loaded, view)
    summed: Sums
    believed: tuple[Property, ...] = ()
    if head == "classifier":
        summed = {frozenset([i]): ((i,), float(p)) for i, p in enumerate(words)}
    else:
        step = Stepper(loaded, view.encodings)
        summed = merge_orders(SEARCHES[search](step, generator))
        believed = properties(step, step.config.max_words, loaded.facts.extra.get("property_curves"))
    said = sorted(summed.values(), key=lambda caption: -caption[1])
    losses: list[float | None] = [None] * len(said)
    order = list(range(len(said)))
    if (scenarios := _scenarios(loaded, view, words, [c for c, _ in said])) is not None:
        best, expected = ranked(scenarios, [_signal(c) for c, _ in said], [p for _, p in said], k)
        losses = expected.tolist()
        order = best if ranking == "expected-loss" else order
    captions = [Caption(Expression.from_indices(said[i][0]), said[i][1], losses[i]) for i in order[:k]]
    roughness = None if view.roughness is None else tuple(map(float, view.roughness))
    groups = alike([(Expression.from_indices(words), p) for words, p in said])[:_GROUPS]
    seen = (view.rows, view.strangeness, roughness, view.noise)
    return Captions(tuple(captions), tuple(map(float, words)), *seen, believed, groups, view.columns)


def _signal(caption: Sequence[int]) -> frozenset[int]:
    """The words of a caption that are not noise."""
    return frozenset(i for i in caption if not WORDS[i].is_noise)


def _scenarios(loaded: LoadedModel, view: View, words: Tensor, captions: Sequence[tuple[int, ...]]) -> Tensor | None:
    """Scenarios of each caption's loss, nats per row (S, C); None if the checkpoint does not predict losses.

    The loss is that of the signal: words of noise beside it neither gain nor lose, because every kernel has such noise.
    """
    head = loaded.advice
    if head is None or view.roughness is None or view.noise is None:
        return None
    features = advice_features(view.encodings, words.log(), view.size, view.roughness, view.noise)
    multi_hot = torch.zeros(len(captions), len(WORDS))
    for row, caption in zip(multi_hot, captions, strict=True):
        row[list(_signal(caption) or caption)] = 1.0
    return head.scenarios(features[None], multi_hot)[0].double()


def word_probabilities(loaded: LoadedModel, view: View) -> Tensor:
    """Classifier (KITT E): mean over subsets of the log-probabilities, calibrated by the checkpoint's temperature."""
    log_p = loaded.model.classify(view.encodings).mean(0) / loaded.facts.extra.get("temperature", 1.0)
    return log_p.softmax(-1).double()
