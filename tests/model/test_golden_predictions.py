"""A mixture with fixed parameters predicts what it always has, in numpy and as a model of BoTorch."""

import json

import numpy as np
import pytest

from golden.predictions import FILE, predicted

GOLDEN = json.loads(FILE.read_text())


@pytest.fixture(scope="module")
def now() -> dict[str, list]:
    return predicted()


@pytest.mark.parametrize("what", GOLDEN)
def test_predictions_are_as_before(now: dict[str, list], what: str) -> None:
    """Up to rounding, which may differ between processors."""
    np.testing.assert_allclose(now[what], GOLDEN[what], rtol=1e-6, atol=1e-6)


def test_botorch_has_the_moments_of_the_mixture(now: dict[str, list]) -> None:
    for what in ("observations", "the function"):
        np.testing.assert_allclose(now[f"BoTorch, mean of {what}"], now[what.removeprefix("the ")][0], rtol=1e-10)
        ours = now[f"covariance of {what}"]
        np.testing.assert_allclose(now[f"BoTorch, covariance of {what}"], ours, rtol=1e-8, atol=1e-8)


def test_every_prediction_is_compared(now: dict[str, list]) -> None:
    assert now.keys() == GOLDEN.keys()
