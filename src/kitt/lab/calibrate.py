"""From a training run to a checkpoint for use: calibrated probabilities, a limit of strangeness, expected losses.

Temperatures and limits are measured on fresh draws from the mixture that the network was trained on.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from scipy.optimize import minimize_scalar
from torch import Tensor

from kitt.lab.advice import learn_head
from kitt.lab.examples import read_examples
from kitt.lab.simulate import Batch
from kitt.lab.train import RunFolder, TrainConfig, draw_batch
from kitt.lab.train.validate import network_captions
from kitt.network.advice import to_tensors
from kitt.network.checkpoint import LoadedModel, load, save
from kitt.network.network import StemEncoder, teacher_forcing


def calibrate_run(
    run: Path, out: Path, losses: tuple[Path, Path] | None = None, *, batches: int = 60, seed: int = 77_000
) -> Path:
    """Write the checkpoint of the training run in folder `run` to `out`, with all that captioning needs.

    A checkpoint in place of a run keeps its calibration. `losses` are the folders of a corpus of losses (`kitt bench
    losses`) and of the tables that it was made from.
    """
    loaded = load(RunFolder(run).checkpoint if run.is_dir() else run)
    extra = dict(loaded.facts.extra)
    if run.is_dir():
        config = TrainConfig.from_dict(json.loads(RunFolder(run).load_state()["config"]))
        extra |= calibrate(loaded, fresh(config, batches, seed))
    save(out, loaded.model, replace(loaded.facts, name=out.stem, extra=extra), half=True)
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


def fresh(config: TrainConfig, batches: int, seed: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [draw_batch(config.data, *config.sizes.draw(generator), generator) for _ in range(batches)]


def calibrate(loaded: LoadedModel, batches: list[Batch]) -> dict[str, float]:
    """Temperatures of both heads, by maximum likelihood, and the 99 % quantile of the strangeness."""
    words, labels, steps, targets, strange = [], [], [], [], []
    network, config = loaded.model, loaded.facts.config
    with torch.inference_mode():
        for batch in batches:
            captions = network_captions(batch, config)
            encodings = network.encode(batch.X, batch.y)
            if isinstance(network.encoder, StemEncoder):
                strange.append(network.encoder.read(batch.X, batch.y).strangeness)
            prompt, target = teacher_forcing(captions, config)
            words.append(network.classify(encodings))
            labels.append(captions[:, 0])
            steps.append(network.decode(encodings, None, prompt).flatten(0, 1))
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
