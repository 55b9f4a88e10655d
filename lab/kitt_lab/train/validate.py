"""How good a captioner is on data sets whose captions are known: the fixed validation sets of a run, and the scores."""

from __future__ import annotations

from dataclasses import fields

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.network.network import Captioner, CaptionerConfig
from kitt_lab.simulate import PAD, Batch, simulate
from kitt_lab.train.recipes import ValidationSet

_CHUNK = 2**20  # pairs of points in all dimensions that are worked on at once


def draw_validation(validation: ValidationSet) -> Batch:
    """The data sets of a validation set, which are the same at every call."""
    generator = torch.Generator().manual_seed(validation.seed)
    return simulate(validation.data, validation.count, validation.n, validation.d, generator)


def network_captions(batch: Batch, config: CaptionerConfig) -> Tensor:
    """Captions (B, T) with the network's PAD for the simulator's."""
    return batch.captions.masked_fill(batch.captions == PAD, config.pad)


def select(batch: Batch, rows: Tensor | slice) -> Batch:
    """Some of the data sets of a batch."""
    return Batch(**{f.name: getattr(batch, f.name)[rows] for f in fields(Batch)})


def caption_losses(logits: Tensor, targets: Tensor, config: CaptionerConfig) -> Tensor:
    """-log p of each caption, STOP included: logits (B, T, V + 1), targets (B, T) -> (B,)."""
    return F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=config.pad, reduction="none").sum(1)


def greedy(model: Captioner, encodings: Tensor, config: CaptionerConfig) -> Tensor:
    """Captions (B, T) of the most probable next words, then PAD; without STOP at the first step and without repetitions."""
    prompt = torch.full((len(encodings), 1), config.start)
    barred = torch.zeros(len(encodings), config.words + 1, dtype=torch.bool)
    barred[:, config.stop] = True
    done = torch.zeros(len(encodings), dtype=torch.bool)
    for _ in range(config.max_words):
        logits = model.decode(encodings, prompt)[:, -1]  # (B, V + 1)
        token = logits.masked_fill(barred, -torch.inf).argmax(1)
        done = done | (token == config.stop)
        barred = barred.scatter(1, token[:, None], True)
        barred[:, config.stop] = False
        prompt = torch.cat([prompt, token.masked_fill(done, config.pad)[:, None]], dim=1)
        if done.all():
            break
    return prompt[:, 1:]


@torch.inference_mode()
def score(model: Captioner, config: CaptionerConfig, batch: Batch) -> dict[str, float]:
    """Means over the data sets: loss and top-1, 3, 5 of the classifier; loss, exact match and recall of the decoder.

    The classifier is scored on the word of largest variance. `token_loss` is -log p per token of the true caption; a
    greedy caption is `exact` if it has the same words in any order, and its `recall` is the share of them it has.
    """
    was_training = model.training
    model.eval()
    per_dataset = batch.X.shape[1] ** 2 * batch.X.shape[2]
    parts = torch.arange(len(batch.X)).split(max(1, _CHUNK // per_dataset))
    scores = [_score(model, config, select(batch, part)) for part in parts]
    model.train(was_training)
    total = {key: sum(float(part[key].sum()) for part in scores) for key in scores[0]}
    tokens = total.pop("tokens")
    means = {key: value / len(batch.X) for key, value in total.items()}
    return means | {"token_loss": total["caption_loss"] / tokens}


def _score(model: Captioner, config: CaptionerConfig, batch: Batch) -> dict[str, Tensor]:
    """Every measure for every data set (B,)."""
    captions = network_captions(batch, config)
    prompt, target = teacher_forcing(captions, config)
    encodings = model.encode(batch.X, batch.y)
    log_p, logits = model.classify(encodings), model.decode(encodings, prompt)
    true, said = (_word_sets(c, config) for c in (captions, greedy(model, encodings, config)))
    log_p_true = log_p.gather(1, captions[:, :1])
    rank = (log_p > log_p_true).sum(1)
    return {
        "word_loss": -log_p_true.squeeze(1),
        **{f"top{k}": (rank < k).float() for k in (1, 3, 5)},
        "caption_loss": caption_losses(logits, target, config),
        "tokens": (target != config.pad).sum(1),
        "exact": (true == said).all(1).float(),
        "recall": (true & said).sum(1) / true.sum(1),
    }


def _word_sets(captions: Tensor, config: CaptionerConfig) -> Tensor:
    """Captions (B, T) -> which words they have (B, V)."""
    return F.one_hot(captions, config.pad + 1).any(1)[:, : config.words]


def teacher_forcing(captions: Tensor, config: CaptionerConfig) -> tuple[Tensor, Tensor]:
    """Captions (B, T) of word ids, PAD at the end -> (prompt, target), both (B, min(T + 1, max_words)).

    For one word of at most three: prompt START w1 PAD, target w1 STOP PAD. Every target ends with STOP, except that of
    a caption of max_words words: decoding ends there anyway, so STOP has no loss there (as in the paper's code).
    """
    if captions.shape[1] > config.max_words:
        raise InvalidInputError(f"captions have at most {config.max_words} words, not {captions.shape[1]}")
    lengths = (captions != config.pad).sum(1, keepdim=True)
    prompt = F.pad(captions, (1, 0), value=config.start)
    target = F.pad(captions, (0, 1), value=config.pad).scatter(1, lengths, config.stop)
    return prompt[:, : config.max_words], target[:, : config.max_words]
