"""Which rows to observe next: those that are expected to reduce the variance of the mean most, over a table.

The variance of a GP after an observation does not depend on what is observed, so the expectation is exact (Cohn, 1996). Of
a mixture it is the average over the kernels; what they disagree about is not counted, because it depends on what is seen.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kitt.model.surface import Surface
from kitt.table.scaling import FloatArray


def most_informative(
    surface: Surface, candidates: Tensor, over: Tensor, count: int
) -> tuple[NDArray[np.intp], FloatArray]:
    """Positions of a batch of candidates, chosen one after the other, and by what share each reduces the variance.

    The share is that of the variance of the functions, integrated over the points `over`, before anything is observed.
    """
    mixture, points = surface.mixture, torch.cat([candidates, over])
    noise = surface.noise_variance(candidates).numpy()
    covariances = [mixture.function(k, points)[1].numpy() for k in surface.used]
    M = len(candidates)
    whole = sum(w * np.trace(C[M:, M:]) for w, C in zip(surface.weights, covariances, strict=True))
    chosen: list[int] = []
    gains: list[float] = []
    for _ in range(count):
        total = np.zeros(M)
        for w, C in zip(surface.weights, covariances, strict=True):
            total += w * np.square(C[M:, :M]).sum(0) / np.maximum(np.diag(C)[:M] + noise, 1e-300)
        total[chosen] = -np.inf
        best = int(total.argmax())
        chosen.append(best)
        gains.append(float(total[best] / max(whole, 1e-300)))
        covariances = [C - np.outer(C[best], C[best]) / max(C[best, best] + noise[best], 1e-300) for C in covariances]
    return np.array(chosen, np.intp), np.array(gains)
