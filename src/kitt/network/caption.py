"""Table -> ranked captions with probabilities (paper, Inference, steps 1 to 4), in a tenth of a second, without fitting.

The network encodes a table once; classifier, greedy decoding, sampling and beam search all read the same encodings. There
are two rankings: `probability`, as in the paper, and `expected-loss`, the default, which chooses k captions such that the
best of them probably loses little against the best kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.language.grammar import WORDS, Expression
from kitt.network.advice import advice_features
from kitt.network.checkpoint import LoadedModel, load
from kitt.network.network import StemEncoder
from kitt.network.ranking import DEFAULT as RANKING
from kitt.network.ranking import RANKINGS, RankingConfig, rank, trusted
from kitt.table.scaling import FloatArray, Standardiser, centre_and_scale
from kitt.threads import threads_for

SEARCHES = ("beam", "greedy", "sample")
HEADS = ("classifier", "decoder")


@dataclass(frozen=True)
class CaptionConfig:
    """How much of a table the network reads, and how many captions the searches keep."""

    subsets: int = 2  # random subsets of a large table; their log-probabilities are averaged: `kitt bench latency`
    work: float = 0.7e6  # about what one subset may cost, N² (D + 6): a tenth of a second (`kitt bench latency`)
    min_points: int = 64
    max_points: int = 384  # `kitt bench latency`
    beam: int = 34  # width of the beam: each single word is one of the captions
    samples: int = 60  # as in the paper's code


CONFIG = CaptionConfig()


@dataclass(frozen=True)
class Caption:
    """An expression, its calibrated probability, and what choosing it is expected to cost."""

    expression: Expression
    probability: float
    expected_loss: float | None = None  # against the best word, in nats per row; None if the checkpoint has no losses

    def __str__(self) -> str:
        return f"{self.expression} ({self.probability:.1%})"


@dataclass(frozen=True)
class Captions:
    """What the network says about a table; iterating over it gives the captions, best first.

    Attributes
    ----------
    ranked : tuple of Caption
        The captions, best first, by the ranking that was asked for. Each has an `expression`, a `probability` and an
        `expected_loss` in nats per row.
    words : tuple of float
        The calibrated probability of each of the 34 words, in the order of `kitt.WORDS`.
    rows_seen : int
        How many rows the network read; of a large table it reads random subsets.
    strangeness : float or None
        How unlike the training data the table is, relative to the 99 % quantile of training data: above 1 is strange.
    roughness : tuple of float or None
        The network's guess of each column's inverse lengthscale.
    noise : float or None
        The network's guess of the share of noise in the variance of the target.

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
    model: str | LoadedModel = "default",
    head: str = "decoder",
    search: str = "beam",
    ranking: str = "expected-loss",
    random_state: int = 0,
    config: RankingConfig = RANKING,
) -> Captions:
    """Ask the network for the kernels of a table, without fitting anything.

    Parameters
    ----------
    X : array of shape (N, D)
        Inputs in raw units; `kitt.Dataset` turns other tables into numbers.
    y : array of shape (N,)
        The target in raw units.
    k : int
        How many captions to return.
    model : str or LoadedModel
        The checkpoint of the network: a bundled name, "default" or "paper", or a file.
    head : {"decoder", "classifier"}
        The decoder says sums of up to three words, the classifier single words.
    search : {"beam", "greedy", "sample"}
        How the decoder's captions are searched.
    ranking : {"expected-loss", "probability"}
        How captions are ranked: so that the best of the k is expected to lose little against the best kernel; or by
        probability, as in the paper.
    random_state : int
        Seed of the subsets of a large table and of sampling.
    config : RankingConfig
        The constants of the rankings.

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
    options = {"head": head, "search": search, "ranking": ranking, "random_state": random_state}
    return caption_tables([(X, y)], k, model=model, config=config, **options)[0]  # type: ignore[arg-type]


def caption_tables(
    tables: Sequence[tuple[FloatArray, FloatArray]],
    k: int = 3,
    *,
    model: str | LoadedModel = "default",
    head: str = "decoder",
    search: str = "beam",
    ranking: str = "expected-loss",
    random_state: int = 0,
    config: RankingConfig = RANKING,
) -> list[Captions]:
    """Captions of several tables."""
    _check_options(k, head, search, ranking)
    loaded = load(model) if isinstance(model, str) else model
    generator = torch.Generator().manual_seed(random_state)
    with torch.inference_mode(), threads_for(CONFIG.max_points):
        views = (encode_table(loaded, X, y, random_state) for X, y in tables)
        return [_caption(loaded, view, k, head, search, ranking, generator, config) for view in views]


def _check_options(k: int, head: str, search: str, ranking: str) -> None:
    if k < 1:
        raise InvalidInputError(f"k, the number of captions, must be at least 1, got {k}")
    for name, value, allowed in (("head", head, HEADS), ("search", search, SEARCHES), ("ranking", ranking, RANKINGS)):
        if value not in allowed:
            raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, got '{value}'")


# --- the network's view of one table -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """Encodings of the subsets of one table, and the other outputs of the encoder."""

    encodings: Tensor  # (S, D, E)
    size: tuple[int, int]  # of the table
    rows: int  # that were looked at
    strangeness: float | None
    roughness: Tensor | None
    noise: float | None


def encode_table(loaded: LoadedModel, X: FloatArray, y: FloatArray, random_state: int) -> View:
    """Encode a table (paper, Inference, step 1); of a large table, encode a few random subsets of its rows."""
    X, y = _check_arrays(X, y)
    indices = subsets(X, y, random_state)
    batch = [(X, y)] if indices is None else [(X[i], y[i]) for i in indices]
    scaled = []
    for part_X, part_y in batch:
        standardiser = Standardiser.fit(part_X, part_y)
        scaled.append((standardiser.transform_x(part_X), standardiser.transform_y(part_y)))
    tensor_X = torch.from_numpy(np.stack([x for x, _ in scaled])).float()
    tensor_y = torch.from_numpy(np.stack([t for _, t in scaled])).float()
    rows, size = tensor_X.shape[0] * tensor_X.shape[1], (X.shape[0], X.shape[1])
    encoder = loaded.model.encoder
    if not isinstance(encoder, StemEncoder):
        return View(loaded.model.encode(tensor_X, tensor_y), size, rows, None, None, None)
    seen = encoder.read(tensor_X, tensor_y)
    limit = loaded.facts.extra.get("strangeness_limit")
    strangeness = None if limit is None else float(seen.strangeness.mean()) / limit
    return View(seen.encodings, size, rows, strangeness, seen.roughness.mean(0).exp(), float(seen.noise.mean().exp()))


def _check_arrays(X: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != (len(X),) or min(X.shape, default=0) < 1:
        raise InvalidInputError(
            f"expected X of shape (rows, columns) and y of shape (rows,), got {X.shape} and {y.shape}"
        )
    return X, y


def points_cap(d: int) -> int:
    """The number of rows that the network reads in one pass, such that the cost does not depend on the number of columns."""
    return int(min(CONFIG.max_points, max(CONFIG.min_points, math.sqrt(CONFIG.work / (d + 6)))))


def subsets(X: FloatArray, y: FloatArray, random_state: int) -> list[NDArray[np.intp]] | None:
    """Indices of a few random subsets of a large table, or None for a small one.

    Rows are drawn by a hash of their standardised values, so that the answer depends neither on the order of rows or columns
    nor on the units or the sign of any of them. Copies of a row have hashes of their own.
    """
    cap = points_cap(X.shape[1])
    if len(X) <= cap:
        return None
    key = _row_keys(y[:, None], 1) + _row_keys(X, 2)
    ordered, order = key.sort()
    position = torch.arange(len(key))
    is_new = torch.cat([torch.ones(1, dtype=torch.bool), ordered[1:] != ordered[:-1]])
    copy = torch.empty_like(key)  # how many rows of the same values come before a row
    copy[order] = position - torch.where(is_new, position, 0).cummax(0).values
    hashes = (_mixed(key + copy * _ODD, 3 + i + _SUBSET_SEEDS * random_state) for i in range(CONFIG.subsets))
    return [hashed.topk(cap, largest=False).indices.numpy() for hashed in hashes]


def _row_keys(values: FloatArray, seed: int) -> Tensor:
    """The sum over the columns of a hash of each value's distance from the mean, in millionths of standard deviations."""
    mean, scale = centre_and_scale(values) if len(values) <= _CAREFUL_ROWS else (values.mean(0), values.std(0))
    scale, keys = np.where(scale > 0, scale, 1.0), []
    for start in range(0, len(values), _CHUNK_ROWS):  # that stay in the cache
        z = torch.tensor(values[start : start + _CHUNK_ROWS] / scale - mean / scale).abs_().mul_(1e6)
        keys.append(_mixed(z.nan_to_num_(0.0).clamp_(max=1e18).round_().long(), seed).sum(1))
    return torch.cat(keys)


