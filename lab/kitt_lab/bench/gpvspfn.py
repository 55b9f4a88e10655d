"""GPvsPFN: five functions of ten columns, beside the published figures of TabPFN-2.5 and of GP+.

The protocol of arXiv 2606.01427, as its repository kianswarehouse/GPvsPFN runs it: 5,000 test rows and twenty disjoint sets
of training rows out of one scrambled Sobol sequence; normal noise on both, a share of the test rows' deviation. RRMSE is the
RMSE over the deviation of the noisy test target, NIS the score of central 95 % intervals over the same; medians of twenty
runs are published (`gpvspfn.csv`). The draws have the order and the seed of that repository, so that the rows are the same.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources
from typing import Any

import numpy as np
import torch

from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray
from kitt_lab.bench.atlas import measured
from kitt_lab.bench.comparisons import TIMED, Results, by_method
from kitt_lab.bench.methods import Spec, method_cells
from kitt_lab.bench.metrics import relative_scores
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.bench.tables import Grid

BENCH = "gpvspfn"
COLUMNS, TEST_ROWS, RUNS, SEED = 10, 5000, 20, 42
SIZES, NOISES = (100, 400), (0.005, 0.05)
RIVAL = "TabPFN-2.5"  # whose published figures are counted against
CLEAR = 1.05  # ratio of medians from which BoTorch's default counts as better
MEASURES = {"rrmse": "RRMSE", "nis": "NIS"}


# --- the functions ---------------------------------------------------------------------------------------------------


def wing(X: FloatArray) -> FloatArray:
    """Weight of a light aircraft's wing (Forrester, Sobester and Keane 2008)."""
    area, fuel, aspect, sweep, pressure, taper, thickness, load, gross, paint = X.T
    cosine = np.cos(np.radians(sweep))
    structure = 0.036 * area**0.758 * fuel**0.0035 * (aspect / cosine**2) ** 0.6 * pressure**0.006 * taper**0.04
    return structure * (100 * thickness / cosine) ** -0.3 * (load * gross) ** 0.49 + area * paint


def ackley(X: FloatArray) -> FloatArray:
    distance, waves = np.sqrt((X**2).mean(axis=1)), np.cos(2 * np.pi * X).mean(axis=1)
    return -20 * np.exp(-0.2 * distance) - np.exp(waves) + 20 + np.e


def dixon_price(X: FloatArray) -> FloatArray:
    factors = np.arange(2, X.shape[1] + 1)
    return (X[:, 0] - 1) ** 2 + (factors * (2 * X[:, 1:] ** 2 - X[:, :-1]) ** 2).sum(axis=1)


def griewank(X: FloatArray) -> FloatArray:
    return (X**2).sum(axis=1) / 4000 - np.cos(X / np.sqrt(np.arange(1, X.shape[1] + 1))).prod(axis=1) + 1


def rosenbrock(X: FloatArray) -> FloatArray:
    return (100 * (X[:, 1:] - X[:, :-1] ** 2) ** 2 + (1 - X[:, :-1]) ** 2).sum(axis=1)


@dataclass(frozen=True)
class Function:
    """A function on a box; `test_first` and `shuffled_anew` tell in which order its rows were drawn."""

    name: str
    value: Callable[[FloatArray], FloatArray]
    low: tuple[float, ...]
    high: tuple[float, ...]
    test_first: bool = False
    shuffled_anew: bool = True


WING = ((150, 220, 6, -10, 16, 0.5, 0.08, 2.5, 1700, 0.025), (200, 300, 10, 10, 45, 1, 0.18, 6, 2500, 0.08))


def _cube(name: str, value: Callable[[FloatArray], FloatArray], low: float, high: float, anew: bool = True) -> Function:
    return Function(name, value, (low,) * COLUMNS, (high,) * COLUMNS, shuffled_anew=anew)


