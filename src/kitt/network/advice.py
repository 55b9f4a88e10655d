"""Prediction of the loss of each kernel on a table, learned from measured losses: tensors and integers only.

`advice_features` condenses the encodings of a table to one vector. From it, `AdviceHead` predicts scenarios of the loss of
any expression, given as the set of its words, in nats per row on unseen rows. `lab.advice` trains the head.

Shapes: B tables, F features, H hidden units, V words, C expressions, S scenarios.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kitt.network.network import Normaliser, dense

ROWS = (50, 300)  # of the tasks from which losses are learned; a larger table counts as one with the most rows


def advice_features(encodings: Tensor, log_p: Tensor, size: tuple[int, int], roughness: Tensor, noise: float) -> Tensor:
    """The feature vector (2 E + V + 8,) of one table.

    It is computed from the encodings (S, D, E) of subsets of the rows, the log-probabilities (V,) of the words, the numbers
    of rows and columns, the estimated inverse lengthscale (D,) of each column, and the estimated share of noise.
    """
    pooled = torch.cat([encodings.mean(1), encodings.amax(1)], -1).mean(0)
    rough = roughness.clamp_min(1e-6).log()
    spread = torch.stack([rough.mean(), rough.amin(), rough.amax(), rough.std(correction=0), rough.exp().sum().log()])
    rows, columns = size
    whole = torch.tensor([min(rows, ROWS[1]), columns, max(noise, 1e-6)]).log()
    return torch.cat([pooled, log_p.clamp_min(-9.0), spread, whole]).float()


@dataclass(frozen=True)
class AdviceConfig:
    features: int
    words: int
    hidden: int
    scenarios: int


class AdviceHead(nn.Module):
    """The square root of each word's loss is linear in the features and in a fixed random layer of them.

    The residuals of this prediction on left-out real tasks represent its uncertainty: each row of them, added to the
    prediction, is one scenario. Square roots are used because the errors of large losses are larger, and because a loss is
    not negative. For a sum of words, the root of the loss lies between the smallest and the mean of the words' roots, and
    every further word adds a penalty.
    """

    residuals: Tensor
    pull: Tensor
    price: Tensor
    cap: Tensor

    def __init__(self, config: AdviceConfig) -> None:
        super().__init__()
        self.normalise = Normaliser(config.features)
        self.hidden = dense(config.features, config.hidden)
        self.normalise_hidden = Normaliser(config.hidden)
        self.out = dense(config.features + config.hidden, config.words)
        self.register_buffer("residuals", torch.zeros(config.scenarios, config.words))
        self.register_buffer(
            "pull", torch.zeros(())
        )  # position of a sum between the mean and the smallest of its words
        self.register_buffer("price", torch.zeros(()))  # penalty of a further word
        self.register_buffer("cap", torch.ones(()))  # upper bound of the root

    def hidden_units(self, x: Tensor) -> Tensor:
        """Normalised features (B, F) -> (B, H)."""
        return self.hidden(x / x.shape[-1] ** 0.5).relu()

    def inner(self, features: Tensor) -> Tensor:
        """The regressors (B, F + H) of the roots; both parts have the same total scale, whatever their sizes."""
        x = self.normalise(features)
        h = self.normalise_hidden(self.hidden_units(x))
        return torch.cat([x / x.shape[-1] ** 0.5, h / h.shape[-1] ** 0.5], -1)

    def roots(self, features: Tensor) -> Tensor:
        """Features (B, F) -> expected root of the loss of each word (B, V)."""
        return self.out(self.inner(features))

    def combine(self, roots: Tensor, multi_hot: Tensor) -> Tensor:
        """Roots of words (..., V) and expressions (..., C, V) -> roots of the expressions (..., C)."""
        inside = multi_hot > 0
        count = inside.sum(-1).clamp_min(1)
        of_each = roots.unsqueeze(-2)
        mean = torch.where(inside, of_each, 0.0).sum(-1) / count
        least = torch.where(inside, of_each, torch.inf).amin(-1)
        return mean + self.pull * (least - mean) + self.price * (count - 1)

    def scenarios(self, features: Tensor, multi_hot: Tensor) -> Tensor:
        """Features (B, F) and expressions (C, V) -> scenarios of the losses, nats per row, (B, S, C)."""
        roots = self.roots(features).unsqueeze(1) + self.residuals  # (B, S, V)
        return self.combine(roots, multi_hot).clamp_min(0).minimum(self.cap).square()

    def forward(self, features: Tensor, multi_hot: Tensor) -> Tensor:
        """Features (B, F) and expressions (C, V) -> expected losses, nats per row, (B, C)."""
        return self.scenarios(features, multi_hot).mean(1)


def to_tensors(head: AdviceHead, prefix: str = "advice.") -> dict[str, Tensor]:
    """The tensors that a checkpoint stores."""
    return {prefix + key: value for key, value in head.state_dict().items()}


def from_tensors(tensors: Mapping[str, Tensor], prefix: str = "advice.") -> AdviceHead | None:
    """The head that a checkpoint holds, if it holds one."""
    state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    if not state:
        return None
    hidden, features = state["hidden.weight"].shape
    scenarios, words = state["residuals"].shape
    with torch.random.fork_rng(devices=[]):
        head = AdviceHead(AdviceConfig(features, words, hidden, scenarios))
    head.load_state_dict(state)
    return head.eval().requires_grad_(False)