_ODD = -0x61C8864680B583EB  # 2^64 over the golden ratio, as a signed integer
_SUBSET_SEEDS = 1000  # seeds of one random state
_CAREFUL_ROWS = 100_000  # above, numbers beside the largest floats are not looked after
_CHUNK_ROWS = 2**14


def _mixed(values: Tensor, seed: int) -> Tensor:
    """A hash of integers (the finaliser of SplitMix64, Steele et al., 2014); products wrap around."""
    z = values + (((seed + 1) * _ODD + 2**63) % 2**64 - 2**63)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        z = (z ^ (z >> shift)).mul_(factor)
    return z.bitwise_xor_(z >> 31)


# --- steps 2 to 4 --------------------------------------------------------------------------------------------------------


def _caption(
    loaded: LoadedModel,
    view: View,
    k: int,
    head: str,
    search: str,
    ranking: str,
    generator: torch.Generator,
    config: RankingConfig,
) -> Captions:
    words = word_probabilities(loaded, view)
    found: Sums
    if head == "classifier":
        found = {frozenset([i]): ((i,), float(p)) for i, p in enumerate(words)}
    else:
        found = merge_orders(_SEARCH[search](_Stepper(loaded, view), generator))
    said = sorted(found.values(), key=lambda caption: -caption[1])
    losses: list[float | None] = [None] * len(said)
    order = list(range(len(said)))
    if (scenarios := _scenarios(loaded, view, words, [c for c, _ in said])) is not None:
        scenarios = trusted(scenarios, torch.tensor([p for _, p in said], dtype=torch.float64), config)
        losses = scenarios.mean(0).tolist()
        order = rank(scenarios, k, config) if ranking == "expected-loss" else order
    captions = [Caption(Expression.from_indices(said[i][0]), said[i][1], losses[i]) for i in order[:k]]
    roughness = None if view.roughness is None else tuple(map(float, view.roughness))
    return Captions(tuple(captions), tuple(map(float, words)), view.rows, view.strangeness, roughness, view.noise)


