"""Statements are judged by the function itself, and contradictions are those that both explanations state."""

from dataclasses import replace

import numpy as np
import pytest

import kitt
from kitt.errors import InvalidInputError
from kitt.explanation import Effect, Explanation
from kitt.explanation.facts import OF_VARIANCE, Check
from kitt.model.curves import Shape
from kitt_lab.bench import statements
from kitt_lab.bench.statements import FUNCTIONS, Known

KNOWN = {of.name: of for of in FUNCTIONS}


@pytest.mark.parametrize("name", KNOWN)
def test_functions_have_the_columns_that_they_say(name: str) -> None:
    of = KNOWN[name]
    X = of.draw(np.random.default_rng(0), 50)
    assert X.shape == (50, of.columns)
    assert of.function(X).shape == (50,)
    assert np.ptp(of.function(X)) > 0


@pytest.mark.parametrize(
    ("name", "column", "shape", "is_true"),
    [
        ("lines", 0, Shape("rises", slope=(3.0, 0.1)), True),
        ("lines", 1, Shape("rises", slope=(2.0, 0.1)), False),
        ("growth", 0, Shape("rises"), True),
        ("growth", 0, Shape("rises", slope=(3.0, 0.1)), False),
        ("saturation", 0, Shape("rises", at=0.5), True),
        ("lines", 0, Shape("rises", at=0.5), False),
        ("bowl and line", 0, Shape("lowest", at=0.45), True),
        ("bowl and line", 0, Shape("lowest", at=0.8), False),
        ("bowl and line", 0, Shape("highest", at=0.4), False),
        ("step and line", 0, Shape("step up", at=0.62), True),
        ("step and line", 1, Shape("step up", at=0.5), False),
        ("sine", 0, Shape("rises"), False),
        ("sine", 0, Shape("falls", overall=True), True),
        ("hill", 0, Shape("falls", overall=True), False),
        ("sine", 0, Shape("up and down"), True),
        ("growth", 0, Shape("up and down"), False),
    ],
)
def test_a_shape_is_judged_by_the_true_curve(name: str, column: int, shape: Shape, is_true: bool) -> None:
    of: Known = KNOWN[name]
    x, f = statements._true_curve(of, of.draw(np.random.default_rng(0), 500), column)
    assert statements._is_true(shape, x, f) is is_true


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    X = np.random.default_rng(0).uniform(size=(40, 2))
    return kitt.explain(kitt.fit("Linear", X, X[:, 0] - X[:, 1], random_state=0), check=False)


def _said(explanation: Explanation, kinds: tuple[str, str], gains: tuple[float, float]) -> Explanation:
    checks = [Check("column", f"x{d + 1}", gain, 0.05, 40) for d, gain in enumerate(gains)]
    effects = tuple(Effect(f"x{d + 1}", 0.5, shape=Shape(kind)) for d, kind in enumerate(kinds))
    signal = Check("signal", "all columns", 0.9, 0.01, 40, OF_VARIANCE)
    ordered = tuple(sorted(effects, key=lambda e: -gains[int(e.column[1:]) - 1]))
    return replace(explanation, effects=ordered, checks=(signal, *checks))


def test_contradictions_are_opposite_shapes_and_clearly_reversed_orders(explanation: Explanation) -> None:
    first = _said(explanation, ("rises", "falls"), (1.0, 0.5))
    assert statements._contradictions(first, first) == (3, [])
    assert statements._contradictions(first, _said(explanation, ("falls", "falls"), (1.0, 0.5)))[1] == [
        "x1: rises, falls"
    ]
    assert statements._contradictions(first, _said(explanation, ("rises", "none"), (0.5, 1.0))) == (2, ["x1 before x2"])
    assert (
        statements._contradictions(first, _said(explanation, ("rises", "falls"), (0.95, 1.0)))[1] == []
    )  # not clearly


def test_statements_are_counted() -> None:
    with pytest.raises(InvalidInputError, match="no kind of table is called halfs"):
        statements.statement_cells(["halfs"], 1, 0, [])
    facts = {"answer": "shown", "costly": 2, "unmentioned": ["x2"]}
    judged = [{"column": "x1", "says": "rises", "is_true": True}, {"column": "x2", "says": "falls", "is_true": False}]
    lines = [
        {"key": {"kind": "signal"}, "status": "ok", "result": {**facts, "answer": "not shown", "statements": []}},
        {"key": {"kind": "structure"}, "status": "ok", "result": {**facts, "statements": judged}},
        {"key": {"kind": "halves"}, "status": "ok", "result": {**facts, "said": 5, "contradicted": ["x1 before x2"]}},
        {"key": {"kind": "halves"}, "status": "failed"},
    ]
    signal, structure, halves = statements.summary(lines)
    assert (signal["not shown"], signal["shown to be absent"], signal["unmentioned"]) == (1, 0, 1)
    assert (structure["statements"], structure["wrong"]) == (2, 1)
    assert (halves["count"], halves["statements"], halves["wrong"]) == (1, 5, 1)
