"""The tables of the benchmark: splits as in the protocol, and scores."""

import math
from pathlib import Path

import numpy as np
import pytest

from bench_work import write_table
from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt_lab.bench import datasets, metrics
from kitt_lab.bench.datasets import data_directory, sources, split
from real_data import SHARED

# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [308, 2000, 9568])
@pytest.mark.parametrize("number", [0, 9])
def test_splits_are_those_of_the_protocol(n: int, number: int) -> None:
    order = np.arange(n)
    np.random.RandomState(42 + number).shuffle(order)
    cut = math.floor(0.9 * n)
    train, test = order[:cut], order[cut:]
    if n > 2000:
        stacked = np.concatenate([train, test])
        drawn = np.random.RandomState(0).choice(n, 2000, replace=False)
        train, test = stacked[drawn[:1800]], stacked[drawn[1800:]]
    ours = datasets.paper_rows(n, number)
    assert np.array_equal(ours[0], train)
    assert np.array_equal(ours[1], test)
    assert len(set(train) | set(test)) == min(n, 2000)


def test_splits_never_change() -> None:
    train, test = datasets.paper_rows(9568, 3)
    assert (train[:3].tolist(), test[-3:].tolist()) == ([9127, 645, 9498], [7358, 2766, 7081])


def test_other_rules() -> None:
    train, test = datasets.few_rows(308, 0)
    assert (len(train), len(test)) == (200, 108)
    train, test = datasets.few_rows(5000, 0)
    assert (len(train), len(test)) == (200, 400)
    train, test = datasets.capped_rows(9568, 1)
    assert np.array_equal(train, datasets.paper_rows(9568, 1)[0][:500])
    assert len(test) == 200
    train, test = datasets.extrapolation_rows(145, 2)
    assert train.max() < test.min()
    assert len(test) == 29
    train, test = datasets.interpolation_rows(145, 2)
    assert sorted([*train, *test]) == list(range(145))


def test_any_folder_of_tables(tmp_path: Path) -> None:
    write_table(tmp_path / "one.csv")
    write_table(tmp_path / "two.csv")
    assert [source.name for source in sources(tmp_path)] == ["one", "two"]
    assert sources(tmp_path, ["two"])[0].load().names == ("a", "b")
    with pytest.raises(InvalidInputError, match=r"no table three in .* there are one, two"):
        sources(tmp_path, ["three"])
    write_table(tmp_path / "yacht.csv")
    with pytest.raises(InvalidInputError, match="not the table 'yacht' of the manifest"):
        sources(tmp_path)


def test_missing_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KITT_DATA_DIR", raising=False)
    with pytest.raises(InvalidInputError, match="--data, or in KITT_DATA_DIR"):
        data_directory(None)
    with pytest.raises(InvalidInputError, match="where there is none"):
        data_directory(tmp_path / "nowhere")
    (tmp_path / "uci").mkdir()
    monkeypatch.setenv("KITT_DATA_DIR", str(tmp_path))
    assert data_directory(None) == tmp_path / "uci"


@pytest.mark.skipif(not (SHARED / "uci").is_dir(), reason="the UCI tables are not at hand")
def test_the_manifest_describes_the_tables() -> None:
    tables = sources(data_directory(SHARED))
    assert [source.name for source in tables] == [known.name for known in datasets.manifest("uci")]
    for source, known in zip(tables, datasets.manifest("uci"), strict=True):
        assert source.load().X.shape == (known.rows, known.columns)
    wine = sources(data_directory(SHARED), ["wine"])[0].load()
    shares = [split(wine, "paper", number).is_copy.mean() for number in range(10)]
    assert np.mean(shares) == pytest.approx(0.267, abs=5e-4)


# --- metrics ---------------------------------------------------------------------------------------------------------


class Constant:
    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(X)), np.ones(len(X))

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -0.5 * (y**2 + math.log(2 * math.pi))


def test_scores_with_and_without_copies() -> None:
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 2.0, 3.0])
    whole = Dataset.from_arrays(np.arange(8.0)[:, None], np.arange(8.0))
    test = datasets.Split(whole, Dataset(X, y, whole.names, "y", whole.encoding), np.array([False, False, True]))
    scores = metrics.scores(Constant(), test)
    assert scores["rmse"] == pytest.approx(math.sqrt(14 / 3))
    assert scores["nlpd"] == pytest.approx(14 / 6 + 0.5 * math.log(2 * math.pi))
    assert scores["rmse_without_copies"] == pytest.approx(math.sqrt(5 / 2))
    assert scores["nlpd_standardised"] == pytest.approx(scores["nlpd"] - math.log(whole.y.std()))
    assert scores["copies"] == 1


def test_copies_are_found() -> None:
    data = Dataset.from_arrays(np.tile(np.arange(20.0), 2)[:, None], np.tile(np.arange(20.0), 2))
    part = split(data, "paper", 0)
    seen = set(part.train.y)
    assert part.is_copy.tolist() == [y in seen for y in part.test.y]
    assert part.is_copy.any()
