"""Calibration: whether first choices are right as often as their probabilities say, on fresh draws of the training mixture.

A cell is one batch, drawn as for a step of training, so its size is random too. The classifier is right if it names the
word of largest variance, the decoder if its caption has the words of the true one. A property is right if the kernel that
the table was drawn from has it.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kitt.kernels.grammar import Expression, parse
from kitt.network.caption import HEADS, caption
from kitt.network.checkpoint import load, read_facts
from kitt.network.properties import PROPERTIES
from kitt_lab.bench.atlas import split
from kitt_lab.bench.datasets import Source
from kitt_lab.bench.methods import fingerprint
from kitt_lab.bench.recovery import calibration, calibration_error
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.bench.scores import lines_of_networks
from kitt_lab.calibrate import has_property
from kitt_lab.simulate import PAD
from kitt_lab.train import draw_batch, preset_of, recipe


def calibration_cells(
    models: Sequence[str], batches: int, preset: str | None = None, tables: Path | None = None
) -> list[Cell]:
    """One cell for each batch; without a preset, each network gets the mixture that it was trained on, if known by name.

    Half of the inputs of the preset `default` are those of a folder of tables, if one is given, as in its training.
    """
    cells = []
    for model in models:
        of, network = preset or preset_of(read_facts(model).name), fingerprint(model)
        for i in range(batches):
            arguments = {"model": model, "preset": of, "batch": i}
            key = {"bench": "calibration", **arguments, "network": network}
            key |= {"tables": tables.name} if tables else {}
            cells.append(Cell(key, calibrate, arguments | {"tables": str(tables) if tables else None}))
    return cells


def calibrate(model: str, preset: str, batch: int, tables: str | None = None) -> dict[str, Any]:
    """For each head, the bins of probability of one batch: how many, sum of probabilities, number of hits."""
    config, loaded = recipe(preset, tables), load(model)
    generator = torch.Generator().manual_seed(zlib.crc32(f"calibration {preset} {batch}".encode()))
    drawn = draw_batch(config.data, *config.sizes.draw(generator), generator)
    bins = {}
    for head in HEADS:
        alone = head == "classifier" and config.classify == "single"  # it learned from single words only
        kept = [i for i, words in enumerate(drawn.captions) if not alone or (words != PAD).sum() == 1]
        data_sets = [(drawn.X[i].double().numpy(), drawn.y[i].double().numpy()) for i in kept]
        first = [caption(*t, 1, network=loaded, head=head, ranking="probability").best for t in data_sets]
        true = [drawn.captions[i][: 1 if head == "classifier" else None] for i in kept]
        hits = [set(c.expression.indices) == set(t[t != PAD].tolist()) for c, t in zip(first, true, strict=True)]
        bins[head] = calibration([c.probability for c in first], hits)
    data_sets = [(X.double().numpy(), y.double().numpy()) for X, y in zip(drawn.X, drawn.y, strict=True)]
    said = [caption(*t, 1, network=loaded).properties for t in data_sets]
    kernels = [Expression.from_indices(words[words != PAD].tolist()) for words in drawn.captions]
    believed = {
        name: calibration([p[j].probability for p in said], [has_property(name, e) for e in kernels])
        for j, name in enumerate(PROPERTIES)
    }
    return {"n": drawn.X.shape[1], "d": drawn.X.shape[2], "bins": bins, "properties": believed}


def property_summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """For each property: its frequency, its mean probability, its calibration error, and the error expected by chance."""
    collected: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for line in lines_of_networks(lines, "calibration"):
        for name, bins in line["result"].get("properties", {}).items():
            collected[line["key"]["model"], _mixture(line["key"]), name].append(bins)
    rows = []
    for (model, preset, name), parts in collected.items():
        bins = np.sum(parts, axis=0)
        count, expected, hits = bins.sum(0)
        row = {"model": model, "preset": preset, "property": name, "data_sets": int(count)}
        shares = {"have_it": hits / max(count, 1), "mean_probability": expected / max(count, 1)}
        rows.append(row | shares | {"ece": calibration_error(bins), "by_chance": chance_error(bins)})
    return rows


def _mixture(key: Mapping[str, Any]) -> str:
    """The preset, and the folder whose tables are inputs, if there is one."""
    return f"{key['preset']}, {key['tables']}" if "tables" in key else str(key["preset"])


def curves(lines: Iterable[Line]) -> dict[tuple[str, str, str], np.ndarray]:
    """The bins of all batches together, by model, preset and head."""
    collected: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for line in lines_of_networks(lines, "calibration"):
        for head, bins in line["result"]["bins"].items():
            collected[line["key"]["model"], _mixture(line["key"]), head].append(bins)
    return {key: np.sum(bins, axis=0) for key, bins in collected.items()}


def summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Share of correct first choices, their mean probability, the calibration error, and the error expected by chance."""
    rows = []
    for (model, preset, head), bins in curves(lines).items():
        count, expected, hits = bins.sum(0)
        row = {"model": model, "preset": preset, "head": head, "data_sets": int(count)}
        shares = {"right": hits / max(count, 1), "mean_probability": expected / max(count, 1)}
        rows.append(row | shares | {"ece": calibration_error(bins), "by_chance": chance_error(bins)})
    return rows


def chance_error(bins: np.ndarray) -> float:
    """The expected calibration error of a perfectly calibrated network with this number of data sets."""
    count, expected, _ = bins.T
    p = expected / np.maximum(count, 1)
    return float(np.sqrt(2 / np.pi * count * p * (1 - p)).sum() / max(count.sum(), 1))


# --- real tables -----------------------------------------------------------------------------------------------------

SURE = 0.8  # probability from which the network counts as sure of a property
NEAR = 0.01  # nats per row within which a word is as good as the best
_ALWAYS = "noise changes"  # every word of `kitt bench capture` is tried with it, so the best word is no evidence for it


def hindsight(
    lines: Iterable[Line], tables: Iterable[Source], rows: int = 200, model: str = "default"
) -> list[dict[str, Any]]:
    """How often a property that the network is sure of is one of the best word, chosen by test rows.

    The lines are those of `kitt bench capture`, with all words fitted to each table. Where several words are within
    `NEAR` of the best, it counts as well whether any of them has the property.
    """
    words = {
        (line["key"]["table"], line["key"]["split"]): line["result"]["nlpd"]
        for line in lines
        if line["status"] == "ok" and line["key"].get("what") == "words" and line["key"]["rows"] == rows
    }
    loaded, by_name = load(model), {table.name: table for table in tables}
    sure: dict[str, list[tuple[bool, bool]]] = {name: [] for name in PROPERTIES if name != _ALWAYS}
    for (name, number), nlpd in words.items():
        if name not in by_name or not nlpd:
            continue
        train, _ = split(by_name[name], rows, number)
        best = min(nlpd, key=lambda word: nlpd[word])
        near = [word for word, value in nlpd.items() if value <= nlpd[best] + NEAR]
        for p in caption(train.X, train.y, 1, network=loaded).properties:
            if p.probability >= SURE and p.name in sure:
                sure[p.name].append(
                    (has_property(p.name, parse(best)), any(has_property(p.name, parse(w)) for w in near))
                )
    return [
        {
            "property": name,
            "tables": len(collected),
            "in the best word": sum(best for best, _ in collected),
            f"in one within {NEAR} nats": sum(any_ for _, any_ in collected),
        }
        for name, collected in sure.items()
    ]
