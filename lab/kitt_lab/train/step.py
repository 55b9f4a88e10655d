"""One step of training: a batch from the mixture of simulators, its losses, an update of the weights and their average.

One Generator draws sizes, data, and at every step the seed of the dropout. Every process draws the whole batch and works
on its share of it, so that several processes arrive at the same weights as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from kitt.errors import FitError, InvalidInputError
from kitt.network.features import prepare
from kitt.network.network import Captioner, StemEncoder, build
from kitt_lab.simulate import PAD, Batch, SimulatorConfig, simulate
from kitt_lab.train.processes import Processes
from kitt_lab.train.recipes import TrainConfig
from kitt_lab.train.validate import caption_losses, network_captions, select, teacher_forcing

_MEASURED = 32  # batches from which an encoder's normalisers are set
_PATIENCE = 50  # steps in a row without a finite gradient before giving up


def draw_batch(
    data: tuple[tuple[SimulatorConfig, float], ...], batch: int, n: int, d: int, generator: torch.Generator
) -> Batch:
    """Data sets from a mixture of those simulators that draw tables of so many columns."""
    data = tuple((source, weight) for source, weight in data if source.max_columns is None or d <= source.max_columns)
    weights = torch.tensor([weight for _, weight in data], dtype=torch.float64)
    chosen = torch.multinomial(weights, batch, replacement=True, generator=generator)
    counts = torch.bincount(chosen, minlength=len(data)).tolist()
    parts = [simulate(source, k, n, d, generator) for (source, _), k in zip(data, counts, strict=True) if k]
    return Batch(**{f.name: _join(f.name, [getattr(part, f.name) for part in parts]) for f in fields(Batch)})


def _join(name: str, parts: list[Tensor]) -> Tensor:
    """(B_i, T_i, ...) -> (sum of B_i, max of T_i, ...), filled up with PAD or zeros."""
    if parts[0].dim() == 1:
        return torch.cat(parts)
    longest = max(part.shape[1] for part in parts)
    fill = PAD if name == "captions" else 0
    padding = [(0, 0) * (part.dim() - 2) + (0, longest - part.shape[1]) for part in parts]
    return torch.cat([F.pad(part, pad, value=fill) for part, pad in zip(parts, padding, strict=True)])


def losses(model: Captioner, batch: Batch, config: TrainConfig) -> dict[str, Tensor]:
    """Every loss for every data set, (B,): −log p of the word of largest variance, and −log p of the caption.

    An encoder that estimates roughness and noise has losses for these estimates too.
    """
    captions = network_captions(batch, config.network)
    prompt, target = teacher_forcing(captions, config.network)
    guesses = {}
    if isinstance(model.encoder, StemEncoder):
        seen = model.encoder.read(batch.X, batch.y)
        encodings = seen.encodings
        guesses["roughness"] = F.smooth_l1_loss(seen.roughness, batch.roughness, reduction="none").mean(1)
        guesses["noise"] = F.smooth_l1_loss(seen.noise, batch.noise, reduction="none")
    else:
        with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bfloat16"):
            encodings = model.encode(batch.X, batch.y)
        encodings = encodings.float()
    word = -model.classify(encodings).gather(1, captions[:, :1]).squeeze(1)
    if config.classify == "single":
        word = word * ((captions != config.network.pad).sum(1) == 1)
    logits = model.decode(encodings, prompt)
    return {"word": word, "caption": caption_losses(logits, target, config.network), **guesses}


class TrainingObjective(nn.Module):
    """The losses as a module, because data-parallel training averages the gradients of what goes through `forward`."""

    def __init__(self, model: Captioner, config: TrainConfig) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, *batch: Tensor) -> dict[str, Tensor]:
        return losses(self.model, Batch(*batch), self.config)


class Trainer:
    """The state of a training run, and one step of training."""

    def __init__(self, config: TrainConfig, processes: Processes) -> None:
        self.config, self.processes = config, processes
        if processes.world > config.sizes.batch[0]:
            raise InvalidInputError(f"{processes.world} processes share {config.sizes.batch[0]} data sets: use fewer")
        torch.manual_seed(config.seed)
        self.model = build(config.network)
        self.ema = AveragedModel(self.model, multi_avg_fn=_averaging(config.optimiser.ema)).eval()
        self.optimiser = _make_optimiser(self.model, config)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.objective = processes.wrap(TrainingObjective(self.model, config))
        self.step = self.datasets = self.skipped = 0

    @property
    def averaged(self) -> Captioner:
        """The network with the running average of the weights: the result."""
        return cast(Captioner, self.ema.module)

    def draw(self) -> Batch:
        return draw_batch(self.config.data, *self.config.sizes.draw(self.generator), self.generator)

    def start_from(self, weights: dict[str, Tensor]) -> None:
        """Begin with the weights of a trained network, its normalisers included."""
        self.model.load_state_dict(weights)
        self.averaged.load_state_dict(weights)

    def measure(self) -> None:
        """Set the normalisers of an encoder from a few batches before training."""
        if isinstance(self.model.encoder, StemEncoder):
            batches = [
                draw_batch(self.config.data, *self.config.sizes.draw(self.generator), self.generator)
                for _ in range(_MEASURED)
            ]
            self.model.encoder.measure([prepare(batch.X, batch.y) for batch in batches])
            self.averaged.load_state_dict(self.model.state_dict())

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "ema": self.ema.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            **{key: getattr(self, key) for key in ("step", "datasets", "skipped")},
        }

    def restore(self, state: dict[str, Any]) -> None:
        try:
            self.model.load_state_dict(state["model"])
            self.ema.load_state_dict(state["ema"])
        except RuntimeError as error:
            raise InvalidInputError(
                "the run was started by another version of KITT, whose network has other inputs or layers: "
                f"start a new one, or use that version ({str(error).splitlines()[-1].strip()})"
            ) from error
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])
        for key in ("step", "datasets", "skipped"):
            setattr(self, key, state[key])

    def train_step(self, spent: float) -> dict[str, float]:
        """One update on one batch; no update if the gradient is not finite."""
        config, rank, world = self.config, self.processes.rank, self.processes.world
        batch = self.draw()
        count = len(batch.X)
        torch.manual_seed(int(torch.randint(2**40, (), generator=self.generator)) + rank)  # for the dropout
        own = select(batch, slice(rank, None, world))
        values = self.objective(*(getattr(own, f.name) for f in fields(Batch)))
        means = {key: value.sum() * (world / count) for key, value in values.items()}
        self.optimiser.zero_grad()
        self.processes.backward(
            torch.stack([config.loss_weights.get(key, 1.0) * mean for key, mean in means.items()]).sum()
        )
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.optimiser.clip)
        self.step, self.datasets = self.step + 1, self.datasets + count
        if norm.isfinite():
            for group in self.optimiser.param_groups:
                group["lr"] = config.optimiser.rate(self.step - 1, spent)
            self.optimiser.step()
            self.ema.update_parameters(self.model)
            self.skipped = 0
        else:
            self.skipped += 1
            if self.skipped >= _PATIENCE:
                raise FitError(f"training diverged: {_PATIENCE} steps without a finite gradient; try a smaller lr")
        return {key: float(mean.detach()) for key, mean in means.items()}


def _averaging(decay: float) -> Callable[..., None]:
    """The decay of the running average, smaller in the first steps."""

    def update(averaged: Any, current: Any, count: Tensor) -> None:
        n = int(count)
        torch._foreach_lerp_(averaged, current, 1 - min(decay, (1 + n) / (10 + n)))

    return update


def _make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    settings = config.optimiser
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, fused=True)
