"""Calibration, the corpus of costs, and the table learned from it."""

import pytest
import torch

from kitt.errors import InvalidInputError
from kitt.lab import corpus as cost
from kitt.lab.bench.costs import cost_cells, summary
from kitt.lab.bench.runner import run
from kitt.lab.calibrate import calibrate_run, temperature
from kitt.lab.simulate import SimulatorConfig, simulate
from kitt.lab.train import recipe, train
from kitt.language.grammar import WORDS
from kitt.network.caption import caption
from kitt.network.checkpoint import load
from kitt.network.ranking import DEFAULT as CONFIG
from kitt.network.ranking import expected_loss

FEW = {"starts": 1, "draws": 8, "max_iterations": 10}


def test_temperature_undoes_a_known_one():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 6, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(1)
    assert abs(temperature(logits * 2.5, labels) - 2.5) < 0.15


def test_costs_that_made_the_regrets_are_found():
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(8, 5, generator=generator, dtype=torch.float64)
    sizes = torch.stack([torch.randint(1, 400, (4000,)), torch.randint(1, 12, (4000,))], 1)
    probabilities = torch.rand(4000, 5, generator=generator, dtype=torch.float64) ** 6
    probabilities /= probabilities.sum(1, keepdim=True)
    noise = 0.1 * torch.randn(4000, 5, generator=generator, dtype=torch.float64)
    regret = expected_loss(truth, probabilities, sizes) + noise
    table = cost.learn(probabilities, sizes, regret, ridge=1e-4)
    error = expected_loss(table, probabilities, sizes) - expected_loss(truth, probabilities, sizes)
    assert error.square().mean().sqrt() < 0.05
    assert abs(float(cost.loss_residuals(probabilities, sizes, regret, ridge=1e-4).std()) - 0.1) < 0.01


def test_a_flexible_word_loses_less_than_a_rigid_one(tmp_path, monkeypatch):
    """Rough data: Linear fails by far, Matern12 does not."""
    rough = SimulatorConfig("default", words=(2,), active="all", noise=(1e-3, 1e-2))
    monkeypatch.setattr(cost, "DEFAULT_DATA", rough)
    monkeypatch.setattr(cost, "SIZES", (40,))
    cells = [cell for cell in cost_cells(range(2), FEW) if cell.key["world"] == "prior"]
    loss = {row["word"]: row["mean"] for row in summary(run(cells, tmp_path / "costs.jsonl"))}
    assert list(loss) == sorted(loss, key=lambda word: loss[word])
    assert 0 <= loss["Matern12"] < loss["Linear"] <= CONFIG.loss_cap


def test_a_run_is_calibrated_with_costs(tmp_path, monkeypatch):
    monkeypatch.setattr(cost, "SIZES", (20,))
    corpus = tmp_path / "costs.jsonl"
    run(cost_cells(range(2), FEW), corpus)
    with corpus.open("a") as out:
        out.write('{"key": {"seed": 7}, "status": "ok", "result": {"nlpd": [')  # as a killed process leaves it
    assert sorted(cost.read(corpus)) == [("foreign", 0), ("foreign", 1), ("prior", 0), ("prior", 1)]

    train(recipe("smoke"), tmp_path / "run", steps=2)
    path = calibrate_run(tmp_path / "run", tmp_path / "mine.safetensors", corpus, batches=2)
    model = load(path)
    assert model.facts.name == "mine"
    assert model.facts.extra["temperature"] > 0
    assert model.tensors["costs"].shape == (37, 34)
    assert model.tensors["loss_residuals"].shape == (4, 34)
    batch = simulate(SimulatorConfig("default"), 1, 20, 2, torch.Generator().manual_seed(0))
    assert caption(batch.X[0].numpy(), batch.y[0].numpy(), model=model).ranked[0].expected_loss is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no file of costs"),
        ("", "holds no costs"),
        ("not json}\n", "holds no costs"),
        ('{"a": 1}\n', "holds no costs"),
    ],
)
def test_a_file_without_costs_is_told(tmp_path, text, said):
    file = tmp_path / "costs.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidInputError, match=said):
        cost.read(file)


def test_a_word_that_cannot_be_fitted_is_a_disaster():
    assert torch.equal(
        cost.regrets(torch.tensor([[1.0, 1.5, float("nan")]])), torch.tensor([[0.0, 0.5, CONFIG.loss_cap]])
    )


def test_a_probable_word_is_not_expected_to_lose_much() -> None:
    table = torch.zeros(len(WORDS) + 3, len(WORDS))
    table[-1] = 2.0  # a regression that knows nothing and expects the worst
    sure = torch.full((len(WORDS),), 0.01 / (len(WORDS) - 1))
    sure[3] = 0.99
    loss = expected_loss(table, sure, torch.tensor([100, 4]))
    assert float(loss[3]) == pytest.approx(CONFIG.loss_cap * (1 - CONFIG.trust * 0.99), abs=1e-6)
    assert float(loss[3]) < 0.5
    assert torch.equal(loss[:3], torch.full((3,), 2.0, dtype=torch.float64))
