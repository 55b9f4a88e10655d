"""Training runs: one that is stopped, killed or split among processes ends the same; and the commands."""

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

from kitt.app.cli.main import app, main
from kitt.errors import CheckpointError, InvalidInputError
from kitt.network.checkpoint import load, read_facts
from kitt_lab.train import (
    Optimiser,
    Progress,
    RunFolder,
    train,
)
from kitt_lab.train.processes import OneProcess
from kitt_lab.train.step import Trainer
from train_work import EVERY_STEP, SMOKE


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
    monkeypatch.setattr("kitt_lab.train.loop.time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
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
    with pytest.raises(InvalidInputError, match="has another seed than requested"):
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
faulthandler.dump_traceback_later(300, exit=True)  # of a process that hangs, shows where
from dataclasses import replace
from kitt_lab.train import recipe, train
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
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False)
    if "Timeout (0:05:00)" in result.stderr:  # gloo has hung once in some fifty runs, before a step was made
        warnings.warn(f"two processes did not find each other, once more:\n{result.stderr}", stacklevel=1)
        shutil.rmtree(together)
        result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False)
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
    assert [run["steps"] for run in read_facts(go_on).extra["earlier"]] == [3]


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
