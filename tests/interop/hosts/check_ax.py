"""KITT's model in Ax's own loop: selection, analyses, storage, cross-validation, several objectives."""

import tempfile
import time
import warnings
from pathlib import Path

import torch
from ax.adapter.cross_validation import compute_diagnostics, cross_validate
from ax.adapter.registry import Generators
from ax.analysis.analysis import ErrorAnalysisCard
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from botorch.test_functions import Branin

from kitt.interop.ax import model_config
from kitt.interop.botorch import KITTModel

branin = Branin()


def strategy(spec: SurrogateSpec, first: int = 6) -> GenerationStrategy:
    sobol = GenerationNode(
        name="Sobol",
        generator_specs=[GeneratorSpec(Generators.SOBOL, generator_kwargs={"seed": 0})],
        transition_criteria=[MinTrials(threshold=first, transition_to="KITT")],
    )
    own = GeneratorSpec(Generators.BOTORCH_MODULAR, generator_kwargs={"surrogate_spec": spec})
    return GenerationStrategy(
        name="Sobol, then KITT", nodes=[sobol, GenerationNode(name="KITT", generator_specs=[own])]
    )


def client_of(spec: SurrogateSpec, objective: str = "-branin") -> Client:
    client = Client(random_seed=0)
    ranges = [
        RangeParameterConfig(name="x1", parameter_type="float", bounds=(-5, 10)),
        RangeParameterConfig(name="x2", parameter_type="float", bounds=(0, 15)),
    ]
    client.configure_experiment(name="branin", parameters=ranges)
    client.configure_optimization(objective=objective)
    client.set_generation_strategy(strategy(spec))
    return client


def run(client: Client, trials: int) -> float:
    best = float("inf")
    for _ in range(trials):
        for index, p in client.get_next_trials(max_trials=1).items():
            value = float(branin(torch.tensor([[p["x1"], p["x2"]]])))
            other = (float(p["x1"]) - 3) ** 2 + float(p["x2"])
            best = min(best, value)
            wanted = client._experiment.optimization_config.metric_names  # only to serve several experiments
            data = {name: {"branin": value, "cost": other}[name] for name in wanted}
            client.complete_trial(trial_index=index, raw_data=data)
    return best


def surrogate_of(client: Client):
    return client._generation_strategy.adapter.generator.surrogate


def check_a_loop_with_analyses_and_storage(folder: Path) -> None:
    began = time.perf_counter()
    client = client_of(SurrogateSpec(model_configs=[model_config()]))
    best = run(client, 20)
    print(f"Branin: best of 20 trials {best:.3f} (minimum 0.398), {time.perf_counter() - began:.1f} s")
    assert best < 3.0, "random points reach about 5"
    assert isinstance(surrogate_of(client).model, KITTModel)
    cards = client.compute_analyses(display=False)
    flat = [card for group in cards for card in group.flatten()]
    print(f"{len(flat)} cards: {', '.join(card.title for card in flat)}")
    assert not [card.title for card in flat if isinstance(card, ErrorAnalysisCard)]
    client.save_to_json_file(str(folder / "ax.json"))
    again = Client.load_from_json_file(str(folder / "ax.json"))
    run(again, 1)
    assert isinstance(surrogate_of(again).model, KITTModel)
    predicted = again.predict([{"x1": 3.14, "x2": 2.27}])[0]["branin"]
    print("prediction at an optimum:", predicted)


def check_selection_by_density(folder: Path) -> None:
    both = [model_config(), ModelConfig(name="default")]
    client = client_of(SurrogateSpec(model_configs=both, eval_criterion="Log likelihood"))
    run(client, 9)
    surrogate = surrogate_of(client)
    print("selected:", surrogate.model_name_by_metric, surrogate._model_name_to_eval)
    assert set(surrogate._model_name_to_eval["branin"]) == {"KITT", "default"}


def check_cross_validation(folder: Path) -> None:
    client = client_of(SurrogateSpec(model_configs=[model_config()]))
    run(client, 14)
    results = cross_validate(client._generation_strategy.adapter, folds=7)
    print({name: round(value["branin"], 3) for name, value in compute_diagnostics(results).items()})


def check_several_objectives(folder: Path) -> None:
    client = client_of(SurrogateSpec(model_configs=[model_config()]), "-branin, -cost")
    run(client, 9)
    assert surrogate_of(client).model.num_outputs == 2
    print(len(client.get_pareto_frontier()), "points of the Pareto frontier")
    client.compute_analyses(display=False)


def check_known_standard_errors(folder: Path) -> None:
    client = client_of(SurrogateSpec(model_configs=[model_config()]))
    for trial in range(9):
        for index, p in client.get_next_trials(max_trials=1).items():
            value = float(branin(torch.tensor([[p["x1"], p["x2"]]])))
            client.complete_trial(trial_index=index, raw_data={"branin": (value, 1.0 + trial)})
    (fitted,) = surrogate_of(client).model.fitted
    known = fitted.rows.noise
    assert known is not None
    ratio = float(known.max() / known.min())
    print(f"variances of the noise differ by a factor of {ratio:.1f}")
    assert abs(ratio - (1.0 + len(known) - 1) ** 2) < 1e-3 * ratio


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for check in (v for k, v in globals().items() if k.startswith("check_")):
        print(f"--- {check.__name__.removeprefix('check_').replace('_', ' ')}")
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder))
    print("all checks passed")


if __name__ == "__main__":
    main()
