"""Rows with unknown inputs: predictions average over the values that other rows have, and good rows stay what they are."""

import numpy as np
import pandas as pd
import pytest

import kitt
from kitt.model.document import Model


@pytest.fixture(scope="module")
def model() -> Model:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(-2, 2, 40), "b": rng.uniform(-2, 2, 40)})
    data = kitt.Dataset.from_frame(frame.assign(y=5 * frame["a"] + np.sin(frame["b"])))
    return Model.of(
        kitt.Mixture.of([kitt.fit(word, data, random_state=0) for word in ("RBF", "Linear")], [0.7, 0.3]), data
    )


def test_good_rows_are_predicted_as_ever_and_gaps_are_averaged_over(model: Model) -> None:
    new = pd.DataFrame({"a": [1.0, np.nan, 0.5, np.nan], "b": [0.5, 0.5, np.nan, np.nan]})
    with pytest.warns(UserWarning, match=r"3 rows of 4 without a value of a \(2\), b \(2\): predicted by averaging"):
        mean, std = model.predict(new)
    alone = model.predict(new[:1])
    assert (mean[0], std[0]) == (pytest.approx(alone[0][0]), pytest.approx(alone[1][0]))
    assert mean[2] == pytest.approx(2.5, abs=1)  # a is known, and b matters little
    assert std[2] < 2 < std[1]  # 5 a has a standard deviation of about 6
    assert mean[1] == pytest.approx(mean[3], abs=1.5)
    with pytest.warns(UserWarning, match="averaging"):
        _, _, quantiles = model.summary(new, [0.05, 0.5, 0.95])
    assert (np.diff(quantiles, axis=1) > 0).all()


def test_the_average_is_that_of_the_filled_rows(model: Model) -> None:
    rows = model.rows.X
    some = np.unique(np.linspace(0, len(rows) - 1, 32).round().astype(int))
    filled = pd.DataFrame({"a": rows[some, 0], "b": 0.3})
    with pytest.warns(UserWarning, match="averaging"):
        mean, std = model.predict(pd.DataFrame({"a": [np.nan], "b": [0.3]}))
    means, stds = model.predict(filled)
    assert mean[0] == pytest.approx(means.mean())
    assert std[0] == pytest.approx(np.sqrt((stds**2).mean() + means.var()))


def test_what_needs_all_inputs_says_so(model: Model) -> None:
    with pytest.raises(kitt.KittError, match="1 missing, in a"):
        model.covariance(pd.DataFrame({"a": [np.nan], "b": [0.3]}))
