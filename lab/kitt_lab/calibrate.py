"""A checkpoint for use, made of a training run: calibrated probabilities, a limit of strangeness, expected losses.

Temperatures, curves and limits are measured on fresh draws from the mixture that the network was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from scipy.optimize import minimize_scalar
from torch import Tensor

from kitt.kernels.grammar import Expression
from kitt.network.advice import to_tensors
from kitt.network.checkpoint import LoadedModel, load, save
from kitt.network.network import StemEncoder
from kitt.network.properties import EXCLUSIVE, PROPERTIES, properties
from kitt.network.search import Stepper
from kitt.table.scaling import FloatArray
from kitt_lab.advice import learn_head
from kitt_lab.examples import read_examples
from kitt_lab.simulate import PAD, Batch
from kitt_lab.train import RunFolder, TrainConfig, draw_batch, preset_of, recipe
from kitt_lab.train.validate import network_captions, teacher_forcing

_KNOTS = 8  # of a calibration curve, each for an equal number of data sets


def calibrate_run(
    run: Path,
    out: Path,
    losses: tuple[Path, Path] | None = None,
    *,
    batches: int = 60,
    property_batches: int = 240,
    seed: int = 77_000,
    progress: Callable[[float], None] = lambda share: None,
) -> Path:
    """Write the checkpoint of the training run in folder `run` to `out`, with all that captioning needs.

    A checkpoint in place of a run keeps its temperatures. `losses` are the folders of a corpus of losses (`kitt bench
    losses`) and of the tables that it was made from. `property_batches`, a second or two each, give the calibration curves
    of properties, and 0 keeps those of a checkpoint; `progress` is called with the share of these batches that is done.
    """
    loaded = load(RunFolder(run).checkpoint if run.is_dir() else run)
    extra, config = dict(loaded.facts.extra), recipe(preset_of(loaded.facts.name))
    if run.is_dir():
        config = TrainConfig.from_dict(json.loads(RunFolder(run).load_state()["config"]))
        extra |= calibrate(loaded, list(fresh(config, batches, seed)))
    loaded = replace(loaded, facts=replace(loaded.facts, name=out.stem, extra=extra))
    if property_batches:
        drawn = fresh(config, property_batches, seed + 1)
        extra["property_curves"] = property_curves(loaded, _reported(drawn, property_batches, progress))
    save(out, loaded.model, loaded.facts, tensors=loaded.tensors, half=True)
    if losses is not None:
        add_advice(out, *losses)
    return out


def add_advice(checkpoint: Path, corpus: Path, data: Path) -> None:
    """Learn to predict the loss of each kernel from a corpus of real tasks, and add that head to a checkpoint.

    The features come from weights rounded to half precision, as captioning uses them.
    """
    loaded = load(checkpoint)
    examples = read_examples(corpus, data, loaded)
    save(checkpoint, loaded.model, loaded.facts, tensors=to_tensors(learn_head(examples)), half=True)


def fresh(config: TrainConfig, batches: int, seed: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        yield draw_batch(config.data, *config.sizes.draw(generator), generator)


def _reported(batches: Iterable[Batch], count: int, progress: Callable[[float], None]) -> Iterator[Batch]:
    for i, batch in enumerate(batches):
        progress(i / count)
        yield batch


def calibrate(loaded: LoadedModel, batches: list[Batch]) -> dict[str, float]:
    """Temperatures of both heads, by maximum likelihood, and the 99 % quantile of the strangeness."""
    words, labels, steps, targets, strange = [], [], [], [], []
    network, config = loaded.model, loaded.facts.config
    with torch.inference_mode():
        for batch in batches:
            captions = network_captions(batch, config)
            if isinstance(network.encoder, StemEncoder):
                seen = network.encoder.read(batch.X, batch.y)
                encodings = seen.encodings
                strange.append(seen.strangeness)
            else:
                encodings = network.encode(batch.X, batch.y)
            prompt, target = teacher_forcing(captions, config)
            words.append(network.classify(encodings))
            labels.append(captions[:, 0])
            steps.append(network.decode(encodings, prompt).flatten(0, 1))
            targets.append(target.flatten())
    said = torch.cat(targets) != config.pad
    out = {
        "temperature": temperature(torch.cat(words), torch.cat(labels)),
        "caption_temperature": temperature(torch.cat(steps)[said], torch.cat(targets)[said]),
    }
    if strange:
        out["strangeness_limit"] = float(torch.cat(strange).quantile(0.99))
    return out


def temperature(logits: Tensor, labels: Tensor) -> float:
    """The t that maximises the likelihood of softmax(logits / t)."""

    def loss(log_t: float) -> float:
        return float(F.cross_entropy(logits / torch.tensor(log_t).exp(), labels))

    return float(torch.tensor(minimize_scalar(loss, bounds=(-1.5, 1.5), method="bounded").x).exp())


def property_curves(loaded: LoadedModel, batches: Iterable[Batch]) -> dict[str, list[list[float]]]:
    """For each property, sums of probabilities and how often kernels with such a sum have the property.

    Properties of which a kernel has exactly one keep their sums, so that these add up to one.
    """
    said: list[list[float]] = []
    kernels: list[Expression] = []
    with torch.inference_mode():
        for batch in batches:
            for encoding in loaded.model.encode(batch.X, batch.y).split(1):
                step = Stepper(loaded, encoding)
                said.append([p.probability for p in properties(step, step.config.max_words)])
            kernels += [Expression.from_indices(words[words != PAD].tolist()) for words in batch.captions]
    beliefs = zip(PROPERTIES, np.array(said).T, strict=True)
    return {
        name: curve(sums, np.array([has_property(name, e) for e in kernels], float))
        for name, sums in beliefs
        if name not in EXCLUSIVE
    }


def curve(probability: FloatArray, is_right: FloatArray) -> list[list[float]]:
    """The increasing function through the mean probability and the share of hits of groups of equal size."""
    order = np.argsort(probability, kind="stable")
    groups = np.array_split(order, min(_KNOTS, len(order)))
    x = np.array([probability[group].mean() for group in groups])
    y = np.maximum.accumulate([is_right[group].mean() for group in groups])
    first = np.unique(x, return_index=True)[1]
    knots = np.column_stack([x[first], y[first]])
    inside = knots[(knots[:, 0] > 0) & (knots[:, 0] < 1)]
    return np.vstack([[0.0, 0.0], inside, [1.0, 1.0]]).T.round(4).tolist()


def has_property(name: str, expression: Expression) -> bool:
    """Whether a kernel has a property."""
    return PROPERTIES[name][1](expression)
