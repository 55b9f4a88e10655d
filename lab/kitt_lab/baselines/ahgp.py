"""`ahgp`: amortised hyperparameters (Liu et al. 2020). A network reads a table and sets the kernel; none is fitted.

k(x, x') = Π_d Σ_m w_dm exp(−2π² v_dm τ_d²), weights summing to 1 in each dimension, noise variance fixed at 0.01.
The network is the original's, but narrower (64, not 256), half as deep, and without dropout, as no data set is seen
twice. It is trained on the original's synthetic data, except that half of the sets have more than its thirty points:

    kitt train --preset ahgp --hours 3 --out runs/ahgp [--resume]
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from kitt.errors import CheckpointError, InvalidInputError
from kitt.files import replacing
from kitt.kernels.exact import draw, log_marginal_likelihood
from kitt.network.checkpoint import code_version
from kitt.network.network import PaperEncoder, SelfAttention, dense, layer_norm
from kitt.table.dataset import Dataset
from kitt_lab.baselines.base import FittedMethod, GaussianPredictive, standardised
from kitt_lab.baselines.exact import Covariance, condition
from kitt_lab.train import Progress, RunFolder, TrainingBudget

NOISE = 0.01
_SCALE = 0.1  # of the inputs, standardised first
_COMPONENTS = 10
_FORMAT = "kitt-ahgp-1"
_FILE = "ahgp.safetensors"  # in the folder of a run
BUNDLED = Path(str(resources.files("kitt_lab") / "weights" / _FILE))


# --- kernel and network -----------------------------------------------------------------------------------------------


def mixture_product(log_v: Tensor, w: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Π_d Σ_m w_dm exp(−2π² v_dm τ_d²): log_v and w (..., D, M), A (..., N, D), B (..., L, D) -> (..., N, L)."""
    rate = -2 * math.pi**2 * log_v.exp()
    K = A.new_ones(())
    for d in range(A.shape[-1]):  # one dimension at a time, for nothing of size N×L×D×M fits the cache
        squares = (A[..., :, None, d] - B[..., None, :, d]).square().unsqueeze(-1)  # (..., N, L, 1)
        K = K * (torch.exp(squares * rate[..., None, None, d, :]) @ w[..., None, d, :, None]).squeeze(-1)
    return K


class MixtureProduct(Covariance):
    """The kernel of one table, all parameters given; inputs are standardised ones."""

    def __init__(self, log_v: Tensor, w: Tensor) -> None:
        super().__init__(noise=NOISE)
        self.log_v, self.w = nn.Buffer(log_v.double()), nn.Buffer(w.double())
        self.requires_grad_(False)

    def features(self, X: Tensor) -> Tensor:
        return _SCALE * X

    def forward(self, A: Tensor, B: Tensor) -> Tensor:
        return mixture_product(self.log_v, self.w, A, B)