FUNCTIONS = {
    function.name: function
    for function in (
        Function("wing", wing, *WING, test_first=True, shuffled_anew=False),
        _cube("ackley", ackley, -5, 10, anew=False),
        _cube("dixon-price", dixon_price, -10, 10),
        _cube("griewank", griewank, -600, 600),
        _cube("rosenbrock", rosenbrock, -5, 10),
    )
}


def chosen(names: Iterable[str] | None) -> list[Function]:
    if unknown := [name for name in names or () if name not in FUNCTIONS]:
        raise InvalidInputError(f"no function is called {', '.join(unknown)}; there are {', '.join(FUNCTIONS)}")
    return [FUNCTIONS[name] for name in (FUNCTIONS if names is None else names)]


# --- the rows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Training rows of a run, and the deviation of the noise over that of the test rows."""

    rows: int
    noise: float

    def __post_init__(self) -> None:
        if self.rows < 10 or self.noise <= 0:
            raise InvalidInputError(
                f"expected at least 10 rows and a noise above 0, got {self.rows} rows and a noise of {self.noise:g}"
            )

    @property
    def rule(self) -> str:
        return f"{self.rows} rows, noise {self.noise:g}"


@dataclass(frozen=True, eq=False)
class Pool:
    """The training rows of all runs, in the order of the runs, and the test rows."""

    X: FloatArray
    y: FloatArray
    test_inputs: FloatArray
    test_target: FloatArray


@lru_cache(maxsize=4)
def pool(function: Function, setting: Setting) -> Pool:
    """Points, then noise of training rows, of test rows, then the order of the training rows, all from one seed."""
    count = RUNS * setting.rows
    generator = torch.Generator().manual_seed(SEED)
    if not function.test_first:  # there the sequence was scrambled from the same stream that the noise came from later
        torch.randint(2, (COLUMNS, torch.quasirandom.SobolEngine.MAXBIT), generator=generator)
        torch.randint(2, (COLUMNS,) + (torch.quasirandom.SobolEngine.MAXBIT,) * 2, generator=generator)
    unit = torch.quasirandom.SobolEngine(COLUMNS, scramble=True, seed=SEED).draw(count + TEST_ROWS).double().numpy()
    low, high = np.array(function.low), np.array(function.high)
    X = unit * (high - low) + low
    y = function.value(X)
    edge = TEST_ROWS if function.test_first else count
    parts = [(X[:edge], y[:edge]), (X[edge:], y[edge:])]
    (test_X, test_y), (train_X, train_y) = parts if function.test_first else parts[::-1]
    scale = setting.noise * float(np.std(test_y, ddof=1))
    train_y, test_y = (part + scale * _normal(len(part), generator) for part in (train_y, test_y))
    if function.shuffled_anew:
        generator.manual_seed(SEED)
    order = torch.randperm(count, generator=generator).numpy()
    return Pool(train_X[order], train_y[order], test_X, test_y)


def _normal(count: int, generator: torch.Generator) -> FloatArray:
    return torch.randn(count, generator=generator, dtype=torch.float64).numpy()


def run_rows(function: Function, setting: Setting, number: int) -> tuple[Dataset, Dataset]:
    """Training rows of run `number`, counted from 0, and the test rows."""
    if not 0 <= number < RUNS:
        raise InvalidInputError(f"the protocol has {RUNS} runs, counted from 0, got {number}")
    whole, part = pool(function, setting), slice(number * setting.rows, (number + 1) * setting.rows)
    names = [f"x{i + 1}" for i in range(COLUMNS)]
    train = Dataset.from_arrays(whole.X[part], whole.y[part], names, "target")
    return train, Dataset.from_arrays(whole.test_inputs, whole.test_target, names, "target")


# --- the cells -------------------------------------------------------------------------------------------------------


def gpvspfn_cells(
    functions: Iterable[Function], runs: Iterable[int], methods: Sequence[Spec], setting: Setting, seed: int = 0
) -> list[Cell]:
    work = partial(evaluate, setting=setting)
    return method_cells(BENCH, functions, runs, methods, setting.rule, seed, work)


