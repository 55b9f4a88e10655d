"""Training examples for the prediction of losses: features of each task of a corpus, and the loss of each kernel there.

The loss of an expression is its test NLPD in nats per row minus that of the best expression of the task. It is a mean of
two, because some users fit a model and others take a caption to their own library: that of a model like the one that
`fit` makes, in which the expression is stacked with its changing noise, two plain kernels and a small tail; and that
of the expression by itself, where a kernel that is too rigid loses whole nats.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp
from scipy.stats import t as student_t
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.files import replacing
from kitt.kernels.exact import normal_log_density
from kitt.kernels.grammar import WORDS, parse
from kitt.network.advice import advice_features
from kitt.network.caption import encode_table, word_probabilities
from kitt.network.checkpoint import LoadedModel
from kitt.table.scaling import FloatArray
from kitt_lab.losses import LINEAR_WHITE, Record, files
from kitt_lab.tasks import data_of, read_table

LOSS_CAP = 1.0  # nats per row: a larger loss counts as this much
FOLDS = 5
_PLAIN = ("RBF", "Matern52")
_VERSION = 3  # of what an example holds; a new one makes caches of earlier ones void


@dataclass(frozen=True)
class DesignConfig:
    """The model in which an expression is evaluated: a few fits, stacked, with a small tail (`model.weights`)."""

    price: float = 1.0  # penalty in nats for each parameter, over all rows
    tail_weight: float = 0.003  # smallest weight of a Student-t distribution that ignores the inputs
    tail_degrees: float = 3.0
    tail_parameters: int = 2
    min_relative_weight: float = 0.003  # components with less than this share of the largest weight are left out
    iterations: int = 300
    alone: float = 0.3  # share of the loss of the expression by itself in the loss that is learned: `kitt bench advice`


@dataclass(frozen=True)
class Examples:
    """T tasks, F features of each, and C candidate expressions, as many as the longest list of any task."""

    tables: tuple[str, ...]  # (T,) names
    is_own_target: np.ndarray  # (T,) whether the target is the last column of a real table, and not shuffled
    features: Tensor  # (T, F) as in `advice_features`
    multi_hot: Tensor  # (T, C, V) words of each expression: the 34 words first, then sums; zeros at the end
    loss: Tensor  # (T, C) that is learned, nats per row, capped; NaN where there is no expression
    nlpd: Tensor  # (T, C) of the model with each expression
    alone: Tensor  # (T, C) loss of each expression by itself, capped
    bic: Tensor  # (T, V) of each word on the training rows, with changing noise where it can have it; lower is better

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def log_probabilities(self) -> Tensor:
        """The log-probabilities of the words (T, V), which are among the features."""
        return self.features[:, -(len(WORDS) + 8) : -8]

    @property
    def rows(self) -> np.ndarray:
        """The number of training rows of each task (T,), which is among the features."""
        return self.features[:, -3].exp().numpy()

    def folds(self, count: int = FOLDS) -> np.ndarray:
        """The fold of each task (T,)."""
        return folds_of(self.tables, count)


def folds_of(tables: Sequence[str], count: int, salt: str = "") -> np.ndarray:
    """The fold of each task, given the name of its table: no table is in two folds.

    Tables take turns, in an order that does not follow their names, so that no fold is empty.
    """
    order = sorted(set(tables), key=lambda name: zlib.crc32(f"{salt}{name}".encode()))
    place = {name: i % min(count, len(order)) for i, name in enumerate(order)}
    return np.array([place[name] for name in tables])


# --- losses of expressions -------------------------------------------------------------------------------------------


def expression_losses(
    record: Record, config: DesignConfig | None = None
) -> tuple[list[tuple[int, ...]], FloatArray, FloatArray]:
    """Expressions as indices of words, the 34 words first, and the test NLPD of the model with each, and of each by itself.

    NaN: no fit. Sums that were not fitted with changing noise too are left out, as they would be at a disadvantage.
    """
    config = config or DesignConfig()
    place = {text: i for i, text in enumerate(record.expressions)}
    sums = [text for text in record.expressions if "+" in text and f"{text} + {LINEAR_WHITE}" in place]
    texts = [*map(str, WORDS), *sums]
    left, test, prices = _components(record, config)
    chosen = np.array([_design(text, place, len(prices) - 1) for text in texts])
    weights = stacking_weights(_pick(left - prices[:, None], chosen), config)
    nlpd = -logsumexp(_pick(test, chosen), axis=2, b=weights[:, None, :]).mean(1)
    there, alone = chosen[:, 0] >= 0, -test.mean(1)[chosen[:, 0]]
    expressions = [parse(text).indices for text in texts]
    return expressions, np.where(there, nlpd, np.nan), np.where(there, alone, np.nan)


def bic_of_words(record: Record) -> FloatArray:
    """The BIC (V,) of every word, with changing noise where that is possible; infinite where there is no fit."""
    scores = -2 * record.log_marginal_likelihood + record.sizes * np.log(len(record.y))
    by_name = dict(zip(record.expressions, scores, strict=True))
    names = [str(word) if word.is_noise else f"{word} + {LINEAR_WHITE}" for word in WORDS]
    return np.array([by_name.get(name, np.inf) for name in names])


def _design(text: str, place: dict[str, int], tail: int) -> list[int]:
    """The components of an expression's model, -1 for none: itself, with changing noise, the plain kernels, the tail."""
    own = place.get(text, -1)
    plain = [-1 if plain == text else place.get(plain, -1) for plain in _PLAIN]
    return [own, place.get(f"{text} + {LINEAR_WHITE}", -1), *plain, tail]


