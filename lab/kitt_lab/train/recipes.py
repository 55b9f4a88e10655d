"""The config of a training run: network, data, sizes, optimiser, schedule, validation; and presets.

Everything here is frozen and can be converted to JSON and back; an unknown key is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from kitt.errors import InvalidInputError
from kitt.network.checkpoint import config_from_dict, config_to_dict
from kitt.network.network import CaptionerConfig, PaperConfig, StemConfig
from kitt_lab.simulate import DEFAULT_DATA, PAPER_DATA, SERIES_DATA, SimulatorConfig, world_data

T = TypeVar("T")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidInputError(message)


def _is_range(pair: tuple[int, int]) -> bool:
    return len(pair) == 2 and all(type(value) is int for value in pair) and 1 <= pair[0] <= pair[1]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The size and number of the data sets of a step: N and D log-uniform, and as many as the work allows."""

    n: tuple[int, int] = (16, 512)
    d: tuple[int, int] = (1, 16)
    batch: tuple[int, int] = (8, 256)
    work: float = 4e6  # cost of a step, in the unit of `costs`
    costs: tuple[float, float, float] = (1.0, 0.5, 16.0)  # of a pair of points, of a pair in a dimension, of a value

    def __post_init__(self) -> None:
        for name in ("n", "d", "batch"):
            value = getattr(self, name)
            _require(_is_range(value), f"sizes: {name} must be two integers, 1 <= low <= high, got {value}")
        _require(self.work > 0 and min(self.costs) >= 0 < max(self.costs), "sizes: work and costs must be positive")

    def draw(self, generator: torch.Generator) -> tuple[int, int, int]:
        """Data sets, points and dimensions of one step."""
        u, v = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
        n, d = _log_uniform(self.n, u), _log_uniform(self.d, v)
        return self.count(n, d), n, d

    def count(self, n: int, d: int) -> int:
        pair, pair_in_dimension, value = self.costs
        cost = n * n * (pair + d * pair_in_dimension) + n * d * value
        return min(max(int(self.work / cost), self.batch[0]), self.batch[1])


