"""Bayesian optimisation of functions with known optima: KITT's models against BoTorch's default, in the same loop.

Every method starts from the same 2 D + 3 points of a Sobol sequence, scrambled by the seed, and evaluates a given number of
further points, each where the logarithm of the expected improvement is largest; for a mixture, or a transformed target, that
is computed from draws, since the posterior is not normal. Simple regret is the true optimum minus the largest
true value among the points evaluated; with noise, methods see values with noise, and the incumbent is the largest posterior
mean.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from kitt.errors import InvalidInputError, MissingExtraError
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.bench.scores import mean_interval
from kitt_lab.bench.tables import Grid

FUNCTIONS: dict[str, tuple[str, dict[str, Any]]] = {  # class of botorch.test_functions, and its arguments
    "branin": ("Branin", {}),
    "hartmann3": ("Hartmann", {"dim": 3}),
    "hartmann6": ("Hartmann", {"dim": 6}),
    "ackley5": ("Ackley", {"dim": 5}),
    "levy4": ("Levy", {"dim": 4}),
    "rosenbrock4": ("Rosenbrock", {"dim": 4}),
    "griewank5": ("Griewank", {"dim": 5}),
    "styblinski4": ("StyblinskiTang", {"dim": 4}),
}
DEVELOPMENT: dict[str, tuple[str, dict[str, Any]]] = {  # on which choices may be made; not part of the results
    "camel": ("SixHumpCamel", {}),
    "michalewicz": ("Michalewicz", {"dim": 5}),
    "dixon4": ("DixonPrice", {"dim": 4}),
    "powell4": ("Powell", {"dim": 4}),
    "rastrigin3": ("Rastrigin", {"dim": 3}),
    "beale": ("Beale", {}),
}
METHODS = ("default", "kitt-once", "kitt-again", "kitt-mixture")
NOISE = 0.05  # standard deviation of the noise, over that of the function's values in its box
RESTARTS, RAW_SAMPLES = 2, 64  # of the acquisition function's optimisation, the same for all methods
_WITH_NOISE = " with noise"
_LEAST = 1e-6  # smaller regrets differ by the optimiser of the acquisition function, not by the model

Modeller = Callable[[Tensor, Tensor], Any]  # all points so far -> a model of BoTorch


def bo_cells(
    functions: Iterable[str], methods: Iterable[str], seeds: Iterable[int], evaluations: int, noises: Iterable[float]
) -> list[Cell]:
    cells = []
    wanted = [(f, noise, seed) for seed in seeds for noise in noises for f in functions]
    for function, noise, seed in wanted:
        if function not in FUNCTIONS | DEVELOPMENT:
            raise InvalidInputError(
                f"no function is called '{function}'; there are {', '.join(FUNCTIONS | DEVELOPMENT)}"
            )
        for method in methods:
            if method not in METHODS:
                raise InvalidInputError(f"no method is called '{method}'; there are {', '.join(METHODS)}")
            key = {"bench": "bo", "table": function, "noise": noise, "split": seed, "method": method}
            arguments = {
                "function": function,
                "noise": noise,
                "seed": seed,
                "method": method,
                "evaluations": evaluations,
            }
            cells.append(Cell({**key, "evaluations": evaluations}, optimise, arguments))
    _refuse_many_settings([cell.key for cell in cells])
    return cells


def optimise(function: str, noise: float, seed: int, method: str, evaluations: int) -> dict[str, Any]:
    """One run: simple regret at the start and after each evaluation, and the processor seconds of each model."""
    problem = _problem(function)
    bounds, start = problem.bounds.double(), 2 * problem.dim + 3
    generator = torch.Generator().manual_seed(seed)
    spread = _spread(problem)
    sobol = torch.quasirandom.SobolEngine(problem.dim, scramble=True, seed=seed).draw(start, dtype=torch.float64)
    X = bounds[0] + (bounds[1] - bounds[0]) * sobol
    true = problem(X).double()

    def observed(values: Tensor) -> Tensor:
        return values + noise * spread * torch.randn(values.shape, generator=generator, dtype=torch.float64)

    y, modeller = observed(true), _modeller(method, bounds, seed)
    regret, seconds, search = [float(problem.optimal_value - true.max())], [], []
    for step in range(evaluations):
        began = time.process_time()
        model = modeller(X, y.unsqueeze(-1))
        seconds.append(time.process_time() - began)
        began = time.process_time()
        candidate = _candidate(model, X, y, bounds, noise > 0, seed * 1000 + step)
        search.append(time.process_time() - began)
        value = problem(candidate).double()
        X, true, y = torch.cat([X, candidate]), torch.cat([true, value]), torch.cat([y, observed(value)])
        regret.append(float(problem.optimal_value - true.max()))
    return {
        "regret": [max(value, 0.0) for value in regret],
        "spread": spread,
        "model_seconds": float(np.mean(seconds[1:])),  # the first call also imports
        "search_seconds": float(np.mean(search[1:])),
    }


def _problem(function: str) -> Any:
    try:
        from botorch import test_functions
    except ImportError as error:
        raise MissingExtraError("botorch", "export", "Bayesian optimisation") from error
    name, arguments = (FUNCTIONS | DEVELOPMENT)[function]
    return getattr(test_functions, name)(negate=True, **arguments)


def _spread(problem: Any) -> float:
    """Standard deviation of the values at a thousand points of a Sobol sequence."""
    points = torch.quasirandom.SobolEngine(problem.dim, scramble=True, seed=0).draw(1024, dtype=torch.float64)
    low, high = problem.bounds.double()
    return float(problem(low + (high - low) * points).std())


def _modeller(method: str, bounds: Tensor, seed: int) -> Modeller:
    from kitt.interop.advisor import AdvisorConfig, KernelAdvisor
    from kitt.interop.botorch_default import default_model

    if method == "default":
        return lambda X, Y: default_model(X.numpy(), Y[:, 0].numpy(), bounds.numpy())
    growth = math.inf if method == "kitt-once" else AdvisorConfig.caption_growth
    config = AdvisorConfig(
        caption_growth=growth, caption_improbable=method != "kitt-once", whole=method == "kitt-mixture"
    )
    return KernelAdvisor(bounds, config, seed).model


def _candidate(model: Any, X: Tensor, y: Tensor, bounds: Tensor, noisy: bool, seed: int) -> Tensor:
    from botorch.acquisition.analytic import LogExpectedImprovement
    from botorch.acquisition.logei import qLogExpectedImprovement
    from botorch.optim.optimize import optimize_acqf
    from botorch.utils.sampling import manual_seed

    with warnings.catch_warnings(), manual_seed(seed):
        warnings.simplefilter("ignore")
        with torch.no_grad():
            best = model.posterior(X).mean.max() if noisy else y.max()
        is_mixture = len(getattr(model, "parts", ())) > 1 or is_transformed(model)
        acquisition = (qLogExpectedImprovement if is_mixture else LogExpectedImprovement)(model, best)
        return optimize_acqf(acquisition, bounds, q=1, num_restarts=RESTARTS, raw_samples=RAW_SAMPLES)[0].detach()


def is_transformed(model: Any) -> bool:
    """Whether a model of KITT is of a transformed target, so that its posterior is not normal."""
    return any(not part.warp.is_identity for part in getattr(model, "parts", ()))


# --- tables ----------------------------------------------------------------------------------------------------------


def bo_grids(lines: Sequence[Line], reference: str = "default") -> list[Grid]:
    """Final regret with intervals over seeds, differences to the default, mean ranks, and seconds; of no run, nothing."""
    runs = _runs(lines)
    if not runs:
        return []
    names = list(dict.fromkeys(method for by_method in runs.values() for method in by_method))
    return [_regret_grid(runs, names, reference), _rank_grid(runs, names, reference), _time_grid(lines, names)]


def _runs(lines: Sequence[Line]) -> dict[str, dict[str, dict[int, float]]]:
    """Final regret by function, method and seed; functions with noise are others."""
    runs: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    done = [line for line in lines if line["status"] == "ok" and line["key"].get("bench") == "bo"]
    _refuse_many_settings([line["key"] for line in done])
    for line in done:
        key = line["key"]
        name = key["table"] + (_WITH_NOISE if key["noise"] else "")
        runs[name][key["method"]][key["split"]] = max(line["result"]["regret"][-1], _LEAST)
    return runs


def _refuse_many_settings(keys: Sequence[Mapping[str, Any]]) -> None:
    """The tables distinguish noise from none only, and no budgets."""
    for what, values in (
        ("number of evaluations", {key["evaluations"] for key in keys}),
        ("level of noise, beside none", {key["noise"] for key in keys} - {0}),
    ):
        if len(values) > 1:
            told = ", ".join(f"{value:g}" for value in sorted(values))
            raise InvalidInputError(f"expected runs of one {what}, got {told}", "keep each in a file of its own")


def _regret_grid(runs: Mapping[str, Mapping[str, Mapping[int, float]]], names: Sequence[str], reference: str) -> Grid:
    rows = []
    for function, methods in runs.items():
        row = [f"{function} ({len(methods.get(reference, {}))})"]
        for name in names:
            values = methods.get(name, {})
            shared = [seed for seed in values if seed in methods.get(reference, {})]
            row.append(_cell(values, methods.get(reference, {}), shared, name == reference))
        rows.append(tuple(row))
    rows.append(
        ("all", *("" if name == reference else _gain(_function_gains(runs, name, reference)) for name in names))
    )
    title = (
        "Simple regret after the last evaluation, median over the seeds (their number); in brackets the mean logarithm "
        f"(base 10) less that of {reference}, with its 95 % interval over seeds: negative is better; last, over all runs, "
        "with an interval over functions, where one with and without noise counts once"
    )
    return Grid(title, ("function", *names), tuple(rows))


def _cell(values: Mapping[int, float], others: Mapping[int, float], shared: Sequence[int], is_reference: bool) -> str:
    if not values:
        return ""
    text = f"{np.median(list(values.values())):.2g}"
    if is_reference or not shared:
        return text
    return f"{text} ({_gain([math.log10(values[seed] / others[seed]) for seed in shared])})"


def _function_gains(runs: Mapping[str, Mapping[str, Mapping[int, float]]], name: str, reference: str) -> list[float]:
    """The mean of `_log_gains` of each function, with and without noise together, because such runs are alike."""
    by_function: dict[str, list[float]] = defaultdict(list)
    for function, methods in runs.items():
        by_function[_without_noise(function)] += _log_gains({function: methods}, name, reference)
    return [float(np.mean(gains)) for gains in by_function.values() if gains]


def _without_noise(function: str) -> str:
    return function.removesuffix(_WITH_NOISE)


def _log_gains(runs: Mapping[str, Mapping[str, Mapping[int, float]]], name: str, reference: str) -> list[float]:
    """Logarithms of regret less those of the reference, over all functions and seeds that both have."""
    pairs = [(methods.get(name, {}), methods.get(reference, {})) for methods in runs.values()]
    return [math.log10(own[seed] / other[seed]) for own, other in pairs for seed in own if seed in other]


def _gain(gains: Sequence[float]) -> str:
    return _mean(gains, "+.2f")


def _mean(values: Sequence[float], form: str) -> str:
    """Their mean with its 95 % interval, if there are several."""
    if len(values) < 2:
        return "".join(f"{value:{form}}" for value in values)
    mean, half = mean_interval(values)
    return f"{mean:{form}} ± {half:.2f}"


def _rank_grid(runs: Mapping[str, Mapping[str, Mapping[int, float]]], names: Sequence[str], reference: str) -> Grid:
    ranks: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for function, methods in runs.items():
        seeds = set.intersection(*(set(methods.get(name, {})) for name in names))
        for seed in seeds:
            for name, rank in zip(names, rankdata([methods[name][seed] for name in names]), strict=True):
                ranks[name][_without_noise(function)].append(float(rank))
    count = sum(map(len, ranks[names[0]].values())) if names else 0
    rows = []
    for name in names:
        gains = [] if name == reference else _log_gains(runs, name, reference)
        ahead = f"{sum(gain < 0 for gain in gains)} of {len(gains)}" if gains else ""
        rows.append((name, _mean([float(np.mean(own)) for own in ranks[name].values()], ".2f"), ahead))
    title = (
        f"Mean rank of the final regret over the {count} functions and seeds that all methods have, with its 95 % interval "
        f"over functions; and in how many runs it is smaller than that of {reference}"
    )
    return Grid(title, ("method", "rank", f"ahead of {reference}"), tuple(rows))


def _time_grid(lines: Sequence[Line], names: Sequence[str]) -> Grid:
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for line in lines:
        if line["status"] == "ok" and line["key"].get("bench") == "bo":
            result = line["result"]
            seconds[line["key"]["method"]].append((result["model_seconds"], result["search_seconds"]))
    rows = tuple((name, *(f"{np.median(part):.2f}" for part in zip(*seconds[name], strict=True))) for name in names)
    return Grid("Processor seconds per step, median over the runs", ("method", "model", "acquisition function"), rows)
