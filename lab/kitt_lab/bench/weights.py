"""Ways to weight the fitted kernels, compared on the same fits of the tables of the atlas.

    python -m kitt_lab.bench.weights --data DIR --rows 200 --split 0

Every table is fitted once, about a second each; then each weighting gets the leave-one-out densities of the components, and
its mixture is scored on the test rows. Nothing is chosen by test rows but the regression, which is cross-validated over
tables. Differences are negative log densities per test row less those of the weighting that KITT uses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from scipy.special import logsumexp

from kitt.fitting.candidates import prior_of
from kitt.fitting.config import FitConfig
from kitt.fitting.gp import GP
from kitt.fitting.objective import Objective
from kitt.fitting.options import Options
from kitt.kernels.exact import normal_log_density
from kitt.model.predictive import Tail
from kitt.model.weights import EM_STEPS, MIN_RELATIVE_WEIGHT, MIN_TAIL, SPREADS, stacked
from kitt.pipeline import suggest_dataset
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt.table.table import Table
from kitt_lab.bench import atlas

_FOLDS = 5  # of tables, for the regression


@dataclass(frozen=True)
class Option:
    """A kernel with constant or changing noise and a factor of its variance: densities of training and of test rows."""

    loo: FloatArray
    test: FloatArray
    parameters: int
    effective: float  # parameters that the rows determine, and not the prior
    likelihood: float
    evidence: float
    model: int  # position of the kernel
    is_plainest: bool  # constant noise, and a factor of one


@dataclass(frozen=True)
class Fits:
    """All parts of a table, and the tail at its training and test rows."""

    parts: list[Option]
    tail: tuple[FloatArray, FloatArray]
    rows: int
    columns: int


def effective_parameters(model: GP) -> tuple[float, float]:
    """The trace of the share of the information that comes from the rows, and the log evidence by Laplace's method."""
    kernel, theta = model.fitted_kernel.kernel, model.fitted_kernel.theta
    table = Table.of((model.X, model.y))
    objective = Objective(kernel.expression, table, FitConfig(prior=prior_of(model.fitted.is_plain)))
    prior, all_of_it = objective.information(theta, 0), objective.information(theta, model.rows)
    share = torch.linalg.solve(all_of_it, all_of_it - prior)
    value = model.log_marginal_likelihood + float(objective.prior.log_density(theta))
    return float(torch.trace(share)), objective.log_evidence(theta, value, model.rows)


def fits_of(train: Dataset, test: Dataset) -> Fits:
    fitted = suggest_dataset(train, Options()).fitted
    assert fitted is not None
    mixture, parts = fitted.mixture, []
    s = mixture.models[0].fitted_kernel.standardiser
    assert s is not None
    u, seen = s.transform_y(test.y), mixture.models[0].warp.inverse(mixture.models[0].y.numpy())
    for k, model in enumerate(mixture.models):
        Z = model.inputs(test.X)
        mean, _, total = model.moments(Z)
        effective, evidence = effective_parameters(model)
        noises = [(np.zeros(model.rows), np.zeros(len(u)))]
        if model.fitted_noise is not None and model.noise_model is not None:
            noises.append((model.fitted_noise[1], model.noise_model.log_factor(Z.numpy(), mean, total)))
        for place, (here, there) in enumerate(noises):
            for spread in SPREADS:
                variance = spread * model.loo.variance.numpy() * np.exp(here)
                loo = normal_log_density(model.y.numpy(), model.loo.mean.numpy(), variance)
                new = normal_log_density(model.warp.forward(u), mean, spread * total * np.exp(there))
                slopes = model.warp.log_slope(model.warp.inverse(model.y.numpy())), model.warp.log_slope(u)
                numbers = model.parameter_count, effective, model.log_marginal_likelihood, evidence
                parts.append(Option(loo + slopes[0], new + slopes[1], *numbers, k, place == 0 and spread == 1.0))
    return Fits(parts, (Tail().log_density(seen), Tail().log_density(u)), train.n, train.d)


def nlpd(fits: Fits, parts: list[Option], weights: FloatArray, tail: float) -> float:
    tail = max(tail, MIN_TAIL)
    with np.errstate(divide="ignore"):
        logs = np.log(np.append(weights / weights.sum() * (1 - tail), tail))
    densities = np.stack([*(part.test for part in parts), fits.tail[1]])
    return -float(logsumexp(densities + logs[:, None], axis=0).mean())