def _log_uniform(bounds: tuple[int, int], u: float) -> int:
    low, high = bounds
    return min(int(low * ((high + 1) / low) ** u), high)


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """AdamW (Adam, without weight decay), its schedule, and the running average of the weights that is the result."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.01  # of matrices only
    clip: float = 1.0  # norm of the gradient
    ema: float = 0.999
    schedule: str = "cosine"  # over the budget; or "steps": times `decay` every `decay_every` steps
    warmup: int = 200  # steps
    floor: float = 0.01  # where the cosine ends, as a share of lr
    decay: float = 0.1
    decay_every: int = 50_000

    def __post_init__(self) -> None:
        for name in ("lr", "clip", "decay", "decay_every"):
            _require(getattr(self, name) > 0, f"optimiser: {name} must be positive, got {getattr(self, name)}")
        for name in ("weight_decay", "warmup", "floor"):
            _require(getattr(self, name) >= 0, f"optimiser: {name} must not be negative, got {getattr(self, name)}")
        for value in (*self.betas, self.ema):
            _require(0 <= value < 1, f"optimiser: betas and ema must be in [0, 1), got {value}")
        known = ("cosine", "steps")
        _require(
            self.schedule in known, f"optimiser: schedule must be one of {', '.join(known)}, got '{self.schedule}'"
        )

    def rate(self, step: int, spent: float) -> float:
        """Learning rate at a step, given the share of the budget that is spent."""
        warmup = min(1.0, (step + 1) / (self.warmup + 1))
        if self.schedule == "steps":
            return self.lr * warmup * self.decay ** (step // self.decay_every)
        return self.lr * warmup * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(spent, 1.0))))


@dataclass(frozen=True, kw_only=True)
class ValidationSet:
    """Data sets of one size that stay the same through a run, and from run to run."""

    name: str
    data: SimulatorConfig
    count: int
    n: int
    d: int
    seed: int = 20_000

    def __post_init__(self) -> None:
        _require(min(self.count, self.n, self.d) >= 1, f"validation set {self.name}: count, n and d must be at least 1")


VALIDATION = (
    ValidationSet(name="paper-64x4", data=PAPER_DATA, count=1024, n=64, d=4),
    ValidationSet(name="paper-64x1", data=PAPER_DATA, count=512, n=64, d=1),
    ValidationSet(name="paper-256x2", data=PAPER_DATA, count=256, n=256, d=2),
    ValidationSet(name="default-128x6", data=DEFAULT_DATA, count=512, n=128, d=6),
    ValidationSet(name="default-256x8", data=DEFAULT_DATA, count=256, n=256, d=8),
)


PRECISIONS = ("float32", "bfloat16")
LOSS_WEIGHTS = {"word": 1.0, "caption": 0.5, "roughness": 0.2, "noise": 0.1}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run, but for its budget."""

    name: str
    network: CaptionerConfig
    data: tuple[tuple[SimulatorConfig, float], ...]  # each with its weight among those for tables of so many columns
    sizes: Sizes = Sizes()
    optimiser: Optimiser = Optimiser()
    validation: tuple[ValidationSet, ...] = VALIDATION
    classify: str = "all"  # whether the classifier learns from "all" data sets or from those of a "single" word
    loss_weights: Mapping[str, float] = field(default_factory=lambda: dict(LOSS_WEIGHTS))  # those not named: 1
    precision: str = "float32"  # of the matrix products of an encoder of points; "bfloat16" takes half the time
    seed: int = 0
    save_seconds: float = 120.0
    eval_seconds: float = 600.0
    log_seconds: float = 15.0

    def __post_init__(self) -> None:
        _require(bool(self.data) and all(weight > 0 for _, weight in self.data), "data: give simulators, weights > 0")
        _require(
            any(data.max_columns is None or data.max_columns >= self.sizes.d[1] for data, _ in self.data),
            f"data: no simulator draws tables of {self.sizes.d[1]} columns, the most that sizes has",
        )
        _require(self.classify in ("all", "single"), f"classify must be 'all' or 'single', got '{self.classify}'")
        _require(self.precision in PRECISIONS, f"precision: {', '.join(PRECISIONS)}, not '{self.precision}'")
        is_of_points = isinstance(self.network, PaperConfig)
        _require(self.precision == "float32" or is_of_points, "only an encoder of points can be trained in bfloat16")
        _require(0 <= self.save_seconds <= 300, f"save_seconds must be between 0 and 300, got {self.save_seconds}")
        _require(min(self.eval_seconds, self.log_seconds) >= 0, "eval_seconds and log_seconds must not be negative")
        longest = max(data.max_words for data in self._simulators())
        _require(
            longest <= self.network.max_words,
            f"the data have captions of {longest} words, the network allows at most {self.network.max_words}",
        )

    def _simulators(self) -> list[SimulatorConfig]:
        return [data for data, _ in self.data] + [v.data for v in self.validation]

    def describe_data(self, public: bool = False) -> tuple[dict[str, Any], ...]:
        """The mixture as JSON types; if `public`, a folder of tables appears by its name only, without its path."""
        sources = [
            (replace(data, tables=Path(data.tables).name) if public and data.tables else data, weight)
            for data, weight in self.data
        ]
        return tuple(_plain(asdict(data) | {"weight": weight}) for data, weight in sources)

    def to_dict(self) -> dict[str, Any]:
        return _plain(asdict(self) | {"network": config_to_dict(self.network), "data": self.describe_data()})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        values = dict(values)
        for key, make in _PARTS.items():
            if key in values:
                values[key] = make(values[key])
        return strict(cls, values)


