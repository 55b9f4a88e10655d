"""Checkpoints: what is saved comes back; what is not a checkpoint of this version is named for what it is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from kitt.errors import CheckpointError, InvalidInputError
from kitt.network import checkpoint
from kitt.network.checkpoint import VOCABULARY, Checkpoint, bundled, load, read_facts, save
from kitt.network.network import Captioner, CaptionerConfig, PaperConfig, StemConfig, build

SMALL = {"width": 8, "heads": 2, "blocks": 1, "decoder_width": 8, "decoder_heads": 2, "decoder_blocks": 1}
PAPER, STEM = PaperConfig(**SMALL), StemConfig(**SMALL, probe_blocks=1)
FACTS = Checkpoint(
    name="small",
    config=PAPER,
    data=({"prior": "paper", "weight": 1.0},),
    steps=7,
    datasets_seen=700,
    training_seconds=1.5,
    scores={"paper-64x4": {"top1": 0.2}},
    extra={"temperature": {"word": 1.1}},
)


def network(config: CaptionerConfig) -> Captioner:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(config)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(tmp_path / "tiny.safetensors", network(PAPER), FACTS)


@pytest.mark.parametrize("config", [PAPER, STEM], ids=["paper", "stem"])
def test_round_trip(tmp_path: Path, config: CaptionerConfig) -> None:
    model, table = network(config), torch.eye(34, dtype=torch.float64)
    facts = replace(FACTS, config=config)
    path = save(tmp_path / "x.safetensors", model, facts, tensors={"expected_loss": table})
    before = torch.get_rng_state()
    loaded = load(path)
    assert torch.equal(torch.get_rng_state(), before)
    assert loaded.facts == replace(facts, parameters=sum(p.numel() for p in model.parameters())) == read_facts(path)
    assert loaded.tensors["expected_loss"].equal(table)
    assert all(value.equal(loaded.model.state_dict()[key]) for key, value in model.state_dict().items())
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_half_is_half_as_large_and_nearly_the_same(tmp_path: Path) -> None:
    model = network(STEM)
    for normaliser in model.encoder.normalise:  # type: ignore[union-attr]
        normaliser.mean.fill_(1e6)  # beyond float16: buffers keep their precision
    whole, half = (
        save(tmp_path / f"{h}.safetensors", model, replace(FACTS, config=STEM), half=h) for h in (False, True)
    )
    assert half.stat().st_size < 0.75 * whole.stat().st_size
    for key, value in load(half).model.state_dict().items():
        assert value.dtype == model.state_dict()[key].dtype
        torch.testing.assert_close(value, model.state_dict()[key], rtol=1e-3, atol=1e-6)


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    model = network(PAPER)
    torch.nn.init.constant_(model.decoder.logits.bias, 1e6)
    with pytest.raises(CheckpointError, match=r"decoder.logits.bias.*float16"):
        save(tmp_path / "x.safetensors", model, FACTS, half=True)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save(path, network(PAPER), replace(FACTS, steps=8))
    assert load(path).facts.steps == 7
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("size", [0, 5, 20, 3000, -1])
def test_truncated(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="truncated"):
        load(path)


def test_a_flipped_bit_is_found(path: Path) -> None:
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 100):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load(path)
    length = 8 + int.from_bytes(whole[:8], "little")
    path.write_bytes(whole[:length] + bytes([whole[length] ^ 1]) + whole[length + 1 :])
    with pytest.raises(CheckpointError, match="is damaged: its checksum is that of another content"):
        load(path)


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n" + b"0" * 300, json.dumps({"a": 1} | FACTS.extra).encode(), b"\0" * 99]
)
def test_foreign(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a KITT checkpoint, nor any safetensors file"):
        load(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_safetensors_of_something_else(path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"weight": torch.zeros(3)}, path, metadata)
    with pytest.raises(CheckpointError, match="a safetensors file, but not a KITT checkpoint"):
        load(path)


def tampered(path: Path, header: dict[str, str], facts: dict[str, Any]) -> Path:
    """The checkpoint with some of its header changed."""
    with safe_open(path, "pt") as file:
        tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    del metadata["sha256"]
    metadata["facts"] = json.dumps(json.loads(metadata["facts"]) | facts)
    save_file(tensors, path, metadata | header)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "9"}, "has version '9'; .* reads version 1"),
        ({"facts": "{"}, "header cannot be read"),
        ({"facts": "{}"}, "lack or add .*config"),
    ],
)
def test_header(path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(tampered(path, changes, {}))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"words": VOCABULARY[::-1]}, "other words"),
        ({"novelty": 1}, "lack or add novelty"),
        ({"config": {"kind": "mamba"}}, "'mamba' is not one of the kinds of network: paper, stem"),
        ({"config": {"kind": "paper", "depth": 3}}, "no field depth"),
        ({"config": {"kind": "paper"} | SMALL | {"width": 16}}, "do not fit the network"),
    ],
)
def test_facts(path: Path, facts: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(tampered(path, {}, facts))


def test_unknown_kind_of_config() -> None:
    with pytest.raises(InvalidInputError, match="CaptionerConfig is not one of the kinds"):
        replace(FACTS, config=CaptionerConfig()).to_dict()


@pytest.fixture
def weights(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_bundled", lambda: {"tiny": path})
    checkpoint._load_bundled.cache_clear()


@pytest.mark.usefixtures("weights")
def test_bundled_by_name() -> None:
    assert [facts.name for facts in bundled()] == ["tiny"]
    assert load("tiny") is load("tiny")
    assert load("tiny").facts.name == "tiny"


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("read", [load, read_facts])
def test_unknown_name_lists_the_bundled_ones(read: Any) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint 'huge'.*tiny"):
        read("huge")


def test_bundled_files_are_whole_and_small() -> None:
    for facts in bundled():
        assert load(facts.name).facts == facts
        with safe_open(checkpoint._bundled()[facts.name], "pt") as file:
            assert "sha256" in file.metadata()
        assert checkpoint._bundled()[facts.name].stat().st_size < 8e6
