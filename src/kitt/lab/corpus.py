"""What it costs to choose a wrong word: a corpus of losses on simulated tables, and the regression that is learned from it.

`kitt bench costs` fits every word to simulated tables, half of them drawn from kernels and half from elsewhere (`foreign`),
as real ones are; `learn` regresses what each word loses there on the network's log-probabilities of all words. Captions are
ranked by the result (`network.ranking`).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.lab.foreign import foreign_table
from kitt.lab.simulate import DEFAULT_DATA, simulate
from kitt.network.ranking import DEFAULT, expected_loss, features

TEST = 80  # test rows of a table
SIZES = (64, 100, 150, 200, 300)  # training rows
WORLDS = {"prior": 10, "foreign": 14}  # where a table comes from, and how many columns it has at most
RIDGE = 2.0  # of the regression, for each table of the corpus: by cross-validation over it


def table(world: str, seed: int) -> tuple[Tensor, Tensor, int]:
    """The simulated table of a seed, (N, D) and (N,), and how many of its rows are for training; the rest is the test."""
    generator = torch.Generator().manual_seed(seed)
    n = SIZES[int(torch.randint(len(SIZES), (1,), generator=generator))]
    d = int(torch.randint(1, WORLDS[world] + 1, (1,), generator=generator))
    if world == "foreign":
        X, y = foreign_table(n + TEST, d, generator)
        return X.float(), y.float(), n
    batch = simulate(DEFAULT_DATA, 1, n + TEST, d, generator)
    return batch.X[0], batch.y[0], n


def read(file: Path) -> dict[tuple[str, int], Tensor]:
    """Test NLPD of all words (V,) by world and seed, from lines of `kitt bench costs`; what could not be fitted is NaN."""
    if not file.is_file():
        raise InvalidInputError(f"there is no file of costs {file}: make one with `kitt bench costs --out {file}`")
    lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.endswith("}"))
    try:
        good = [line for line in lines if line["status"] == "ok"]
        found = {(line["key"]["world"], line["key"]["seed"]): nlpd_of(line["result"]) for line in good}
    except (KeyError, TypeError, ValueError):
        found = {}
    if not found:
        raise InvalidInputError(f"{file} holds no costs: expected lines of `kitt bench costs`")
    return found


def nlpd_of(result: dict) -> Tensor:
    """Of one line, (V,)."""
    return torch.tensor([torch.nan if value is None else value for value in result["nlpd"]], dtype=torch.float64)


def regrets(nlpd: Tensor) -> Tensor:
    """Loss of each word against the best one, capped: (B, V)."""
    nlpd = nlpd.nan_to_num(torch.inf, torch.inf)
    return (nlpd - nlpd.amin(1, keepdim=True)).nan_to_num(DEFAULT.loss_cap).clamp_max(DEFAULT.loss_cap)


def learn(probabilities: Tensor, sizes: Tensor, regret: Tensor, ridge: float = RIDGE) -> Tensor:
    """The table (V + 3, V) of `expected_loss`, its last row the constants: regret (B, V) regressed on the features."""
    F = features(probabilities, sizes)
    centre, scale, mean = F.mean(0), F.std(0).clamp_min(1e-3), regret.double().mean(0)
    Z = (F - centre) / scale
    gram = Z.mT @ Z + ridge * len(Z) * torch.eye(Z.shape[1], dtype=torch.float64)
    slopes = torch.linalg.solve(gram, Z.mT @ (regret.double() - mean)) / scale[:, None]
    return torch.cat([slopes, (mean - centre @ slopes)[None]])


def loss_residuals(
    probabilities: Tensor, sizes: Tensor, regret: Tensor, folds: int = 7, ridge: float = RIDGE
) -> Tensor:
    """By how much the losses of all words differ from what was expected, (B, V): each table by what the others teach."""
    fold = torch.arange(len(regret)) % folds
    out = torch.zeros_like(regret, dtype=torch.float64)
    for k in range(folds):
        left, rest = fold == k, fold != k
        if left.any() and rest.any():
            table = learn(probabilities[rest], sizes[rest], regret[rest], ridge)
            out[left] = regret[left].double() - expected_loss(table, probabilities[left], sizes[left])
    return out - out.mean(0)
