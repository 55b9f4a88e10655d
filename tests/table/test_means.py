"""Means and their standard errors."""

import math

import numpy as np
import pytest

from kitt.table.means import mean_and_error


def test_the_error_is_that_of_a_sample() -> None:
    assert mean_and_error([1.0, 2.0, 3.0]) == pytest.approx((2.0, 1 / math.sqrt(3)))
    assert mean_and_error(np.array([1, 3])) == pytest.approx((2.0, 1.0))
    mean, error = mean_and_error(iter([5.0]))
    assert mean == 5.0
    assert math.isnan(error)
