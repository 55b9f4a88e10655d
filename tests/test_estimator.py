"""KITTRegressor: a scikit-learn estimator like any other, and what it adds."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kitt import KITTRegressor

FAST = {"k": 1, "plain": False, "random_state": 0, "fit_options": {"draws": 10, "starts": 1, "max_iterations": 20}}


@parametrize_with_checks([KITTRegressor(**FAST)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
