"""Training: recipes, losses, scores; a run that is stopped, killed or split among processes ends the same."""

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from typer.testing import CliRunner

from kitt.cli.main import app, main
from kitt.errors import CheckpointError, InvalidInputError, KittError
from kitt.lab.simulate import DEFAULT_DATA, PAD, PAPER_DATA, Batch
from kitt.lab.train import (
    PRESETS,
    Optimiser,
    Progress,
    RunFolder,
    Sizes,
    TrainConfig,
    draw_batch,
    draw_validation,
    greedy,
    losses,
    recipe,
    score,
    train,
)
from kitt.lab.train.processes import OneProcess
from kitt.lab.train.step import Trainer
from kitt.lab.train.validate import caption_losses, network_captions
from kitt.network.checkpoint import load, read_facts
from kitt.network.network import Captioner, PaperConfig, StemConfig, build, caption_loss, teacher_forcing

SMOKE = replace(recipe("smoke"), log_seconds=1e9, eval_seconds=1e9)  # nothing is written because of the clock
EVERY_STEP = replace(SMOKE, save_seconds=0)
STEM = StemConfig(width=8, heads=2, blocks=1, probe_blocks=1, decoder_width=8, decoder_heads=2, decoder_blocks=1)


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
        (lambda: replace(SMOKE, classify="some"), "'some'"),
        (lambda: replace(SMOKE, save_seconds=301), "between 0 and 300"),
        (lambda: replace(SMOKE, network=replace(SMOKE.network, max_words=2)), "3 words, the network says at most 2"),
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
    paper = recipe("paper").optimiser
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


def test_losses_are_those_of_the_network() -> None:
    model, batch, network = build(SMOKE.network).eval(), a_batch(), SMOKE.network
    prompt, target = teacher_forcing(network_captions(batch, network), network)
    log_p, logits = model(batch.X, batch.y, prompt)
    found = losses(model, batch, SMOKE)
    assert_close(found["word"], -log_p[range(12), batch.captions[:, 0]])
    assert_close(found["caption"].sum() / (target != network.pad).sum(), caption_loss(logits, target))
    single = (batch.captions != PAD).sum(1) == 1
    assert_close(losses(model, batch, replace(SMOKE, classify="single"))["word"], found["word"] * single)


def test_an_encoder_that_guesses_is_taught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitt.lab.train.step._MEASURED", 2)
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
    monkeypatch.setattr("kitt.lab.train.step.losses", lambda model, *_: {"word": model.decoder.logits.bias * math.nan})
    monkeypatch.setattr("kitt.lab.train.step._PATIENCE", 2)
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

    def encode(self, X: Tensor, y: Tensor, n_mask: Any = None, d_mask: Any = None) -> Tensor:
        return torch.zeros(len(X), 1, 1)

    def classify(self, encodings: Tensor, d_mask: Any = None) -> Tensor:
        return torch.nn.functional.one_hot(self.captions[:, 0], self.config.words).float().mul(20).log_softmax(-1)

    def decode(self, encodings: Tensor, d_mask: Any, prompt: Tensor) -> Tensor:
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
    for i, caption in enumerate(greedy(model, encodings, None, config).tolist()):
        prompt: list[int] = [config.start]
        for word in caption:
            logits = model.decode(encodings[i : i + 1], None, torch.tensor([prompt]))[0, -1].tolist()
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
    monkeypatch.setattr("kitt.lab.train.validate._CHUNK", 3 * 16 * 16 * 2)
    assert_close(score(model, SMOKE.network, batch), whole, rtol=1e-5, atol=1e-6)


def test_caption_losses_ignore_what_follows_stop() -> None:
    config = SMOKE.network
    logits = torch.randn(1, 3, config.words + 1, generator=generator())
    target = torch.tensor([[4, config.stop, config.pad]])
    expected = -(logits.log_softmax(-1)[0, 0, 4] + logits.log_softmax(-1)[0, 1, config.stop])
    assert_close(caption_losses(logits, target, config), expected[None])


# --- runs ---


def weights(folder: Path) -> dict[str, Tensor]:
    state = RunFolder(folder).load_state()
    return state["model"] | {f"ema.{key}": value for key, value in state["ema"].items()}


