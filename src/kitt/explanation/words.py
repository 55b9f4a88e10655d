"""The signal words of a fitted GP, each with its own posterior.

A GP with a sum of kernels is a sum of GPs, and its posterior mean is the sum of theirs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kitt.fitting.gp import GP

_ENTRIES = 2**22  # of the covariance between training rows and others, worked on at once


class Words:
    """The signal words of a fitted GP: each posterior mean is k_w(basis, x)' alpha."""

    def __init__(self, model: GP) -> None:
        p = self.posterior = model.posterior
        self.basis = p.basis
        self.alpha = p.alpha
        self.places = [i for i, word in enumerate(p.kernel.expression) if not word.is_noise]  # in the expression
        self.here = p.kernel.terms(p.theta, self.basis)

    def mean(self, X: Tensor) -> Tensor:
        """The mean (n,) of all words together, at any number of points."""
        size = max(1, _ENTRIES // len(self.basis))
        return torch.cat([self.means(chunk).sum(0) for chunk in X.split(size)])

    def means(self, X: Tensor) -> Tensor:
        """The mean (W, n) of each word."""
        there = self.posterior.kernel.terms(self.posterior.theta, X)
        rows = [a.matrix(b).mT @ self.alpha for a, b in zip(self.here, there, strict=True)]
        return torch.stack(rows) if rows else X.new_zeros(0, len(X))

    def joint(self, X: Tensor) -> Tensor:
        """Joint posterior covariance (n, n) of all words together."""
        return self.posterior.covariance(X, False)

    def covariance(self, word: int, X: Tensor) -> Tensor:
        """Joint posterior covariance (n, n) of one of the words, which are counted without those of noise."""
        return self.posterior.component_covariance(self.places[word], X)