def stacking(fits: Fits, price: Callable[[Option], float], plainest: bool = False, steps: int = EM_STEPS) -> float:
    """Stacking with a price in nats of each part, of all parts or only of those with constant noise and a factor of one."""
    parts = [part for part in fits.parts if part.is_plainest or not plainest]
    columns = [part.loo - price(part) / fits.rows for part in parts]
    w = stacked(np.stack([*columns, fits.tail[0]], 1), steps)
    w = np.where(w < MIN_RELATIVE_WEIGHT * w[:-1].max(), 0.0, w)
    return nlpd(fits, parts, w[:-1], float(w[-1] / w.sum()))


def softmax(fits: Fits, score: Callable[[Option], float]) -> float:
    parts = [part for part in fits.parts if part.is_plainest]
    scores = np.array([score(part) for part in parts])
    return nlpd(fits, parts, np.exp(scores - scores.max()), 0.0)


def regressed(tables: list[Fits]) -> list[float]:
    """Stacking whose prices are the optimism of leave-one-out as a linear regression on other tables predicts it."""

    def features(fits: Fits, part: Option) -> list[float]:
        n, gap = fits.rows, float(part.loo.mean()) - part.likelihood / fits.rows
        return [1.0, part.parameters / n, part.effective / n, gap, fits.columns / n, np.log(n), float(part.loo.std())]

    fold, scores = np.random.default_rng(0).integers(0, _FOLDS, len(tables)), [0.0] * len(tables)
    for f in range(_FOLDS):
        pairs = [(t, p) for t, k in zip(tables, fold, strict=True) if k != f for p in t.parts if p.is_plainest]
        A = np.array([features(t, p) for t, p in pairs])
        b = np.clip([p.loo.mean() - p.test.mean() for _, p in pairs], -1.0, 1.0)
        scale = np.where(A.std(0) > 0, A.std(0), 1.0)
        c = np.linalg.solve((A / scale).T @ (A / scale) + 10 * np.eye(len(scale)), (A / scale).T @ b) / scale
        for i in np.flatnonzero(fold == f).tolist():
            t = tables[i]
            prices = [float(c @ features(t, p)) * t.rows for p in t.parts if p.is_plainest]  # one for each kernel
            scores[i] = stacking(t, partial(_price, prices))
    return scores


def _price(prices: list[float], part: Option) -> float:
    return prices[part.model]


WEIGHTINGS: dict[str, Callable[[Fits], float]] = {
    "stacking, a nat for each parameter (as it is)": lambda t: stacking(t, lambda p: p.parameters),
    "stacking, no penalty": lambda t: stacking(t, lambda p: 0.0),
    "stacking, half a nat": lambda t: stacking(t, lambda p: 0.5 * p.parameters),
    "stacking, two nats": lambda t: stacking(t, lambda p: 2.0 * p.parameters),
    "stacking, a nat for each effective parameter": lambda t: stacking(t, lambda p: p.effective),
    "stacking, 1.5 nats for each effective parameter": lambda t: stacking(t, lambda p: 1.5 * p.effective),
    "stacking, 40 steps of EM": lambda t: stacking(t, lambda p: p.parameters, steps=40),
    "stacking, constant noise and one spread": lambda t: stacking(t, lambda p: p.parameters, plainest=True),
    "evidence, constant noise and one spread": lambda t: softmax(t, lambda p: p.evidence),
    "BIC, constant noise and one spread": lambda t: softmax(
        t, lambda p: p.likelihood - 0.5 * p.parameters * float(np.log(t.rows))
    ),
    "equal weights, constant noise and one spread": lambda t: softmax(t, lambda p: 0.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the atlas")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--limit", type=int, help="only the first so many tables")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sources = atlas.sources(asked.data, asked.rows)[: asked.limit]
    tables = [fits_of(*atlas.split(source, asked.rows, asked.split)) for source in track(sources, "fitting")]
    scores = {name: [weighting(t) for t in tables] for name, weighting in WEIGHTINGS.items()}
    scores["stacking, optimism by regression"] = regressed(tables)
    reference = np.array(next(iter(scores.values())))
    print(f"| weights ({len(tables)} tables) | trimmed mean | mean | better / worse by 0.005 | worst table |")
    print("|---|---|---|---|---|")
    for name, values in scores.items():
        difference = np.sort(np.array(values) - reference)
        cut = len(difference) // 10
        trimmed = difference[cut : len(difference) - cut].mean()
        share = f"{(difference < -0.005).mean():.0%} / {(difference > 0.005).mean():.0%}"
        print(f"| {name} | {trimmed:+.4f} | {difference.mean():+.4f} | {share} | {difference[-1]:+.2f} |")


if __name__ == "__main__":
    main()
