"""Damaged files: what is read is what was written, or the error says so; and files that a kill or a limit cut short.

KITT_MUTATIONS and KITT_REPETITIONS set how many files are damaged and how often a writer is killed.
"""

import json
import os
import random
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kitt
import writing_work
from kitt.errors import KittError
from kitt.network import checkpoint
from kitt.network.checkpoint import Checkpoint, load, save
from kitt.network.network import PaperConfig, build

MUTATIONS = int(os.environ.get("KITT_MUTATIONS", "210"))
REPETITIONS = int(os.environ.get("KITT_REPETITIONS", "5"))
X = np.column_stack([np.linspace(0.0, 6.0, 24), np.cos(np.arange(24))])


def flip(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def replace(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content))] = chance.choice(b'0123456789-+eE.,"[]{}: \x00\xff')


def delete(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    del content[start : start + chance.randrange(1, 40)]


def insert(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    content[start:start] = chance.randbytes(chance.randrange(1, 40))


def repeat(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    content[start:start] = content[start : start + chance.randrange(1, 400)]


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


BYTES = (flip, replace, delete, insert, repeat, cut)
ODD = (None, True, -1, 0, 10**400, 1e308, -1e308, 5e-324, 1e-300, "", "RBF", "é\ud800", [], {}, [[]], [1e308], {"a": 1})


def change(document: Any, chance: random.Random) -> None:
    """Replace, remove or double one value, at any depth."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = chance.choice(list(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.15:
            break
        place = inner
    what = chance.randrange(4)
    if what == 0:
        del place[key]
    elif what == 1 and isinstance(place, list):
        place.append(inner)
    elif what == 2 and isinstance(inner, float):
        place[key] = inner * chance.choice([-1.0, 1e10, 1e-10, 1e300, 0.0])
    else:
        place[key] = chance.choice(ODD)


@pytest.fixture(scope="module")
def model() -> str:
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    return kitt.suggest(X, y, fit=True, effort="quick", k=1).fitted.to_json()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    sizes = {"width": 8, "heads": 2, "blocks": 1, "decoder_width": 8, "decoder_heads": 2, "decoder_blocks": 1}
    config = PaperConfig(**sizes)
    path = tmp_path_factory.mktemp("whole") / "small.safetensors"
    return save(path, build(config), Checkpoint(name="small", config=config)).read_bytes()


def read_or_refuse(path: Path, read: Callable[[Path], Any]) -> Any:
    """What is read; None if the file is refused with an error of this package, and nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read(path)
        except KittError:
            return None


def predictions(path: Path) -> np.ndarray:
    return np.stack(kitt.load(path).predict(X[:5]))


@pytest.mark.parametrize("mutate", BYTES)
def test_a_damaged_model_file_predicts_what_it_did_or_is_refused(tmp_path: Path, model: str, mutate: Any) -> None:
    path = tmp_path / "model.json"
    path.write_text(model, encoding="utf-8")
    whole = predictions(path)
    for seed in range(MUTATIONS // 20):
        content = bytearray(model.encode())
        mutate(content, random.Random(seed))
        path.write_bytes(content)
        read = read_or_refuse(path, predictions)
        assert read is None or np.array_equal(read, whole), seed


def test_an_edited_model_file_predicts_finite_numbers_or_is_refused(tmp_path: Path, model: str) -> None:
    """Without its checksum, as somebody would who edits it."""
    path, refused = tmp_path / "model.json", 0
    for seed in range(MUTATIONS // 2):
        document = json.loads(model)
        del document["checksum"]
        change(document, random.Random(seed))
        path.write_text(json.dumps(document), encoding="utf-8")
        read = read_or_refuse(path, predictions)
        refused += read is None
        assert read is None or np.isfinite(read).all(), seed
    assert refused > MUTATIONS // 8


@pytest.mark.parametrize("mutate", BYTES)
def test_a_damaged_checkpoint_is_what_it_was_or_is_refused(tmp_path: Path, network: bytes, mutate: Any) -> None:
    path = tmp_path / "small.safetensors"
    path.write_bytes(network)
    whole = load(path).model.state_dict()
    for seed in range(MUTATIONS // 30):
        content = bytearray(network)
        mutate(content, random.Random(seed))
        path.write_bytes(content)
        read = read_or_refuse(path, load)
        assert read is None or all(torch.equal(value, whole[key]) for key, value in read.model.state_dict().items())


def test_an_edited_model_that_predicts_nothing_finite_is_refused(tmp_path: Path, model: str) -> None:
    path, document = tmp_path / "model.json", json.loads(model)
    path.write_text(json.dumps({**document, "written_by": "somebody else"}))
    with pytest.raises(KittError, match=r"model\.json: its checksum is that of another content"):
        kitt.load(path)
    path.write_text(model.replace('"tail":{', '"tail":{"unknown":1e999,', 1))
    with pytest.raises(KittError, match="the number 1e999 is not allowed"):
        kitt.load(path)


# --- writing -------------------------------------------------------------------------------------------------------------


def test_a_writer_that_is_killed_leaves_only_whole_files(tmp_path: Path, model: str) -> None:
    sources = [tmp_path / "a", tmp_path / "b"]
    texts = [model, model[:-1] + " " * 5_000_000 + "}"]  # five megabytes, so that a kill often comes within a write
    for source, text in zip(sources, texts, strict=True):
        source.write_text(text)
    folder, chance = tmp_path / "out", random.Random(0)
    folder.mkdir()
    path = folder / "model.json"
    for _ in range(REPETITIONS):
        command = [sys.executable, writing_work.__file__, *map(str, (path, *sources))]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.1))
            process.kill()
        for file in folder.iterdir():  # also one that was complete and about to take its place
            assert file.read_text() in texts


def test_a_limit_of_the_size_of_files_leaves_the_old_one(tmp_path: Path, model: str) -> None:
    source, folder = tmp_path / "a", tmp_path / "out"
    source.write_text(model)
    folder.mkdir()
    (folder / "model.json").write_text("old")
    command = [sys.executable, writing_work.__file__, str(folder / "model.json"), str(source)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    process = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
    assert "cannot write" in process.stderr.splitlines()[-1]
    assert "File too large" in process.stderr
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("model.json", "old")]


def test_a_bundled_checkpoint_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    content = bytearray(checkpoint.path_of("default").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "default.safetensors").write_bytes(content)
    with pytest.raises(KittError, match="is damaged: its checksum"):
        load(tmp_path / "default.safetensors")
