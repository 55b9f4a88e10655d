"""That columns explain nothing is said only if they cannot; what is open is said with what would probably decide it."""

from dataclasses import replace

import numpy as np
import pytest
from explain_work import fit

import kitt
from kitt.explanation.absence import column_limit, rows_for_absence, upper_limit
from kitt.explanation.facts import OF_VARIANCE, Answer, Check
from kitt.model.evidence import EvidenceConfig, gather
from kitt.table.table import Table


def test_the_limit_is_seldom_below_the_truth() -> None:
    """Of a signal of 15 % of the variance, in all but a few of 100 tables; of noise it is smaller with more rows."""

    def limits(share: float, rows: int, count: int = 100) -> np.ndarray:
        found = []
        for seed in range(count):
            rng = np.random.default_rng(seed)
            X = rng.uniform(-1, 1, (rows, 2))
            f = X[:, 0] * X[:, 1] * 3
            found.append(upper_limit(X, np.sqrt(share) * f + np.sqrt(1 - share) * rng.normal(size=rows)))
        return np.array(found)

    assert (limits(0.15, 120) < 0.15).mean() <= 0.05
    assert np.median(limits(0.0, 400, 30)) < 0.06
    assert np.median(limits(0.0, 400, 30)) < np.median(limits(0.0, 100, 30))


def test_far_rows_do_not_lower_the_limit() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (150, 1))
    y = x[:, 0] + 0.5 * rng.normal(size=150)
    y[:2] += 1000
    assert upper_limit(x, y) > 0.4


def test_few_rows_of_many_columns_exclude_nothing() -> None:
    rng = np.random.default_rng(0)
    assert upper_limit(rng.normal(size=(60, 10)), rng.normal(size=60)) == 1.0
    assert 100 < rows_for_absence(rng.normal(size=(60, 4)), 0.1) < rows_for_absence(rng.normal(size=(60, 8)), 0.1) < 400


def test_a_column_that_a_model_overlooks_is_not_absent() -> None:
    """Without it the model predicts as well, but it is in what the model leaves, alone or together with another column."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (250, 3))
    noise = rng.normal(size=250)
    assert column_limit(X, [1], [0, 2], noise) < 0.05
    assert column_limit(X, [1], [0, 2], noise + X[:, 1] ** 2) > 0.05
    assert column_limit(X, [1], [0, 2], noise + X[:, 1] ** 2 * X[:, 0] * 2) > 0.05
    assert column_limit(X[:40], [1], [0, 2], noise[:40]) > 0.05


@pytest.mark.parametrize(
    ("gain", "error", "limit", "answer"),
    [
        (0.3, 0.1, None, Answer.SHOWN),
        (0.15, 0.09, None, Answer.NOT_SHOWN),
        (0.0, 0.02, None, Answer.ABSENT),
        (0.0, 0.02, 0.2, Answer.NOT_SHOWN),
        (0.0, float("nan"), None, Answer.NOT_SHOWN),
    ],
)
def test_three_answers(gain: float, error: float, limit: float | None, answer: Answer) -> None:
    check = Check("signal", "all columns", gain, error, 100, OF_VARIANCE, limit=limit)
    assert check.answer is answer
    assert (check.rows_to_decide is None) == (answer is not Answer.NOT_SHOWN or np.isnan(error))


def test_more_rows_decide_what_is_less_clear() -> None:
    check = Check("signal", "all columns", 0.15, 0.09, 100, OF_VARIANCE)
    assert 250 < check.rows_to_decide < 330  # (2.84 · 0.09 / 0.15)² times as many
    assert replace(check, error=0.18).rows_to_decide > 3.9 * check.rows_to_decide
    assert replace(check, more_rows=5000).rows_to_decide == 5000


def test_the_text_of_each_answer() -> None:
    rng = np.random.default_rng(0)
    X = {"a": rng.normal(size=60), "b": rng.normal(size=60)}
    explanation = kitt.explain(fit("RBF", X, X["a"] + rng.normal(size=60)), check=False)

    def told(gain: float, error: float, limit: float) -> str:
        return replace(
            explanation, checks=(Check("signal", "all columns", gain, error, 100, OF_VARIANCE, limit=limit),)
        ).text

    assert told(0.4, 0.1, 1.0).startswith(
        "Left-out rows show that the columns explain 40 % ± 10 % of the variation in sales."
    )
    open_ = told(0.15, 0.09, 0.4)
    assert (
        "is not shown: of its variation, 15 % ± 9 % is predicted in left-out rows, and the columns could explain up to 40 %"
        in open_
    )
    assert "About 290 rows would probably decide it." in open_
    assert "it is a guess that sales depends most on a" in open_
    assert told(-0.02, 0.02, 0.06).startswith("The columns explain nothing of sales, or less than 6 % of its variation")


def test_folds_do_not_depend_on_the_machine() -> None:
    """How many are evaluated is decided by the work that they are, not by the clock."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 80)
    suggestion = kitt.suggest(x[:, None], x + 0.1 * rng.normal(size=80), fit=True, effort="quick")
    mixture, rows = suggestion.mixture, suggestion.dataset
    table = Table.of(rows, mixture.models[0].fitted_kernel.standardiser)
    few = gather(mixture, table, config=EvidenceConfig(work=1.0))
    assert (few.folds, few.of_folds) == (2, 20)
    assert suggestion.fitted.evidence().folds == 20


def test_what_a_deadline_leaves_out_is_told() -> None:
    rng = np.random.default_rng(0)
    X = {"a": rng.uniform(0, 1, 60), "b": rng.uniform(0, 1, 60)}
    gp = fit("RBF", X, X["a"] + 0.05 * rng.normal(size=60))
    explanation = kitt.explain(gp, deadline=0.0)
    assert explanation.unchecked == ("further periods", "roughness", "a", "b")
    assert "For lack of time these were not checked: further periods, roughness, a and b." in explanation.text
    whole = kitt.explain(gp)
    assert not whole.unchecked
    assert kitt.explain(gp).text == whole.text