def stop_at(step: int) -> Any:
    def stop(progress: Progress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    return stop


def test_a_stopped_and_resumed_run_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    unbroken = train(EVERY_STEP, tmp_path / "a", steps=20)
    with pytest.raises(KeyboardInterrupt):
        train(EVERY_STEP, tmp_path / "b", steps=20, progress=stop_at(11))
    assert RunFolder(tmp_path / "b").load_state()["step"] == 10
    resumed = train(None, tmp_path / "b", resume=True)
    assert torch.get_rng_state().equal(before)
    one, two = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert one.keys() == two.keys()
    assert all(one[key].equal(two[key]) for key in one)
    first, second = read_facts(unbroken), read_facts(resumed)
    assert first.scores == second.scores
    assert (first.steps, first.datasets_seen) == (second.steps, second.datasets_seen)
    events = RunFolder(tmp_path / "b").events()
    assert [e["event"] for e in events] == ["start", "resume", "train", "eval", "end"]


def test_a_finished_run_has_everything(tmp_path: Path) -> None:
    seen: list[Progress] = []
    path = train(SMOKE, tmp_path, steps=5, progress=seen.append)
    facts = load(path).facts
    assert facts.config == SMOKE.network
    assert facts.data == SMOKE.describe_data()
    assert facts.steps == 5
    assert facts.datasets_seen > 0
    assert facts.scores.keys() == {"paper-16x2", "default-16x2"}
    assert [p.step for p in seen] == [1, 2, 3, 4, 5]
    assert seen[-1].spent == 1
    assert seen[-1].left == 0
    assert [e["event"] for e in RunFolder(tmp_path).events()] == ["start", "train", "eval", "end"]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    ema = RunFolder(tmp_path).load_state()["ema"]
    assert all(value.equal(ema[f"module.{key}"]) for key, value in load(path).model.state_dict().items())


def test_a_longer_budget_extends_a_run(tmp_path: Path) -> None:
    train(SMOKE, tmp_path, steps=3)
    assert read_facts(train(SMOKE, tmp_path, steps=5, resume=True)).steps == 5
    assert read_facts(train(None, tmp_path, resume=True)).steps == 5


def test_hours_are_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()  # a clock that goes on by a second whenever somebody looks at it
    monkeypatch.setattr("kitt.lab.train.loop.time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    facts = read_facts(train(SMOKE, tmp_path, hours=100 / 3600))
    assert 1 <= facts.steps <= 100
    assert 100 <= facts.training_seconds < 120  # it ends with the step during which the budget is spent


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hours": -1}, "hours must be a positive number, got -1"),
        ({"hours": math.nan}, "hours"),
        ({"steps": 0}, "steps must be at least 1"),
        ({}, "give hours or steps"),
        ({"steps": 1, "threads": 0}, "threads must be at least 1"),
    ],
)
def test_impossible_budgets(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        train(SMOKE, tmp_path, **arguments)
    assert not RunFolder(tmp_path).has_run()


def test_a_run_is_not_overwritten_nor_resumed_as_another(tmp_path: Path) -> None:
    train(SMOKE, tmp_path, steps=1)
    with pytest.raises(InvalidInputError, match=r"holds a training run.*--resume"):
        train(SMOKE, tmp_path, steps=1)
    with pytest.raises(InvalidInputError, match="has another seed than asked for"):
        train(replace(SMOKE, seed=1), tmp_path, steps=1, resume=True)
    watched = replace(SMOKE, eval_seconds=0, validation=SMOKE.validation[:1])
    assert read_facts(train(watched, tmp_path, steps=2, resume=True)).scores.keys() == {"paper-16x2"}
    assert len(read_facts(train(SMOKE, tmp_path, steps=3, resume=True)).scores) == 2
    with RunFolder(tmp_path).locked(), pytest.raises(InvalidInputError, match="another run is writing"):
        train(SMOKE, tmp_path, steps=2, resume=True)
    with pytest.raises(InvalidInputError, match="is a file"):
        train(SMOKE, tmp_path / "log.jsonl", steps=1)


def test_an_unreadable_state_falls_back_to_the_one_before(tmp_path: Path) -> None:
    train(EVERY_STEP, tmp_path, steps=3)
    folder = RunFolder(tmp_path)
    folder.state.write_bytes(folder.state.read_bytes()[:-1000])
    with pytest.warns(UserWarning, match=r"state\.pt cannot be read.*going on from .*state\.pt\.bak"):
        train(None, tmp_path, steps=4, resume=True)
    for content in (b"", b"foreign", b"\x89PNG"):
        folder.state.write_bytes(content)
        folder.backup.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"state\.pt cannot be read.*state\.pt\.bak cannot be read"):
            folder.load_state()
    torch.save({"version": 99}, folder.state)
    with pytest.raises(CheckpointError, match="not a training state of version 1, but of version 99"):
        folder.load_state()


