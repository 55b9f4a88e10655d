"""What it costs to be wrong: the test density that each word loses on simulated tables, and a table of it for advice.

Errors are not alike: a word that is too flexible costs hundredths of a nat, one that is too rigid costs whole nats. So the
caption to try first is not the most probable one but the one with the least expected loss. `collect` fits every word to
simulated tables; `learn` regresses what each word loses there on the network's log-probabilities of all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from kitt.gp import Likelihood, Posterior
from kitt.grammar import WORDS, Expression, Word
from kitt.kernels import Kernel
from kitt.priors import Parameter, Preset, preset
from kitt.simulate import DEFAULT_DATA, Batch, simulate
from kitt.starts import FlatPrior

CAP = 3.0  # nats: a loss above this is a disaster, however large
BATCH, TEST = 16, 80  # tables of one seed, and test rows of each
SIZES, FEW = (40, 64, 100, 150, 250, 400), 100  # training rows; so many of them for most of a fit
RIDGE = 100.0  # of the regression, chosen by cross-validation
_FLOOR = 1e-4  # smaller probabilities are alike


def fit_batch(word: Word, X: Tensor, y: Tensor, prior: Preset, steps: int, generator: torch.Generator) -> Tensor:
    """MAP parameters (B, P) of one word for each of B data sets: on few rows from the best of some starts, then on all."""
    kernel = Kernel(Expression((word,)), X.shape[-1])
    flat, few = FlatPrior.of(prior, kernel), Likelihood(kernel, X[:, :FEW], y[:, :FEW])
    starts = torch.stack([_start(flat, len(X), generator, spread) for spread in (0.0, 0.5, 0.5, 0.5)])
    values = torch.stack([few.value(theta) + flat.log_density(theta) for theta in starts])
    theta = _climb(few, flat, starts[values.argmax(0), torch.arange(len(X))], steps, rate=0.15)
    return theta if X.shape[1] <= FEW else _climb(Likelihood(kernel, X, y), flat, theta, steps // 5, rate=0.05)


def _climb(likelihood: Likelihood, prior: FlatPrior, theta: Tensor, steps: int, rate: float) -> Tensor:
    """The best point of some steps of Adam, for each data set."""
    first, second = torch.zeros_like(theta), torch.zeros_like(theta)
    best, best_value = theta, torch.full(theta.shape[:1], -math.inf, dtype=theta.dtype)
    for step in range(1, steps + 1):
        value, gradient = likelihood.value_and_gradient(theta)
        value, gradient = value + prior.log_density(theta), gradient + prior.score(theta)
        best = torch.where((value > best_value)[:, None], theta, best)
        best_value = torch.maximum(best_value, value)
        first = 0.9 * first + 0.1 * gradient
        second = 0.95 * second + 0.05 * gradient.square()
        pace = rate * math.cos(0.5 * math.pi * step / (steps + 1))
        update = first / (1 - 0.9**step) / ((second / (1 - 0.95**step)).sqrt() + 1e-8)
        theta = (theta + pace * update).clamp(-12, 12)
    return best


def _start(prior: FlatPrior, batch: int, generator: torch.Generator, spread: float) -> Tensor:
    """The middle of the prior, (B, P), and so many of its deviations from it; what has a sign, never at zero."""
    parts = []
    for slot, distribution in prior.slots:
        normal = torch.randn(batch, slot.size, generator=generator, dtype=torch.float64)
        if slot.parameter.is_signed:
            scale = 0.5 if slot.parameter is Parameter.FREQUENCY else 1.0
            parts.append(normal * scale * max(spread, 0.2) / math.sqrt(slot.size))
        else:
            parts.append(getattr(distribution, "mu", 0.0) + normal * spread * getattr(distribution, "sigma", 1.0))
    return torch.cat(parts, -1)


def measure(batch: Batch, train: int, generator: torch.Generator, steps: int = 60, prior: str = "default") -> Tensor:
    """Test NLPD of all words on each data set of a batch, (B, V): fitted on the first `train` points, tested on the rest."""
    X, y = batch.X.double(), batch.y.double()
    scores = []
    for word in WORDS:
        theta = fit_batch(word, X[:, :train], y[:, :train], preset(prior), steps, generator)
        posterior = Posterior.fit(Kernel(Expression((word,)), X.shape[-1]), theta, X[:, :train], y[:, :train])
        mean, variance = posterior.predict(X[:, train:])
        scores.append(0.5 * ((y[:, train:] - mean) ** 2 / variance + variance.log() + math.log(2 * math.pi)).mean(1))
    return torch.stack(scores, 1)


def tables(seed: int, n: int | None = None) -> tuple[Batch, int]:
    """The simulated tables of a seed, and how many of their rows are for training: `n`, or some."""
    generator = torch.Generator().manual_seed(seed)
    drawn = SIZES[int(torch.randint(len(SIZES), (1,), generator=generator))]
    n = drawn if n is None else n
    d = int(torch.randint(1, 11, (1,), generator=generator))
    return simulate(DEFAULT_DATA, BATCH, n + TEST, d, generator), n


def collect(file: Path, seeds: range, *, steps: int = 40, progress: Callable[[int], None] | None = None) -> None:
    """Append to `file` a JSON line for each seed that it lacks: the test NLPD of every word on every table of the seed."""
    known = {line["seed"] for line in read(file)}
    for seed in seeds:
        if seed not in known:
            batch, n = tables(seed)
            nlpd = measure(batch, n, torch.Generator().manual_seed(seed), steps)
            line = {
                "seed": seed,
                "n": n,
                "d": batch.X.shape[-1],
                "nlpd": [[round(v, 4) for v in row] for row in nlpd.tolist()],
            }
            with file.open("a") as out:
                out.write(json.dumps(line) + "\n")
        if progress is not None:
            progress(seed)


def read(file: Path) -> list[dict]:
    """The complete lines of a corpus."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]


