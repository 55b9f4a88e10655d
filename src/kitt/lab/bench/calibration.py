"""Calibration: are first choices right as often as their probabilities promise, on fresh draws of the training mixture?

A cell is one batch, drawn as for a step of training, so its size is random too. The classifier is right if it names the
word of largest variance, the decoder if its caption has the words of the true one. A property is right if the kernel that
the table was drawn from has it.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from kitt.lab.bench.recovery import calibration, calibration_error
from kitt.lab.bench.runner import Cell, Line
from kitt.lab.simulate import PAD
from kitt.lab.train import PRESETS, draw_batch, recipe
from kitt.language.grammar import Expression
from kitt.network.caption import HEADS, caption_tables
from kitt.network.checkpoint import load, read_facts
from kitt.network.properties import PROPERTIES, has_property


def calibration_cells(models: Sequence[str], batches: int, preset: str | None = None) -> list[Cell]:
    """Without a preset, each network is asked about what it was trained on, as far as its name tells."""
    cells = []
    for model in models:
        name = read_facts(model).name
        of = preset or (name if name in PRESETS else "default")
        for i in range(batches):
            arguments = {"model": model, "preset": of, "batch": i}
            cells.append(Cell({"bench": "calibration", **arguments}, calibrate, arguments))
    return cells


def calibrate(model: str, preset: str, batch: int) -> dict[str, Any]:
    """For each head, the bins of probability of one batch: how many, sum of probabilities, number of hits."""
    config, loaded = recipe(preset), load(model)
    generator = torch.Generator().manual_seed(zlib.crc32(f"calibration {preset} {batch}".encode()))
    drawn = draw_batch(config.data, *config.sizes.draw(generator), generator)
    bins = {}
    for head in HEADS:
        alone = head == "classifier" and config.classify == "single"  # it learned from single words only
        kept = [i for i, words in enumerate(drawn.captions) if not alone or (words != PAD).sum() == 1]
        tables = [(drawn.X[i].double().numpy(), drawn.y[i].double().numpy()) for i in kept]
        first = [c.ranked[0] for c in caption_tables(tables, 1, model=loaded, head=head, ranking="probability")]
        true = [drawn.captions[i][: 1 if head == "classifier" else None] for i in kept]
        hits = [set(c.expression.indices) == set(t[t != PAD].tolist()) for c, t in zip(first, true, strict=True)]
        bins[head] = calibration([c.probability for c in first], hits)
    tables = [(X.double().numpy(), y.double().numpy()) for X, y in zip(drawn.X, drawn.y, strict=True)]
    said = [c.properties for c in caption_tables(tables, 1, model=loaded)]
    kernels = [Expression.from_indices(words[words != PAD].tolist()) for words in drawn.captions]
    believed = {
        name: calibration([p[j].probability for p in said], [has_property(name, e) for e in kernels])
        for j, name in enumerate(PROPERTIES)
    }
    return {"n": drawn.X.shape[1], "d": drawn.X.shape[2], "bins": bins, "properties": believed}


def property_summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Of each property: how often tables have it, its mean probability, its calibration error, and what chance makes."""
    found: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for line in lines:
        key = line["key"]
        if line["status"] == "ok" and key.get("bench") == "calibration":
            for name, bins in line["result"].get("properties", {}).items():
                found[key["model"], key["preset"], name].append(bins)
    rows = []
    for (model, preset, name), parts in found.items():
        bins = np.sum(parts, axis=0)
        count, promised, kept = bins.sum(0)
        row = {"model": model, "preset": preset, "property": name, "data_sets": int(count)}
        shares = {"have_it": kept / max(count, 1), "promised": promised / max(count, 1)}
        rows.append(row | shares | {"ece": calibration_error(bins), "by_chance": chance_error(bins)})
    return rows


def curves(lines: Iterable[Line]) -> dict[tuple[str, str, str], np.ndarray]:
    """The bins of all batches together, by model, preset and head."""
    found: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for line in lines:
        key = line["key"]
        if line["status"] == "ok" and key.get("bench") == "calibration":
            for head, bins in line["result"]["bins"].items():
                found[key["model"], key["preset"], head].append(bins)
    return {key: np.sum(bins, axis=0) for key, bins in found.items()}


def summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Share of first choices that are right, their mean probability, the calibration error, and what chance makes of it."""
    rows = []
    for (model, preset, head), bins in curves(lines).items():
        count, promised, kept = bins.sum(0)
        row = {"model": model, "preset": preset, "head": head, "data_sets": int(count)}
        shares = {"right": kept / max(count, 1), "promised": promised / max(count, 1)}
        rows.append(row | shares | {"ece": calibration_error(bins), "by_chance": chance_error(bins)})
    return rows


def chance_error(bins: np.ndarray) -> float:
    """The calibration error to be expected of so few data sets if every probability were true."""
    count, promised, _ = bins.T
    p = promised / np.maximum(count, 1)
    return float(np.sqrt(2 / np.pi * count * p * (1 - p)).sum() / max(count.sum(), 1))