def test_a_damaged_state_is_noticed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (1, 2):
        folder.save_state({"step": step, "weights": torch.zeros(1000)})
    content = bytearray(folder.state.read_bytes())
    content[len(content) // 2] ^= 1
    folder.state.write_bytes(content)
    with pytest.warns(UserWarning, match="saved at step 1"):
        assert folder.load_state()["step"] == 1


def test_a_torn_line_of_the_log_is_left_behind(tmp_path: Path) -> None:
    train(SMOKE, tmp_path, steps=2)
    folder = RunFolder(tmp_path)
    with folder.log.open("a") as log:
        log.write('{"event": "tra')
    train(None, tmp_path, steps=3, resume=True)
    assert [e["step"] for e in folder.events() if e["event"] == "train"] == [2, 3]


# --- processes ---

SCRIPT = """
import faulthandler
import sys
faulthandler.dump_traceback_later(120, exit=True)  # a hang says where
from dataclasses import replace
from kitt.lab.train import recipe, train
smoke = recipe("smoke")
train(replace(smoke, save_seconds=float(sys.argv[2]), network=replace(smoke.network, dropout=0.0)), sys.argv[1],
      steps=int(sys.argv[3]))
"""
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def test_kill_9_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    script, out = tmp_path / "run.py", tmp_path / "run"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(script), str(out), "0", "100000"], env=ENVIRONMENT)
    folder = RunFolder(out)
    try:
        while not folder.backup.exists():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.7)  # it saves after every step, so it is probably saving now; the test holds if it is not
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    saved = folder.load_state()["step"]
    assert saved > 0
    assert load(folder.checkpoint).facts.steps in (saved, saved - 1)
    assert read_facts(train(None, out, steps=saved + 2, resume=True)).steps == saved + 2
    assert not list(out.glob(".*.tmp"))


def test_two_processes_give_the_weights_of_one(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    alone, together = tmp_path / "alone", tmp_path / "together"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, str(script), str(together), "300", "6"]
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    if "Timeout (0:02:00)" in result.stderr:  # gloo has hung once in some fifty runs, before a step was made
        warnings.warn(f"two processes did not find each other, once more:\n{result.stderr}", stacklevel=1)
        shutil.rmtree(together)
        result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    train(replace(SMOKE, save_seconds=300.0, network=replace(SMOKE.network, dropout=0.0)), alone, steps=6)
    one, two = weights(alone), weights(together)
    start = build_start()
    assert max(float((one[key] - start[key]).abs().max()) for key in start) > 1e-3
    for key in one:
        assert_close(two[key], one[key], rtol=1e-5, atol=1e-5)


def build_start() -> dict[str, Tensor]:
    with torch.random.fork_rng():
        return Trainer(SMOKE, OneProcess()).model.state_dict()


def test_a_run_starts_from_the_weights_of_a_checkpoint(tmp_path: Path) -> None:
    earlier = train(EVERY_STEP, tmp_path / "earlier", steps=3)
    slow = replace(EVERY_STEP, optimiser=Optimiser(lr=1e-12, warmup=0), seed=5)
    train(slow, tmp_path / "new", steps=1, start_from=earlier)
    new = weights(tmp_path / "new")
    for key, value in load(earlier).model.state_dict().items():
        assert_close(new[key], value)
    go_on = train(None, tmp_path / "new", steps=2, resume=True, start_from="default")  # a run that is there goes on
    assert read_facts(go_on).steps == 2


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"another architecture than the preset 'smoke'.*width 128 instead of 16"
    ):
        train(SMOKE, tmp_path, steps=1, start_from="default")


# --- the command line ---


def test_commands(tmp_path: Path) -> None:
    run = CliRunner()
    arguments = ["train", "--preset", "smoke", "--out", str(tmp_path), "--seed", "3"]
    result = run.invoke(app, [*arguments, "--steps", "2"])
    assert result.exit_code == 0, result.output
    assert "2 steps" in result.output
    result = run.invoke(app, ["train", "--resume", "--steps", "3", "--out", str(tmp_path)])
    assert "3 steps" in result.output
    result = run.invoke(app, ["model", "--json", str(tmp_path / "checkpoint.safetensors")])
    assert json.loads(result.output)["steps"] == 3
    assert run.invoke(app, ["model"]).exit_code == 0
    start = ["--from", str(tmp_path / "checkpoint.safetensors"), "--preset", "smoke", "--steps", "1"]
    result = run.invoke(app, ["train", *start, "--out", str(tmp_path / "next")])
    assert "1 steps" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model", "huge"], "no checkpoint 'huge'"),
        (["train", "--out", "OUT", "--hours", "-2"], "hours must be a positive number"),
        (["train", "--out", "OUT", "--preset", "huge"], "no training preset is called 'huge'"),
        (["train", "--out", "OUT", "--preset", "smoke", "--steps", "1", "--from", "default"], "another architecture"),
        (["train", "--out", "OUT", "--preset", "smoke", "--steps", "1", "--tables", "OUT"], "only the preset default"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["kitt", *(str(tmp_path) if a == "OUT" else a for a in arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    shown = capsys.readouterr().err.strip()
    assert shown.startswith("error:")
    assert message in shown
    assert len(shown.splitlines()) == 1
