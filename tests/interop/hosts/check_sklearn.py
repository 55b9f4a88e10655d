"""scikit-learn's own checks of the regressor, all of them: those that need the array API too, and none left out."""

import os
import sys
import warnings

os.environ["SCIPY_ARRAY_API"] = "1"  # before scipy is imported: scikit-learn's checks of the array API need it

import torch
from sklearn.utils.estimator_checks import check_estimator

from kitt import KITTRegressor

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    few = {"draws": 10, "starts": 1, "max_iterations": 20}
    results = check_estimator(KITTRegressor(k=1, effort="quick", random_state=0, fit_options=few), on_fail=None)
    passed = [result for result in results if result["status"] == "passed"]
    for result in (result for result in results if result["status"] != "passed"):
        print(f"{result['check_name']}: {result['status']}, {result['exception']}"[:500])
    print(f"{len(passed)} of {len(results)} checks passed")
    sys.exit(len(passed) < len(results))
