"""Batched BFGS: many starts of one small problem are optimised together.

On a hundred rows, calling torch costs more than the arithmetic. Evaluating all starts in one call takes a third of the
time of optimising one start after the other. scipy has no batched optimiser.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Evaluate = Callable[
    [Tensor], tuple[Tensor, Tensor]
]  # (S, P) -> values (S,), -inf where there is none; gradients (S, P)

_ARMIJO = 1e-4  # Nocedal & Wright, eq. 3.4
_PATIENCE = 3  # steps that gain less than the tolerance, after which a start is given up; set by hand
_LONGEST = 2.0  # largest change of an unconstrained parameter in one step; set by hand


def ascend(
    evaluate: Evaluate,
    box: tuple[Tensor, Tensor],
    start: Tensor,
    H: Tensor,
    steps: int,
    tolerance: float,
    is_late: Callable[[], bool] = lambda: False,
) -> tuple[Tensor, Tensor]:
    """Maximise f from each row of `start` (S, P) within the box; return points and values after at most `steps` evaluations.

    `H` (S, P, P) approximates the inverse Hessian of −f at the starts. The ascent stops early when every start has had
    a few steps that gained less than the tolerance.
    """
    (low, high), x, (f, g) = box, start, evaluate(start)
    length, idle = torch.ones_like(f), torch.zeros_like(f)
    for _ in range(steps):
        d = _direction(H, g, (x <= low), (x >= high))
        slope = (d * g).sum(1)
        there = torch.minimum(torch.maximum(x + length[:, None] * d, low), high)
        f_there, g_there = evaluate(there)
        better = f_there > f + _ARMIJO * length * slope
        H = _update(H, there - x, g - g_there, better)
        idle = torch.where(better & (f_there - f > tolerance / _PATIENCE), 0.0, idle + (better | (length < 1e-3)))
        # A step that was too long is shortened to the maximum of the interpolating parabola (N&W eq. 3.57).
        shorter = (0.5 * length * slope / (f + length * slope - f_there)).nan_to_num(0.2).clamp(0.1, 0.5)
        length = torch.where(better, 1.0, length * shorter)
        f = torch.where(better, f_there, f)
        x, g = torch.where(better[:, None], there, x), torch.where(better[:, None], g_there, g)
        if (idle >= _PATIENCE).all() or is_late():
            break
    return x, f


def _direction(H: Tensor, g: Tensor, at_low: Tensor, at_high: Tensor) -> Tensor:
    """The quasi-Newton direction, or the gradient where that is no ascent direction, limited to the box and in length."""
    blocked = (at_low & (g < 0)) | (at_high & (g > 0))
    g = g.masked_fill(blocked, 0.0)
    d = (H @ g.unsqueeze(-1)).squeeze(-1).masked_fill(blocked, 0.0)
    d = torch.where(((d * g).sum(1) > 0)[:, None], d, g)
    return d * (_LONGEST / d.abs().amax(1, keepdim=True).clamp_min(_LONGEST))


def _update(H: Tensor, s: Tensor, y: Tensor, better: Tensor) -> Tensor:
    """The BFGS update, for the starts whose step was accepted and has positive curvature (N&W eq. 6.17)."""
    curvature = (s * y).sum(1)
    good = better & (curvature > 1e-10 * s.norm(dim=1) * y.norm(dim=1))
    rho = torch.where(good, 1 / curvature.clamp_min(1e-300), 0.0)[:, None, None]
    Hy = H @ y.unsqueeze(-1)  # (S, P, 1)
    s = s.unsqueeze(-1)
    cross = Hy @ s.mT
    return H - rho * (cross + cross.mT) + rho * (1 + rho * (y.unsqueeze(1) @ Hy)) * (s @ s.mT)
