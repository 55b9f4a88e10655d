"""Simulated tables of random functions with labels: columns and rows, inputs, active columns, noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kitt.network.column_network import NOISES
from kitt_lab.columns.formulas import TRAINING, Array, Mixture, Random, draw_function
from kitt_lab.columns.labels import APART, NOTHING, labels_of
from kitt_lab.simulate import standardise, tabular_inputs
from kitt_lab.world import real_inputs

_LABEL_ROWS = 128  # further rows, over which functions are standardised and labels computed
_NO_SIGNAL = 0.04  # share of the tables whose target is noise
_CLEAN = 0.34  # share without noise
_CHANGING = 0.25  # share of the others whose noise changes along a column


@dataclass(frozen=True)
class WorldConfig:
    """Which functions, which inputs, and how much noise."""

    mixture: Mixture = TRAINING
    tables: str | None = None  # folder of CSV files whose rows and columns are the inputs of a third of the tables
    noise: tuple[float, float] = (1e-4, 6.0)  # variance relative to the signal's, log-uniform, where there is noise
    clean: float = _CLEAN
    no_signal: float = _NO_SIGNAL


@dataclass(frozen=True)
class Tables:
    """Simulated tables of equal size, standardised, and what their columns do."""

    X: Tensor  # (B, N, D) float32
    y: Tensor  # (B, N) float32
    kinds: Tensor  # (B, D) places in KINDS
    effects: Tensor  # (B, D) total effect of each column, a share of the signal's variance
    joint: Tensor  # (B, D, D) joint effects of pairs
    arrangement: Tensor  # (B,) places in ARRANGEMENTS; −1 without signal
    noise: Tensor  # (B,) places in NOISES
    share: Tensor  # (B,) of the noise in the variance

    @property
    def acts(self) -> Tensor:
        return self.kinds != 0

    @property
    def pairs(self) -> Tensor:
        return self.joint >= APART


def draw_size(random: Random) -> tuple[int, int]:
    """Rows, half of them at most 50, and columns; of more rows the network reads some only."""
    n = np.exp(random.uniform(*np.log((8, 50) if random.uniform() < 0.5 else (50, 280))))
    d = np.exp(random.triangular(*np.log((1, 6, 41))))
    return int(n), min(int(d), 40)


def draw_tables(config: WorldConfig, batch: int, n: int, d: int, seed: int) -> Tables:
    """Tables of n rows and d columns; a function of the arguments."""
    generator, random = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    rows = _inputs(config, batch, n + _LABEL_ROWS, d, generator)
    drawn = [_draw_table(config, one.numpy(), n, random) for one in rows]
    y = torch.from_numpy(np.stack([table.y for table in drawn]))
    tensors = (torch.from_numpy(np.stack([getattr(t, name) for t in drawn])) for name in ("kinds", "effects", "joint"))
    whole = (torch.tensor([getattr(t, name) for t in drawn]) for name in ("arrangement", "noise", "share"))
    return Tables(standardise(rows[:, :n], 1).float(), standardise(y, 1).float(), *tensors, *whole)


def _inputs(config: WorldConfig, batch: int, n: int, d: int, generator: torch.Generator) -> Tensor:
    """Standardised inputs: uniform, like tables, or rows of real tables, a third each."""
    real = batch // 3 if config.tables is not None else 0
    uniform = batch // 2 if config.tables is None else batch // 3
    parts = [
        (torch.rand(uniform, n, d, generator=generator, dtype=torch.float64) - 0.5) * 12**0.5,
        tabular_inputs(batch - real - uniform, n, d, generator),
    ]
    if real:
        parts.append(standardise(real_inputs(str(config.tables), real, n, d, generator), 1))
    return torch.cat(parts)[torch.randperm(batch, generator=generator)]


@dataclass(frozen=True)
class _Table:
    y: Array
    kinds: Array
    effects: Array
    joint: Array
    arrangement: int
    noise: int
    share: float


def _draw_table(config: WorldConfig, rows: Array, n: int, random: Random) -> _Table:
    """A target for the first n rows; all rows are those over which the labels are computed."""
    D = rows.shape[1]
    varying = [d for d in range(D) if rows[:n, d].std() > 1e-9]
    active = [] if random.uniform() < config.no_signal or not varying else _active(varying, random)
    sample = rows[random.permutation(len(rows))[:_LABEL_ROWS]]
    function = draw_function(config.mixture, sample, active, random)
    labels = labels_of(function, sample, active, random)
    signal = function(rows[:n])
    spread = max(float(function(rows).std()), 1e-9)
    is_noise = not (labels.effects >= NOTHING).any() or signal.std() < 1e-6 * spread
    if is_noise:
        signal, spread = np.zeros(n), 1.0
    clean = random.uniform() < config.clean and not is_noise
    variance = 0.0 if clean else float(np.exp(random.uniform(*np.log(config.noise))))
    deviation = np.sqrt(variance) * np.ones(n)
    kind = "none" if clean else "constant"
    if not clean and random.uniform() < _CHANGING:
        kind, deviation = "changing", deviation * _profile(rows[:n, random.choice(varying or [0])], random)
    noise = spread * deviation * random.normal(size=n)
    share = 1.0 if is_noise else variance / (1 + variance)
    kinds = np.where(is_noise, 0, labels.kinds)
    arrangement = -1 if is_noise else labels.arrangement
    return _Table(signal + noise, kinds, labels.effects, labels.joint, arrangement, NOISES.index(kind), share)


def _active(varying: list[int], random: Random) -> list[int]:
    """Columns of which the function is made: few of many."""
    most = min(len(varying), 12 if random.uniform() < 0.25 else 6)
    return [int(d) for d in random.choice(varying, random.integers(1, most + 1), replace=False)]


def _profile(x: Array, random: Random) -> Array:
    """How the deviation of the noise changes along a column: by a factor of three to ten from one end to the other."""
    t = np.clip(x, -2, 2) / 2 * random.choice([-1, 1])
    profile = np.exp(t * random.uniform(0.55, 1.15))
    return profile / np.sqrt(np.square(profile).mean())
