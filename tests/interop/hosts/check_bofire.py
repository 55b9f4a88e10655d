"""KITT's surrogate in BoFire: fit, cross-validation, storage, a strategy."""

import warnings

import numpy as np
import pandas as pd
import torch
from bofire.data_models.api import Domain, Inputs, Outputs
from bofire.data_models.features.api import CategoricalInput, ContinuousInput, ContinuousOutput
from bofire.data_models.objectives.api import MaximizeObjective
from bofire.data_models.strategies.api import SoboStrategy
from bofire.data_models.surrogates.api import BotorchSurrogates
from bofire.data_models.surrogates.scaler import ScalerEnum
from bofire.strategies import api as strategies
from bofire.surrogates import api as surrogates
from pydantic import TypeAdapter, ValidationError

from kitt.interop.bofire import KITTSurrogate
from kitt.interop.botorch import KITTModel

INPUTS = Inputs(
    features=[
        ContinuousInput(key="temperature", bounds=(20, 120)),
        ContinuousInput(key="time", bounds=(1, 9)),
        CategoricalInput(key="solvent", categories=["water", "ethanol", "toluene"]),
    ]
)
YIELD = ContinuousOutput(key="yield", objective=MaximizeObjective(w=1.0))


def measured(points: pd.DataFrame) -> pd.DataFrame:
    bonus = points["solvent"].map({"water": 0.0, "ethanol": 15.0, "toluene": 5.0}).astype(float)
    top = 60 * np.exp(-(((points["temperature"] - 80) / 30) ** 2) - ((points["time"] - 6) / 3) ** 2)
    return points[INPUTS.get_keys()].assign(**{"yield": top + bonus, "valid_yield": 1})


def specs(outputs: Outputs) -> BotorchSurrogates:
    own = [KITTSurrogate(inputs=INPUTS, outputs=Outputs(features=[feature])) for feature in outputs.get()]
    return BotorchSurrogates(surrogates=own)


def check_a_surrogate() -> None:
    outputs = Outputs(features=[YIELD])
    data = KITTSurrogate(inputs=INPUTS, outputs=outputs)
    assert TypeAdapter(KITTSurrogate).validate_json(data.model_dump_json()).model_dump_json() == data.model_dump_json()
    experiments = measured(INPUTS.sample(40, seed=0))
    surrogate = surrogates.map(data)
    surrogate.fit(experiments)
    assert isinstance(surrogate.model, KITTModel)
    new = INPUTS.sample(20, seed=1)
    told = surrogate.predict(new)
    error = (told["yield_pred"] - measured(new)["yield"]).abs().mean()
    print(f"mean error {error:.2f} of a range of 75")
    assert error < 3
    again = surrogates.map(data)
    again.loads(surrogate.dumps())
    pd.testing.assert_frame_equal(again.predict(new), told)
    _, test, _ = surrogate.cross_validate(experiments, folds=4)
    print(test.get_metrics().round(3).to_dict("records"))
    assert test.get_metrics()["R2"].iloc[0] > 0.8
    try:
        KITTSurrogate(inputs=INPUTS, outputs=outputs, output_scaler=ScalerEnum.LOG)
    except ValidationError:
        return
    raise AssertionError("KITT transforms outputs itself")


def check_a_strategy(features: list, kind: type, floor: float) -> None:
    domain = Domain(inputs=INPUTS, outputs=Outputs(features=features))
    data = kind(domain=domain, surrogate_specs=specs(domain.outputs), seed=0)
    kind.model_rebuild(force=True)  # BoFire's strategies were compiled before the surrogate was registered
    strategy = strategies.map(kind.model_validate_json(data.model_dump_json()))
    strategy.tell(measured(INPUTS.sample(10, seed=2)))
    for _ in range(5):
        candidates = strategy.ask(1)
        strategy.tell(measured(candidates))
    best = strategy.experiments["yield"].max()
    print(f"{kind.__name__}: best yield {best:.1f} after 15 experiments")
    assert best > floor


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    check_a_surrogate()
    check_a_strategy([YIELD], SoboStrategy, 50)
    print("all checks passed")
