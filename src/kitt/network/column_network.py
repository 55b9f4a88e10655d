"""The network that says what each column does: encodings and statistics of columns, pairs and table -> logits.

It reads the encodings of the paper's network, which it does not change, and the statistics of `column_features`. Blocks of
attention over columns see which pairs seem to act together. Logits move with their columns; those of pairs are symmetric.

Shapes: B tables, D columns, E width, H heads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from kitt.network.column_features import ColumnFeatures
from kitt.network.network import Normaliser, StemOutput, dense, layer_norm

KINDS = ("nothing", "line", "curve", "smooth", "rough", "wave", "levels")  # of what a function does along a column
ARRANGEMENTS = (
    "sum",
    "pairs",
    "all orders",
    "joint",
)  # sets of columns that act together: of one, of two, of more, of all
NOISES = ("none", "constant", "changing")


@dataclass(frozen=True, kw_only=True)
class ColumnConfig:
    """The sizes of the network, and of what it reads and says."""

    column_size: int
    pair_size: int
    whole_size: int
    width: int = 48
    heads: int = 4
    blocks: int = 2

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Inputs:
    """What the network reads of a batch of tables."""

    columns: Tensor  # (B, D, column_size)
    pairs: Tensor  # (B, D, D, pair_size)
    whole: Tensor  # (B, whole_size)

    @classmethod
    def of(cls, seen: StemOutput, features: ColumnFeatures) -> Inputs:
        columns = torch.cat([features.columns, seen.roughness.unsqueeze(-1), seen.encodings], -1)
        return cls(columns, features.pairs, torch.cat([features.whole, seen.noise.unsqueeze(-1)], -1))


@dataclass(frozen=True)
class Logits:
    """What the network says of a batch of tables."""

    kinds: Tensor  # (B, D, KINDS)
    pairs: Tensor  # (B, D, D), symmetric
    arrangement: Tensor  # (B, ARRANGEMENTS)
    noise: Tensor  # (B, NOISES)
    rough: Tensor  # (B,)


class PairBlock(nn.Module):
    """A pre-norm block over columns whose attention has a bias for each pair; pairs are updated from their columns."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_dense, self.norm_pair = (layer_norm(width) for _ in range(3))
        self.project, self.bias, self.join = dense(width, width, maps=3), dense(width, heads), dense(width, width)
        self.dense = nn.Sequential(dense(width, 2 * width), nn.GELU(), dense(2 * width, width))
        self.from_columns, self.pair = dense(width, width), nn.Sequential(nn.GELU(), dense(width, width))

    def forward(self, Z: Tensor, P: Tensor) -> tuple[Tensor, Tensor]:
        """Columns Z (B, 1 + D, E), of which the first is the whole table, and pairs P (B, D, D, E)."""
        B, T, E = Z.shape
        Q, K, V = self.project(self.norm_attention(Z)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = F.pad(self.bias(P).permute(0, 3, 1, 2), (1, 0, 1, 0))
        mixed = F.scaled_dot_product_attention(Q, K, V, attn_mask=bias)
        Z = Z + self.join(mixed.transpose(1, 2).reshape(B, T, E))
        Z = Z + self.dense(self.norm_dense(Z))
        one = self.from_columns(Z[:, 1:])
        return Z, P + self.pair(
            self.norm_pair(P) + one.unsqueeze(1) + one.unsqueeze(2) + one.unsqueeze(1) * one.unsqueeze(2)
        )


class ColumnNetwork(nn.Module):
    def __init__(self, config: ColumnConfig) -> None:
        super().__init__()
        self.config, width = config, config.width
        sizes = (config.column_size, config.pair_size, config.whole_size)
        self.normalise = nn.ModuleList(Normaliser(size) for size in sizes)
        self.embed = nn.ModuleList(
            nn.Sequential(dense(size, hidden), nn.GELU(), dense(hidden, width))
            for size, hidden in zip(sizes, (2 * width, width, width), strict=True)
        )
        self.blocks = nn.ModuleList(PairBlock(width, config.heads) for _ in range(config.blocks))
        self.norm_columns, self.norm_pairs = layer_norm(width), layer_norm(width)
        self.kinds, self.pairs = dense(width, len(KINDS)), dense(width, 1)
        self.whole = dense(3 * width, len(ARRANGEMENTS) + len(NOISES) + 1)

    def forward(self, inputs: Inputs) -> Logits:
        columns, P, whole = (
            embed(normalise(part))
            for embed, normalise, part in zip(
                self.embed, self.normalise, (inputs.columns, inputs.pairs, inputs.whole), strict=True
            )
        )
        Z = torch.cat([whole.unsqueeze(1), columns + whole.unsqueeze(1)], 1)
        for block in self.blocks:
            Z, P = block(Z, P)
        Z, P = self.norm_columns(Z), self.norm_pairs(P)
        D = P.shape[1]
        apart = ~torch.eye(D, dtype=torch.bool)
        pooled = torch.cat([Z[:, 0], Z[:, 1:].amax(1), (P * apart[..., None]).amax((1, 2))], -1)
        arrangement, noise, rough = self.whole(pooled).split([len(ARRANGEMENTS), len(NOISES), 1], -1)
        pairs = self.pairs(P + P.transpose(1, 2)).squeeze(-1)  # the sum is symmetric to the last digit
        return Logits(self.kinds(Z[:, 1:]), pairs, arrangement, noise, rough.squeeze(-1))

    def measure(self, inputs: list[Inputs]) -> None:
        """Set the normalisers from tables."""
        for normaliser, name in zip(self.normalise, ("columns", "pairs", "whole"), strict=True):
            parts = [getattr(some, name) for some in inputs]
            cast(Normaliser, normaliser).measure(torch.cat([part.reshape(-1, part.shape[-1]) for part in parts]))
