"""One log marginal likelihood with its gradient: ours, GPyTorch's with Cholesky forced, and the floor under both.

    python -m kitt_lab.bench.likelihood                      # a table: seconds, ratios, peak memory
    python -m kitt_lab.bench.likelihood --json               # the same as JSON lines
    python -m kitt_lab.bench.likelihood --cpu --threads 1    # processor time, for a machine that is busy with other things

D = 8, float64. Every cell runs in a fresh process with its own number of threads; a time is the best of the repeats,
and memory is the peak of the process above what it held before the evaluation (Linux only, from /proc). The floor is one
Cholesky and one inverse.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

D = 8
EXPRESSIONS = {"sum": "Linear*RBF + Matern52*Periodic + Matern32*RBF", "RBF": "RBF"}
TARGETS = {"sum": 4.0, "RBF": 2.0}  # how many times faster than GPyTorch we mean to be
LIBRARIES = ("kitt", "gpytorch", "floor")


@dataclass(frozen=True)
class Cell:
    kernel: str
    N: int
    threads: int
    library: str


# --- what is measured ------------------------------------------------------------------------------------------------


def problem(cell: Cell) -> tuple[Any, Any, Any, Any]:
    """Kernel, theta, X, y: the same numbers in every process."""
    import torch

    from kitt.kernels.grammar import parse
    from kitt.kernels.kernel import Kernel

    generator = torch.Generator().manual_seed(0)
    kernel = Kernel(parse(EXPRESSIONS[cell.kernel]), D)
    X, y, theta = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((cell.N, D), (cell.N,), (kernel.size,))
    )
    values = {name: v + 1.0 if name.endswith("lengthscale") else v for name, v in kernel.unflatten(0.3 * theta).items()}
    return kernel, kernel.flatten({**values, "noise": 0.1}), X, y


def kitt(cell: Cell) -> Callable[[], float]:
    from kitt.kernels.exact import Likelihood

    kernel, theta, X, y = problem(cell)
    likelihood = Likelihood(kernel, X, y)
    return lambda: float(likelihood.value_and_gradient(theta)[0])


def gpytorch(cell: Cell) -> Callable[[], float]:
    import gpytorch
    import torch
    from torch import Tensor

    kernel, theta, X, y = problem(cell)
    values = kernel.unflatten(theta)

    class ShiftedLinear(gpytorch.kernels.Kernel):
        """sum_d slope_d / (1 + shift_d²) (x_d − shift_d)(x'_d − shift_d)"""

        def __init__(self, slope: Tensor, shift: Tensor) -> None:
            super().__init__()
            self.log_slope, self.shift = torch.nn.Parameter(slope.log()), torch.nn.Parameter(shift)

        def forward(self, a: Tensor, b: Tensor, diag: bool = False, **_: Any) -> Tensor:
            weight = self.log_slope.exp() / (1 + self.shift**2)
            left, right = (a - self.shift) * weight, b - self.shift
            return (left * right).sum(-1) if diag else left @ right.mT

    def factor(name: str, prefix: str) -> gpytorch.kernels.Kernel:
        if name == "Linear":
            return ShiftedLinear(values[f"{prefix}.slope"], values[f"{prefix}.shift"])
        k = gpytorch.kernels
        if name == "Periodic":  # its lengthscale is 4 of our squared ones
            made = k.PeriodicKernel(ard_num_dims=D).double()
            made.period_length, made.lengthscale = values[f"{prefix}.period"], 4 * values[f"{prefix}.lengthscale"] ** 2
            return made
        made = k.RBFKernel(ard_num_dims=D) if name == "RBF" else k.MaternKernel(int(name[-2]) / 2, ard_num_dims=D)
        made = made.double()
        made.lengthscale = values[f"{prefix}.lengthscale"]
        return made

    def word(text: str) -> gpytorch.kernels.Kernel:
        first, *rest = (factor(name, f"{text}[{i}]") for i, name in enumerate(text.split("*")))
        product = first * rest[0] if rest else first
        if f"{text}.variance" not in values:
            return product
        scaled = gpytorch.kernels.ScaleKernel(product).double()
        scaled.outputscale = values[f"{text}.variance"]
        return scaled

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood().double())
            self.mean_module = gpytorch.means.ZeroMean()
            words = [word(str(w)) for w in kernel.expression]
            self.covar_module = words[0] if len(words) == 1 else gpytorch.kernels.AdditiveKernel(*words)

        def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().train()
    model.likelihood.noise = values["noise"]
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def evaluate() -> float:
        model.zero_grad()
        with (
            gpytorch.settings.fast_computations(False, False, False),
            gpytorch.settings.max_cholesky_size(10**6),
        ):
            value = objective(model(X), y) * cell.N
            value.backward()
        return float(value.detach())

    return evaluate


