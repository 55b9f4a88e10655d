"""Training: recipes, one step, and scores."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from kitt.errors import InvalidInputError, KittError
from kitt.network.network import Captioner, PaperConfig, build
from kitt_lab.simulate import DEFAULT_DATA, PAD, PAPER_DATA, SERIES_DATA, Batch
from kitt_lab.train import (
    PRESETS,
    Optimiser,
    Sizes,
    TrainConfig,
    draw_batch,
    draw_validation,
    greedy,
    losses,
    recipe,
    score,
)
from kitt_lab.train.processes import OneProcess
from kitt_lab.train.step import Trainer
from kitt_lab.train.validate import caption_losses, network_captions, teacher_forcing
from train_work import SMOKE, STEM


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def a_batch(count: int = 12) -> Batch:
    return draw_batch(SMOKE.data, count, 10, 3, generator())


# --- recipes ---


@pytest.mark.parametrize("name", PRESETS)
def test_recipe_to_json_and_back(name: str) -> None:
    config = recipe(name)
    assert config.name == name
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_default_recipe_takes_inputs_of_tables(tmp_path: Path) -> None:
    config = recipe("default", tmp_path)
    data = config.data[0][0]
    assert (data.inputs, data.tables) == ("real", str(tmp_path.resolve()))
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.describe_data(public=True)[0]["tables"] == tmp_path.name
    assert replace(data, inputs="tabular", tables=None) == recipe("default").data[0][0]


@pytest.mark.parametrize("place", [(), ("network",), ("data", 0), ("sizes",), ("optimiser",), ("validation", 0)])
def test_an_unknown_key_is_an_error(place: tuple[Any, ...]) -> None:
    values: Any = SMOKE.to_dict()
    inner = values
    for key in place:
        inner = inner[key]
    inner["momentum"] = 1
    with pytest.raises(InvalidInputError, match="no field momentum"):
        TrainConfig.from_dict(values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: recipe("huge"), "'huge'; there are default, paper, smoke"),
        (lambda: recipe("paper", "tables"), "only the preset default takes inputs of tables, not 'paper'"),
        (lambda: replace(SMOKE, data=()), "data"),
        (lambda: replace(SMOKE, data=((PAPER_DATA, -1.0),)), "weights > 0"),
        (lambda: replace(SMOKE, data=((SERIES_DATA, 1.0),)), "no simulator draws tables of 4 columns"),
        (lambda: replace(SMOKE, classify="some"), "'some'"),
        (lambda: replace(SMOKE, precision="float8"), "float32, bfloat16, not 'float8'"),
        (lambda: replace(SMOKE, network=STEM, precision="bfloat16"), "only an encoder of points"),
        (lambda: replace(SMOKE, save_seconds=301), "between 0 and 300"),
        (lambda: replace(SMOKE, network=replace(SMOKE.network, max_words=2)), "3 words, the network allows at most 2"),
        (lambda: Sizes(n=(0, 5)), "n must be two integers"),
        (lambda: Sizes(d=(3, 2)), "d must be two integers"),
        (lambda: Sizes(work=0), "positive"),
        (lambda: Optimiser(lr=0), "lr must be positive"),
        (lambda: Optimiser(ema=1), r"in \[0, 1\), got 1"),
        (lambda: Optimiser(schedule="linear"), "'linear'"),
    ],
)
def test_impossible_recipes(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_schedules() -> None:
    paper = Optimiser(lr=1e-4, schedule="steps", warmup=0)  # of the paper's code
    assert_close([paper.rate(step, 0.9) for step in (0, 49_999, 50_000, 100_000)], [1e-4, 1e-4, 1e-5, 1e-6])
    cosine = Optimiser(lr=1.0, warmup=9, floor=0.1)
    assert_close([cosine.rate(*at) for at in ((0, 0.0), (9, 0.0), (99, 0.5), (99, 1.0))], [0.1, 1.0, 0.55, 0.1])


def test_sizes_cover_their_range_at_constant_work() -> None:
    sizes, g = Sizes(n=(16, 512), d=(1, 16), batch=(1, 10_000)), generator()
    drawn = [sizes.draw(g) for _ in range(2000)]
    assert {d for _, _, d in drawn} == set(range(1, 17))
    assert min(n for _, n, _ in drawn) == 16
    assert max(n for _, n, _ in drawn) > 500
    assert 0.4 < sum(n < 90 for _, n, _ in drawn) / 2000 < 0.6  # log-uniform: half below the geometric mean
    pair, dimension, value = sizes.costs
    work = [count * (n * n * (pair + dimension * d) + value * n * d) for count, n, d in drawn]
    assert max(work) <= sizes.work
    assert min(work) >= sizes.work / 2
    assert Sizes(n=(64, 64), d=(4, 4), batch=(128, 128)).draw(g) == (128, 64, 4)


# --- one step ---


def test_a_batch_mixes_its_sources() -> None:
    batch = draw_batch(((PAPER_DATA, 1.0), (DEFAULT_DATA, 1.0)), 64, 8, 2, generator())
    assert batch.X.shape == (64, 8, 2)
    assert batch.captions.shape == (64, 3)
    lengths = (batch.captions != PAD).sum(1)
    assert set(lengths.tolist()) == {1, 2, 3}
    assert ((batch.variances > 0).sum(1) == lengths).all()


def test_simulators_of_few_columns_take_no_part_in_wider_tables() -> None:
    only_series = replace(SERIES_DATA, words=(0,), trend=0.0, max_words=1)
    others = replace(PAPER_DATA, words=(1,))
    mixture = ((others, 1.0), (only_series, 1e9))
    assert (draw_batch(mixture, 8, 6, 1, generator()).captions == 0).all()
    assert (draw_batch(mixture, 8, 6, 2, generator()).captions == 1).all()


def test_losses_are_those_of_the_network() -> None:
    model, batch, network = build(SMOKE.network).eval(), a_batch(), SMOKE.network
    prompt, target = teacher_forcing(network_captions(batch, network), network)
    encodings = model.encode(batch.X, batch.y)
    log_p, logits = model.classify(encodings), model.decode(encodings, prompt)
    by_name = losses(model, batch, SMOKE)
    assert_close(by_name["word"], -log_p[range(12), batch.captions[:, 0]])
    assert_close(
        by_name["caption"].sum() / (target != network.pad).sum(),
        cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=network.pad),
    )
    single = (batch.captions != PAD).sum(1) == 1
    assert_close(losses(model, batch, replace(SMOKE, classify="single"))["word"], by_name["word"] * single)


def test_half_the_digits_change_the_losses_a_little() -> None:
    model, batch = Trainer(SMOKE, OneProcess()).model.eval(), draw_batch(SMOKE.data, 16, 20, 2, generator())
    exact, rough = (losses(model, batch, replace(SMOKE, precision=p)) for p in ("float32", "bfloat16"))
    for key, value in exact.items():
        assert rough[key].dtype == torch.float32
        assert_close(rough[key], value, rtol=0.05, atol=0.05)
        assert not torch.equal(rough[key], value)


def test_an_encoder_that_guesses_is_taught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitt_lab.train.step._MEASURED", 2)
    config = replace(SMOKE, network=STEM)
    trainer = Trainer(config, OneProcess())
    trainer.measure()
    assert any(normaliser.mean.abs().max() > 0 for normaliser in trainer.averaged.encoder.normalise)  # type: ignore[union-attr]
    values = trainer.train_step(0.0)
    assert values.keys() == {"word", "caption", "roughness", "noise"}
    assert all(p.grad is not None for p in trainer.model.parameters())


def test_a_gradient_that_is_not_finite_is_skipped_and_many_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(SMOKE, OneProcess())
    before = [p.clone() for p in trainer.model.parameters()]
    monkeypatch.setattr("kitt_lab.train.step.losses", lambda model, *_: {"word": model.decoder.logits.bias * math.nan})
    monkeypatch.setattr("kitt_lab.train.step._PATIENCE", 2)
    trainer.train_step(0.0)
    with pytest.raises(KittError, match="diverged"):
        trainer.train_step(0.0)
    assert all(p.equal(old) for p, old in zip(trainer.model.parameters(), before, strict=True))


# --- scores ---


class Oracle(Captioner):
    """Says the captions it is given."""

    def __init__(self, captions: Tensor, config: PaperConfig) -> None:
        torch.nn.Module.__init__(self)
        self.captions, self.config = captions, config

    def encode(self, X: Tensor, y: Tensor) -> Tensor:
        return torch.zeros(len(X), 1, 1)

    def classify(self, encodings: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(self.captions[:, 0], self.config.words).float().mul(20).log_softmax(-1)

    def decode(self, encodings: Tensor, prompt: Tensor) -> Tensor:
        _, target = teacher_forcing(self.captions, self.config)
        return torch.nn.functional.one_hot(target, self.config.pad + 1)[:, : prompt.shape[1], :-2].float() * 20


def test_scores_of_an_oracle_and_of_a_liar() -> None:
    config, batch = SMOKE.network, a_batch()
    captions = network_captions(batch, config)
    best = score(Oracle(captions, config), config, batch)  # type: ignore[arg-type]
    assert [best[key] for key in ("top1", "top3", "top5", "exact", "recall")] == [1.0] * 5
    assert max(best["word_loss"], best["token_loss"], best["caption_loss"]) < 1e-5
    wrong = captions.where(captions >= config.words, (captions + 1) % config.words)
    worst = score(Oracle(wrong, config), config, batch)  # type: ignore[arg-type]
    assert worst["top1"] == worst["exact"] == 0
    assert worst["word_loss"] > 10


def test_greedy_says_the_likeliest_allowed_word_at_every_step() -> None:
    config, batch = SMOKE.network, a_batch()
    torch.manual_seed(0)
    model = build(config).eval()
    encodings = model.encode(batch.X, batch.y)
    for i, caption in enumerate(greedy(model, encodings, config).tolist()):
        prompt: list[int] = [config.start]
        for word in caption:
            logits = model.decode(encodings[i : i + 1], torch.tensor([prompt]))[0, -1].tolist()
            allowed = [w for w in range(config.words + 1) if w not in prompt and (w < config.stop or len(prompt) > 1)]
            expected = max(allowed, key=lambda w: logits[w])
            assert word == (config.pad if expected == config.stop else expected)
            if expected == config.stop:
                break
            prompt.append(word)


def test_scores_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, model = draw_validation(SMOKE.validation[1]), build(SMOKE.network)
    whole = score(model, SMOKE.network, batch)
    assert model.training
    monkeypatch.setattr("kitt_lab.train.validate._CHUNK", 3 * 16 * 16 * 2)
    assert_close(score(model, SMOKE.network, batch), whole, rtol=1e-5, atol=1e-6)


def test_caption_losses_ignore_what_follows_stop() -> None:
    config = SMOKE.network
    logits = torch.randn(1, 3, config.words + 1, generator=generator())
    target = torch.tensor([[4, config.stop, config.pad]])
    expected = -(logits.log_softmax(-1)[0, 0, 4] + logits.log_softmax(-1)[0, 1, config.stop])
    assert_close(caption_losses(logits, target, config), expected[None])