def regrets(nlpd: Tensor) -> Tensor:
    """Loss of each word against the best one, capped: (B, V)."""
    return (nlpd - nlpd.amin(1, keepdim=True)).nan_to_num(CAP, CAP, CAP).clamp_max(CAP)


def features(probabilities: Tensor) -> Tensor:
    return (probabilities.double() + _FLOOR).log()


def expected(table: Tensor, probabilities: Tensor) -> Tensor:
    """Expected loss of choosing each word, (..., V), from the probabilities (..., V) of all of them.

    A word that is probably the truth cannot be expected to lose much, whatever the regression says.
    """
    regressed = features(probabilities) @ table[:-1].double() + table[-1].double()
    return torch.minimum(regressed, CAP * (1 - probabilities.double()))


def learn(probabilities: Tensor, regret: Tensor, ridge: float = RIDGE) -> Tensor:
    """The table (V + 1, V) of `expected`, its last row the constants: regret (B, V) regressed on log-probabilities."""
    F = features(probabilities)
    centre, scale, mean = F.mean(0), F.std(0).clamp_min(1e-3), regret.double().mean(0)
    Z = (F - centre) / scale
    gram = Z.mT @ Z + ridge * torch.eye(Z.shape[1], dtype=torch.float64)
    slopes = torch.linalg.solve(gram, Z.mT @ (regret.double() - mean)) / scale[:, None]
    return torch.cat([slopes, (mean - centre @ slopes)[None]])


def surprises(probabilities: Tensor, regret: Tensor, count: int = 128, folds: int = 7, ridge: float = RIDGE) -> Tensor:
    """By how much the losses of all words differ from what was expected, (count, V): of tables not learned from."""
    fold = torch.arange(len(regret)) // BATCH % folds
    out = torch.zeros_like(regret, dtype=torch.float64)
    for k in range(folds):
        if (fold == k).any() and (fold != k).any():
            table = learn(probabilities[fold != k], regret[fold != k], ridge)
            out[fold == k] = regret[fold == k].double() - expected(table, probabilities[fold == k])
    out = out[torch.linspace(0, len(out) - 1, min(count, len(out))).long()]
    return out - out.mean(0)