def floor(cell: Cell) -> Callable[[], float]:
    """One Cholesky and one inverse, by whichever of the two LAPACKs at hand is the faster."""
    import torch
    from scipy.linalg import lapack

    kernel, theta, X, _ = problem(cell)
    K = kernel.matrix(theta, X) + torch.diag(kernel.noise(theta, X))

    def ours() -> None:
        torch.cholesky_inverse(torch.linalg.cholesky_ex(K)[0])

    def scipys() -> None:
        lapack.dpotri(lapack.dpotrf(K.numpy().T, lower=0, overwrite_a=0, clean=0)[0], lower=0, overwrite_c=1)

    faster = min((ours, scipys), key=lambda f: min(timed(f, time.process_time)[0] for _ in range(3)))
    return lambda: float(faster() or 0.0)


# --- measuring -------------------------------------------------------------------------------------------------------


def timed(f: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, Any]:
    start = clock()
    result = f()
    return clock() - start, result


def resident_mb(field: str) -> float:
    """VmRSS, the memory held now, or VmHWM, its highest mark."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) / 1024


def measure(cell: Cell, repeats: int, clock: Callable[[], float]) -> dict[str, Any]:
    import torch

    torch.set_num_threads(cell.threads)
    make = {"kitt": kitt, "gpytorch": gpytorch, "floor": floor}[cell.library]
    make(Cell(cell.kernel, 50, cell.threads, cell.library))()  # load every library first
    evaluate = make(cell)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark starts again from here (man 5 proc)
    before = resident_mb("VmRSS")
    first, value = timed(evaluate, clock)
    peak = resident_mb("VmHWM") - before
    seconds = min([first, *(timed(evaluate, clock)[0] for _ in range(repeats - 1))])
    return {**asdict(cell), "value": value, "seconds": seconds, "peak_mb": peak}


def in_fresh_process(cell: Cell, flags: list[str]) -> dict[str, Any]:
    threads = {f"{name}_NUM_THREADS": str(cell.threads) for name in ("OMP", "MKL", "OPENBLAS")}
    command = [sys.executable, __file__, *flags, "--cell", json.dumps(asdict(cell))]
    done = subprocess.run(command, env={**os.environ, **threads}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


# --- printing --------------------------------------------------------------------------------------------------------


def compare(kernel: str, N: int, threads: int, flags: list[str]) -> dict[str, Any]:
    ours, theirs, least = (in_fresh_process(Cell(kernel, N, threads, library), flags) for library in LIBRARIES)
    return {
        "kernel": kernel,
        "N": N,
        "threads": threads,
        "seconds": {m["library"]: m["seconds"] for m in (ours, theirs, least)},
        "peak_mb": {m["library"]: m["peak_mb"] for m in (ours, theirs)},
        "times_faster": theirs["seconds"] / ours["seconds"],
        "target": TARGETS[kernel],
        "times_floor": ours["seconds"] / least["seconds"],
        "memory_share": ours["peak_mb"] / theirs["peak_mb"],
        "difference": abs(ours["value"] / theirs["value"] - 1),
    }


HEADER = (
    f"{'kernel':6} {'N':>5} {'threads':>7} {'kitt s':>8} {'gpytorch s':>10} {'faster':>7} {'target':>6} "
    f"{'/ floor':>7} {'kitt MB':>8} {'gpytorch MB':>11} {'share':>6} {'difference':>10}"
)


def line(row: dict[str, Any]) -> str:
    s, mb = row["seconds"], row["peak_mb"]
    return (
        f"{row['kernel']:6} {row['N']:5} {row['threads']:7} {s['kitt']:8.3f} {s['gpytorch']:10.3f} "
        f"{row['times_faster']:6.1f}x {row['target']:5.0f}x {row['times_floor']:7.1f} {mb['kitt']:8.0f} "
        f"{mb['gpytorch']:11.0f} {row['memory_share']:6.2f} {row['difference']:10.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 1800])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="processor time instead of time on the wall")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of the table")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        clock = time.process_time if options.cpu else time.perf_counter
        print(json.dumps(measure(Cell(**json.loads(options.cell)), options.repeats, clock)))
        return
    flags = ["--repeats", str(options.repeats), *(["--cpu"] if options.cpu else [])]
    if not options.json:
        print(HEADER, flush=True)
    for threads in options.threads:
        for kernel in EXPRESSIONS:
            for N in options.sizes:
                row = compare(kernel, N, threads, flags)
                print(json.dumps(row) if options.json else line(row), flush=True)


if __name__ == "__main__":
    main()
