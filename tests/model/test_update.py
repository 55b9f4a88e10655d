"""New rows without a new fit: the same as conditioning on all rows, and when a new fit is due."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import kitt
from kitt.errors import InvalidInputError
from kitt.model.components import Component
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.table.table import Table


def frame(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"a": rng.uniform(-2, 2, n), "kind": rng.choice(["p", "q"], n)})
    noise = 0.1 * np.exp(table["a"] / 2) * rng.normal(size=n)
    return table.assign(price=100 * np.exp(np.sin(2 * table["a"]) + (table["kind"] == "p") + noise))


@pytest.fixture(scope="module")
def model() -> Model:
    data = kitt.Dataset.from_frame(frame(40, 0))
    table = Table.of(data)
    fits = (
        kitt.fit("RBF", table, random_state=0),
        kitt.fit("Matern52", table.warped(), random_state=0),
        kitt.fit("RBF", table, random_state=0, exact_rows=20, subset_rows=30, inducing=15),
        kitt.fit("White", table, random_state=0),
    )
    entries = (Component(0, 0.4, True, 0.25), Component(0, 0.1, False, 4.0), Component(1, 0.3), Component(2, 0.2))
    return Model.of(Mixture(fits, entries, Tail(0.01)), data)


@pytest.mark.parametrize("noisy", [False, True])
def test_an_update_is_conditioning(model: Model, noisy: bool) -> None:
    new, Z = frame(9, 1), frame(20, 2).drop(columns="price")
    updated = model.update(new.iloc[:4]).update(new.iloc[4:].drop(columns="price"), new["price"].iloc[4:])
    exact = Model.of(Mixture(model.mixture.models[:2], model.components[:3]), model.rows)
    again = exact.update(new)
    for ours, theirs in zip(again.predict(Z, noisy), exact.on(updated.rows).predict(Z, noisy), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    assert updated.rows.n == 49
    assert updated.predict(Z, noisy)[0].shape == (20,)  # a sparse posterior is computed again


def test_an_update_survives_the_file(model: Model, tmp_path) -> None:
    updated = model.update(frame(5, 1))
    updated.save(tmp_path / "m.json")
    again, Z = kitt.load(tmp_path / "m.json"), frame(6, 2)
    for ours, theirs in zip(again.predict(Z), updated.predict(Z), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    more = again.update(frame(35, 3))
    assert any("80 rows now, and the parameters were fitted to 40" in str(reason) for reason in more.refit_reasons)


def test_improbable_rows_are_reported_and_ordinary_rows_are_not(model: Model) -> None:
    ordinary = sum(bool(model.update(frame(8, seed)).refit_reasons) for seed in range(10, 30))
    assert ordinary <= 2
    new = frame(8, 50)
    assert "improbable under the model" in str(model.update(new.assign(price=4 * new["price"])).refit_reasons[0])


def test_rows_that_do_not_fit_are_refused(model: Model) -> None:
    new = frame(3, 1)
    with pytest.raises(InvalidInputError, match="a table with the target 'price'; got the columns"):
        model.update(new.drop(columns="price"))
    with pytest.raises(InvalidInputError, match=r"y of shape \(3,\)"):
        model.update(new, [1.0])
    with pytest.raises(InvalidInputError, match="numbers in the target"):
        model.update(new.assign(price=["a", "b", "c"]))
    with pytest.raises(ValueError, match="finite"):
        model.update(new.assign(price=[1.0, np.inf, 2.0]))
    for wide in (np.ones((3, 5)), pd.DataFrame(np.ones((3, 5)))):
        with pytest.raises(InvalidInputError, match=r"expected 2 columns, a, kind, .*; got 5"):
            model.update(wide, new["price"])
    with pytest.raises(InvalidInputError, match="no rows"):
        Model.from_dict(model.to_dict(rows=False)).update(new)


def test_left_out_rows_are_predicted_again(model: Model) -> None:
    """Predictions of left-out rows that a fit has kept are of the old rows alone."""
    gp = model.mixture.models[0]
    kept = Model.of(Mixture.of([replace(gp, training=replace(gp.training, left_out=gp.loo))], [1.0]), model.rows)
    assert len(kept.update(frame(4, 1)).mixture.leave_one_out().mean[0]) == 44


def test_a_file_knows_how_many_rows_were_fitted(model: Model) -> None:
    more = Model.from_dict(model.update(frame(30, 1)).to_dict())
    assert [gp.fitted.rows_at_fit for gp in more.mixture.models] == [40] * len(more.kernels)
    assert [reason.kind for reason in more.update(frame(10, 2)).refit_reasons] == ["more rows"]


def test_a_level_that_is_new_is_pointed_out(model: Model) -> None:
    with pytest.warns(UserWarning, match="levels not seen before, taken as 'p': r"):
        model.update(frame(5, 1).assign(kind="r"))


def test_a_dataset_brings_its_own_target(model: Model) -> None:
    rows = model.rows
    assert rows is not None
    with pytest.raises(InvalidInputError, match="leave them out"):
        model.update(rows, rows.y)
    with pytest.raises(InvalidInputError, match="give them where it is made"):
        kitt.suggest(rows, target="a")


def test_other_rows_keep_what_is_known_of_the_fit() -> None:
    data = kitt.Dataset.from_frame(frame(40, 0))
    fitted = kitt.fit("RBF", data, random_state=0, objective="ml", prior="botorch")
    other = Model.of(Mixture((fitted,), (Component(0, 1.0),), Tail()), data).on(kitt.Dataset.from_frame(frame(30, 1)))
    (moved,) = other.mixture.models
    assert (moved.fitted.objective, moved.fitted.prior) == ("ml", "botorch")
    assert moved.fitted.log_prior == fitted.fitted.log_prior
    assert moved.rows == 30