def _components(record: Record, config: DesignConfig) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log densities of left-out rows (K, N) and test rows (K, M), and prices per row (K,): of all fits, then the tail."""
    left = normal_log_density(record.y, record.loo_mean, record.loo_variance)
    test = normal_log_density(record.test_targets, record.mean, record.variance)
    tails = [student_t.logpdf(y, config.tail_degrees) for y in (record.y, record.test_targets)]
    prices = np.append(record.sizes, config.tail_parameters) * config.price / len(record.y)
    return np.vstack([left, tails[0]]), np.vstack([test, tails[1]]), prices


def _pick(values: FloatArray, chosen: np.ndarray) -> FloatArray:
    """Rows of (K, N) for each design (E, J), minus infinity where there is none: (E, N, J)."""
    return np.where(chosen[:, None, :] < 0, -np.inf, values[chosen].transpose(0, 2, 1))


def stacking_weights(log_density: FloatArray, config: DesignConfig) -> FloatArray:
    """Weights (E, J) of each design, whose last component is the tail, by expectation maximisation over rows (E, N, J)."""
    scaled = np.exp(log_density - log_density.max(2, keepdims=True))
    is_there = np.isfinite(log_density).any(1)
    w = is_there / is_there.sum(1, keepdims=True)
    for _ in range(config.iterations):
        share = w[:, None, :] * scaled
        new = (share / share.sum(2, keepdims=True)).mean(1)
        is_settled = np.abs(new - w).max() < 1e-6
        w = new
        if is_settled:
            break
    tail = np.maximum(w[:, -1:], config.tail_weight)
    w = np.hstack([w[:, :-1] * (1 - tail) / np.maximum(1 - w[:, -1:], 1e-12), tail])
    w = np.where(w < config.min_relative_weight * w.max(1, keepdims=True), 0.0, w)
    return w / w.sum(1, keepdims=True)


# --- the examples of a corpus ----------------------------------------------------------------------------------------


def read_examples(
    corpus: Path, data: Path, loaded: LoadedModel, report: Callable[[int, int], None] | None = None
) -> Examples:
    """The examples of all tasks in the corpus. Features already computed with this network are read from a cache file."""
    cache = corpus / f".examples-{_fingerprint(loaded):08x}.npz"  # of features and losses
    known = _read_cache(cache)
    paths = files(corpus)
    missing = [path for path in paths if int(path.stem) not in known]
    for done, path in enumerate(missing, 1):
        known[int(path.stem)] = _example(Record.read(path), data, loaded)
        if report:
            report(done, len(missing))
        if done % 500 == 0 or done == len(missing):
            _write_cache(cache, known)
    return _together({seed: known[seed] for seed in (int(path.stem) for path in paths)})


def _fingerprint(loaded: LoadedModel) -> int:
    """Identifies a network by its weights and temperature, and the design, so that nothing computed with others is used."""
    design = f"{DesignConfig()} {loaded.facts.extra.get('temperature')} {_VERSION}"
    checksum = zlib.crc32(design.encode())
    for value in loaded.model.state_dict().values():
        checksum = zlib.crc32(value.numpy().tobytes(), checksum)
    return checksum


def _example(record: Record, data: Path, loaded: LoadedModel) -> dict[str, np.ndarray]:
    given = data_of(data, record.task)
    with torch.inference_mode():
        view = encode_table(loaded, given.X, given.y, 0)
        log_p = word_probabilities(loaded, view).log()
        if view.roughness is None or view.noise is None:
            raise InvalidInputError(
                f"the network '{loaded.facts.name}' guesses no roughness: advice needs one that does"
            )
        features = advice_features(view.encodings, log_p, view.size, view.roughness, view.noise)
    expressions, nlpd, alone = expression_losses(record)
    multi_hot = np.zeros((len(expressions), len(WORDS)), dtype=np.bool_)
    for row, words in zip(multi_hot, expressions, strict=True):
        row[list(words)] = True
    return {
        "table": np.array(record.task.table),
        "own": np.array(
            record.task.is_real and record.task.target == read_table(str(data), record.task.table).shape[1] - 1
        ),
        "features": features.float().numpy(),
        "multi_hot": multi_hot,
        "nlpd": nlpd.astype(np.float32),
        "alone": alone.astype(np.float32),
        "bic": bic_of_words(record),
    }


def _read_cache(path: Path) -> dict[int, dict[str, np.ndarray]]:
    known: dict[int, dict[str, np.ndarray]] = {}
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                seed, name = key.split(".")
                known.setdefault(int(seed), {})[name] = file[key]
    return known


def _write_cache(path: Path, known: dict[int, dict[str, np.ndarray]]) -> None:
    arrays: dict[str, Any] = {f"{seed}.{name}": value for seed, parts in known.items() for name, value in parts.items()}
    with replacing(path) as file:
        np.savez(file, **arrays)


def _together(known: dict[int, dict[str, np.ndarray]]) -> Examples:
    if not known:
        raise InvalidInputError("there are no tasks to learn from")
    longest = max(len(parts["nlpd"]) for parts in known.values())
    parts = list(known.values())
    multi_hot = np.stack([np.pad(p["multi_hot"], ((0, longest - len(p["nlpd"])), (0, 0))) for p in parts])
    nlpd, alone = (
        np.stack([np.pad(p[name], (0, longest - len(p[name])), constant_values=np.nan) for p in parts])
        for name in ("nlpd", "alone")
    )
    is_there = np.asarray(multi_hot.any(2))
    in_model, by_itself = (_capped_losses(values, is_there) for values in (nlpd, alone))
    share = DesignConfig().alone
    return Examples(
        tuple(str(p["table"]) for p in parts),
        np.array([bool(p["own"]) for p in parts]),
        torch.from_numpy(np.stack([p["features"] for p in parts])).float(),
        torch.from_numpy(multi_hot).float(),
        torch.from_numpy((1 - share) * in_model + share * by_itself).float(),
        torch.from_numpy(nlpd).float(),
        torch.from_numpy(by_itself).float(),
        torch.from_numpy(np.stack([p["bic"] for p in parts])),
    )


def _capped_losses(nlpd: np.ndarray, is_there: np.ndarray) -> np.ndarray:
    """NLPD (T, C) less that of the best expression of the task, capped; what could not be fitted has the cap."""
    lost = nlpd - np.nanmin(nlpd, axis=1, keepdims=True)
    return np.where(np.isnan(lost) & is_there, LOSS_CAP, np.minimum(lost, LOSS_CAP))
