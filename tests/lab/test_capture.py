"""Capture: from lines written by hand, its design, and its command."""

from pathlib import Path

import numpy as np
import pytest

from atlas_work import run
from kitt.kernels.grammar import WORDS, parse
from kitt.table.dataset import Dataset
from kitt_lab.bench import atlas, capture
from kitt_lab.bench.runner import Line, read


def capture_lines(table: str, gains: dict[str, float], captions: list[str], bic: dict[str, float]) -> list[Line]:
    """All words as good as Matern32, but for those that gain."""
    nlpd = {str(word): 5.0 - gains.get(str(word), 0.0) for word in WORDS}
    price = {text: bic.get(text, 100.0) for text in (*nlpd, *captions)}
    key = {"bench": "capture", "table": table, "split": 0, "rows": 200, "options": {}, "seed": 0}
    said = {"nlpd": {c: nlpd.get(c, 5.0 - gains.get(c, 0.0)) for c in captions}, "bic": {c: price[c] for c in captions}}
    return [
        {"key": {**key, "what": "words"}, "status": "ok", "result": {"nlpd": nlpd, "bic": price}},
        {
            "key": {**key, "what": "captions", "model": "net", "k": 3, "network": "0"},
            "status": "ok",
            "result": {**said, "captions": captions},
        },
    ]


def test_capture() -> None:
    lines = [
        *capture_lines("rich", {"Linear": 3.0, "RBF": 0.5}, ["RBF", "Linear", "Cosine"], {"Linear": 1.0}),
        *capture_lines("poor", {"Linear": 1.0, "RBF": -2.0}, ["RBF", "Cosine", "Periodic"], {"RBF": 1.0}),
        *capture_lines("none", {"RBF": -0.4, "Linear": 0.02}, ["RBF", "Linear", "Cosine"], {"Linear": 1.0}),
    ]
    by_row = {row.who: row for row in capture.capture_table(capture.cases(lines, 200, "net"))}
    first, verified, hindsight = (by_row[who] for who in list(capture.CHOICES)[:3])
    assert (first.tables, first.others) == (2, 1)
    assert first.share == pytest.approx((0.5 - 1.0) / 2)  # one nat is the most that a table counts, lost or gained
    assert first.elsewhere == pytest.approx(0.4)
    assert (first.worst, first.worst_table) == (pytest.approx(2.0), "poor")
    assert verified.share == pytest.approx((1.0 - 1.0) / 2)
    assert verified.elsewhere == pytest.approx(-0.02)
    assert hindsight.share == pytest.approx((1.0 + 0.0) / 2)
    everywhere = by_row["RBF always"]
    assert everywhere.share == pytest.approx(first.share)
    chance = by_row["a random word, on average"]
    assert chance.share == pytest.approx((3.5 - 1.0) / len(WORDS) / 2)
    assert capture.capture_table(capture.cases(lines, 200, "another")) == []
    assert "(2 tables, and 1 others)" in capture.capture_grid(lines, 200, "net").title


def test_a_caption_that_could_not_be_fitted() -> None:
    lines = capture_lines("t", {"Linear": 0.5}, ["Cosine + Linear", "Linear"], {})
    for name in ("nlpd", "bic"):
        del lines[1]["result"][name]["Cosine + Linear"]
    (case,) = capture.cases(lines, 200, "net")["t"]
    assert case.fitted_captions == ["Linear"]
    assert capture.Case(case.nlpd, case.bic, ("Cosine + Linear",)).fitted_captions == ["Matern32"]


def test_the_design_of_capture(folder: Path) -> None:
    train, test = atlas.split(atlas.sources(folder)[0], 200, 0)
    words = [parse(text) for text in ("RBF", "Linear*White", "RBF + Linear")]
    by_row = capture.judged(train, test, words, {}, 0)
    assert list(by_row["nlpd"]) == list(by_row["bic"]) == ["RBF", "Linear*White", "RBF + Linear"]
    assert by_row["nlpd"]["RBF"] < np.log(test.y.std()) + 1.4  # better than a constant
    far = Dataset.from_arrays(test.X, np.where(np.arange(test.n) == 0, 100.0, test.y))
    components = [capture.Component(np.zeros(train.n), np.full(test.n, -1e4), 0.0)]
    tail = capture.mixture_nlpd(components, train, far)
    assert tail < 20  # the tail saves what the component gives up


def test_capture_command(folder: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "capture.jsonl")
    quick = ["--set", "max_iterations=1", "--set", "trial_iterations=1", "--set", "batch_steps=1"]
    shared = ["--data", str(folder), "--rows", "20", "--tables", "some.lines", "--jobs", "0", "--out", out, *quick]
    told = run("capture", *shared)
    assert "the network's first caption" in told
    assert [entry["key"]["what"] for entry in read(out)] == ["words", "captions"]
    assert run("capture", *shared) == told
