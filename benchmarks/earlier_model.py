"""The model of commit 0ee1f26 on the atlas, as lines of `kitt bench atlas`, so that `--against` compares with it.

    python benchmarks/earlier_model.py --data DIR --rows 200 --limit 150 --out earlier-200.jsonl
    kitt bench table atlas-200.jsonl --kind atlas --reference kitt --against earlier-200.jsonl

That commit has no benchmark on the atlas, so this script repeats the protocol of docs/atlas.md with its pipeline, from a
checkout that it makes in build/earlier: the same rows, the same scores, one thread. It resumes where it was stopped.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
import zlib
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of an atlas")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--limit", type=int, default=10_000, help="only the first tables, in their order")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    use_earlier()
    torch.set_num_threads(1)
    written = asked.out.read_text(encoding="utf-8").splitlines() if asked.out.exists() else []
    done = {json.loads(line)["key"]["table"] for line in written}
    for name in names(asked.data, asked.rows)[: asked.limit]:
        if name in done:
            continue
        key = {
            "bench": "atlas",
            "table": name,
            "split": asked.split,
            "rows": str(asked.rows),
            "method": "kitt",
            "seed": 0,
        }
        line: dict[str, Any] = {"key": {**key, "settings": {}}, "versions": {"commit": COMMIT}}
        try:
            with threadpool_limits(1):
                result = evaluate(asked.data / "table" / f"{name}.csv", asked.rows, asked.split)
            line |= {"status": "ok", "result": result}
        except Exception as error:  # a table on which it fails is a result too
            line |= {"status": "failed", "error": repr(error)}
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(name, flush=True)


if __name__ == "__main__":
    main()
