"""KITT among the emulators of autoemulate: compared, with several outputs, saved, in its sensitivity analysis."""

import tempfile
import warnings

import numpy as np
import torch
from autoemulate import AutoEmulate
from autoemulate.core.sensitivity_analysis import SensitivityAnalysis
from autoemulate.emulators import get_emulator_class
from autoemulate.simulations.projectile import ProjectileMultioutput

from kitt.interop.autoemulate import KITTEmulator


def main() -> None:
    assert get_emulator_class("KITTEmulator") is KITTEmulator
    simulator = ProjectileMultioutput(log_level="error")
    x = simulator.sample_inputs(60, random_seed=0)
    y, x = simulator.forward_batch(x)
    others = ["GaussianProcessRBF", "RadialBasisFunctions"]
    ae = AutoEmulate(
        x,
        y,
        models=[KITTEmulator, *others],
        n_iter=2,
        n_splits=2,
        n_bootstraps=5,
        random_seed=0,
        show_progress_bar=False,
    )
    print(ae.summarise()[["model_name", "r2_test", "rmse_test"]].to_string())
    own = next(result for result in ae.results if result.model_name == "KITTEmulator")
    assert own.test_metrics
    emulator = own.model
    mean, variance = emulator.predict_mean_and_variance(x[:5])
    assert mean.shape == variance.shape == (5, y.shape[1])
    assert (variance > 0).all()
    with tempfile.TemporaryDirectory() as folder:
        path = ae.save(own, folder)
        again = ae.load(path)
        torch.testing.assert_close(again.model.predict_mean_and_variance(x[:5])[0], mean)

    alone = KITTEmulator(x, y, effort="quick")
    alone.fit(x, y)
    point = x[:3].clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(alone.predict(point, with_grad=True).mean.sum(), point)
    assert gradient.abs().sum() > 0
    columns = {"names": simulator.param_names, "bounds": simulator.param_bounds}
    problem = {"num_vars": 2, **columns, "output_names": simulator.output_names}
    indices = SensitivityAnalysis(alone, problem=problem).run("sobol", n_samples=256)
    print(indices[["output", "parameter", "index", "value"]].head(4).to_string())
    assert np.isfinite(indices["value"]).all()
    print("all checks passed")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main()
