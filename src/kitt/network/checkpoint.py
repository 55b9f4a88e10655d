"""A trained network in one safetensors file: weights, config, word list, and where they come from.

The header holds the metadata, `Checkpoint`, as JSON; tensors named "model.*" are the weights, and "extra.*" what else was
learned: the expected losses of kernels (`network.advice`) and what columns do (`network.columns`). Checkpoints in
`kitt/network/weights` are loaded by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from kitt.errors import CheckpointError, InvalidInputError
from kitt.files import check_format, replacing
from kitt.kernels.grammar import WORDS
from kitt.network import advice, columns, network
from kitt.network.advice import AdviceHead
from kitt.network.columns import ColumnHead
from kitt.network.network import CONFIGS, Captioner, CaptionerConfig

FORMAT = "kitt-checkpoint"
VERSION = 1
VOCABULARY = tuple(map(str, WORDS))
_MODEL, _EXTRA = "model.", "extra."


def code_version() -> str:
    return metadata.version("kitt-gp")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The metadata of a trained network."""

    name: str
    config: CaptionerConfig
    data: tuple[dict[str, Any], ...] = ()  # the mixture it was trained on: simulator settings, each with its weight
    steps: int = 0
    datasets_seen: int = 0
    training_seconds: float = 0.0
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # validation set -> measure -> value
    extra: dict[str, Any] = field(default_factory=dict)  # anything that JSON can express: temperatures, notes
    words: tuple[str, ...] = VOCABULARY
    parameters: int = 0  # of the network; `save` counts them
    code_version: str = field(default_factory=code_version)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"config": config_to_dict(self.config)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Checkpoint:
        values = dict(values)
        expected = {f.name for f in fields(cls)}
        if values.keys() != expected:
            raise InvalidInputError(f"its facts lack or add {', '.join(sorted(expected ^ values.keys()))}")
        values |= {key: tuple(values[key]) for key in ("words", "data")}
        return cls(**values | {"config": config_from_dict(values["config"])})


def config_to_dict(config: CaptionerConfig) -> dict[str, Any]:
    """A network's config with its kind, for JSON."""
    kind = next((kind for kind, cls in CONFIGS.items() if cls is type(config)), None)
    if kind is None:
        raise InvalidInputError(f"a {type(config).__name__} is not one of the kinds of network: {', '.join(CONFIGS)}")
    return {"kind": kind} | config.to_dict()


def config_from_dict(values: Mapping[str, Any]) -> CaptionerConfig:
    values = dict(values)
    kind = values.pop("kind", None)
    if kind not in CONFIGS:
        raise InvalidInputError(f"'{kind}' is not one of the kinds of network: {', '.join(CONFIGS)}")
    return CONFIGS[kind].from_dict(values)


@dataclass(frozen=True)
class LoadedModel:
    """A network ready for use: in eval mode, float32, without gradients. Bundled ones are shared: do not modify them."""

    model: Captioner
    facts: Checkpoint
    tensors: dict[str, Tensor]  # the extra ones

    @cached_property
    def advice(self) -> AdviceHead | None:
        """The head that predicts the losses of kernels; None if the checkpoint has none."""
        return advice.from_tensors(self.tensors)

    @cached_property
    def columns(self) -> ColumnHead | None:
        """The network that says what each column does; None if the checkpoint has none."""
        return columns.from_tensors(self.tensors, self.facts.extra.get("columns"))


def save(
    path: str | Path,
    model: Captioner,
    facts: Checkpoint,
    *,
    tensors: Mapping[str, Tensor] | None = None,
    half: bool = False,
) -> Path:
    """Write atomically. With `half`, float32 parameters (not buffers) are stored as float16."""
    parameters = dict(model.named_parameters())
    stored = {_MODEL + key: value.detach() for key, value in model.state_dict().items()}
    for key, value in parameters.items():
        if half and value.dtype == torch.float32:
            stored[_MODEL + key] = value.detach().half()
        if not stored[_MODEL + key].isfinite().all():
            raise CheckpointError(f"the weight '{key}' is not finite{' in float16' if half else ''}: not saved")
    stored |= {_EXTRA + key: value for key, value in (tensors or {}).items()}
    facts = replace(facts, parameters=sum(p.numel() for p in parameters.values()))
    header = {"format": FORMAT, "version": str(VERSION), "facts": json.dumps(facts.to_dict())}
    whole = {key: value.cpu().contiguous() for key, value in stored.items()}
    with replacing(path) as file:
        file.write(to_bytes(whole, {**header, "sha256": _checksum(whole, header)}))
    return Path(path)


