"""The folder of a training run: its state, from which it resumes; its log, one JSON line per event; the learning curve.

A process killed at any moment leaves whole files behind: the state is written beside the old one and takes its place
when it is on disk; the old one is kept as `state.pt.bak`.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kitt.errors import CheckpointError, InvalidInputError
from kitt.files import replacing

VERSION = 1


class RunFolder:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.state, self.backup = self.path / "state.pt", self.path / "state.pt.bak"
        self.log, self.curve = self.path / "log.jsonl", self.path / "curve.png"

    def has_run(self) -> bool:
        return self.state.exists() or self.backup.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Allow one run at a time, and remove unfinished files of a killed one. The lock ends with the process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise InvalidInputError(f"{self.path} is a file; a training run needs a folder") from error
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise InvalidInputError(f"another run is writing to {self.path}: use another folder") from error
            for leftover in self.path.glob(".*.tmp"):
                leftover.unlink()
            yield

    def save_state(self, state: dict[str, Any]) -> None:
        state = state | {"version": VERSION, "torch": str(torch.__version__)}
        with replacing(self.state) as file:
            torch.save(state, file)
            if self.state.exists():
                spare = self.path / ".state.pt.bak.tmp"
                spare.unlink(missing_ok=True)
                os.link(self.state, spare)
                os.replace(spare, self.backup)

    def earlier_state(self, resume: bool) -> dict[str, Any] | None:
        """The state of the run in this folder, if there is one; an error unless the run is to be resumed."""
        if not self.has_run():
            return None
        if not resume:
            raise InvalidInputError(
                f"{self.path} holds a training run: go on with it by --resume, or use another folder"
            )
        return self.load_state()

    def load_state(self) -> dict[str, Any]:
        """The state; if it is unreadable, the one before it, with a warning."""
        problems = []
        for path in (self.state, self.backup):
            try:
                state = _read(path)
            except Exception as error:  # torch.load may raise anything for a file of another kind
                problems.append(f"{path} cannot be read ({type(error).__name__}: {' '.join(str(error).split()):.80})")
                continue
            version = state.get("version", VERSION) if isinstance(state, dict) else None  # old states have no version
            if version != VERSION:
                raise CheckpointError(f"{path} is not a training state of version {VERSION}, but of version {version}")
            if problems:
                warnings.warn(f"{problems[0]}: going on from {path}, saved at step {state['step']}", stacklevel=2)
            return state
        raise CheckpointError(f"{'; '.join(problems)}: start again in another folder")

    def append(self, event: dict[str, Any]) -> None:
        """Append one line to the log. An unfinished line of a killed process is ended first."""
        with self.log.open("a+b") as file:
            torn = file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read() != b"\n"
            file.write(b"\n" * torn + json.dumps(event).encode() + b"\n")

    def events(self) -> list[dict[str, Any]]:
        """The events of the run in order, without those after the state from which a killed run was resumed."""
        events: list[dict[str, Any]] = []
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:  # a torn line
                continue
            if event["event"] in ("start", "resume"):
                events = [e for e in events if event["event"] == "resume" and e["step"] <= event["step"]]
            events.append(event)
        return events

    def draw_curve(self) -> Path | None:
        """The learning curve as a picture, where matplotlib is installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            return None
        events = self.events()
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        losses = [(e["elapsed"] / 60, e["word"]) for e in events if e["event"] == "train"]
        left.plot(*zip(*losses, strict=True) if losses else ([], []), color="0.8", label="training")
        evaluations = [e for e in events if e["event"] == "eval"]
        for name in evaluations[-1]["scores"] if evaluations else ():
            rounds = [(e["elapsed"] / 60, e["scores"][name]) for e in evaluations if name in e["scores"]]
            minutes = [minute for minute, _ in rounds]
            left.plot(minutes, [scores["word_loss"] for _, scores in rounds], marker=".", label=name)
            right.plot(minutes, [scores["top1"] for _, scores in rounds], marker=".", label=name)
        for axes, label in ((left, "−log p(word)"), (right, "top-1 accuracy")):
            axes.set(xlabel="minutes", ylabel=label)
            axes.legend(fontsize="small")
        with replacing(self.curve) as file:
            figure.savefig(file, format="png", dpi=100)
        return self.curve


def _read(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        if (damaged := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"{damaged} is damaged")
    return torch.load(path, weights_only=True, map_location="cpu")
