"""Properties of a table in everyday words, each with the total probability of all captions that have it.

A single caption rarely has a large probability, because several kernels are nearly equivalent. A property that they share
has the sum of their probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kitt.kernels.grammar import WORDS, Expression, Primitive, Word

Step = Callable[[Sequence[tuple[int, ...]]], Tensor]  # prompts -> log-probabilities (P, V + 1) of the next word or STOP
CalibrationCurve = tuple[
    list[float], list[float]
]  # sums of probabilities, increasing, and how often such a sum is right

SMOOTH = (Primitive.RBF, Primitive.MATERN52)
ROUGH = (Primitive.MATERN12, Primitive.MATERN32)
_REPEATING = (Primitive.PERIODIC, Primitive.COSINE)


def _has(word: Word, primitives: Sequence[Primitive]) -> bool:
    return any(p in primitives for p in word.factors)


def _is_linear(word: Word) -> bool:
    return all(p is Primitive.LINEAR for p in word.factors)


def _grows(word: Word) -> bool:
    """Whether a signal gets stronger along a column: Linear times something else."""
    return not word.is_noise and Primitive.LINEAR in word.factors and not _is_linear(word)


PROPERTIES: dict[str, tuple[str, Callable[[Expression], bool]]] = {
    "smooth": ("curves without corners", lambda e: bool(e.signal) and not any(_has(w, ROUGH) for w in e)),
    "rough": ("ragged, without smooth curves", lambda e: any(_has(w, ROUGH) for w in e.signal)),
    "repeats": ("a season or a wave along a column", lambda e: any(_has(w, _REPEATING) for w in e)),
    "trend": ("a straight or quadratic line along a column", lambda e: any(_is_linear(w) for w in e.signal)),
    "strength changes": ("the target moves more at one end of a column", lambda e: any(map(_grows, e.signal))),
    "noise changes": (
        "the noise is larger at one end of a column",
        lambda e: any(w.is_noise and Primitive.LINEAR in w.factors for w in e),
    ),
    "nothing but noise": ("the columns say nothing about the target", lambda e: not e.signal),
}


EXCLUSIVE = ("smooth", "rough", "nothing but noise")  # a kernel has exactly one of these


_PROMPTS = 48  # beginnings of captions that are extended at each step: `kitt bench calibration`
_IDENTITY: CalibrationCurve = ([0.0, 1.0], [0.0, 1.0])


@dataclass(frozen=True)
class Property:
    """A property of a table, and the network's probability that the table has it."""

    name: str
    meaning: str
    probability: float

    def __str__(self) -> str:
        return f"{self.name} ({self.probability:.0%})"


@dataclass(frozen=True)
class Group:
    """Similar captions, the most probable first, with the sum of their probabilities."""

    expressions: tuple[Expression, ...]
    probability: float

    def __str__(self) -> str:
        more = f" and {len(self.expressions) - 1} like it" if len(self.expressions) > 1 else ""
        return f"{self.expressions[0]}{more} ({self.probability:.0%})"


_ALIKE = {
    Primitive.MATERN52: Primitive.RBF,
    Primitive.MATERN12: Primitive.MATERN32,
    Primitive.COSINE: Primitive.PERIODIC,
}


def alike(captions: Sequence[tuple[Expression, float]]) -> tuple[Group, ...]:
    """Captions grouped such that RBF and Matern52, Matern32 and Matern12, and Periodic and Cosine count as the same."""
    groups: dict[frozenset[tuple[Primitive, ...]], list[tuple[Expression, float]]] = {}
    for expression, p in captions:
        key = frozenset(tuple(sorted(_ALIKE.get(f, f) for f in word.factors)) for word in expression)
        groups.setdefault(key, []).append((expression, p))
    made = []
    for members in groups.values():
        members.sort(key=lambda pair: -pair[1])
        made.append(Group(tuple(e for e, _ in members), sum(p for _, p in members)))
    return tuple(sorted(made, key=lambda group: -group.probability))


def properties(
    step: Step, words: int, curves: Mapping[str, CalibrationCurve] | None = None, most: int = _PROMPTS
) -> tuple[Property, ...]:
    """The probability of each property over all captions of up to so many words, not only over those that are returned.

    The sum over first words is exact; the many longer captions are represented by a systematic sample of their beginnings.
    Sums of properties that have a calibration curve are corrected by it.
    """
    kept = [_Prompt((), 1.0)]
    total = np.zeros(len(_FLAGS))
    for length in range(1, words + 1):
        p = step([prompt.words for prompt in kept]).exp().numpy()  # (P, V + 1), the last is STOP
        joint = p[:, :-1] * np.array([[prompt.weight] for prompt in kept])
        for prompt, stop in zip(kept, p[:, -1], strict=True):
            if prompt.words:
                total += prompt.weight * stop * _properties_of(_flags(prompt.words))
        if length == words:
            for prompt, row in zip(kept, joint, strict=True):
                total += _properties_of(_FLAGS | _flags(prompt.words)[:, None]) @ row
            break
        kept = _sampled(kept, joint, most)
    share = np.clip(total, 0.0, 1.0)
    return tuple(
        Property(name, meaning, float(np.interp(p, *(curves or {}).get(name, _IDENTITY))))
        for (name, (meaning, _)), p in zip(PROPERTIES.items(), share, strict=True)
    )


@dataclass(frozen=True)
class _Prompt:
    """The beginning of a caption, and the probability of all captions that it represents in the sample."""

    words: tuple[int, ...]
    weight: float


def _sampled(kept: Sequence[_Prompt], joint: NDArray[np.float64], most: int) -> list[_Prompt]:
    """All beginnings that are one word longer, or a systematic sample of them in proportion to their probability."""
    count = joint.shape[1]
    longer = [(prompt.words, i) for prompt in kept for i in range(count)]
    weights = joint.ravel()
    if len(longer) <= most + count:
        return [_Prompt((*words, i), float(w)) for (words, i), w in zip(longer, weights, strict=True) if w > 0]
    mass = float(weights.sum())
    ticks = (np.arange(most) + 0.5) / most * mass
    chosen, hits = np.unique(np.searchsorted(np.cumsum(weights), ticks), return_counts=True)
    chosen = np.minimum(chosen, len(longer) - 1)
    return [_Prompt((*longer[c][0], longer[c][1]), mass * int(hit) / most) for c, hit in zip(chosen, hits, strict=True)]


_TESTS: tuple[Callable[[Word], bool], ...] = (
    lambda w: not w.is_noise,
    lambda w: not w.is_noise and _has(w, ROUGH),
    lambda w: _has(w, _REPEATING),
    lambda w: not w.is_noise and _is_linear(w),
    _grows,
    lambda w: w.is_noise and Primitive.LINEAR in w.factors,
    lambda w: w.is_noise,
)
_FLAGS = np.array([[test(word) for word in WORDS] for test in _TESTS])  # (7, V)


def _flags(words: Sequence[int]) -> NDArray[np.bool_]:
    """Whether any of the given words has each flag, (7,)."""
    return np.asarray(_FLAGS[:, list(words)].sum(1) > 0)


def _properties_of(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which properties captions have whose words have these flags (7, ...), in the order of PROPERTIES."""
    signal, rough, repeats, trend, grows, changing, _ = flags
    return np.stack([signal & ~rough, rough, repeats, trend, grows, changing, ~signal])
