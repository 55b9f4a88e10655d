"""What each part of the network gives: variants of it, trained for the same CPU time on the same draws of the paper's prior.

    python -m kitt_lab.bench.ablation --seconds 300 --out runs/ablation.jsonl

A part is removed by hiding its output, so that all networks have the same size; probes and waves that are hidden are not
computed, and the time goes into more data sets. Top-1 and top-3 are of the validation sets of `kitt_lab.train.recipes`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from kitt.journal import append
from kitt.network import features, waves
from kitt_lab.bench.runner import identity, read, versions
from kitt_lab.simulate import PAPER_DATA
from kitt_lab.train.processes import OneProcess
from kitt_lab.train.recipes import VALIDATION, Sizes, recipe
from kitt_lab.train.step import Trainer
from kitt_lab.train.validate import draw_validation, score

Patches = dict[str, Callable[..., Any]]  # name -> what stands there instead
SHOWN = ("paper-64x4", "paper-64x1", "paper-256x2")


def silent_probe(
    t: features.Tables, roughness: torch.Tensor, nugget: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Zeros in place of the numbers that the probes give."""
    one = features.prepare(torch.zeros(1, 2, 1), torch.zeros(1, 2))
    column, whole = features.probe(one, torch.ones(1, 1), torch.ones(1))
    B, _, D = t.X.shape
    return t.X.new_zeros(B, D, column.shape[-1]), t.X.new_zeros(B, whole.shape[-1])


def without_residual(X: torch.Tensor, y: torch.Tensor) -> features.Tables:
    """The target in place of what a linear fit leaves of it."""
    t = features.prepare(X, y)
    return replace(t, residual=t.y, unexplained=torch.ones_like(t.unexplained))


def without_spectra(t: features.Tables) -> tuple[torch.Tensor, torch.Tensor]:
    column, whole = features.describe(t)
    column[..., features.spectra_of(column)] = 0
    return column, whole


def without_waves(X: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Zeros in place of the statistics of waves."""
    return X.new_zeros(*targets.shape[:2], waves.NUMBERS)


VARIANTS: dict[str, tuple[str, Patches]] = {  # the preset whose network it is, and what is hidden from it
    "everything": ("default", {}),
    "without probes": ("default", {"kitt.network.network.probe": silent_probe}),
    "without the residual of a linear fit": (
        "default",
        {"kitt.network.network.prepare": without_residual, "kitt_lab.train.step.prepare": without_residual},
    ),
    "without waves": ("default", {"kitt.network.features.wave_statistics": without_waves}),
    "without spectra": ("default", {"kitt.network.network.describe": without_spectra}),
    "the paper's attention over points": ("paper", {}),
}


def train(name: str, seconds: float) -> dict[str, Any]:
    preset, patches = VARIANTS[name]
    base = recipe(preset)
    sizes = Sizes(n=(32, 128), d=(1, 4), batch=(8, 128), work=base.sizes.work)
    config = replace(base, data=((PAPER_DATA, 1.0),), sizes=sizes, classify="single")
    with ExitStack() as stack:
        for what, instead in patches.items():
            stack.enter_context(patch(what, instead))
        trainer = Trainer(config, OneProcess())
        trainer.measure()
        began, spent = time.process_time(), 0.0
        while spent < 1:
            trainer.train_step(spent)
            spent = (time.process_time() - began) / seconds
            print(f"\r{name}: {spent:.0%}, {trainer.datasets:,} data sets", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        sets = {v.name: draw_validation(v) for v in VALIDATION if v.name in SHOWN}
        scores = {key: score(trainer.averaged, config.network, batch) for key, batch in sets.items()}
    result = {"datasets": trainer.datasets, "scores": scores}
    return {"key": key_of(name, seconds), "status": "ok", "result": result, "versions": versions()}


def key_of(name: str, seconds: float) -> dict[str, Any]:
    """What a line measures."""
    return {"bench": "ablation", "variant": name, "cpu_seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="CPU seconds of each variant")
    parser.add_argument("--out", type=Path, default=Path("ablation.jsonl"), help="JSON lines; what is there is not run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = {identity(line["key"]): line for line in read(options.out)}
    print("| network | data sets | " + " | ".join(SHOWN) + " |")
    for name in VARIANTS:
        line = known.get(identity(key_of(name, options.seconds)))
        if line is None:
            line = train(name, options.seconds)
            append(options.out, line)
        result = line["result"]
        texts = [f"{100 * s['top1']:.1f} / {100 * s['top3']:.1f} %" for s in result["scores"].values()]
        print(f"| {name} | {result['datasets']:,} | " + " | ".join(texts) + " |")


if __name__ == "__main__":
    main()
