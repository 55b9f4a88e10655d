"""The shipped networks say what they said when they were shipped, and what anybody can see in plain tables."""

import itertools
import json

import numpy as np
import pytest

from golden.regenerate import FILE, said, tables
from kitt.kernels.grammar import Expression, Word
from kitt.network.caption import caption
from kitt.pipeline import suggest
from real_data import SHARED

GOLDEN = json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def now():
    return said()


def test_the_same_networks_are_bundled(now):
    assert now.keys() == GOLDEN.keys(), "weights changed: run tests/golden/regenerate.py and read the difference"


@pytest.mark.parametrize(("model", "table"), [(m, t) for m, answers in GOLDEN.items() for t in answers])
def test_captions_are_as_shipped(now, model, table):
    """Up to rounding, which may differ between processors."""
    assert [c for c, _ in now[model][table]] == [c for c, _ in GOLDEN[model][table]]
    assert [p for _, p in now[model][table]] == pytest.approx([p for _, p in GOLDEN[model][table]], rel=0.01)


def words_said(name: str, k: int = 3) -> str:
    X, y = tables()[name]
    return " + ".join(str(c.expression) for c in caption(X, y, k, head="classifier", ranking="probability").ranked)


@pytest.mark.parametrize(
    ("table", "part"),
    [("sine", "Periodic|Cosine"), ("plane", "Linear"), ("random walk", "Matern12"), ("white noise", "White")],
)
def test_what_anybody_can_see(table, part):
    assert any(p in words_said(table) for p in part.split("|"))


@pytest.mark.parametrize(("table", "part"), [("plane", "Linear"), ("sine", "Periodic")])
def test_prudence_does_not_hide_what_the_network_is_sure_of(table, part):
    assert any(part in str(c.expression) for c in caption(*tables()[table], 3).ranked[:2])


def test_noise_is_called_noise():
    """In tables of many sizes; a word that is no noise now and then comes first by chance (in 2 of these 72)."""
    first, among = [], []
    for n, d, seed in itertools.product((50, 200, 1000), (1, 2, 5), range(8)):
        rng = np.random.default_rng([n, d, seed])
        X, y = rng.normal(size=(n, d)), rng.normal(size=n)
        first.append("White" in str(caption(X, y, 1, head="classifier", ranking="probability").ranked[0].expression))
        among.append(any("White" in str(c.expression) for c in caption(X, y).ranked))
    assert np.mean(first) > 0.9
    assert np.mean(among) > 0.9


@pytest.mark.parametrize(
    ("table", "rows", "part"),
    [
        ("atlas/series/datasets.ldeaths.csv", 60, "Periodic"),
        ("atlas/series/datasets.fdeaths.csv", 60, "Periodic"),
    ],
)
def test_what_is_known_of_real_tables_is_named(table: str, rows: int, part: str) -> None:
    """A season of twelve months in sixty."""
    values = real_table(table)[:rows]
    assert any(part in str(c.expression) for c in caption(values[:, :-1], values[:, -1]))


@pytest.mark.slow
def test_waves_of_the_joints_of_an_arm_are_named_when_the_network_is_asked_again() -> None:
    """No caption of the table names them, but one of what the best caption leaves does."""
    values = real_table("uci/kin8nm.csv")[:600]
    mixture = suggest(values[:, :-1], values[:, -1], fit=True).mixture
    assert "Cosine" in str(mixture.models[mixture.best].expression)


def real_table(name: str) -> np.ndarray:
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED / name} is not there: the table is not part of this repository")
    return np.genfromtxt(SHARED / name, delimiter=",", skip_header=1)


def repeating(expression: Expression) -> list[Word]:
    return [word for word in expression if {"Periodic", "Cosine"} & {factor.value for factor in word.factors}]


@pytest.mark.parametrize("seed", range(3))
def test_a_trend_beside_a_season_is_named(seed: int) -> None:
    x = np.linspace(0, 10, 100)
    y = np.sin(3 * x) + x + 0.1 * np.random.default_rng(seed).standard_normal(100)
    said = caption(x[:, None], y)
    assert any("Linear" in map(str, c.expression) and repeating(c.expression) for c in said)


@pytest.mark.parametrize("seed", range(3))
def test_two_seasons_are_named(seed: int) -> None:
    """A day and a week, in four weeks of values every four hours, by one of the three most probable captions."""
    hours = np.arange(0, 24 * 28, 4.0)
    y = np.sin(2 * np.pi * hours / 24) + np.sin(2 * np.pi * hours / 168)
    y += 0.1 * np.random.default_rng(seed).standard_normal(len(hours))
    said = caption(hours[:, None], y, ranking="probability")
    assert any(len(repeating(c.expression)) >= 2 for c in said)


def test_a_target_that_has_nothing_to_do_with_the_columns_is_no_wave() -> None:
    """Of two values, or uniform: White is among the captions of nearly all tables."""
    white = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 3))
        y = rng.uniform(size=200) if seed % 2 else rng.integers(0, 2, 200).astype(float)
        white.append(any("White" in str(c.expression) for c in caption(X, y)))
    assert np.mean(white) > 0.8
