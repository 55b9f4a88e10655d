"""How often the network calls a table noise whose target does not depend on the columns.

    python -m kitt_lab.bench.noise --count 200 --seed 1234 --network default

Tables have 50 to 500 rows and 1 to 8 columns. A table counts if its first caption has no signal.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np
import torch

import kitt
from kitt.network.checkpoint import LoadedModel, load

Draw = Callable[[np.random.Generator, int], np.ndarray]
TARGETS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "t3": lambda rng, n: rng.standard_t(3, n),
    "uniform": lambda rng, n: rng.uniform(size=n),
    "binary": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "rounded": lambda rng, n: np.round(rng.normal(size=n)),
}


def named(draw: Draw, count: int, seed: int, model: LoadedModel) -> int:
    """How many of so many tables are called noise."""
    rng, signals = np.random.default_rng(seed), 0
    for _ in range(count):
        n, d = int(np.exp(rng.uniform(math.log(50), math.log(500)))), int(rng.integers(1, 9))
        X = rng.normal(size=(n, d))
        signals += not kitt.caption(X, draw(rng, n), network=model).best.expression.signal
    return signals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="tables of each kind")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--network", default="default", help="checkpoint, by name or file")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model = load(asked.network)
    for kind, draw in TARGETS.items():
        print(f"{kind}: {named(draw, asked.count, asked.seed, model)} of {asked.count}", flush=True)


if __name__ == "__main__":
    main()
