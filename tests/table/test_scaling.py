"""A standardisation that inverts at any magnitude."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kitt.errors import InvalidInputError
from kitt.table.scaling import Standardiser

finite = st.floats(allow_nan=False, allow_infinity=False)
plain = settings(deadline=None, max_examples=500)


exponents = st.integers(-310, 300)


@st.composite
def columns(draw):
    """Numbers around a centre, each of a magnitude between denormal and the largest."""
    n = draw(st.integers(1, 12))
    spread = draw(hnp.arrays(np.float64, n, elements=st.floats(-9, 9)))
    with np.errstate(under="ignore"):
        column = spread * 10.0 ** draw(exponents) + draw(st.floats(-9, 9)) * 10.0 ** draw(exponents)
    return draw(st.sampled_from([column, np.clip(column, -1e278, 1e278) * 1e30]))


@given(column=columns() | hnp.arrays(np.float64, st.integers(1, 12), elements=finite))
@plain
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_standardiser_inverts_at_any_magnitude(column):
    scaler = Standardiser.fit(column[:, None], column)
    X, y = scaler.transform_x(column[:, None]), scaler.transform_y(column)
    np.testing.assert_array_equal(X[:, 0], y)
    assert np.isfinite(y).all()
    assert np.isfinite(scaler.log_density_offset)
    ulp = np.spacing(np.abs(column / 2).max()) * 2
    for back in (scaler.inverse_x(X)[:, 0], scaler.inverse_mean(y)):
        assert (np.abs(back - column) <= 4 * ulp).all()


@given(column=columns())
@plain
def test_standardised_columns_have_mean_0_and_variance_1(column):
    scaler = Standardiser.fit(column[:, None], column)
    y = scaler.transform_y(column)
    if column.min() == column.max():
        assert (scaler.y_mean, scaler.y_scale) == (column[0], 1)
        assert (y == 0).all()
    elif scaler.y_scale > max(np.abs(column).max() * 1e-8, 1e-300):
        assert y.mean() == pytest.approx(0, abs=1e-7)
        assert y.std() == pytest.approx(1, abs=1e-7)


def test_huge_offset_keeps_its_digits():
    scaler = Standardiser.fit(1e15 + np.arange(5.0)[:, None], np.arange(5.0))
    np.testing.assert_allclose(scaler.x_scale, np.sqrt(2))
    np.testing.assert_allclose(scaler.transform_x(1e15 + np.arange(5.0)[:, None])[:, 0] * np.sqrt(2), range(-2, 3))


def test_standardised_densities_convert():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(3, 4, 50)
    scaler = Standardiser.fit(X, y)
    np.testing.assert_allclose(scaler.transform_x(X), (X - X.mean(0)) / X.std(0))
    np.testing.assert_allclose(scaler.inverse_variance([1.0, 2.0]), y.var() * np.array([1, 2]))
    assert scaler.log_density_offset == pytest.approx(-np.log(y.std()))


def test_standardiser_json_round_trip():
    scaler = Standardiser.fit(np.geomspace(1e-200, 1e200, 12).reshape(4, 3), np.geomspace(1e-3, 1e250, 4))
    fields = json.loads(json.dumps(scaler.to_dict()))
    assert Standardiser.from_dict(fields).to_dict() == scaler.to_dict() == fields
    for wrong in ({**fields, "more": 1}, {"x_mean": [0.0]}):
        with pytest.raises(InvalidInputError, match=r"what Standardiser\.to_dict wrote"):
            Standardiser.from_dict(wrong)
    with pytest.raises(InvalidInputError, match="positive, finite scale"):
        Standardiser.from_dict({**fields, "y_scale": 0.0})
