"""Calibration of a training run."""

import torch

from kitt.lab.calibrate import calibrate_run, temperature
from kitt.lab.train import recipe, train
from kitt.network.checkpoint import load


def test_temperature_undoes_a_known_one():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 6, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    assert abs(temperature(logits * 2.5, labels) - 2.5) < 0.15


def test_a_run_is_calibrated(tmp_path):
    train(recipe("smoke"), tmp_path / "run", steps=2)
    model = load(calibrate_run(tmp_path / "run", tmp_path / "mine.safetensors", batches=2))
    assert model.facts.name == "mine"
    assert model.facts.extra["temperature"] > 0
    assert model.advice is None
