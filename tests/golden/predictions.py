"""Write what a mixture with fixed parameters predicts to predictions.json, and read the difference.

python tests/golden/predictions.py
"""

import json
from pathlib import Path

import numpy as np
import torch

from kitt import FittedKernel, parse
from kitt.fitting.fitted import Fitted, FoundNoise, TrainingRows
from kitt.fitting.gp import GP
from kitt.fitting.noise import NoiseModel
from kitt.model.botorch.mixture import MixtureModel
from kitt.model.components import Component
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.table.scaling import IDENTITY, Standardiser, Warp
from kitt.table.table import Table

FILE = Path(__file__).parent / "predictions.json"
NOISE = NoiseModel((0.1, 0.6, -0.2, 0.3, 0.2, 0.1), (-1.5, 2.0), (-1.2, 0.4), 5.0, 6.0, 4.0)
LOG = Warp("log", shift=-2.0, unit=1.5, exponent=0.0, mean=0.2, scale=0.6, low=-2.0, high=9.0)


def mixture() -> Mixture:
    """Three GPs, of two transforms of the target, one sparse; changing noise, spreads and a tail."""
    i = np.arange(24)
    X = np.column_stack([np.cos(1.7 * i), np.sin(0.9 * i**1.1)])
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * np.cos(7.0 * i)
    scale = Standardiser(np.array([12.0, -1.0]), np.array([2.0, 0.5]), 100.0, 30.0)

    def gp(text: str, values: dict, warp: Warp = IDENTITY, inducing: int = 0, noise: NoiseModel | None = None) -> GP:
        kernel = FittedKernel(parse(text), values, ("a", "b"), "y", scale)
        rows = Table.of((X, y)).transformed(warp)
        basis = rows.X[:inducing] if inducing else None
        return GP(Fitted(kernel, warp), TrainingRows.conditioned(kernel, rows, basis), FoundNoise(noise))

    gps = (
        gp("RBF", {"RBF.variance": 0.9, "RBF[0].lengthscale": (0.8, 1.5), "noise": 0.1}, noise=NOISE),
        gp("Matern52", {"Matern52.variance": 0.7, "Matern52[0].lengthscale": (1.2, 0.9), "noise": 0.2}, LOG),
        gp("Matern32", {"Matern32.variance": 1.1, "Matern32[0].lengthscale": (1.0, 2.0), "noise": 0.15}, inducing=9),
    )
    ways = (
        Component(1, 0.3, spread=1.2),
        Component(0, 0.3, True, 0.25),
        Component(0, 0.2, False, 4.0),
        Component(2, 0.2),
    )
    return Mixture(gps, ways, Tail(0.01))


def predicted() -> dict[str, list]:
    """What is predicted at a few points, near the rows and far from them."""
    X = np.array([[12.0, -1.0], [13.5, -0.6], [10.2, -1.3], [40.0, 3.0]])
    whole, levels = mixture(), [0.05, 0.5, 0.99]
    values = {
        "observations": np.stack(whole.predict(X)),
        "function": np.stack(whole.predict(X, noisy=False)),
        "covariance of observations": whole.covariance(X),
        "covariance of the function": whole.covariance(X, noisy=False),
        "quantiles": whole.quantiles(X, levels),
        "log density": whole.log_density(X, [100.0, 130.0, 60.0, 100.0]),
        "leave-one-out": np.stack(whole.leave_one_out().moments()),
    }
    model, points = MixtureModel(whole), torch.from_numpy(X)
    base = torch.linspace(-1.5, 1.5, 16, dtype=torch.float64).reshape(4, 4)
    for noisy, of in ((True, "observations"), (False, "the function")):
        posterior = model.posterior(points, observation_noise=noisy)
        values[f"BoTorch, mean of {of}"] = posterior.mean[:, 0]
        values[f"BoTorch, covariance of {of}"] = posterior.distribution.covariance_matrix
        values[f"BoTorch, draws of {of}"] = posterior.rsample_from_base_samples(torch.Size([4]), base)[..., 0]
    return {name: np.asarray(value).tolist() for name, value in values.items()}


if __name__ == "__main__":
    FILE.write_text(json.dumps({k: np.array(v).round(8).tolist() for k, v in predicted().items()}, indent=1) + "\n")
    print(FILE.read_text())
