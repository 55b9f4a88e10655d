"""The shipped networks say what they said when they were shipped, and what anybody can see in plain tables."""

import itertools
import json

import numpy as np
import pytest

from golden.regenerate import FILE, said, tables
from kitt.network.caption import caption

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
