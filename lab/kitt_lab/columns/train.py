"""Training of the network of columns: first a corpus of simulated tables, then epochs over it. The paper's network is not
trained on.

A run is resumed from its folder. The files of the corpus are whole or absent, and the state is that of `RunFolder`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from kitt.errors import InvalidInputError
from kitt.network import checkpoint
from kitt.network.column_network import ColumnConfig, ColumnNetwork, Inputs, Logits
from kitt.network.columns import PREFIX, to_tensors
from kitt.network.network import StemEncoder
from kitt_lab.columns.corpus import Group, Targets, by_columns, extend, select
from kitt_lab.columns.world import WorldConfig
from kitt_lab.train.loop import Progress
from kitt_lab.train.runfolder import RunFolder

CORPUS_SHARE = 0.7  # of the hours, in which tables are simulated
_WEIGHTS = {"kinds": 1.0, "pairs": 2.0, "arrangement": 0.3, "noise": 0.2, "rough": 0.2}  # of the losses; set by hand
_SAVE_SECONDS, _LOG_SECONDS = 120.0, 20.0
_MEASURED = 4000  # tables from which the normalisers are set
_FINAL = 0.02  # last rate of learning, as a share of the first


@dataclass(frozen=True, kw_only=True)
class ColumnTraining:
    """The config of a run."""

    encoder: str = "default"  # the checkpoint whose encodings are read
    tables: str | None = None
    seed: int = 0
    width: int = 48
    blocks: int = 2
    lr: float = 1e-3
    weight_decay: float = 0.02
    warmup: int = 200
    ema: float = 0.998
    batch: int = 128
    columns: int = 1500  # most columns in a batch


def losses(said: Logits, told: Targets) -> dict[str, Tensor]:
    """The losses of a batch of tables of equal size."""
    D = said.pairs.shape[-1]
    values = {
        "kinds": F.cross_entropy(said.kinds.flatten(0, 1), told.kinds.flatten()),
        "arrangement": F.cross_entropy(said.arrangement, told.arrangement.clamp_min(0), reduction="none"),
        "noise": F.cross_entropy(said.noise, told.noise),
        "rough": F.binary_cross_entropy_with_logits(said.rough, told.rough.float()),
    }
    values["arrangement"] = (values["arrangement"] * (told.arrangement >= 0)).mean()
    if D > 1:
        above = torch.ones(D, D, dtype=torch.bool).triu(1)
        values["pairs"] = F.binary_cross_entropy_with_logits(said.pairs[:, above], told.pairs[:, above].float())
    return values


class ColumnTrainer:
    """The state of the epochs, and one step."""

    def __init__(self, config: ColumnTraining, corpus: dict[int, Group]) -> None:
        self.config = config
        torch.manual_seed(config.seed)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.sizes = sorted(corpus)
        left_out = {d: _part(corpus[d], is_left_out=True) for d in self.sizes}
        self.left_out = {d: group for d, group in left_out.items() if len(group[1].noise)}
        self.corpus = {d: _part(corpus[d], is_left_out=False) for d in self.sizes}
        self.counts = torch.tensor([float(len(self.corpus[d][1].noise)) for d in self.sizes])
        inputs = next(iter(corpus.values()))[0]
        sizes = {
            f"{name[:-1] if name != 'whole' else name}_size": part.shape[-1] for name, part in vars(inputs).items()
        }
        self.network = ColumnNetwork(ColumnConfig(**sizes, width=config.width, blocks=config.blocks))
        share = _MEASURED / float(self.counts.sum())
        self.network.measure([self._some(d, share)[0] for d in self.sizes])
        self.average = AveragedModel(self.network, multi_avg_fn=get_ema_multi_avg_fn(config.ema), use_buffers=False)
        matrices = [p for p in self.network.parameters() if p.dim() > 1]
        vectors = [p for p in self.network.parameters() if p.dim() <= 1]
        decays = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(decays, lr=config.lr, betas=(0.9, 0.98), fused=True)
        self.step = 0
        self.best = self.average.state_dict()  # of the evaluations
        self.least = math.inf  # the loss there

    @property
    def averaged(self) -> ColumnNetwork:
        return cast(ColumnNetwork, self.average.module)

    def _some(self, d: int, share: float) -> Group:
        """A random share of the tables with d columns, at least one."""
        many = len(self.corpus[d][1].noise)
        index = torch.randperm(many, generator=self.generator)[: max(1, math.ceil(share * many))]
        return select(self.corpus[d], index)

    def train_step(self, spent: float) -> dict[str, float]:
        """A step on tables of one number of columns, which is drawn as often as the corpus has it."""
        config = self.config
        d = self.sizes[int(torch.multinomial(self.counts, 1, generator=self.generator))]
        inputs, told = self._some(d, min(config.batch, config.columns // d) / len(self.corpus[d][1].noise))
        values = losses(self.network(inputs), told)
        self.optimiser.zero_grad()
        total = torch.stack([_WEIGHTS[name] * value for name, value in values.items()]).sum()
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        rate = (_FINAL + (1 - _FINAL) * 0.5 * (1 + math.cos(math.pi * min(spent, 1.0)))) * min(
            1.0, (self.step + 1) / config.warmup
        )
        for group in self.optimiser.param_groups:
            group["lr"] = config.lr * rate
        self.optimiser.step()
        self.average.update_parameters(self.network)
        self.step += 1
        return {"loss": float(total.detach())} | {name: float(value.detach()) for name, value in values.items()}

    def evaluate(self) -> dict[str, float]:
        """Losses of the averaged network on the tables that are left out, over tables."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        with torch.inference_mode():
            for inputs, told in self.left_out.values():
                some = select((inputs, told), torch.arange(len(told.noise)))
                for name, value in losses(self.averaged(some[0]), some[1]).items():
                    sums[name] = sums.get(name, 0.0) + float(value) * len(told.noise)
                    counts[name] = counts.get(name, 0) + len(told.noise)
        return {name: value / counts[name] for name, value in sums.items()}

    def keep_best(self) -> dict[str, float]:
        """Evaluate, and keep the averaged weights if no evaluation had a lower loss."""
        scores = self.evaluate()
        if (loss := sum(_WEIGHTS[name] * value for name, value in scores.items())) < self.least:
            self.least, self.best = loss, deepcopy(self.average.state_dict())
        return scores

    def temperatures(self) -> dict[str, float]:
        """For each thing that is said, the temperature of highest likelihood on the tables that are left out."""
        with torch.inference_mode():
            groups = [select(group, torch.arange(len(group[1].noise))) for group in self.left_out.values()]
            said = [(self.averaged(inputs), told) for inputs, told in groups]

        def loss(name: str, log_t: float) -> float:
            divided = [
                (replace(logits, **{name: getattr(logits, name) / math.exp(log_t)}), told) for logits, told in said
            ]
            return sum(float(losses(*one).get(name, torch.zeros(()))) * len(one[1].noise) for one in divided)

        bounds = (-1.0, 1.0)
        return {
            name: math.exp(float(minimize_scalar(partial(loss, name), bounds=bounds, method="bounded").x))
            for name in _WEIGHTS
        }

    def state(self) -> dict[str, Any]:
        modules = {name: getattr(self, name).state_dict() for name in ("network", "average", "optimiser")}
        own = {"generator": self.generator.get_state(), "step": self.step}
        return modules | own | {"best": self.best, "least": self.least}

    def restore(self, state: dict[str, Any]) -> None:
        for name in ("network", "average", "optimiser"):
            getattr(self, name).load_state_dict(state[name])
        self.generator.set_state(state["generator"])
        self.step, self.best, self.least = state["step"], state["best"], state["least"]


