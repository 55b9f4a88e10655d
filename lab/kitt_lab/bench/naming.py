"""How often the network names the parts of simple series: a sine, a sine with a trend, two sines.

python -m kitt_lab.bench.naming [--count 60] [--network default]

Each series has 60 to 200 values and at least four cycles of each sine. Sines have amplitudes of 0.5 to 2, and the noise has
a standard deviation of 0.05 to 0.3. For each kind: in how many series the most probable caption, one of the three most
probable ones, and one of the three that are shown, which are ranked by expected loss, have the parts as words of their own
(one word that repeats and no line; a line and a word that repeats; two words that repeat), and what the network believes on
average.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

from kitt.kernels.grammar import Expression
from kitt.network.caption import caption
from kitt.network.checkpoint import load
from kitt.table.scaling import FloatArray


def parts(expression: Expression) -> tuple[bool, int]:
    """Whether a straight line is one of the words, and how many words repeat."""
    repeats = [word for word in expression if {"Periodic", "Cosine"} & {factor.value for factor in word.factors}]
    return any(str(word) == "Linear" for word in expression), len(repeats)


KINDS: dict[str, Callable[[tuple[bool, int]], bool]] = {
    "sine": lambda named: named == (False, 1),
    "sine and trend": lambda named: named[0] and named[1] >= 1,
    "two sines": lambda named: named[1] >= 2,
}


def series(kind: str, seed: int) -> FloatArray:
    rng = np.random.default_rng([list(KINDS).index(kind), seed])
    n = int(rng.integers(60, 201))
    t, period = np.arange(n), rng.uniform(6, n / 4)
    y = rng.uniform(0.5, 2) * np.sin(2 * np.pi * t / period + rng.uniform(0, 2 * np.pi))
    if kind == "sine and trend":
        y += rng.choice([-1, 1]) * rng.uniform(1.5, 4) * t / n
    if kind == "two sines":
        ratio = rng.uniform(2.2, 3.5)  # of the periods; the other one may be the shorter or the longer one
        other = period * ratio if period * ratio < n / 4 else period / ratio
        y += rng.uniform(0.5, 2) * np.sin(2 * np.pi * t / other + rng.uniform(0, 2 * np.pi))
    return y + rng.uniform(0.05, 0.3) * rng.standard_normal(n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="series of each kind")
    parser.add_argument("--network", default="default", help="checkpoint, by name or file")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    network = load(asked.network)
    print("| series | most probable caption | one of the three most probable | one of three | trend | repeats |")
    print("|---|---|---|---|---|---|")
    for kind, is_right in KINDS.items():
        answers = []
        for seed in range(asked.count):
            y = series(kind, seed)
            X = np.arange(len(y), dtype=float)[:, None]
            likely, shown = (caption(X, y, network=network, ranking=how) for how in ("probability", "expected-loss"))
            named, also = ([is_right(parts(c.expression)) for c in captions] for captions in (likely, shown))
            beliefs = {each.name: each.probability for each in shown.properties}
            answers.append([named[0], any(named), any(also), beliefs["trend"], beliefs["repeats"]])
        first, second, third, trend, repeats = np.mean(answers, 0)
        counts = " | ".join(f"{round(share * asked.count)} of {asked.count}" for share in (first, second, third))
        print(f"| {kind} | {counts} | {trend:.0%} | {repeats:.0%} |")


if __name__ == "__main__":
    main()
