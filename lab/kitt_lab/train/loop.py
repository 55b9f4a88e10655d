"""The training loop: budget, evaluation, resume. A run is a function of its config and its budget in steps."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kitt.errors import InvalidInputError
from kitt.network import checkpoint
from kitt.network.checkpoint import Checkpoint, LoadedModel, config_to_dict
from kitt_lab.train.processes import processes
from kitt_lab.train.recipes import TrainConfig, recipe
from kitt_lab.train.runfolder import RunFolder
from kitt_lab.train.step import Trainer
from kitt_lab.train.validate import draw_validation, score

_WATCHING = {"validation", "save_seconds", "eval_seconds", "log_seconds"}  # have no influence on the weights


@dataclass(frozen=True)
class TrainingBudget:
    """When a run ends: after hours of wall-clock time over all its parts, or after steps, whichever comes first."""

    hours: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.hours is not None and not 0 < self.hours < math.inf:
            raise InvalidInputError(f"hours must be a positive number, got {self.hours}")
        if self.steps is not None and self.steps < 1:
            raise InvalidInputError(f"steps must be at least 1, got {self.steps}")

    @property
    def is_empty(self) -> bool:
        return self.hours is None and self.steps is None

    def spent(self, step: int, elapsed: float) -> float:
        """The share of the budget that is spent: the schedule depends on it, and at 1 the run ends."""
        return max(elapsed / (3600 * self.hours) if self.hours else 0.0, step / self.steps if self.steps else 0.0)


@dataclass(frozen=True)
class Progress:
    """The data of a progress bar, once per step."""

    step: int
    loss: float  # smoothed
    rate: float  # data sets per second, since this process started
    spent: float  # share of the budget
    elapsed: float  # seconds
    left: float  # estimated seconds


class Run:
    """One process's part of a run: the loop, and the files that it writes."""

    def __init__(
        self, trainer: Trainer, folder: RunFolder, budget: TrainingBudget, progress: Callable[[Progress], None] | None
    ) -> None:
        self.trainer, self.folder, self.budget, self.progress = trainer, folder, budget, progress
        self.scores: dict[str, dict[str, float]] = {}
        self.scored_at = -1  # step
        self.earlier: list[dict[str, float]] = []  # the training of the weights that the run started from
        self.began_with = (0.0, 0)  # seconds and data sets of earlier parts
        self.started = time.monotonic()
        self.last = {"log": 0.0, "save": 0.0, "eval": 0.0}  # seconds at which each was done
        self.sums: Counter[str] = Counter()  # of the losses since the last line of the log
        self.smooth = math.nan

    @property
    def elapsed(self) -> float:
        return self.began_with[0] + time.monotonic() - self.started

    def restore(self, state: dict[str, Any]) -> None:
        self.trainer.restore(state)
        self.scores, self.scored_at = state["scores"], state["scored_at"]
        self.earlier = state.get("earlier", [])
        self.began_with = (state["elapsed"], state["datasets"])
        self.last = dict.fromkeys(self.last, state["elapsed"])

    def go(self) -> None:
        """Train until the budget is spent."""
        trainer, first = self.trainer, self.trainer.processes.rank == 0
        if first:
            self.write("resume" if trainer.step else "start", budget=asdict(self.budget))
            self.save()
        while (spent := trainer.processes.agree(self.budget.spent(trainer.step, self.elapsed))) < 1:
            values = trainer.train_step(spent)
            if first:
                self.report(values)
                if self.due("eval"):
                    self.save()
                    self.evaluate()
                elif self.due("save"):
                    self.save()
        if first:
            self.save()
            if self.scored_at != trainer.step:
                self.evaluate()
            self.write("end")

    def due(self, what: str) -> bool:
        return self.elapsed - self.last[what] >= getattr(self.trainer.config, f"{what}_seconds")

    def report(self, values: dict[str, float]) -> None:
        trainer, elapsed = self.trainer, self.elapsed
        spent = self.budget.spent(trainer.step, elapsed)
        loss = sum(trainer.config.loss_weights.get(key, 1.0) * value for key, value in values.items())
        self.smooth = loss if math.isnan(self.smooth) else 0.98 * self.smooth + 0.02 * loss
        self.sums.update(values | {"loss": loss, "steps": 1})
        rate = (trainer.datasets - self.began_with[1]) / max(elapsed - self.began_with[0], 1e-9)
        if self.due("log") or spent >= 1:
            means = {key: value / self.sums["steps"] for key, value in self.sums.items() if key != "steps"}
            self.write("train", **means, lr=trainer.optimiser.param_groups[0]["lr"], rate=rate)
            self.sums.clear()
            self.last["log"] = elapsed
        if self.progress is not None:
            self.progress(Progress(trainer.step, self.smooth, rate, spent, elapsed, elapsed * (1 - spent) / spent))

    def evaluate(self) -> None:
        trainer = self.trainer
        network = trainer.config.network
        if not hasattr(self, "validation"):
            self.validation = {v.name: draw_validation(v) for v in trainer.config.validation}
        self.scores = {name: score(trainer.averaged, network, batch) for name, batch in self.validation.items()}
        self.scored_at = trainer.step
        self.write("eval", scores=self.scores)
        self.folder.draw_curve()
        self.save()
        self.last["eval"] = self.elapsed

    def save(self) -> None:
        """The state, to resume from, and the average of the weights as a checkpoint."""
        trainer, elapsed = self.trainer, self.elapsed
        own = {"elapsed": elapsed, "earlier": self.earlier, "scores": self.scores, "scored_at": self.scored_at}
        settings = {"config": json.dumps(trainer.config.to_dict()), "budget": asdict(self.budget)}
        self.folder.save_state(trainer.state() | own | settings)
        facts = Checkpoint(
            name=trainer.config.name,
            config=trainer.config.network,
            data=trainer.config.describe_data(public=True),
            steps=trainer.step,
            datasets_seen=trainer.datasets,
            training_seconds=elapsed,
            scores=self.scores,
            extra={"earlier": self.earlier} if self.earlier else {},
        )
        checkpoint.save(self.folder.checkpoint, trainer.averaged, facts)
        self.last["save"] = elapsed

    def write(self, event: str, **values: Any) -> None:
        self.folder.append({"event": event, "step": self.trainer.step, "elapsed": round(self.elapsed, 3)} | values)


