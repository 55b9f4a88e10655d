"""Calibration, the corpus of costs, and the table learned from it."""

import json

import pytest
import torch

from kitt import cost
from kitt.caption import caption
from kitt.checkpoint import load
from kitt.finish import finish, temperature
from kitt.grammar import WORDS
from kitt.simulate import SimulatorConfig, simulate
from kitt.train import recipe, train


def test_temperature_undoes_a_known_one():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 6, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    assert abs(temperature(logits * 2.5, labels) - 2.5) < 0.15


def test_costs_that_made_the_regrets_are_found():
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(6, 5, generator=generator, dtype=torch.float64)
    probabilities = torch.rand(4000, 5, generator=generator, dtype=torch.float64) ** 6
    probabilities /= probabilities.sum(1, keepdim=True)
    noise = 0.1 * torch.randn(4000, 5, generator=generator, dtype=torch.float64)
    regret = cost.expected(truth, probabilities) + noise
    table = cost.learn(probabilities, regret, ridge=1.0)
    error = cost.expected(table, probabilities) - cost.expected(truth, probabilities)
    assert error.square().mean().sqrt() < 0.05
    assert abs(float(cost.surprises(probabilities, regret, count=4000, ridge=1.0).std()) - 0.1) < 0.01


def test_a_rigid_word_loses_more_than_a_flexible_one():
    """Rough data: Linear fails by far, Matern12 does not."""
    rough = SimulatorConfig("default", words=(2,), active="all", noise=(1e-3, 1e-2))
    batch = simulate(rough, 6, 60, 1, torch.Generator().manual_seed(0))
    some = {str(w): i for i, w in enumerate(WORDS)}
    nlpd = cost.measure(batch, 40, torch.Generator().manual_seed(0), steps=15)
    loss = cost.regrets(nlpd).mean(0)
    assert loss[some["Linear"]] > loss[some["Matern12"]]
    assert (loss >= 0).all()
    assert (loss <= cost.CAP).all()


def test_corpus_resumes_and_a_run_is_finished(tmp_path):
    corpus = tmp_path / "cost.jsonl"
    cost.collect(corpus, range(1), steps=2)
    before = corpus.read_text()
    corpus.write_text(before + '{"seed": 1, "nlpd": [[')  # as a killed process leaves it
    assert len(cost.read(corpus)) == 1
    corpus.write_text(before)
    cost.collect(corpus, range(2), steps=2)
    assert [json.loads(line)["seed"] for line in corpus.read_text().splitlines()] == [0, 1]

    train(recipe("smoke"), tmp_path / "run", steps=2)
    path = finish(tmp_path / "run", tmp_path / "mine.safetensors", corpus, batches=2)
    model = load(path)
    assert model.facts.name == "mine"
    assert model.facts.extra["temperature"] > 0
    assert model.tensors["cost"].shape == (35, 34)
    assert model.tensors["surprises"].shape == (32, 34)
    batch = simulate(SimulatorConfig("default"), 1, 20, 2, torch.Generator().manual_seed(0))
    assert caption(batch.X[0].numpy(), batch.y[0].numpy(), model=model).captions[0].expected_loss is not None


def test_a_probable_word_is_not_expected_to_lose_much() -> None:
    table = torch.zeros(len(WORDS) + 1, len(WORDS))
    table[-1] = 2.0  # a regression that knows nothing and expects the worst
    sure = torch.full((len(WORDS),), 0.01 / (len(WORDS) - 1))
    sure[3] = 0.99
    loss = cost.expected(table, sure)
    assert float(loss[3]) == pytest.approx(0.03, abs=1e-6)
    assert torch.equal(loss[:3], torch.full((3,), 2.0, dtype=torch.float64))
