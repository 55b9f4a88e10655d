"""Time to a model: KITT's captions, fitted here and by GPyTorch through BoTorch, from the same starts.

Both maximise the likelihood of all training rows for each kernel, from the same number of starts. GPyTorch gets our starts,
the best guesses and draws by their likelihood on a hundred rows, and the time to find them does not count for it (with
`coarse`, not even that of our search on some of the rows); all our time counts. GPyTorch is stopped after `limit` seconds
from each start. scikit-learn fits RBF-ARD with starts of its own.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import FitError, MissingExtraError
from kitt.fitting.config import FitConfig
from kitt.fitting.objective import Objective
from kitt.fitting.optimise import CoarseSolutions, Solution
from kitt.fitting.starts import FlatPrior, extended, first
from kitt.kernels.exact import ExactPosterior
from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import Expression, parse
from kitt.kernels.kernel import Kernel
from kitt.kernels.priors import preset
from kitt.network.caption import caption
from kitt.table.table import Table
from kitt_lab.bench.datasets import Source, split
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.fits import fit_all

LIMIT = 120.0  # seconds of GPyTorch from one start; where it is reached, the ratio of times is a lower bound
SAME = 0.5  # solutions that differ by less than this many nats count as one start


def fit_cells(
    tables: Iterable[Source],
    model: str,
    k: int = 3,
    number: int = 0,
    starts: int = 2,
    coarse: bool = False,
    limit: float = LIMIT,
) -> list[Cell]:
    """A cell for each table with its first k captions, and one with RBF-ARD against scikit-learn."""
    cells = []
    for table in tables:
        train = split(table.load(), "paper", number).train
        said = [str(c.expression) for c in caption(train.X, train.y, k, network=model).ranked]
        for rival, expressions in (("gpytorch", said), ("sklearn", ["RBF"])):
            shared: dict[str, Any] = {"rival": rival, "expressions": expressions}
            shared |= {"starts": starts, "coarse": coarse, "limit": limit}
            key = {"bench": "fit", "table": table.name, "split": number, **shared}
            cells.append(Cell(key, compare, {"table": table, "number": number, **shared}))
    return cells


def compare(
    table: Source,
    number: int,
    rival: str,
    expressions: list[str],
    starts: int = 2,
    coarse: bool = False,
    limit: float = LIMIT,
) -> dict[str, Any]:
    data = split(table.load(), "paper", number).train
    config = FitConfig(objective="ml", starts=starts, trials=starts)
    ours, (models, failures) = _timed(lambda: fit_all(expressions, data, config, random_state=0))
    if failures:
        raise FitError("; ".join(map(str, failures)))
    rows = Table.of(data)
    if rival == "sklearn":
        theirs, values = _timed(lambda: [sklearn_fit(rows, starts)])
    else:
        points = coarse_solutions if coarse else starting_points
        begun = [(e, points(rows, e, config)) for e in map(_ordered, expressions)]
        theirs, fits = _timed(
            lambda: [[_timed(partial(gpytorch_fit, rows, e, t, limit)) for t in thetas] for e, thetas in begun]
        )
        values = [max(value for _, value in starts_) for starts_ in fits]
        theirs["stopped"] = [sum(clock["seconds"] >= limit for clock, _ in starts_) for starts_ in fits]
    return {
        "n": data.n,
        "d": data.d,
        "ours": {
            **ours,
            "lml": [m.log_marginal_likelihood for m in models],
            "converged": [m.converged for m in models],
        },
        "theirs": {**theirs, "lml": values},
    }


def _ordered(text: str) -> Expression:
    """Noise last, as our search adds it."""
    return Expression(tuple(sorted(parse(text).words, key=lambda word: word.is_noise)))


def _timed(work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    clock, cpu = time.perf_counter(), time.process_time()
    result = work()
    return {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}, result


def starting_points(table: Table, expression: Expression, config: FitConfig) -> Tensor:
    """The best of our guesses and draws by their likelihood on a hundred rows, (starts, P)."""
    coarse_fits, clock, words = CoarseSolutions(table, config, 0), Clock.unlimited(), expression.words
    generator, profile = coarse_fits.generator(expression), coarse_fits.profile(clock)
    guessed = first(words[0], profile)
    if len(words) > 1:
        head = coarse_fits.solutions(words[:-1], clock)[0].theta
        posterior = ExactPosterior.fit(
            Kernel(Expression(words[:-1]), table.X.shape[1]), head, coarse_fits.table.X, coarse_fits.table.y
        )
        residual = coarse_fits.table.y - posterior.leave_one_out().mean
        guessed = extended(head, words[-1], profile, residual, generator)
    prior = FlatPrior.of(preset(config.prior), Kernel(expression, table.X.shape[1]))
    objective = Objective(expression, coarse_fits.few, config)
    thetas = objective.clamp(torch.cat([guessed, prior.sample(config.draws, generator)]))
    return thetas[objective.scores(thetas, clock).argsort(descending=True)][: config.starts]


def coarse_solutions(table: Table, expression: Expression, config: FitConfig) -> Tensor:
    """What our search found on some of the rows, (S, P): different optima only."""
    distinct: list[Solution] = []
    for solution in CoarseSolutions(table, config, 0).solutions(expression.words, Clock.unlimited()):
        if all(abs(solution.value - other.value) > SAME for other in distinct):
            distinct.append(solution)
    return torch.stack([solution.theta for solution in distinct])


def gpytorch_fit(table: Table, expression: Expression, theta: Tensor, limit: float = LIMIT) -> float:
    """Log marginal likelihood after `fit_gpytorch_mll` with exact Cholesky factors.

    Where a line search fails, the best point so far is kept: BoTorch would start again four times from the same point.
    """
    try:
        from botorch.exceptions.errors import ModelFittingError
        from botorch.fit import fit_gpytorch_mll
        from gpytorch.mlls import ExactMarginalLogLikelihood
        from gpytorch.settings import fast_computations, max_cholesky_size
    except ImportError as error:
        raise MissingExtraError("botorch", "export", "comparing with GPyTorch") from error
    from kitt import export
    from kitt.export import botorch

    kernel = FittedKernel.from_theta(expression, theta, table.columns, table.target, None)
    noise = float(np.asarray(kernel.parameters["noise"]))
    model = botorch.gp(export.live(kernel, "botorch"), noise, table.X, table.y)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    with fast_computations(False, False, False), max_cholesky_size(10**6), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(ModelFittingError):  # it is then where it started
            patience = {"timeout_sec": limit}
            fit_gpytorch_mll(mll, max_attempts=1, warning_handler=lambda warning: True, optimizer_kwargs=patience)
        model.train()
        return float(mll(model(*model.train_inputs), model.train_targets)) * len(table.y)


def sklearn_fit(table: Table, starts: int) -> float:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    D = table.X.shape[1]
    kernel = ConstantKernel() * RBF(np.full(D, D**0.5), (1e-3, 1e4)) + WhiteKernel(0.1, (1e-6, 10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GaussianProcessRegressor(kernel, alpha=0.0, n_restarts_optimizer=starts - 1, random_state=0)
        return float(model.fit(table.X.numpy(), table.y.numpy()).log_marginal_likelihood_value_)


def summary(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """By table and rival: seconds of all its kernels together, the ratio, and how the likelihoods differ."""
    rows = []
    for line in lines:
        if line["status"] != "ok" or line["key"].get("bench") != "fit":
            continue
        ours, theirs = line["result"]["ours"], line["result"]["theirs"]
        gains = [mine - other for mine, other in zip(ours["lml"], theirs["lml"], strict=True)]
        row: dict[str, Any] = {key: line["key"][key] for key in ("table", "rival")} | {"kernels": len(gains)}
        for clock in ("seconds", "cpu_seconds"):
            row |= {f"our_{clock}": ours[clock], f"their_{clock}": theirs[clock]}
            row |= {f"ratio_of_{clock}": theirs[clock] / ours[clock]}
        rows.append(
            row
            | {
                "stopped": sum(theirs.get("stopped", [])),
                "worst_gain": min(gains),
                "better": sum(gain > 0 for gain in gains),
            }
        )
    return rows