def _scenarios(loaded: LoadedModel, view: View, words: Tensor, captions: Sequence[tuple[int, ...]]) -> Tensor | None:
    """What each caption may lose, nats per row (S, C); None if the checkpoint has not learned it."""
    head = loaded.advice
    if head is None or view.roughness is None or view.noise is None:
        return None
    features = advice_features(view.encodings, words.log(), view.size, view.roughness, view.noise)
    multi_hot = torch.zeros(len(captions), len(WORDS))
    for row, caption in zip(multi_hot, captions, strict=True):
        row[list(caption)] = 1.0
    return head.scenarios(features[None], multi_hot)[0].double()


def word_probabilities(loaded: LoadedModel, view: View) -> Tensor:
    """Classifier (KITT E): mean over subsets of the log-probabilities, calibrated by the checkpoint's temperature."""
    log_p = loaded.model.classify(view.encodings).mean(0) / loaded.facts.extra.get("temperature", 1.0)
    return log_p.softmax(-1).double()


class _Stepper:
    """Next-word log-probabilities for many prompts at once, over cached encodings of all subsets."""

    def __init__(self, loaded: LoadedModel, view: View) -> None:
        self.config = loaded.facts.config
        self._decode, self._encodings = loaded.model.decode, view.encodings
        self._temperature = loaded.facts.extra.get("caption_temperature", 1.0)

    def __call__(self, prompts: Sequence[tuple[int, ...]]) -> Tensor:
        """(P, V + 1): words of the prompt, and STOP at the first step, are excluded; the rest is renormalised."""
        S = len(self._encodings)
        tokens = torch.tensor([(self.config.start, *prompt) for prompt in prompts])
        encodings = self._encodings.repeat(len(prompts), 1, 1)  # (P·S, D, E)
        logits = self._decode(encodings, None, tokens.repeat_interleave(S, 0))[:, -1]
        log_p = (logits.double() / self._temperature).log_softmax(-1).view(len(prompts), S, -1).mean(1)
        for row, prompt in zip(log_p, prompts, strict=True):
            row[list(prompt) if prompt else [self.config.stop]] = -math.inf
        return log_p.log_softmax(-1)


