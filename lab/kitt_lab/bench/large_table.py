"""A large table: CPU seconds and peak memory of `kitt fit` and `kitt predict`, and test density beside GPyTorch's SVGP.

    python -m kitt_lab.bench.large_table --rows 50000 --columns 6 [--epochs 10] [--without-svgp] [--deadline 30]

Everything runs in one thread. The SVGP has as many inducing points as KITT's sparse posterior (600), an RBF kernel with a
lengthscale for each column, Adam at 0.01 and batches of 1,024 rows, as in GPyTorch's own example.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

INDUCING = 600
TEST_ROWS = 2000


def simulate(rows: int, columns: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.abs(X[:, 3]) + 0.3 * rng.normal(size=rows)
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(columns)]).assign(y=y)


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "kitt.app.cli", *arguments]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"kitt {arguments[0]} failed")
    used = f"{usage.ru_utime + usage.ru_stime:.0f} CPU s, {time.monotonic() - began:.0f} s in all"
    return f"kitt {arguments[0]}: {used}, {usage.ru_maxrss / 2**20:.2f} GB"


def svgp(train: pd.DataFrame, test: pd.DataFrame, epochs: int) -> tuple[float, float]:
    """CPU seconds of training and prediction, and the mean negative log density of the test rows."""
    import gpytorch
    import torch

    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self, Z: torch.Tensor) -> None:
            posterior = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
            super().__init__(gpytorch.variational.VariationalStrategy(self, Z, posterior))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1]))

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, y = torch.tensor(train.iloc[:, :-1].to_numpy()).float(), torch.tensor(train["y"].to_numpy()).float()
    centre, scale = y.mean(), y.std()
    y = (y - centre) / scale
    began = time.process_time()
    model, likelihood = Sparse(X[torch.randperm(len(X))[:INDUCING]]), gpytorch.likelihoods.GaussianLikelihood()
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(1024):
            optimiser.zero_grad()
            loss = -objective(model(X[rows]), y[rows])
            loss.backward()
            optimiser.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predicted = likelihood(model(torch.tensor(test.iloc[:, :-1].to_numpy()).float()))
    target = (torch.tensor(test["y"].to_numpy()).float() - centre) / scale
    density = torch.distributions.Normal(predicted.mean, predicted.stddev).log_prob(target) - scale.log()
    return time.process_time() - began, -float(density.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--without-svgp", action="store_true")
    parser.add_argument("--deadline", type=float, help="seconds for `kitt fit`; its wall-clock time is printed too")
    asked = parser.parse_args()
    train, test = simulate(asked.rows, asked.columns, 0), simulate(TEST_ROWS, asked.columns, 1)
    with tempfile.TemporaryDirectory() as folder:
        table, model, out = (str(Path(folder) / name) for name in ("table.csv", "model.json", "out.csv"))
        train.to_csv(table, index=False)
        limit = () if asked.deadline is None else ("--deadline", str(asked.deadline))
        print(run("fit", table, "--target", "y", "-o", model, *limit), flush=True)
        print(run("predict", model, table, "-o", out), flush=True)
        import kitt

        density = kitt.load(model).log_density(test.drop(columns="y"), test["y"])
        print(f"kitt: NLPD of {TEST_ROWS} fresh rows {-density.mean():.3f}", flush=True)
    if not asked.without_svgp:
        seconds, nlpd = svgp(train, test, asked.epochs)
        print(f"GPyTorch SVGP, {INDUCING} inducing points, {asked.epochs} epochs: {seconds:.0f} CPU s, NLPD {nlpd:.3f}")


if __name__ == "__main__":
    main()
