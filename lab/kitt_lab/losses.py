"""The corpus of losses: predictions of every word and of a few sums of two on real tasks, one file for each task.

`kitt bench losses` makes it, `Record.read` reads it, and `lab.advice` learns from it. A file is named by the seed of its
task; a seed that makes no task leaves an empty file, so that it is not tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kitt.errors import InvalidInputError
from kitt.files import replacing
from kitt.fitting.fit import UNFIT
from kitt.kernels.grammar import WORDS, Word
from kitt.network.advice import ROWS
from kitt.table.scaling import FloatArray
from kitt_lab.quickfit import CHANGING_NOISE, SECOND_WORD, QuickFit, QuickFitter
from kitt_lab.tasks import Task, TaskConfig, data_of, draw_task

LINEAR_WHITE = next(word for word in WORDS if str(word) == "Linear*White")
SUMS = 6  # largest number of sums of two words that are tried in a task
_RANK = 3.0  # mean rank by BIC of a sum's first word among the single words


@dataclass(frozen=True)
class Record:
    """The fits of one task: F fits, N training rows, M test rows."""

    seed: int
    task: Task
    expressions: tuple[str, ...]  # (F,)
    loo_mean: FloatArray  # (F, N) each training row given all the others, at the fitted parameters
    loo_variance: FloatArray
    mean: FloatArray  # (F, M)
    variance: FloatArray
    log_marginal_likelihood: FloatArray  # (F,)
    sizes: FloatArray  # (F,) numbers of parameters
    y: FloatArray  # (N,) standardised
    test_targets: FloatArray  # (M,)

    @classmethod
    def read(cls, path: Path) -> Record:
        try:
            with np.load(path, allow_pickle=False) as file:
                z = {key: file[key] for key in file.files}
            task = Task(str(z["name"]), int(z["target"]), z["cols"], z["tr"], z["te"], bool(z.get("shuffled", False)))
            names = ("loo_mean", "loo_var", "mean", "var", "lml", "size", "y", "yt")
            floats = (z[key].astype(np.float64) for key in names)
            return cls(int(path.stem), task, tuple(map(str, z["expr"])), *floats)
        except (OSError, ValueError, KeyError) as error:
            raise InvalidInputError(f"{path} is not a file of `kitt bench losses`: {error}") from error


def task_files(folder: Path) -> list[Path]:
    """The files of the tasks in a folder, by seed."""
    return sorted((path for path in folder.glob("*.npz") if path.stem.isdigit()), key=lambda path: int(path.stem))


def files(folder: Path) -> list[Path]:
    """The files of the tasks in a folder, by seed; an error if there are none."""
    if not (paths := task_files(folder)):
        raise InvalidInputError(f"there are no losses in {folder}: make them with `kitt bench losses --out {folder}`")
    return paths


def is_done(folder: Path, seed: int) -> bool:
    return (folder / f"{seed}.npz").exists() or (folder / f"{seed}.npz.none").exists()


def make_losses(data: str, out: str, seed: int, least_rows: int = ROWS[0]) -> dict[str, Any]:
    """Write the file of a seed atomically. A task has at least so many training rows, where its table has enough."""
    config = replace(TaskConfig(), rows=(least_rows, ROWS[1]))
    path = Path(out) / f"{seed}.npz"
    with torch.random.fork_rng(devices=[]):
        task = draw_task(data, seed, config)
        fits = [] if task is None else _fit_task(data, task, seed)
    if task is None or not fits:
        path.with_name(f"{path.name}.none").touch()
        return {"table": None, "fits": 0}
    given = data_of(data, task)
    with replacing(path) as file:
        np.savez(file, **_arrays(task, fits), y=_single(given.y), yt=_single(given.test_targets))
    return {"table": task.table, "rows": len(task.train), "columns": len(task.columns), "fits": len(fits)}


def _fit_task(data: str, task: Task, seed: int) -> list[QuickFit]:
    """Fits of every word and a few sums of two, each also with changing noise if it has a signal; empty if none succeeds."""
    try:
        fitter = QuickFitter(data_of(data, task), seed)
    except UNFIT:
        return []
    fits: list[QuickFit | None] = []
    singles: dict[Word, QuickFit] = {}
    for word in WORDS:
        if (fit := fitter.word(word)) is None:
            continue
        fits.append(fit)
        if not word.is_noise:
            singles[word] = fit
            fits.append(fitter.add(fit, LINEAR_WHITE, CHANGING_NOISE))
    for a, b in _draw_sums(singles, np.random.default_rng([seed, 1])):
        if (both := fitter.add(singles[a], b, SECOND_WORD)) is not None:
            fits += [both, fitter.add(both, LINEAR_WHITE, CHANGING_NOISE)]
    return [fit for fit in fits if fit is not None]


def _draw_sums(singles: dict[Word, QuickFit], rng: np.random.Generator) -> list[tuple[Word, Word]]:
    """Pairs of words: the first one is good by itself, the second one is any."""
    words = list(singles)
    order = np.argsort([-fit.bic_score for fit in singles.values()])
    drawn: dict[frozenset[Word], tuple[Word, Word]] = {}
    for _ in range(SUMS if words else 0):
        head = words[order[min(int(rng.exponential(_RANK)), len(words) - 1)]]
        other = words[rng.integers(len(words))]
        if head != other:
            drawn.setdefault(frozenset((head, other)), (head, other))
    return list(drawn.values())


def _arrays(task: Task, fits: list[QuickFit]) -> dict[str, Any]:
    """The columns of a file; those with a row for each fit are in the order of `expr`."""

    def rows(name: str) -> np.ndarray:
        return _single(torch.stack([getattr(fit, name) for fit in fits]).numpy())

    return {
        "name": task.table,
        "target": task.target,
        "cols": task.columns,
        "tr": task.train,
        "te": task.test,
        "shuffled": task.is_shuffled,
        "expr": np.array([str(fit.expression) for fit in fits]),
        "loo_mean": rows("loo_mean"),
        "loo_var": rows("loo_variance"),
        "mean": rows("mean"),
        "var": rows("variance"),
        "lml": np.array([fit.log_marginal_likelihood for fit in fits]),
        "size": np.array([len(fit.theta) for fit in fits]),
        "value": np.array([fit.value for fit in fits]),
        "theta": _single(torch.cat([fit.theta for fit in fits]).numpy()),
    }


def _single(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)