def train(
    config: TrainConfig | None,
    out: str | Path,
    *,
    hours: float | None = None,
    steps: int | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Path:
    """Train a network in the folder `out`; returns its checkpoint. The budget counts all parts of a resumed run.

    With `resume`, a run in `out` continues with its config and, unless one is given, its budget. Otherwise a new run
    starts with random weights, or with those of the checkpoint `start_from`, a name or a file, of the same architecture.
    """
    folder, budget = RunFolder(out), TrainingBudget(hours, steps)
    others = processes()
    with folder.locked() if others.rank == 0 else nullcontext(), torch.random.fork_rng(devices=[]):
        state = folder.earlier_state(resume)
        config, budget = _settle(config, budget, state, folder)
        run = Run(Trainer(config, others), folder, budget, progress)
        if state is not None:
            run.restore(state)
        elif start_from is not None:
            origin = _origin(start_from, config)
            run.trainer.start_from(origin.model.state_dict())
            run.earlier = _training_of(origin.facts)
        else:
            run.trainer.measure()
        run.go()
    others.close()
    return folder.checkpoint


def _origin(name_or_path: str | Path, config: TrainConfig) -> LoadedModel:
    """A checkpoint whose network is that of the config, but for the dropout, on which no weight depends."""
    loaded = checkpoint.load(name_or_path)
    theirs, ours = (config_to_dict(each) | {"dropout": 0.0} for each in (loaded.facts.config, config.network))
    if differing := [key for key in sorted(theirs | ours) if theirs.get(key) != ours.get(key)]:
        settings = ", ".join(f"{key} {theirs.get(key)} instead of {ours.get(key)}" for key in differing)
        raise InvalidInputError(
            f"the checkpoint {name_or_path} has another architecture than the preset '{config.name}': {settings}; "
            "start from another checkpoint, or train with the preset that this one was made with"
        )
    return loaded


def _training_of(facts: Checkpoint) -> list[dict[str, float]]:
    """The runs that made a checkpoint, the first one first."""
    own = {"steps": facts.steps, "datasets_seen": facts.datasets_seen, "training_seconds": facts.training_seconds}
    return [*facts.extra.get("earlier", []), own]


def _settle(
    config: TrainConfig | None, budget: TrainingBudget, state: dict[str, Any] | None, folder: RunFolder
) -> tuple[TrainConfig, TrainingBudget]:
    """Config and budget of a new run as given; a resumed run keeps its own, except for validation, logging and saving."""
    if state is not None:
        earlier = TrainConfig.from_dict(json.loads(state["config"]))
        config = earlier if config is None else config
        given = config.to_dict()
        if changed := [key for key, value in earlier.to_dict().items() if value != given[key] and key not in _WATCHING]:
            raise InvalidInputError(
                f"the run in {folder.path} has another {', '.join(changed)} than requested: "
                "resume it without naming a preset, or use another folder"
            )
        return config, TrainingBudget(**state["budget"]) if budget.is_empty else budget
    if budget.is_empty:
        raise InvalidInputError("a run needs a budget: give hours or steps")
    return recipe("default") if config is None else config, budget
