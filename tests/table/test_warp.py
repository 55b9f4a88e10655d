"""The transform of the target: it inverts, its slope is right, it knows no units, and it is left out where it should be."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kitt.table.dataset import Dataset
from kitt.table.scaling import IDENTITY, Standardiser, Warp
from kitt.table.table import Table

WARPS = {
    "identity": IDENTITY,
    "log": Warp("log", shift=-1.2, unit=0.7, mean=-0.3, scale=1.4, low=-1.2, high=30.0),
    **{
        f"power {exponent}": Warp("yeo-johnson", 0.2, 0.8, exponent, 0.1, 1.3, low=-40.0, high=40.0)
        for exponent in (-1.0, -0.3, 0.0, 1e-9, 0.5, 1.0, 2.0, 2.4, 3.0)
    },
}
every = pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)


def inside(warp: Warp, count: int = 400) -> np.ndarray:
    """Values that a target can have."""
    return np.linspace(warp.shift + 1e-3 if warp.kind == "log" else -6.0, 8.0, count)


def standardised(y: np.ndarray) -> tuple[np.ndarray, float]:
    """A target as the fits see it, and where its zero lies."""
    s = Standardiser.fit(np.zeros((len(y), 1)), y)
    return s.transform_y(y), float(s.transform_y(0.0))


def fitted(y: np.ndarray) -> Warp:
    return Warp.fit(*standardised(y))


SKEWED = np.exp(1.2 * np.random.default_rng(0).normal(size=300))


@every
def test_the_inverse_inverts(warp: Warp) -> None:
    u = inside(warp)
    np.testing.assert_allclose(warp.inverse(warp.forward(u)), u, rtol=1e-9, atol=1e-9)


@every
def test_it_rises(warp: Warp) -> None:
    u = inside(warp)
    assert (np.diff(warp.forward(u)) > 0).all()
    assert (np.diff(warp.inverse(np.linspace(-50, 50, 500))) >= 0).all()


@every
def test_the_slope_is_that_of_finite_differences(warp: Warp) -> None:
    u, h = inside(warp)[1:], 1e-6
    slope = (warp.forward(u + h) - warp.forward(u - h)) / (2 * h)
    np.testing.assert_allclose(warp.log_slope(u), np.log(slope), atol=2e-5)


@every
def test_tensors_are_transformed_alike_and_can_be_differentiated(warp: Warp) -> None:
    u = inside(warp)
    t = torch.tensor(u, requires_grad=True)
    z, slope = warp.forward_in(torch, t), warp.log_slope_in(torch, t)
    np.testing.assert_allclose(z.detach(), warp.forward(u), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(warp.inverse_in(torch, z).detach(), u, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(slope.detach(), warp.log_slope(u), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(torch.autograd.grad(z.sum(), t)[0].log(), warp.log_slope(u), rtol=1e-6, atol=1e-6)


@given(
    st.lists(st.floats(-50, 50), min_size=8, max_size=30, unique_by=lambda v: round(v, 3)),
    st.floats(0, 1),
    st.booleans(),
)
@settings(deadline=None, max_examples=100)
def test_whatever_was_fitted_inverts(values: list[float], skew: float, positive: bool) -> None:
    y = np.sinh(skew * np.array(values) / 5) + np.array(values)
    u, zero = standardised(y - y.min() + 0.1 if positive else y)
    warp = Warp.fit(u, zero)
    np.testing.assert_allclose(warp.inverse(warp.forward(u)), u, atol=1e-6)
    z = warp.forward(u)
    assert (np.diff(z[np.argsort(u)]) >= 0).all()
    if not warp.is_identity:
        assert z.mean() == pytest.approx(0, abs=1e-9)
        assert z.std() == pytest.approx(1)
        assert warp.low <= u.min()
        assert warp.high >= u.max()


def test_a_skewed_target_is_nearly_normal_afterwards() -> None:
    warp = fitted(SKEWED)
    z = warp.forward(standardised(SKEWED)[0])
    assert warp.kind == "log"
    assert abs((z**3).mean()) < 0.3
    assert abs((z**4).mean() - 3) < 0.6


def test_a_target_skewed_to_the_left_is_mended_too() -> None:
    y = -SKEWED
    z = fitted(y).forward(standardised(y)[0])
    assert fitted(y).kind == "yeo-johnson"
    assert abs((z**3).mean()) < 0.5


def test_normal_targets_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    kept = [fitted(offset + rng.normal(size=n)).is_identity for n in (30, 200, 1000) for offset in (0, 5, 1e6) * 5]
    assert np.mean(kept) > 0.9


def test_a_transform_of_a_positive_target_stays_positive() -> None:
    u, zero = standardised(SKEWED)
    warp = Warp.fit(u, zero)
    assert warp.kind == "log"
    far = warp.inverse(np.linspace(-60, 60, 1000))
    assert (far >= zero).all()
    assert (warp.inverse(np.linspace(-5, 5, 100)) > zero).all()


def test_it_goes_no_farther_than_a_range_beyond_the_rows() -> None:
    u, zero = standardised(SKEWED)
    assert Warp.fit(u, zero).inverse(1e9) == pytest.approx(u.max() + np.ptp(u))


@pytest.mark.parametrize("factor", [1e-200, 1e-9, 1000.0, 1e200])
@pytest.mark.parametrize("y", [SKEWED, 3 - SKEWED, SKEWED - np.median(SKEWED)], ids=["positive", "left", "around zero"])
def test_it_knows_no_units(y: np.ndarray, factor: float) -> None:
    ours, theirs = fitted(y), fitted(factor * y)
    assert ours.kind == theirs.kind != "identity"
    for name in ("shift", "unit", "exponent", "mean", "scale", "low", "high"):
        assert getattr(theirs, name) == pytest.approx(getattr(ours, name), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "y",
    [
        np.full(20, 3.0),
        np.repeat([0.0, 1.0], 10),
        np.repeat([1.0, 2.0], 10),
        np.r_[np.zeros(19), 1.0],
        np.r_[np.full(19, 1.0), 1e300],
        np.geomspace(1e-300, 1e300, 40),
        np.geomspace(1e-12, 1.0, 40),
        1e15 + np.arange(20.0),
        np.random.default_rng(0).standard_t(1, 200),
        np.arange(20) * 5e-324,
    ],
    ids=["constant", "two", "two positive", "one", "outlier", "all magnitudes", "tiny", "offset", "tails", "subnormal"],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_odd_targets_are_safe(y: np.ndarray) -> None:
    u, zero = standardised(y)
    warp = Warp.fit(u, zero)
    np.testing.assert_allclose(warp.inverse(warp.forward(u)), u, atol=1e-4)
    assert np.isfinite(warp.log_slope(u)).all()
    assert not np.isnan(warp.inverse([-1e9, -40.0, 0.0, 40.0, 1e9])).any()
    assert warp.is_identity or np.isfinite(warp.inverse([-1e300, 1e300])).all()


@every
def test_no_value_breaks_it(warp: Warp) -> None:
    far = np.array([-1e300, -1e30, -1e3, 0.0, 1e3, 1e30, 1e300])
    with np.errstate(over="ignore"):
        assert not np.isnan(warp.forward(far)).any()
    assert not np.isnan(warp.log_slope(far)).any()
    assert not np.isnan(warp.inverse(far)).any()


@every
def test_a_file_keeps_it(warp: Warp) -> None:
    assert Warp.from_dict(json.loads(json.dumps(warp.to_dict(), allow_nan=False))) == warp


def test_a_table_is_transformed_only_where_that_helps() -> None:
    X = np.arange(300.0)[:, None]
    assert Table.of(Dataset.from_arrays(X, np.log(SKEWED))).warped() is None
    table = Table.of(Dataset.from_arrays(X, SKEWED))
    warped = table.warped()
    np.testing.assert_allclose(warped.warp.inverse(warped.y.numpy()), table.y.numpy(), atol=1e-9)
    assert warped.X is table.X
    assert table.warp.is_identity
    assert Table.of((X, SKEWED)).warped() is None  # nothing is known about where its zero is
