"""Properties: sums over all captions, which are exact where all captions can be counted."""

import itertools

import numpy as np
import pytest
import torch

from kitt.kernels.grammar import WORDS, Expression, parse
from kitt.network.properties import PROPERTIES, alike, properties

V = len(WORDS)


def step(prompts):
    """A decoder that is made up: the next word depends on the last one; no word is said twice."""
    rows = []
    for prompt in prompts:
        logits = torch.linspace(-1.5, 1.5, V + 1, dtype=torch.float64).roll(7 * (prompt[-1] + 1 if prompt else 0))
        logits[list(prompt) if prompt else [V]] = -torch.inf
        rows.append(logits.log_softmax(-1))
    return torch.stack(rows)


def counted(name: str, words: int) -> float:
    """The probability of a property by going through all captions."""
    total = 0.0
    for length in range(1, words + 1):
        for caption in itertools.permutations(range(V), length):
            log_p = sum(float(step([caption[:i]])[0, caption[i]]) for i in range(length))
            stop = float(step([caption])[0, V]) if length < words else 0.0
            total += np.exp(log_p + stop) * PROPERTIES[name][1](Expression.from_indices(caption))
    return total


@pytest.mark.parametrize("name", ["repeats", "smooth", "nothing but noise"])
def test_sums_of_two_words_are_exact(name: str) -> None:
    probabilities = {p.name: p.probability for p in properties(step, 2)}
    assert probabilities[name] == pytest.approx(counted(name, 2), abs=1e-9)


def test_a_sample_of_longer_captions_is_close() -> None:
    few = [p.probability for p in properties(step, 3, most=48)]
    all_of_them = [p.probability for p in properties(step, 3, most=2000)]
    np.testing.assert_allclose(few, all_of_them, atol=0.06)


def test_a_curve_corrects_the_sum_of_its_property_alone() -> None:
    before, after = properties(step, 2), properties(step, 2, {"trend": ([0.0, 1.0], [0.5, 1.0])})
    for old, new in zip(before, after, strict=True):
        expected = 0.5 + 0.5 * old.probability if old.name == "trend" else old.probability
        assert new.probability == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("RBF", {"smooth"}),
        ("Matern12 + White", {"rough"}),
        ("RBF*Periodic", {"smooth", "repeats"}),
        ("Linear + Matern32*Cosine", {"rough", "repeats", "trend"}),
        ("Linear*RBF + Linear*White", {"smooth", "strength changes", "noise changes"}),
        ("White", {"nothing but noise"}),
        ("Linear*White", {"nothing but noise", "noise changes"}),
    ],
)
def test_what_kernels_are_like(text: str, names: set[str]) -> None:
    assert {name for name in PROPERTIES if PROPERTIES[name][1](parse(text))} == names


def test_captions_that_say_nearly_the_same_are_one_group() -> None:
    said = [("RBF*Periodic", 0.1), ("Matern52*Periodic", 0.2), ("Matern12*Periodic", 0.15), ("Linear", 0.05)]
    groups = alike([(parse(text), p) for text, p in said])
    assert [str(group.expressions[0]) for group in groups] == ["Matern52*Periodic", "Matern12*Periodic", "Linear"]
    assert groups[0].probability == pytest.approx(0.3)
