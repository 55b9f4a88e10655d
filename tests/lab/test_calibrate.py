"""Calibration of a training run."""

import numpy as np
import torch
from typer.testing import CliRunner

from kitt.app.cli.main import app
from kitt.errors import InvalidInputError
from kitt.network.checkpoint import load, save
from kitt_lab.calibrate import calibrate_run, curve, temperature
from kitt_lab.train import recipe, train


def test_temperature_undoes_a_known_one():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 6, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    assert abs(temperature(logits * 2.5, labels) - 2.5) < 0.15


def test_a_run_is_calibrated(tmp_path):
    train(recipe("smoke"), tmp_path / "run", steps=2)
    model = load(calibrate_run(tmp_path / "run", tmp_path / "mine.safetensors", batches=2, property_batches=2))
    assert model.facts.name == "mine"
    assert model.facts.extra["temperature"] > 0
    assert set(model.facts.extra["property_curves"]) == {"repeats", "trend", "strength changes", "noise changes"}
    assert model.advice is None


def test_a_checkpoint_keeps_its_losses_and_temperatures(tmp_path):
    before = load("default")
    own = save(tmp_path / "own.safetensors", before.model, before.facts, tensors=before.tensors, half=True)
    after = load(calibrate_run(own, tmp_path / "new.safetensors", property_batches=1))
    assert after.facts.extra["caption_temperature"] == before.facts.extra["caption_temperature"]
    assert set(after.tensors) == set(before.tensors)


def test_an_output_that_cannot_be_written_is_found_before_the_work(tmp_path):
    result = CliRunner().invoke(app, ["finish", "default", "--out", str(tmp_path / "none" / "mine.safetensors")])
    assert result.exit_code != 0
    assert isinstance(result.exception, InvalidInputError)


def test_a_curve_undoes_a_known_distortion():
    rng = np.random.default_rng(0)
    truth = rng.beta(1, 4, 40_000)
    said = truth**2
    knots = curve(said, rng.random(len(truth)) < truth)
    for p in (0.1, 0.3, 0.5):
        assert abs(np.interp(p**2, *knots) - p) < 0.03
    assert np.interp([0.0, 1.0], *knots).tolist() == [0.0, 1.0]
