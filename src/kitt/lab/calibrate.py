"""From a training run to a checkpoint that can be trusted: calibrated probabilities, a limit of strangeness, a cost table.

What is added to the network's weights is small and measured on fresh draws from the mixture it was trained on.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from scipy.optimize import minimize_scalar
from torch import Tensor

from kitt.lab import corpus
from kitt.lab.simulate import Batch
from kitt.lab.train import RunFolder, TrainConfig, draw_batch
from kitt.lab.train.validate import network_captions
from kitt.network.checkpoint import LoadedModel, load, save
from kitt.network.network import StemEncoder, teacher_forcing


def calibrate_run(run: Path, out: Path, costs: Path | None = None, *, batches: int = 60, seed: int = 77_000) -> Path:
    """Write the checkpoint of the training run in folder `run` to `out`, with all that captioning wants to know."""
    folder = RunFolder(run)
    loaded = load(folder.checkpoint)
    config = TrainConfig.from_dict(json.loads(folder.load_state()["config"]))
    tensors = dict(loaded.tensors)
    extra = loaded.facts.extra | calibrate(loaded, fresh(config, batches, seed))
    if costs is not None:
        tensors |= learn_costs(replace_extra(loaded, extra), costs)
    facts = replace(loaded.facts, name=out.stem, extra=extra)
    return save(out, loaded.model, facts, tensors=tensors, half=True)


def replace_extra(loaded: LoadedModel, extra: dict) -> LoadedModel:
    return LoadedModel(loaded.model, replace(loaded.facts, extra=extra), loaded.tensors)


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
    """The t that makes softmax(logits / t) most likely."""

    def loss(log_t: float) -> float:
        return float(F.cross_entropy(logits / torch.tensor(log_t).exp(), labels))

    return float(torch.tensor(minimize_scalar(loss, bounds=(-1.5, 1.5), method="bounded").x).exp())


def learn_costs(loaded: LoadedModel, costs: Path) -> dict[str, Tensor]:
    """What captioning knows of costs, from a network's own probabilities for the tables of `kitt bench costs`."""
    scores, scale = corpus.read(costs), loaded.facts.extra.get("temperature", 1.0)
    log_p, sizes = [], []
    with torch.inference_mode():
        for world, seed in scores:
            X, y, n = corpus.table(world, seed)
            log_p.append(loaded.model.classify(loaded.model.encode(X[None, :n], y[None, :n])))
            sizes.append((n, X.shape[1]))
    seen = (torch.cat(log_p) / scale).softmax(-1).double(), torch.tensor(sizes)
    lost = corpus.regrets(torch.stack(list(scores.values())))
    return {"costs": corpus.learn(*seen, lost).float(), "loss_residuals": corpus.loss_residuals(*seen, lost).float()}