class ContextBlock(nn.Module):
    """LayerNorm(Z + ReLU(W [Z, Multihead(Z, Z, Z)])): the original's layer, in which input and context are joined."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.feed_forward = dense(2 * width, width)
        self.norm = layer_norm(width)

    def forward(self, Z: Tensor) -> Tensor:
        return self.norm(Z + F.relu(self.feed_forward(torch.cat([Z, self.attention(Z)], -1))))


@dataclass(frozen=True)
class NetworkConfig:
    width: int = 64
    heads: int = 4
    blocks: int = 4  # over points, and as many over dimensions


class HyperparameterNetwork(nn.Module):
    """Standardised X (B, N, D) and y (B, N) -> log v and w, both (B, D, M); the order of the points does not matter."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        width = config.width
        self.encoder = PaperEncoder(width, config.heads, 0, 0.0)
        self.encoder.point_blocks = nn.ModuleList(ContextBlock(width, config.heads) for _ in range(config.blocks))
        self.encoder.dimension_blocks = nn.ModuleList(ContextBlock(width, config.heads) for _ in range(config.blocks))
        self.encoder.out = nn.Sequential()
        last = dense(width // 2, _COMPONENTS)
        nn.init.normal_(last.bias, -2.0, 2.0)  # components differ from the start
        self.log_v = nn.Sequential(dense(width, width // 2), nn.ReLU(), last)
        self.logits = nn.Sequential(dense(width, width // 2), nn.ReLU(), dense(width // 2, _COMPONENTS))

    def forward(self, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        G = self.encoder(X, y)
        return 10 * torch.tanh(self.log_v(G) / 10), self.logits(G).softmax(-1)  # within ±10, as in the original


def loss(network: HyperparameterNetwork, X: Tensor, y: Tensor) -> Tensor:
    """−log p(y | X) / N under the kernel the network sets, one for each table of the batch."""
    log_v, w = network(X, y)
    K = mixture_product(log_v, w, _SCALE * X, _SCALE * X) + NOISE * torch.eye(X.shape[1])
    return -log_marginal_likelihood(K, y) / X.shape[1]


# --- method -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AmortisedGP:
    """The kernel that the network sets. Protocol `original` leaves the noise out of the variance, as its code does."""

    checkpoint: str | None = None  # a file; None for the bundled one
    protocol: Literal["default", "original"] = "default"

    def __post_init__(self) -> None:
        if self.protocol not in ("default", "original"):
            raise InvalidInputError(f"protocol must be 'default' or 'original', got '{self.protocol}'")

    def fit(self, train: Dataset, random_state: int) -> FittedMethod:
        network = load(self.checkpoint)
        started = time.perf_counter()
        scaling, *arrays = standardised(train)
        X, y = map(torch.as_tensor, arrays)
        with torch.no_grad():
            log_v, w = network(X[None].float(), y[None].float())
        kernel = MixtureProduct(log_v[0], w[0])
        chosen = time.perf_counter()
        predictive = GaussianPredictive(scaling, condition(kernel, X, y, noisy=self.protocol == "default"))
        words = f"product over {train.d} columns of {_COMPONENTS} Gaussians each, set by a network"
        return FittedMethod(predictive, train.d, words, chosen - started, time.perf_counter() - chosen)


def save(path: Path, network: HyperparameterNetwork, config: NetworkConfig, facts: dict[str, Any]) -> None:
    """Weights in half precision, config and facts, in one safetensors file."""
    header = {"format": _FORMAT, "config": json.dumps(asdict(config)), "facts": json.dumps(facts)}
    with replacing(path) as file:
        file.write(to_bytes({key: value.half().contiguous() for key, value in network.state_dict().items()}, header))


@lru_cache
def load(checkpoint: str | None = None) -> HyperparameterNetwork:
    """The network of a file, or the bundled one."""
    with _opened(checkpoint) as (file, header), torch.random.fork_rng(devices=[]):
        network = HyperparameterNetwork(NetworkConfig(**json.loads(header["config"])))
        network.load_state_dict({key: file.get_tensor(key).float() for key in file.keys()})  # noqa: SIM118 (not a dict)
    return network.eval().requires_grad_(False)


def read_facts(checkpoint: str | None = None) -> dict[str, Any]:
    """The metadata of a checkpoint: steps and seconds of training, its loss on tables of the prior, and so on."""
    with _opened(checkpoint) as (file, header):
        parameters = sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
        config = {"kind": "ahgp", **json.loads(header["config"])}
        return {"name": "ahgp", "config": config, "parameters": parameters, **json.loads(header["facts"])}


@contextmanager
def _opened(checkpoint: str | None) -> Iterator[tuple[Any, dict[str, str]]]:
    """A checkpoint and its header; None for the bundled one."""
    path = BUNDLED if checkpoint is None else Path(checkpoint)
    if not path.is_file():
        raise CheckpointError(
            f"no AHGP weights at {path}: train them, kitt train --preset ahgp --hours 3 --out runs/ahgp, "
            f"and use them as the method ahgp:checkpoint=runs/ahgp/{_FILE}"
        )
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != _FORMAT:
                raise CheckpointError(f"{path} is not an AHGP checkpoint: its header does not say {_FORMAT}")
            yield file, header
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is damaged, or no AHGP checkpoint: {error}") from error


# --- training ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """How the network is trained, but for the budget."""

    rate: float = 1e-3  # at its peak; falls to 0 as a cosine over the budget
    entries: int = 4096  # tables x points x dimensions in a batch
    warm_up: int = 200  # steps
    averaging: float = 0.999  # of the weights that are exported
    save_seconds: float = 120.0
    eval_seconds: float = 600.0


def simulate(batch: int, n: int, d: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Tables of the original's prior, standardised: X (B, N, D) and y (B, N)."""
    X = torch.rand(batch, n, d, generator=generator)
    X = (X - X.mean(1, keepdim=True)) / X.std(1, keepdim=True)
    shape = (batch, d, _COMPONENTS)
    log_l = math.log(0.05) + math.log(1.5 / 0.05) * torch.rand(shape, generator=generator)
    log_l[torch.rand(batch, d, generator=generator) < 0.25] = math.log(1000)  # an irrelevant dimension
    log_v = -2 * log_l - math.log(4 * math.pi**2)
    w = -torch.log1p(-torch.rand(shape, generator=generator))  # Dirichlet(1): exponentials, normalised
    w = w / w.sum(-1, keepdim=True)
    y = draw(mixture_product(log_v, w, _SCALE * X, _SCALE * X) + NOISE * torch.eye(n), generator)
    return X, (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True)


def _sizes(entries: int, generator: torch.Generator) -> tuple[int, int, int]:
    """Tables, points and dimensions of a batch: d from 2 to 15, N Poisson(30), or in half of the batches 30 to 300."""
    d = int(torch.randint(2, 16, (), generator=generator))
    n = max(8, int(torch.poisson(torch.tensor(30.0), generator=generator)))
    u = float(torch.rand((), generator=generator))
    if u < 0.5:
        n = int(30 * 10 ** (2 * u))
    return max(1, entries // (n * d)), n, d


class Run:
    """The state of a training run, and the files that it writes."""

    def __init__(
        self, settings: Training, config: NetworkConfig, folder: RunFolder, budget: TrainingBudget, seed: int
    ) -> None:
        self.settings, self.config, self.folder, self.budget = settings, config, folder, budget
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = HyperparameterNetwork(config)
        self.average = copy.deepcopy(self.network).eval().requires_grad_(False)
        self.optimiser = torch.optim.Adam(self.network.parameters(), settings.rate)
        self.generator = torch.Generator().manual_seed(seed)
        self.step, self.seconds, self.scores = 0, 0.0, dict[str, float]()

    def restore(self, state: dict[str, Any]) -> None:
        for name in ("network", "average", "optimiser"):
            getattr(self, name).load_state_dict(state[name])
        self.generator.set_state(state["generator"])
        self.step, self.seconds = state["step"], state["seconds"]

    def go(self, progress: Callable[[Progress], None] | None = None) -> None:
        """Train until the budget is spent."""
        self.write("resume" if self.step else "start", budget=asdict(self.budget))
        self.save()
        started, before, tables, smooth = time.monotonic(), self.seconds, 0, math.nan
        saved = evaluated = before
        while (spent := self.budget.spent(self.step, self.seconds)) < 1:
            count, value = self.take_step(spent)
            tables, smooth = tables + count, value if math.isnan(smooth) else 0.98 * smooth + 0.02 * value
            self.seconds = before + time.monotonic() - started
            if self.seconds - evaluated > self.settings.eval_seconds:
                self.evaluate()
                evaluated = self.seconds
            if self.seconds - saved > self.settings.save_seconds:
                self.save()
                saved = self.seconds
            if progress is not None:
                spent = self.budget.spent(self.step, self.seconds)
                rate, left = tables / (self.seconds - before), self.seconds * (1 - spent) / spent
                progress(Progress(self.step, smooth, rate, spent, self.seconds, left))
        self.evaluate()
        self.save()
        self.write("end")

    def take_step(self, spent: float) -> tuple[int, float]:
        """One batch; how many tables it had, and their mean loss."""
        rate = self.settings.rate * min(1.0, (self.step + 1) / self.settings.warm_up)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * spent))
        X, y = simulate(*_sizes(self.settings.entries, self.generator), self.generator)
        self.optimiser.zero_grad()
        value = loss(self.network, X, y).mean()
        value.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        decay = min(self.settings.averaging, self.step / (self.step + 10))
        for mean, new in zip(self.average.parameters(), self.network.parameters(), strict=True):
            mean.lerp_(new.detach(), 1 - decay)
        return len(X), float(value.detach())

    def evaluate(self) -> None:
        """Mean loss of the averaged network, on the same tables every time."""
        generator, sizes = torch.Generator().manual_seed(1), ((30, 2), (30, 8), (30, 15), (200, 4), (200, 10))
        with torch.no_grad():
            losses = [loss(self.average, *simulate(16, n, d, generator)).mean() for n, d in sizes]
        self.scores = {"loss": round(float(torch.stack(losses).mean()), 4)}
        self.write("eval", scores=self.scores)

    def save(self) -> None:
        """The state, to resume from, and the average of the weights as a checkpoint."""
        state: dict[str, Any] = {n: getattr(self, n).state_dict() for n in ("network", "average", "optimiser")}
        state |= {"generator": self.generator.get_state(), "step": self.step, "seconds": self.seconds}
        facts = {"steps": self.step, "seconds": round(self.seconds), "code_version": code_version(), **self.scores}
        save(self.folder.path / _FILE, self.average, self.config, facts | asdict(self.settings))
        self.folder.save_state(state | {"budget": asdict(self.budget)})

    def write(self, event: str, **values: Any) -> None:
        self.folder.append({"event": event, "step": self.step, "elapsed": round(self.seconds, 3)} | values)


def holds_run(out: Path) -> bool:
    """Whether the run in a folder, if there is any, is one of this network."""
    return (out / _FILE).exists()


def train(
    out: Path,
    *,
    settings: Training | None = None,
    config: NetworkConfig | None = None,
    hours: float | None = None,
    steps: int | None = None,
    resume: bool = False,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Path:
    """Train in the folder `out`, or resume there; returns the checkpoint. Budget and folder are as in `kitt_lab.train`."""
    folder, budget = RunFolder(out), TrainingBudget(hours, steps)
    with folder.locked():
        state = folder.earlier_state(resume) or {}
        if state and not holds_run(out):
            raise InvalidInputError(f"{out} holds a run of another preset: resume it without naming one")
        if budget.is_empty:
            budget = TrainingBudget(**state.get("budget", {}))
        if budget.is_empty:
            raise InvalidInputError("a run needs a budget: give hours or steps")
        run = Run(settings or Training(), config or NetworkConfig(), folder, budget, seed)
        if state:
            run.restore(state)
        run.go(progress)
    return out / _FILE
