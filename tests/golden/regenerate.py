"""Write what the bundled networks say about a few tables to captions.json: run after new weights, and read the difference.

python tests/golden/regenerate.py
"""

import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_linnerud, make_friedman1, make_friedman3

from kitt.network.caption import caption
from kitt.network.checkpoint import bundled

FILE = Path(__file__).parent / "captions.json"


def tables():
    """Name -> (X, y): bundled with scikit-learn, or made from formulas."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, 150)
    walk = np.cumsum(rng.normal(size=200))
    growing, plane = rng.uniform(0, 4, 250), rng.uniform(size=(60, 2))
    return {
        "diabetes": load_diabetes(return_X_y=True),
        "linnerud": (load_linnerud().data, load_linnerud().target[:, 0]),
        "friedman1": make_friedman1(300, noise=0.5, random_state=0),
        "friedman3": make_friedman3(200, random_state=0),
        "sine": (x[:, None], np.sin(2 * np.pi * x / 1.7) + 0.05 * rng.normal(size=150)),
        "trend and season": (x[:, None], 0.8 * x + np.sin(2 * np.pi * x) + 0.1 * rng.normal(size=150)),
        "random walk": (np.arange(200.0)[:, None], walk),
        "white noise": (rng.uniform(size=(200, 3)), rng.normal(size=200)),
        "plane": (plane, plane @ [2.0, -1.0]),
        "growing noise": (growing[:, None], growing + growing * 0.5 * rng.normal(size=250)),
    }


def said() -> dict[str, dict[str, list[list[object]]]]:
    out: dict[str, dict[str, list[list[object]]]] = {}
    for facts in bundled():
        out[facts.name] = {}
        for name, (X, y) in tables().items():
            captions = caption(X, y, 3, network=facts.name).ranked
            out[facts.name][name] = [[str(c.expression), float(f"{c.probability:.4g}")] for c in captions]
    return out


if __name__ == "__main__":
    FILE.write_text(json.dumps(said(), indent=1) + "\n")
    print(FILE.read_text())