def evaluate(table: Function, number: int, rule: str, spec: Spec, seed: int, setting: Setting) -> dict[str, Any]:
    train, test = run_rows(table, setting, number)
    collected = measured(spec, train, test, seed)
    return {**collected, **relative_scores(collected, test.y)}


# --- the tables ------------------------------------------------------------------------------------------------------

Medians = dict[str, dict[tuple[str, str], float]]  # method -> function and rule -> median over runs


@lru_cache
def published() -> dict[str, Medians]:
    """By measure, the published medians of twenty runs."""
    text = (resources.files("kitt_lab.bench") / "gpvspfn.csv").read_text(encoding="utf-8")
    collected: dict[str, Medians] = {measure: defaultdict(dict) for measure in MEASURES}
    for row in csv.DictReader(text.splitlines()):
        cell = row["function"], Setting(int(row["rows"]), float(row["noise"])).rule
        for measure in MEASURES:
            collected[measure][row["method"]][cell] = float(row[measure])
    return {measure: dict(methods) for measure, methods in collected.items()}


def medians(lines: Sequence[Line], measure: str) -> Medians:
    collected: Medians = defaultdict(dict)
    for rule in dict.fromkeys(line["key"]["rows"] for line in lines if line["key"].get("bench") == BENCH):
        for method, results in by_method(lines, rule, BENCH)[0].items():
            for name in dict.fromkeys(row[0] for row in results):
                collected[method][name, rule] = _median(results, name, measure)
    return dict(collected)


def _median(results: Results, name: str, measure: str) -> float:
    return float(np.median([result[measure] for row, result in results.items() if row[0] == name]))


def gpvspfn_grids(lines: Sequence[Line]) -> list[Grid]:
    """Medians by function and setting, and in how many of those settings others are better."""
    ours = {measure: medians(lines, measure) for measure in MEASURES}
    if not ours["rrmse"]:
        raise InvalidInputError("expected lines of kitt bench gpvspfn that have results, got none")
    runs = len({line["key"]["split"] for line in lines if line["key"].get("bench") == BENCH and line["status"] == "ok"})
    return [*(_median_grid(ours[measure], measure, runs) for measure in MEASURES), _count_grid(ours)]


def _median_grid(ours: Medians, measure: str, runs: int) -> Grid:
    every = {**ours, **published()[measure]}
    cells = sorted(dict.fromkeys(cell for collected in ours.values() for cell in collected), key=_order)
    title = (
        f"GPvsPFN, {MEASURES[measure]}: medians of at most {runs} runs; {', '.join(published()[measure])} as published"
    )
    texts = [(*cell, *(f"{every[m][cell]:.3f}" if cell in every[m] else "" for m in every)) for cell in cells]
    return Grid(title, ("function", "setting", *every), tuple(texts))


def _order(cell: tuple[str, str]) -> tuple[int, int, str]:
    return [*FUNCTIONS].index(cell[0]), int(cell[1].split()[0]), cell[1]


def _count_grid(ours: dict[str, Medians]) -> Grid:
    head = tuple(
        f"{text}: {who}"
        for text in MEASURES.values()
        for who in (f"{RIVAL} better", f"{TIMED} better by {CLEAR - 1:.0%}")
    )
    rows = []
    for method in ours["rrmse"]:
        texts = [
            _count(ours[measure][method], other, ratio)
            for measure in MEASURES
            for other, ratio in ((published()[measure][RIVAL], 1.0), (ours[measure].get(TIMED, {}), CLEAR))
        ]
        rows.append((method, *texts))
    return Grid("GPvsPFN: settings in which another is better, of those that both have", ("method", *head), tuple(rows))


def _count(own: dict[tuple[str, str], float], other: dict[tuple[str, str], float], ratio: float) -> str:
    shared = [cell for cell in own if cell in other]
    return f"{sum(own[cell] > ratio * other[cell] for cell in shared)} of {len(shared)}" if shared else ""