def _part(group: Group, is_left_out: bool) -> Group:
    """One table in twenty is left out of training: those of the first places, which are those of the first files."""
    inputs, told = group
    many = len(told.noise)
    first = many // 20
    index = slice(0, first) if is_left_out else slice(first, many)
    return (
        Inputs(**{name: value[index] for name, value in vars(inputs).items()}),
        Targets(**{name: value[index] for name, value in vars(told).items()}),
    )


def train_columns(
    config: ColumnTraining,
    out: Path,
    hours: float | None = None,
    steps: int | None = None,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Path:
    """Simulate tables for a part of the hours and train on them for the rest; returns the state of the run.

    Hours are those of all parts of a resumed run.
    """
    if hours is None or steps is not None or not 0 < hours < math.inf:
        raise InvalidInputError(
            "the preset columns needs a budget in hours, of which a part goes into simulated tables"
        )
    folder = RunFolder(out)
    with folder.locked():
        if not resume and (folder.has_run() or folder.log.exists()):
            raise InvalidInputError(f"{out} holds a training run: go on with it by --resume, or use another folder")
        encoder = checkpoint.load(config.encoder).model.encoder
        if not isinstance(encoder, StemEncoder):
            raise InvalidInputError(
                f"columns are read from the statistics of the network 'default', not of '{config.encoder}'"
            )
        _simulate(config, folder, encoder, 3600 * CORPUS_SHARE * hours)
        trainer = ColumnTrainer(config, by_columns(folder.path / "corpus"))
        _epochs(trainer, folder, 3600 * (1 - CORPUS_SHARE) * hours, progress)
    return folder.state


def _simulate(config: ColumnTraining, folder: RunFolder, encoder: StemEncoder, seconds: float) -> None:
    """Extend the corpus until so many seconds were spent on it in all parts of the run."""
    spent = sum(event["seconds"] for event in folder.events() if event["event"] == "corpus")
    while spent < seconds:
        started = time.monotonic()
        tables = extend(folder.path / "corpus", WorldConfig(tables=config.tables), encoder)
        spent += (took := time.monotonic() - started)
        folder.append({"event": "corpus", "step": 0, "tables": tables, "seconds": took})


def _epochs(
    trainer: ColumnTrainer, folder: RunFolder, seconds: float, progress: Callable[[Progress], None] | None
) -> None:
    elapsed = 0.0
    if folder.has_run():
        state = folder.load_state()
        trainer.restore(state)
        elapsed = state["elapsed"]
    before, started = elapsed, time.monotonic()
    saved = logged = started
    smooth = math.nan

    def save() -> None:
        scores = trainer.keep_best()
        folder.append({"event": "eval", "step": trainer.step, "elapsed": elapsed, "scores": scores})
        own = {"elapsed": elapsed, "config": asdict(trainer.config)}
        folder.save_state(trainer.state() | own)

    while elapsed < seconds:
        values = trainer.train_step(elapsed / seconds)
        now = time.monotonic()
        elapsed = before + now - started
        smooth = values["loss"] if math.isnan(smooth) else 0.98 * smooth + 0.02 * values["loss"]
        if now - logged > _LOG_SECONDS:
            logged = now
            folder.append({"event": "train", "step": trainer.step, "elapsed": elapsed, "smooth": smooth})
        if now - saved > _SAVE_SECONDS:
            saved = now
            save()
        if progress is not None:
            rate, spent = trainer.step / elapsed * trainer.config.batch, elapsed / seconds
            progress(Progress(trainer.step, smooth, rate, spent, elapsed, max(seconds - elapsed, 0.0)))
    save()


def finish_columns(run: Path, checkpoint_file: Path) -> None:
    """Add the network of columns of a run to the checkpoint whose encodings it reads, with temperatures.

    The temperatures are those of highest likelihood on the tables of the corpus that were left out of training.
    """
    folder, loaded = RunFolder(run), checkpoint.load(checkpoint_file)
    state = folder.load_state()
    corpus = by_columns(folder.path / "corpus")
    trainer = ColumnTrainer(ColumnTraining(**state["config"]), corpus)
    trainer.restore(state)
    trainer.average.load_state_dict(trainer.best)
    learned = {
        "config": trainer.network.config.to_dict(),
        "temperatures": trainer.temperatures(),
        "tables": sum(len(told.noise) for _, told in corpus.values()),
        "steps": state["step"],
        "seconds": state["elapsed"] + sum(e["seconds"] for e in folder.events() if e["event"] == "corpus"),
    }
    kept = {key: value for key, value in loaded.tensors.items() if not key.startswith(PREFIX)}
    facts = replace(loaded.facts, extra=loaded.facts.extra | {"columns": learned})
    checkpoint.save(checkpoint_file, loaded.model, facts, tensors=kept | to_tensors(trainer.averaged), half=True)
