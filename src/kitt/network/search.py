"""Captions of a network by greedy decoding, sampling or beam search (paper, Inference, steps 2 to 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kitt.network.checkpoint import LoadedModel

_BEAM = 34  # width of the beam, so that every single word is among the captions
_SAMPLES = 60  # captions that are sampled, as in the paper's code


class Stepper:
    """Next-word log-probabilities for many prompts at once, over cached encodings of all subsets."""

    def __init__(self, loaded: LoadedModel, encodings: Tensor) -> None:
        self.config = loaded.facts.config
        self._decode, self._encodings = loaded.model.decode, encodings
        self._temperature = loaded.facts.extra.get("caption_temperature", 1.0)

    def __call__(self, prompts: Sequence[tuple[int, ...]]) -> Tensor:
        """Log-probabilities (P, V + 1), without the words of the prompt and without STOP at the first step, renormalised."""
        S = len(self._encodings)
        tokens = torch.tensor([(self.config.start, *prompt) for prompt in prompts])
        encodings = self._encodings.repeat(len(prompts), 1, 1)  # (P·S, D, E)
        logits = self._decode(encodings, tokens.repeat_interleave(S, 0))[:, -1]
        log_p = (logits.double() / self._temperature).log_softmax(-1).view(len(prompts), S, -1).mean(1)
        for row, prompt in zip(log_p, prompts, strict=True):
            row[list(prompt) if prompt else [self.config.stop]] = -math.inf
        return log_p.log_softmax(-1)


Sums = dict[frozenset[int], tuple[tuple[int, ...], float]]  # set of words -> its likeliest order, its probability
Sequences = dict[tuple[int, ...], float]  # caption in order -> log-probability


def greedy(step: Stepper, generator: torch.Generator) -> Sequences:
    """Greedy decoding: always append the most probable next word (paper, Inference, steps 2 and 3)."""
    words: tuple[int, ...] = ()
    total = 0.0
    while len(words) < step.config.max_words:
        value, token = step([words])[0].max(0)
        total += float(value)
        if int(token) == step.config.stop:
            break
        words = (*words, int(token))
    return {words: total}


def sample(step: Stepper, generator: torch.Generator) -> Sequences:
    """The greedy caption and sixty sampled ones, decoded in one batch (paper, Inference, step 4)."""
    sequences = greedy(step, generator)
    growing: list[tuple[tuple[int, ...], float]] = [((), 0.0)] * _SAMPLES
    for length in range(1, step.config.max_words + 1):
        log_p = step([words for words, _ in growing])
        tokens = torch.multinomial(log_p.exp(), 1, generator=generator).squeeze(1)
        grown = []
        for (words, total), row, token in zip(growing, log_p, tokens.tolist(), strict=True):
            total += float(row[token])
            if token == step.config.stop:
                sequences[words] = total
            elif length == step.config.max_words:
                sequences[(*words, token)] = total
            else:
                grown.append(((*words, token), total))
        growing = grown
        if not growing:
            break
    return sequences


def beam(step: Stepper, generator: torch.Generator) -> Sequences:
    """The most probable captions of every length, by beam search."""
    sequences: Sequences = {}
    front: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for length in range(1, step.config.max_words + 1):
        log_p = step([words for words, _ in front]) + torch.tensor([total for _, total in front]).double()[:, None]
        for (words, _), stopped in zip(front, log_p[:, step.config.stop].tolist(), strict=True):
            if words:
                sequences[words] = stopped
        flat = log_p[:, : step.config.stop].flatten()
        best = flat.topk(min(_BEAM, len(flat)))
        grown = [
            ((*front[i // step.config.stop][0], i % step.config.stop), value)
            for i, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        if length == step.config.max_words:
            sequences.update(grown)
        front = grown
    return sequences


SEARCHES: dict[str, Callable[[Stepper, torch.Generator], Sequences]] = {
    "beam": beam,
    "greedy": greedy,
    "sample": sample,
}


def merge_orders(sequences: Sequences) -> Sums:
    """Merge captions that are the same sum in different orders: add their probabilities and keep the most probable order."""
    merged: dict[frozenset[int], tuple[tuple[int, ...], float, float]] = {}
    for words, log_p in sequences.items():
        if math.isfinite(log_p):
            key, p = frozenset(words), math.exp(log_p)
            order, best, total = merged.get(key, (words, p, 0.0))
            merged[key] = (words if p > best else order, max(p, best), total + p)
    return {key: (order, total) for key, (order, _, total) in merged.items()}
