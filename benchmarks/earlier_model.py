"""The model of commit 0ee1f26, as lines of `kitt bench atlas` and `kitt bench uci`, to be compared with the present one.

    python benchmarks/earlier_model.py --data DIR/atlas --rows 200 --limit 150 --out earlier-200.jsonl
    kitt bench table atlas-200.jsonl --kind atlas --reference kitt --against earlier-200.jsonl
    python benchmarks/earlier_model.py --suite uci --data DIR/uci --splits 3 4 5 --out earlier-uci.jsonl
    kitt bench table uci.jsonl earlier-uci.jsonl --kind differences

It runs in a checkout of that commit, which it makes in build/earlier, in one thread, and resumes where it was stopped. That
commit has no benchmark on the atlas, so the protocol of docs/atlas.md is repeated here: the same rows, the same scores.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
COMMIT = "0ee1f26"
LEVELS = (np.arange(49) + 0.5) / 49  # of the quantiles behind the CRPS
COVERAGES = (0.5, 0.9, 0.95)
Cell = tuple[dict[str, Any], Callable[[], Mapping[str, Any]]]  # the key of a line, and what makes its result


def use_earlier() -> None:
    """Let `kitt` be that of the earlier commit, in a checkout of its own."""
    folder = ROOT / "build" / "earlier"
    if not folder.exists():
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), COMMIT], check=True)
    sys.path.insert(0, str(folder / "src"))


def names(data: Path, rows: int) -> list[str]:
    """The tables with at least six tenths of the requested rows, in the order of the CRC-32 of their names."""
    with (data / "index.csv").open(encoding="utf-8", newline="") as lines:
        found = [
            row["name"] for row in csv.DictReader(lines) if row["kind"] == "table" and int(row["rows"]) >= 0.6 * rows
        ]
    return sorted(found, key=lambda name: zlib.crc32(name.encode()))


def evaluate(path: Path, rows: int, split: int) -> dict[str, Any]:
    """Scores of the earlier pipeline on the test rows of a table, and its CPU seconds."""
    from kitt.data import Dataset  # of the earlier commit

    from kitt.suggest import Options, suggest_dataset

    frame = pd.read_csv(path)
    values = frame.to_numpy(float)
    X, y = values[:, :-1], values[:, -1]
    order = np.random.default_rng([zlib.crc32(path.stem.encode()), split]).permutation(len(y))
    count = min(rows, 2 * len(y) // 3)
    train, test = order[:count], order[count : count + 400]
    keep = np.ptp(X[train], axis=0) > 0
    table = Dataset.from_arrays(X[train][:, keep], y[train], list(frame.columns[:-1][keep]), "target")
    inputs, observed = X[test][:, keep], y[test]
    ends = [level for share in COVERAGES for level in ((1 - share) / 2, (1 + share) / 2)]
    began = time.process_time()
    mixture = suggest_dataset(table, Options.of(random_state=0)).mixture
    mean = mixture.predict(inputs)[0]
    ended = time.process_time()
    quantiles = mixture.quantiles(inputs, np.array([*LEVELS, *ends]))
    above, outer = observed[:, None] - quantiles[:, : len(LEVELS)], quantiles[:, len(LEVELS) :]
    covered = {
        f"coverage_{100 * share:.0f}": float(np.mean((observed >= outer[:, 2 * i]) & (observed <= outer[:, 2 * i + 1])))
        for i, share in enumerate(COVERAGES)
    }
    return {
        "nlpd": -float(np.mean(mixture.log_density(inputs, observed))),
        "rmse": float(np.sqrt(np.mean((observed - mean) ** 2))),
        "mae": float(np.mean(np.abs(observed - mean))),
        "crps": 2 * float(np.mean(np.maximum(LEVELS * above, (LEVELS - 1) * above))),
        **covered,
        "cpu_seconds": ended - began,
        "n_train": count,
        "n_test": len(observed),
        "d": int(keep.sum()),
    }


def atlas_cells(data: Path, rows: int, splits: list[int], limit: int) -> Iterator[Cell]:
    """The first tables of an atlas."""
    for split in splits:
        for name in names(data, rows)[:limit]:
            key = {"bench": "atlas", "table": name, "split": split, "rows": str(rows), "method": "kitt", "seed": 0}
            yield key, partial(evaluate, data / "table" / f"{name}.csv", rows, split)


def uci_cells(data: Path, splits: list[int]) -> Iterator[Cell]:
    """The UCI tables, by the benchmark of that commit. The method has a name of its own, so that tables show both."""
    from kitt.bench.datasets import sources  # of the earlier commit
    from kitt.bench.methods import Spec
    from kitt.bench.methods import evaluate as scores

    for split in splits:
        for table in sources(data):
            method = f"kitt-{COMMIT}"
            key = {"bench": "uci", "table": table.name, "split": split, "rows": "paper", "method": method, "seed": 0}
            yield key, partial(scores, table, split, "paper", Spec.parse("kitt"), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of an atlas, or of the UCI tables")
    parser.add_argument("--suite", choices=("atlas", "uci"), default="atlas")
    parser.add_argument("--rows", type=int, default=200, help="of the atlas")
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--limit", type=int, default=10_000, help="only the first tables of the atlas, in their order")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    use_earlier()
    torch.set_num_threads(1)
    if asked.suite == "uci":
        cells = uci_cells(asked.data, asked.splits)
    else:
        cells = atlas_cells(asked.data, asked.rows, asked.splits, asked.limit)
    written = asked.out.read_text(encoding="utf-8").splitlines() if asked.out.exists() else []
    done = [json.loads(line)["key"] for line in written]
    for key, call in ((key | {"settings": {}}, call) for key, call in cells):
        if key in done:
            continue
        line: dict[str, Any] = {"key": key, "versions": {"commit": COMMIT}}
        began = time.process_time()
        try:
            with threadpool_limits(1):
                result = dict(call())
            line |= {"status": "ok", "result": result, "cpu_seconds": time.process_time() - began}
        except Exception as error:  # a table on which it fails is a result too
            line |= {"status": "failed", "error": repr(error)}
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=float) + "\n")
        print(key["table"], key["split"], flush=True)


if __name__ == "__main__":
    main()
