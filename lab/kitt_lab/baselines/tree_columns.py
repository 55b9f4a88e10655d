"""The grammar of a tree search with base kernels on single columns (Duvenaud et al. 2013): sums of products of any size.

Moves: add a base kernel, multiply a product or the whole sum by one, replace one. Fitted by ML-II, each child from its
parent's parameters and from random ones for the base kernel that is new.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from kitt.clock import Clock
from kitt.errors import FitError
from kitt.fitting.starts import Profile
from kitt.kernels.exact import log_marginal_likelihood
from kitt.table.dataset import Dataset
from kitt.table.table import Table
from kitt_lab.baselines.base import GaussianPredictive
from kitt_lab.baselines.exact import Covariance, StoppingRule, condition, covariance_matrix, maximise_likelihood
from kitt_lab.baselines.tree_search import Solved

KINDS = {  # number of parameters; the variance is that of the product
    "RBF": 1,  # log lengthscale
    "RQ": 2,  # log lengthscale, log alpha
    "Periodic": 2,  # log lengthscale, log period
    "Linear": 1,  # shift
}
_RESTARTS = 2
_ROWS = 150  # on which starts are compared


@dataclass(frozen=True, order=True)
class Leaf:
    """A base kernel on one column."""

    kind: str
    column: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}({self.name})"

    def __call__(self, a: Tensor, b: Tensor, p: Tensor) -> Tensor:
        """The covariance of unit variance between points with values a (N, 1) and b (M, 1) in this column."""
        tau = a - b.mT
        match self.kind:
            case "RBF":
                return torch.exp(-0.5 * (tau * torch.exp(-p[0])) ** 2)
            case "RQ":
                return (1 + 0.5 * (tau * torch.exp(-p[0])) ** 2 * torch.exp(-p[1])) ** -torch.exp(p[1])
            case "Periodic":
                return torch.exp(-0.5 * (torch.sin(math.pi * tau * torch.exp(-p[1])) * torch.exp(-p[0])) ** 2)
            case _:
                return (a - p[0]) * (b - p[0]).mT / (1 + p[0] ** 2)


Product = tuple[Leaf, ...]


@dataclass(frozen=True)
class Sum:
    """A sum of products, each sorted, in sorted order."""

    products: tuple[Product, ...]

    @classmethod
    def of(cls, *products: Product) -> Sum:
        return cls(tuple(sorted(tuple(sorted(product)) for product in products)))

    @property
    def size(self) -> int:
        """Free parameters: those of the leaves, a variance for each product, and the noise."""
        return sum(1 + sum(KINDS[leaf.kind] for leaf in product) for product in self.products) + 1

    def __str__(self) -> str:
        return " + ".join("*".join(map(str, product)) for product in self.products)

    def moves(self, leaves: list[Leaf]) -> Iterator[Sum]:
        for leaf in leaves:
            yield Sum.of(*self.products, (leaf,))
            for i, product in enumerate(self.products):
                rest = self.products[:i] + self.products[i + 1 :]
                yield Sum.of(*rest, (*product, leaf))
                yield from (Sum.of(*rest, (*product[:j], leaf, *product[j + 1 :])) for j in range(len(product)))
            if len(self.products) > 1:
                yield Sum.of(*((*product, leaf) for product in self.products))


class SumOfProducts(Covariance):
    """A sum as a kernel. Parameters: for each product log variance, then those of its leaves; then the noise."""

    def __init__(self, state: Sum) -> None:
        super().__init__(noise=0.1)
        self.state = state
        self.values = nn.Parameter(torch.zeros(state.size - 1, dtype=torch.float64))

    def forward(self, A: Tensor, B: Tensor) -> Tensor:
        total, place = A.new_zeros(()), 0
        for product in self.state.products:
            K, place = self.values[place].exp(), place + 1
            for leaf in product:
                one, size = slice(leaf.column, leaf.column + 1), KINDS[leaf.kind]
                K = K * leaf(A[..., one], B[..., one], self.values[place : place + size])
                place += size
            total = total + K
        return total


@dataclass(frozen=True)
class Columns:
    """The grammar on one table."""

    train: Dataset
    table: Table
    coarse_rows: Table
    profile: Profile
    leaves: tuple[Leaf, ...]
    seed: int

    @classmethod
    def of(cls, train: Dataset, max_rows: int, coarse_rows: int, seed: int) -> Columns:
        generator = torch.Generator().manual_seed(seed)
        table = Table.of(train).rows(max_rows, generator)
        coarse = table.rows(coarse_rows, generator)
        leaves = tuple(Leaf(kind, d, name) for kind in KINDS for d, name in enumerate(train.names))
        return cls(train, table, coarse, Profile.of(coarse.X, coarse.y, coarse.shortest, generator), leaves, seed)

    def roots(self) -> list[Sum]:
        return [Sum.of((leaf,)) for leaf in self.leaves]

    def children(self, state: Sum) -> list[Sum]:
        return list(dict.fromkeys(state.moves(list(self.leaves))))

    def coarse(self, state: Sum, parent: Solved | None, end: float) -> Solved | None:
        if time.time() > end:
            return None
        rows = self.coarse_rows.X[:_ROWS], self.coarse_rows.y[:_ROWS]
        starts = list(self._starts(state, parent))
        kernel, theta = SumOfProducts(state), min(starts, key=lambda theta: _loss(state, theta, *rows))
        return self._maximised(state, kernel, theta, self.coarse_rows, StoppingRule(40, 1e-4), end, is_final=False)

    def refine(self, solved: Solved, end: float) -> Solved | None:
        if time.time() > end:
            return None
        kernel, stopping = SumOfProducts(solved.state), StoppingRule(100, 1e-5)
        return self._maximised(solved.state, kernel, solved.theta, self.table, stopping, end, is_final=True)

    def _maximised(
        self,
        state: Sum,
        kernel: SumOfProducts,
        theta: Tensor,
        table: Table,
        stopping: StoppingRule,
        end: float,
        is_final: bool,
    ) -> Solved | None:
        vector_to_parameters(theta, kernel.parameters())
        try:
            loss = maximise_likelihood(kernel, table.X, table.y, stopping, Clock(end - time.time()))
        except FitError:
            return None
        likelihood, n = -loss * len(self.table.y), len(self.table.y)
        best = parameters_to_vector(kernel.parameters()).detach().clone()
        return Solved(state, best, likelihood, -2 * likelihood + state.size * math.log(n), is_final)

    def _starts(self, state: Sum, parent: Solved | None) -> Iterator[Tensor]:
        """The parent's numbers for what was there; for what is new, guesses and draws."""
        generator = torch.Generator().manual_seed(self.seed)
        known = {} if parent is None else _by_leaf(parent)
        noise = torch.tensor([math.log(0.1)]).double() if parent is None else parent.theta[:1]
        for restart in range(_RESTARTS + 1):
            values = []
            for product in state.products:
                variance = known.get(product, torch.zeros(1).double())
                values += [variance, *(known.get(leaf, self._guess(leaf, restart, generator)) for leaf in product)]
            yield torch.cat([noise, *values])

    def _guess(self, leaf: Leaf, restart: int, generator: torch.Generator) -> Tensor:
        """Data scales, then random ones around them."""
        spread = torch.randn(KINDS[leaf.kind], generator=generator, dtype=torch.float64) * restart
        period = math.log(float(self.profile.spectrum.periods[leaf.column]))
        centre = {"RBF": [0.5], "RQ": [0.5, 0.0], "Periodic": [0.0, period], "Linear": [0.0]}[leaf.kind]
        return torch.tensor(centre, dtype=torch.float64) + spread

    def predictive(self, solved: Solved) -> GaussianPredictive:
        kernel = SumOfProducts(solved.state)
        vector_to_parameters(solved.theta, kernel.parameters())
        table = Table.of(self.train)
        assert table.standardiser is not None
        return GaussianPredictive(table.standardiser, condition(kernel, table.X, table.y))


def _by_leaf(solved: Solved) -> dict[Any, Tensor]:
    """The numbers of each product (its log variance) and of each leaf; of leaves that occur twice, the first."""
    own_parts: dict[Any, Tensor] = {}
    place = 1  # after the noise
    for product in solved.state.products:
        own_parts[product] = solved.theta[place : place + 1]
        place += 1
        for leaf in product:
            own_parts.setdefault(leaf, solved.theta[place : place + KINDS[leaf.kind]])
            place += KINDS[leaf.kind]
    return own_parts


def _loss(state: Sum, theta: Tensor, X: Tensor, y: Tensor) -> float:
    kernel = SumOfProducts(state)
    vector_to_parameters(theta, kernel.parameters())
    try:
        return -float(log_marginal_likelihood(covariance_matrix(kernel, X), y))
    except FitError:
        return math.inf
