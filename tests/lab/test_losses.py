"""The corpus of losses: tasks of real tables, quick fits, one file for each task."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kitt.app.cli.main import app
from kitt.errors import InvalidInputError
from kitt.kernels.grammar import WORDS, parse
from kitt_lab import losses
from kitt_lab.tasks import TaskConfig, data_of, draw_task

pytestmark = pytest.mark.xdist_group("losses")  # which are made once


def test_a_task_is_a_function_of_its_seed(tables: Path) -> None:
    seen = set()
    for seed in range(20):
        task, again = draw_task(tables, seed), draw_task(tables, seed)
        assert task is not None
        assert again is not None
        assert (task.table, task.target, *task.train) == (again.table, again.target, *again.train)
        assert task.target not in task.columns
        assert not set(task.train) & set(task.test)
        assert len(task.train) >= 50
        assert len(task.train) <= 60 or task.table.startswith("simulated")
        data = data_of(tables, task)
        assert np.allclose(data.X.mean(0), 0)
        assert np.allclose(data.y.std(), 1)
        assert data.test_inputs.shape == (len(task.test), len(task.columns))
        seen.add((task.table, task.target))
    assert len(seen) > 4


def test_large_tasks_can_be_asked_for(tables: Path, tmp_path: Path) -> None:
    losses.make_losses(str(tables), str(tmp_path), 5, least_rows=60)
    assert len(losses.Record.read(tmp_path / "5.npz").y) == 60  # two thirds of the table, which is the most
    asked = ["bench", "losses", "--data", str(tables), "--out", str(tmp_path), "--least-rows", "301"]
    with pytest.raises(InvalidInputError, match="tasks have at most 300 training rows"):
        CliRunner().invoke(app, asked, catch_exceptions=False)


def test_a_target_of_few_levels_or_under_another_name_makes_no_task(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(100, 1))
    np.savetxt(tmp_path / "same.csv", np.hstack([x, np.exp(x)]), delimiter=",", header="x,y", comments="")
    real = TaskConfig(simulated=0.0)
    assert draw_task(tmp_path, 0, real) is None
    np.savetxt(tmp_path / "same.csv", np.hstack([x > 0, x > 1]), delimiter=",", header="x,y", comments="")
    assert draw_task(tmp_path, 0, real) is None


def test_a_shuffled_target_has_the_same_values_in_other_rows(tables: Path) -> None:
    config = TaskConfig(simulated=0.0, shuffled=1.0)
    task = draw_task(tables, 3, config)
    assert task is not None
    as_it_is = data_of(tables, replace(task, is_shuffled=False))
    shuffled = data_of(tables, task)
    assert np.array_equal(shuffled.X, as_it_is.X)
    assert not np.allclose(shuffled.y, as_it_is.y)
    assert not task.is_real
    assert replace(task, is_shuffled=False).is_real
    raw = replace(task, train=np.arange(90), test=np.arange(90))
    both = [data_of(tables, replace(raw, is_shuffled=shuffled)).y for shuffled in (False, True)]
    assert np.allclose(np.sort(both[0]), np.sort(both[1]))


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="expected CSV files"):
        draw_task(tmp_path, 0, TaskConfig())


def test_a_file_has_every_word_with_changing_noise_and_some_sums(corpus: Path) -> None:
    record = losses.Record.read(losses.files(corpus)[0])
    expressions = set(record.expressions)
    assert {str(word) for word in WORDS} <= expressions
    assert {f"{word} + Linear*White" for word in WORDS if not word.is_noise} <= expressions
    sums = [text for text in expressions if "+" in text and "Linear*White" not in text]
    assert sums
    assert all(len(parse(text).words) == 2 for text in sums)
    assert {f"{text} + Linear*White" for text in sums} <= expressions  # in the same design as words
    F, N, M = len(record.expressions), len(record.y), len(record.test_targets)
    assert record.loo_mean.shape == record.loo_variance.shape == (F, N)
    assert record.mean.shape == record.variance.shape == (F, M)
    assert (record.loo_variance > 0).all()
    assert np.isfinite(record.mean).all()


def test_fits_are_good_and_deterministic(tables: Path, corpus: Path, tmp_path: Path) -> None:
    losses.make_losses(str(tables), str(tmp_path), 9)
    one, two = (losses.Record.read(folder / "9.npz") for folder in (corpus, tmp_path))
    assert np.allclose(one.mean, two.mean, atol=1e-3)
    assert one.expressions == two.expressions
    task = draw_task(tables, 10)
    assert task is not None
    assert (task.is_real, task.target, 0 in task.columns) == (True, 3, True)
    record = losses.Record.read(corpus / "10.npz")
    error = record.test_targets - record.mean[record.expressions.index("RBF")]
    assert (error**2).mean() < 0.5


def test_a_foreign_file_is_refused_and_so_is_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "3.npz").write_bytes(b"nothing")
    with pytest.raises(InvalidInputError, match="not a file of `kitt bench losses`"):
        losses.Record.read(tmp_path / "3.npz")
    with pytest.raises(InvalidInputError, match="there are no losses"):
        losses.files(tmp_path / "elsewhere")


def test_the_command_makes_what_is_missing(tables: Path, corpus: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in losses.files(corpus)}
    arguments = ["bench", "losses", "--data", str(tables), "--out", str(corpus), "--jobs", "0"]
    result = CliRunner().invoke(app, [*arguments, "--first", "10", "--count", "4"])
    assert result.exit_code == 0, result.output
    after = {path: path.stat().st_mtime_ns for path in losses.files(corpus)}
    assert before.items() <= after.items()
    assert {path.stem for path in after} == {"9", "10", "11", "12", "13"}
    assert not list(corpus.glob(".*.tmp"))
