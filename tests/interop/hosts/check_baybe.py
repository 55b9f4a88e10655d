"""KITT's surrogate and kernels in BayBE's campaigns."""

import warnings

import numpy as np
import pandas as pd
import torch
from baybe import Campaign
from baybe.objectives import ParetoObjective
from baybe.parameters import CategoricalParameter, NumericalContinuousParameter, NumericalDiscreteParameter
from baybe.recommenders import BotorchRecommender, RandomRecommender, TwoPhaseMetaRecommender
from baybe.searchspace import SearchSpace
from baybe.settings import active_settings
from baybe.surrogates import GaussianProcessSurrogate
from baybe.targets import NumericalTarget

from kitt.interop.baybe import KITTKernelFactory, KITTSurrogate
from kitt.interop.botorch import KITTModel

DISCRETE = SearchSpace.from_product(
    [
        NumericalDiscreteParameter("temperature", np.linspace(20, 120, 11)),
        NumericalDiscreteParameter("time", np.linspace(1, 9, 9)),
        CategoricalParameter("solvent", ["water", "ethanol", "toluene"]),
    ]
)
CONTINUOUS = SearchSpace.from_product(
    [NumericalContinuousParameter("temperature", (20, 120)), NumericalContinuousParameter("time", (1, 9))]
)
YIELD, COST = NumericalTarget("yield"), NumericalTarget("cost", minimize=True)


def measured(points: pd.DataFrame) -> pd.DataFrame:
    bonus = points["solvent"].map({"water": 0.0, "ethanol": 15.0, "toluene": 5.0}) if "solvent" in points else 0.0
    top = 60 * np.exp(-(((points["temperature"] - 80) / 30) ** 2) - ((points["time"] - 6) / 3) ** 2)
    return points.assign(**{"yield": top + bonus, "cost": points["temperature"] / 10 + points["time"]})


def campaign_of(space: SearchSpace, surrogate: object, objective: object = None) -> Campaign:
    own = TwoPhaseMetaRecommender(
        initial_recommender=RandomRecommender(),
        recommender=BotorchRecommender(surrogate_model=surrogate),
        switch_after=6,
    )
    return Campaign(space, objective or YIELD.to_objective(), own)


def run(campaign: Campaign, steps: int, batch: int = 1) -> float:
    campaign.add_measurements(measured(campaign.recommend(6)))
    for _ in range(steps):
        campaign.add_measurements(measured(campaign.recommend(batch)))
    return float(campaign.measurements["yield"].max())


def check_a_campaign(space: SearchSpace, surrogate: object, best: float) -> None:
    campaign = campaign_of(space, surrogate)
    reached = run(campaign, 8)
    print(f"best yield {reached:.1f}")
    assert reached > best
    again = Campaign.from_json(campaign.to_json())
    assert again == campaign
    again.add_measurements(measured(again.recommend(2)))


def check_predictions() -> None:
    campaign = campaign_of(DISCRETE, KITTSurrogate())
    run(campaign, 4)
    model = campaign.get_surrogate()["yield"]
    assert isinstance(model.to_botorch(), KITTModel)
    told = model.posterior_stats(campaign.measurements, ["mean", "std", 0.05, 0.95])
    error = (told["yield_mean"] - campaign.measurements["yield"]).abs().max()
    print(told.iloc[0].round(2).to_dict())
    assert error < 5
    assert (told["yield_Q_0.05"] < told["yield_Q_0.95"]).all()


def check_several_targets() -> None:
    campaign = campaign_of(CONTINUOUS, KITTSurrogate().replicate(), ParetoObjective([YIELD, COST]))
    run(campaign, 3, batch=2)
    assert campaign.get_surrogate().to_botorch().num_outputs == 2
    assert Campaign.from_json(campaign.to_json()) == campaign


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    active_settings.random_seed = 0
    for space, best in ((DISCRETE, 65), (CONTINUOUS, 55)):
        check_a_campaign(space, KITTSurrogate(), best)
        check_a_campaign(space, GaussianProcessSurrogate(KITTKernelFactory()), best)
    check_predictions()
    check_several_targets()
    print("all checks passed")