def strict(cls: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass from plain values: an unknown key is an error, lists become tuples."""
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise InvalidInputError(f"{cls.__name__} has no field {', '.join(unknown)}; its fields are {', '.join(known)}")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def _plain(values: Any) -> Any:
    """The value as JSON returns it: tuples become lists."""
    return json.loads(json.dumps(values))


def _source(values: Mapping[str, Any]) -> tuple[SimulatorConfig, float]:
    values = dict(values)
    weight = values.pop("weight", 1.0)
    return strict(SimulatorConfig, values), weight


def _validation_set(values: Mapping[str, Any]) -> ValidationSet:
    return strict(ValidationSet, {**values, "data": strict(SimulatorConfig, values["data"])})


_PARTS: dict[str, Callable[[Any], Any]] = {
    "network": config_from_dict,
    "data": lambda sources: tuple(map(_source, sources)),
    "sizes": lambda values: strict(Sizes, values),
    "optimiser": lambda values: strict(Optimiser, values),
    "validation": lambda sets: tuple(map(_validation_set, sets)),
}


def _paper() -> TrainConfig:
    """The paper's network and data (paper, Training; supplement), with an encoder that classifier and captioner share.

    Tables have the sizes of the paper's tests instead of 64 points in 4 columns. They are drawn anew at every step, so
    that dropout is not needed; the learning rate and its schedule suit some ten thousand steps.
    """
    return TrainConfig(
        name="paper",
        network=PaperConfig(dropout=0.0),
        data=((PAPER_DATA, 0.5), (SimulatorConfig("paper", max_words=3), 0.5)),
        classify="single",
        sizes=Sizes(n=(32, 256), d=(1, 6), batch=(16, 256), work=49_152, costs=(0.0, 0.008, 1.0)),
        optimiser=Optimiser(lr=4e-4, betas=(0.9, 0.99), weight_decay=0.0),
        precision="bfloat16",
    )


def _default(tables: str | None = None) -> TrainConfig:
    """The preset of the bundled network: tables of all sizes. Half of them resemble real ones, with inputs from a folder of
    tables if one is given; the rest are captions of the default prior and single words of the paper's prior. Half of the
    tables of a single column are series."""
    world, name = world_data(tables), "world" if tables is None else "real"
    return TrainConfig(
        name="default",
        network=StemConfig(),
        data=((world, 0.5), (DEFAULT_DATA, 0.15), (PAPER_DATA, 0.35), (SERIES_DATA, 1.0)),
        sizes=Sizes(n=(16, 800), batch=(4, 128), work=1.5e6),
        optimiser=Optimiser(lr=5e-4, warmup=500, ema=0.9995),
        validation=(
            *VALIDATION,
            ValidationSet(name=f"{name}-128x6", data=world, count=512, n=128, d=6),
            ValidationSet(name=f"{name}-60x1", data=world, count=512, n=60, d=1),
            ValidationSet(name="series-120x1", data=SERIES_DATA, count=512, n=120, d=1),
        ),
        eval_seconds=1800,
    )


def _smoke() -> TrainConfig:
    """A run of seconds instead of hours, for tests and for trying `kitt train`."""
    return TrainConfig(
        name="smoke",
        network=PaperConfig(width=16, heads=2, blocks=1, decoder_width=16, decoder_heads=2, decoder_blocks=1),
        data=((DEFAULT_DATA, 0.5), (PAPER_DATA, 0.5)),
        sizes=Sizes(n=(8, 32), d=(1, 4), batch=(4, 16), work=2e4),
        optimiser=Optimiser(warmup=5),
        validation=(
            ValidationSet(name="paper-16x2", data=PAPER_DATA, count=16, n=16, d=2),
            ValidationSet(name="default-16x2", data=DEFAULT_DATA, count=16, n=16, d=2),
        ),
    )


PRESETS: dict[str, Callable[[], TrainConfig]] = {"default": _default, "paper": _paper, "smoke": _smoke}


def preset_of(name: str) -> str:
    """The preset that a checkpoint of this name was trained with: its own, or else `default`."""
    return name if name in PRESETS else "default"


def recipe(name: str, tables: str | Path | None = None) -> TrainConfig:
    """The training run of a preset; of `default`, with inputs of a folder of tables, if it is given."""
    if name not in PRESETS:
        raise InvalidInputError(f"no training preset is called '{name}'; there are {', '.join(PRESETS)}")
    if tables is None:
        return PRESETS[name]()
    if name != "default":
        raise InvalidInputError(f"only the preset default takes inputs of tables, not '{name}'")
    return _default(str(Path(tables).resolve()))
