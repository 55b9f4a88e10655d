"""sktime's own checks of the forecaster, in an environment of its own: `make test-hosts HOSTS=sktime`."""

import sys
import warnings

import torch
from sktime.utils.estimator_checks import check_estimator

from kitt.interop.sktime import KITTForecaster

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = check_estimator(KITTForecaster, raise_exceptions=False, verbose=True)
    failed = {name: result for name, result in results.items() if result != "PASSED"}
    for name, result in failed.items():
        print(f"{name}: {result!r}"[:500])
    print(f"{len(results) - len(failed)} of {len(results)} checks passed")
    sys.exit(bool(failed))