def load(name_or_path: str | Path) -> LoadedModel:
    """The network of a bundled checkpoint, by name, or of a file."""
    name = str(name_or_path)
    return _load_bundled(name) if name in _bundled() else _load(path_of(name_or_path))


def read_facts(name_or_path: str | Path) -> Checkpoint:
    """The metadata of a checkpoint, read without its weights, and so without a look at its checksum."""
    path = path_of(name_or_path)
    with _opened(path) as file:
        return _facts(path, file)


def bundled() -> list[Checkpoint]:
    """The metadata of every bundled checkpoint, by name."""
    return [read_facts(name) for name in _bundled()]


@lru_cache
def _bundled() -> dict[str, Path]:
    folder = Path(str(resources.files("kitt.network") / "weights"))
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


@lru_cache
def _load_bundled(name: str) -> LoadedModel:
    return _load(_bundled()[name])


def path_of(name_or_path: str | Path) -> Path:
    path = _bundled().get(str(name_or_path), Path(name_or_path))
    if not path.is_file():
        names = ", ".join(_bundled()) or "none in this installation"
        raise CheckpointError(f"no checkpoint '{name_or_path}': neither a file nor a bundled one ({names})")
    return path


def _load(path: Path) -> LoadedModel:
    with _opened(path) as file:
        facts = _facts(path, file)
        stored = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        _check(path, stored, file.metadata())
    weights = {key.removeprefix(_MODEL): value for key, value in stored.items() if key.startswith(_MODEL)}
    extra = {key.removeprefix(_EXTRA): value for key, value in stored.items() if key.startswith(_EXTRA)}
    with torch.random.fork_rng(devices=[]):  # the initial weights, soon overwritten, use no randomness
        model = network.build(facts.config)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{path}: the weights do not fit the network of the config: {error}") from error
    return LoadedModel(model.eval().requires_grad_(False), facts, extra)


def _checksum(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """The SHA-256 of the header, without its own field, and of the names, types, shapes and bytes of all tensors."""
    about = {key: value for key, value in header.items() if key != "sha256"}
    shapes = {key: (str(value.dtype), list(value.shape)) for key, value in tensors.items()}
    digest = hashlib.sha256(json.dumps([about, shapes], sort_keys=True).encode())
    for key in sorted(tensors):
        digest.update(tensors[key].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _check(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Raise CheckpointError if the file is not what its checksum says; one of an older release has none."""
    if "sha256" in header and header["sha256"] != _checksum(tensors, header):
        raise CheckpointError(f"{path} is damaged: its checksum is that of another content; copy or download it again")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        with path.open("rb") as file:
            start = file.read(10)
        if len(start) < 10 or start[8:] == b'{"':
            raise CheckpointError(f"{path} is truncated or damaged: {error}; copy or download it again") from error
        raise CheckpointError(f"{path} is not a KITT checkpoint, nor any safetensors file: {error}") from error


def _facts(path: Path, file: Any) -> Checkpoint:
    header = file.metadata() or {}
    try:
        check_format(header, FORMAT, str(VERSION))
    except CheckpointError as error:
        raise CheckpointError(f"{path} is a safetensors file, but not a KITT checkpoint to read: {error}") from error
    try:
        facts = Checkpoint.from_dict(json.loads(header["facts"]))
    except (KeyError, TypeError, ValueError) as error:  # InvalidInputError is a ValueError
        raise CheckpointError(f"{path}: the header cannot be read by KITT {code_version()}: {error}") from error
    if strange := header.keys() - {"format", "version", "facts", "sha256"}:
        raise CheckpointError(
            f"{path} is damaged: its header has {', '.join(sorted(strange))}; copy or download it again"
        )
    if facts.words != VOCABULARY:
        raise CheckpointError(f"{path} was trained on other words than the {len(VOCABULARY)} of KITT {code_version()}")
    return replace(facts, name=path.stem) if path in _bundled().values() else facts