Sums = dict[frozenset[int], tuple[tuple[int, ...], float]]  # set of words -> its likeliest order, its probability
Sequences = dict[tuple[int, ...], float]  # caption in order -> log-probability


def greedy(step: _Stepper, generator: torch.Generator) -> Sequences:
    """Greedy decoding: the most probable next word, again and again (paper, Inference, steps 2 and 3)."""
    words: tuple[int, ...] = ()
    total = 0.0
    while len(words) < step.config.max_words:
        value, token = step([words])[0].max(0)
        total += float(value)
        if int(token) == step.config.stop:
            break
        words = (*words, int(token))
    return {words: total}


def sample(step: _Stepper, generator: torch.Generator) -> Sequences:
    """The greedy caption and sixty sampled ones, decoded in one batch (paper, Inference, step 4)."""
    found = greedy(step, generator)
    growing: list[tuple[tuple[int, ...], float]] = [((), 0.0)] * CONFIG.samples
    for length in range(1, step.config.max_words + 1):
        log_p = step([words for words, _ in growing])
        tokens = torch.multinomial(log_p.exp(), 1, generator=generator).squeeze(1)
        grown = []
        for (words, total), row, token in zip(growing, log_p, tokens.tolist(), strict=True):
            total += float(row[token])
            if token == step.config.stop:
                found[words] = total
            elif length == step.config.max_words:
                found[(*words, token)] = total
            else:
                grown.append(((*words, token), total))
        growing = grown
        if not growing:
            break
    return found


def beam(step: _Stepper, generator: torch.Generator) -> Sequences:
    """The most probable captions of every length, by beam search."""
    found: Sequences = {}
    front: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for length in range(1, step.config.max_words + 1):
        log_p = step([words for words, _ in front]) + torch.tensor([total for _, total in front]).double()[:, None]
        for (words, _), stopped in zip(front, log_p[:, step.config.stop].tolist(), strict=True):
            if words:
                found[words] = stopped
        flat = log_p[:, : step.config.stop].flatten()
        best = flat.topk(min(CONFIG.beam, len(flat)))
        grown = [
            ((*front[i // step.config.stop][0], i % step.config.stop), value)
            for i, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        if length == step.config.max_words:
            found.update(grown)
        front = grown
    return found


_SEARCH: dict[str, Callable[[_Stepper, torch.Generator], Sequences]] = {
    "beam": beam,
    "greedy": greedy,
    "sample": sample,
}


def merge_orders(found: Sequences) -> Sums:
    """Merge captions that are the same sum: add their probabilities, and keep the most probable order."""
    merged: dict[frozenset[int], tuple[tuple[int, ...], float, float]] = {}
    for words, log_p in found.items():
        if math.isfinite(log_p):
            key, p = frozenset(words), math.exp(log_p)
            order, best, total = merged.get(key, (words, p, 0.0))
            merged[key] = (words if p > best else order, max(p, best), total + p)
    return {key: (order, total) for key, (order, _, total) in merged.items()}
