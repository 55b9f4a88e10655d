"""Simulated series of several kinds, with the values to forecast and the structure that a forecast should report.

Constants of `kitt.forecast` are chosen on such series, and coverage beyond the end is measured on others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kitt.table.scaling import FloatArray

KINDS = ("trend and season", "two seasons", "step", "change point", "random walk", "growing season")
HORIZON = 24


@dataclass(frozen=True, eq=False)
class Simulated:
    """A simulated series: the observed values, the values to forecast, and the true structure."""

    kind: str
    seen: FloatArray
    future: FloatArray
    periods: tuple[int, ...] = ()
    change: int | None = None  # position of a step or a bend


def simulate(kind: str, rng: np.random.Generator, n: int = 144, horizon: int = HORIZON) -> Simulated:
    """One series of a kind, with noise; amplitudes, periods and positions are random."""
    return _MAKERS[kind](rng, n, horizon)


def _cut(kind: str, y: FloatArray, horizon: int, periods: tuple[int, ...] = (), change: int | None = None) -> Simulated:
    return Simulated(kind, y[:-horizon], y[-horizon:], periods, change)


def _season(rng: np.random.Generator, t: FloatArray, period: int, waves: int = 2) -> FloatArray:
    """A smooth shape of variance one."""
    total = np.zeros(len(t))
    for k in range(1, min(waves, period // 2) + 1):
        a, b = rng.normal(size=2) / k
        total += a * np.cos(2 * np.pi * k * t / period) + b * np.sin(2 * np.pi * k * t / period)
    return total / max(total.std(), 1e-9)


def _trend_and_season(rng: np.random.Generator, n: int, horizon: int) -> Simulated:
    t = np.arange(n + horizon, dtype=np.float64)
    period = int(rng.choice([4, 7, 12]))
    slope = rng.choice([-1, 1]) * rng.uniform(1, 6) / n
    y = slope * t + rng.uniform(0.5, 2) * _season(rng, t, period) + rng.uniform(0.1, 0.5) * rng.normal(size=len(t))
    return _cut("trend and season", y, horizon, (period,))


def _two_seasons(rng: np.random.Generator, n: int, horizon: int) -> Simulated:
    t = np.arange(n + horizon, dtype=np.float64)
    short, long = ((7, 30), (5, 21), (4, 26), (12, 42))[int(rng.integers(4))]
    y = rng.uniform(0.7, 1.5) * _season(rng, t, short) + rng.uniform(0.7, 1.5) * _season(rng, t, long)
    return _cut("two seasons", y + rng.uniform(0.1, 0.4) * rng.normal(size=len(t)), horizon, (short, long))


def _step(rng: np.random.Generator, n: int, horizon: int) -> Simulated:
    t = np.arange(n + horizon, dtype=np.float64)
    place = int(rng.uniform(0.3, 0.85) * n)
    y = rng.choice([-1, 1]) * rng.uniform(3, 8) * (t >= place) + rng.normal(size=len(t))
    return _cut("step", y, horizon, (), place)


def _change_point(rng: np.random.Generator, n: int, horizon: int) -> Simulated:
    t = np.arange(n + horizon, dtype=np.float64)
    place = int(rng.uniform(0.3, 0.8) * n)
    before, after = rng.uniform(-6, 6, size=2) / n
    if abs(after - before) < 5 / n:
        after = before + rng.choice([-1, 1]) * rng.uniform(5, 10) / n
    y = before * t + (after - before) * np.maximum(t - place, 0) + rng.uniform(0.1, 0.3) * rng.normal(size=len(t))
    return _cut("change point", y, horizon, (), place)


def _random_walk(rng: np.random.Generator, n: int, horizon: int) -> Simulated:
    y = np.cumsum(rng.normal(size=n + horizon)) + rng.uniform(0, 1) * rng.normal(size=n + horizon)
    return _cut("random walk", y, horizon)


def _growing_season(rng: np.random.Generator, n: int, horizon: int) -> Simulated:
    t = np.arange(n + horizon, dtype=np.float64)
    level = rng.uniform(1, 3) * t / n + rng.uniform(0.1, 0.4) * _season(rng, t, 12)
    return _cut("growing season", 100 * np.exp(level + 0.03 * rng.normal(size=len(t))), horizon, (12,))


_MAKERS: dict[str, Callable[[np.random.Generator, int, int], Simulated]] = {
    "trend and season": _trend_and_season,
    "two seasons": _two_seasons,
    "step": _step,
    "change point": _change_point,
    "random walk": _random_walk,
    "growing season": _growing_season,
}
