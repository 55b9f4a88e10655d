"""The cost of one step of Bayesian optimisation: `KernelAdvisor` against a new fit of BoTorch's default model.

    python -m kitt_lab.bench.optimisation_step

Processor seconds, one thread, the two in turns in one process, on points of Branin, Hartmann 3 and Hartmann 6 that crowd
around the optimum as those of an optimisation do. A step has one more point than the step before; `steps` is the mean of
the advisor's over five in a row, and `caption` the step that runs the network, when the number of points has doubled.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

SIZES = (20, 50, 200)
STEPS = 5


def points(function: Any, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A third from a Sobol sequence, the others around the best of them, all mixed."""
    bounds = function.bounds.double()
    generator = torch.Generator().manual_seed(seed)
    first = torch.quasirandom.SobolEngine(function.dim, scramble=True, seed=seed).draw(count // 3, dtype=torch.float64)
    best = first[function(bounds[0] + (bounds[1] - bounds[0]) * first).argmax()]
    others = best + 0.1 * torch.randn(count - len(first), function.dim, generator=generator, dtype=torch.float64)
    unit = torch.cat([first, others.clamp(0, 1)])[torch.randperm(count, generator=generator)]
    X = bounds[0] + (bounds[1] - bounds[0]) * unit
    return X, function(X).double().unsqueeze(-1)


def seconds(what: Callable[[], Any]) -> float:
    began = time.process_time()
    what()
    return time.process_time() - began


def measured(function: Any, size: int, seed: int) -> tuple[float, float, float]:
    """Seconds of a step, of a step that runs the network, and of a fit of BoTorch's default model."""
    from kitt.interop.advisor import KernelAdvisor
    from kitt.interop.botorch_default import default_model

    X, Y = points(function, size + STEPS, seed)
    bounds = function.bounds.double()
    advisor, theirs, ours = KernelAdvisor(bounds), [], []
    caption = seconds(lambda: advisor.model(X[:size], Y[:size]))
    for n in range(size + 1, size + STEPS + 1):
        ours.append(seconds(partial(advisor.model, X[:n], Y[:n])))
        theirs.append(seconds(partial(default_model, X[:n].numpy(), Y[:n, 0].numpy(), bounds.numpy())))
    return statistics.mean(ours), caption, statistics.mean(theirs)


def main(sizes: Sequence[int] = SIZES, seeds: int = 2) -> None:
    from botorch.test_functions.synthetic import Branin, Hartmann

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    functions = [Branin(negate=True), Hartmann(3, negate=True), Hartmann(6, negate=True)]
    measured(functions[0], 20, 0)  # imports
    print(f"{'points':>6} {'default':>9} {'steps':>9} {'caption':>9}   ratios of steps and caption")
    for size in sizes:
        lines = [measured(function, size, seed) for function in functions for seed in range(seeds)]
        ours, caption, theirs = (statistics.mean(part) for part in zip(*lines, strict=True))
        print(
            f"{size:6d} {theirs:9.3f} {ours:9.3f} {caption:9.3f}   {ours / theirs:.2f} {caption / theirs:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
