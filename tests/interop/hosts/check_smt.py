"""SMT's own test cases, with KITT among the surrogates and the tolerances of its kriging."""

import unittest
import warnings

import numpy as np
import torch
from smt.examples.rans_crm_wing.rans_crm_wing import get_rans_crm_wing
from smt.problems import Branin
from smt.sampling_methods import LHS
from smt.tests import test_all, test_derivs, test_low_dim
from smt.utils.sm_test_case import SMTestCase

from kitt.interop.smt import KITT


class AllProblems(test_all.Test):
    """Values of three functions of three inputs, from 100 rows; the tolerance is that of SMT's KRG."""

    def setUp(self) -> None:
        super().setUp()
        self.sms = {"KITT": KITT(effort="quick")}
        self.t_errors, self.e_errors = {"KITT": self.t_errors["KRG"]}, {"KITT": self.e_errors["KRG"]}

    def test_exp_KITT(self) -> None:
        self.run_test()

    def test_tanh_KITT(self) -> None:
        self.run_test()

    def test_cos_KITT(self) -> None:
        self.run_test()


class LowDimensions(test_low_dim.Test):
    """Values of four functions of two inputs, from fewer rows than SMT's 10 000."""

    def setUp(self) -> None:
        super().setUp()
        self.nt, self.sms = 200, {"KITT": KITT(effort="quick")}
        self.t_errors, self.e_errors = {"KITT": 1.0}, {"KITT": 1.0}

    def test_sphere_KITT(self) -> None:
        self.run_test()

    def test_exp_KITT(self) -> None:
        self.run_test()

    def test_tanh_KITT(self) -> None:
        self.run_test()

    def test_cos_KITT(self) -> None:
        self.run_test()


class Derivatives(test_derivs.Test):
    """Derivatives of a function of two inputs, from fewer rows than SMT's 5 000."""

    def setUp(self) -> None:
        super().setUp()
        self.nt, self.sms = 200, {"KITT": KITT(effort="quick")}

    def test_sphere_KITT(self) -> None:
        self.run_test()


class Outputs(SMTestCase):
    """Several outputs, and derivatives beside finite differences."""

    def test_two_outputs(self) -> None:
        """As SMT's test of array outputs, where KRG's derivative is (-0.02, 5.81) with tolerances of 0.55 and 15 %."""
        xt, yt, _ = get_rans_crm_wing()
        model = KITT(effort="quick", print_global=False)
        model.set_training_values(xt, yt)
        model.train()
        assert model.predict_values(xt[:4]).shape == model.predict_variances(xt[:4]).shape == (4, 2)
        derivative = model.predict_derivatives(np.atleast_2d(xt[10]), 0)
        self.assert_error(derivative, np.array([[-0.02256528, 5.80875652]]), atol=0.55, rtol=0.15)

    def test_derivatives_beside_finite_differences(self) -> None:
        problem = Branin(ndim=2)
        x = LHS(xlimits=problem.xlimits, seed=0)(30)
        model = KITT(effort="quick", print_global=False)
        model.set_training_values(x, problem(x))
        model.train()
        Z, step = LHS(xlimits=problem.xlimits, seed=1)(5), 1e-4
        for kx in range(2):
            moved = step * np.eye(2)[kx]
            for of, derivative in (
                (model.predict_values, model.predict_derivatives),
                (model.predict_variances, model.predict_variance_derivatives),
            ):
                difference = (of(Z + moved) - of(Z - moved)) / (2 * step)
                np.testing.assert_allclose(
                    derivative(Z, kx), difference, rtol=1e-3, atol=1e-4 * np.abs(difference).max()
                )


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    """The cases of KITT only: SMT runs those of its own surrogates."""
    cases = (AllProblems, LowDimensions, Derivatives, Outputs)
    own = [case(name) for case in cases for name in loader.getTestCaseNames(case) if "KITT" in name or case is Outputs]
    return unittest.TestSuite(own)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    unittest.main(verbosity=2, warnings="ignore")
