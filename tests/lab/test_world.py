"""Data sets that look like real tables: inputs of tables, equally spaced times, nuisances; the captions stay."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from kitt.errors import InvalidInputError
from kitt.kernels.grammar import WORDS, Expression
from kitt_lab.simulate import PAD, SERIES_DATA, SimulatorConfig, simulate, world_data
from kitt_lab.world import MIN_ROWS, NUISANCES, read_inputs, real_inputs, visible_periods, with_nuisances


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two tables to use, and four files or columns not to."""
    rng = np.random.default_rng(0)
    write(tmp_path / "a.csv", np.column_stack([np.arange(80), rng.normal(size=80) ** 3, np.ones(80)]))
    write(tmp_path / "b.csv", rng.integers(0, 4, size=(70, 4)).astype(float))
    write(tmp_path / "short.csv", rng.normal(size=(MIN_ROWS - 1, 2)))
    (tmp_path / "text.csv").write_text("name\n" + "word\n" * 100)
    (tmp_path / "notes.txt").write_text("none of ours")
    return str(tmp_path)


def write(path: Path, values: np.ndarray) -> None:
    np.savetxt(path, values, delimiter=",", header=",".join("abcdefgh"[: values.shape[1]]), comments="")


def a_batch(n: int = 40, count: int = 30) -> tuple[Tensor, Tensor]:
    batch = simulate(SimulatorConfig("paper"), count, n, 2, seeded())
    return batch.X.double(), batch.y.double()


# --- inputs ---


def test_tables_are_read_without_what_is_no_input(folder: str) -> None:
    assert [tuple(table.shape) for table in read_inputs(folder)] == [(80, 2), (70, 4)]
    assert all(torch.allclose(t.std(0, correction=0), torch.ones(t.shape[1]).double()) for t in read_inputs(folder))


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="expected CSV files"):
        read_inputs(str(tmp_path))


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 3), (50, 2), (120, 9)])
def test_real_inputs_come_from_the_tables(folder: str, n: int, d: int) -> None:
    known = {round(float(value), 9) for table in read_inputs(folder) for value in table.flatten()}
    X = real_inputs(folder, 6, n, d, seeded())
    assert X.shape == (6, n, d)
    for data_set in X:
        times = d == 1 and torch.equal(data_set[:, 0], torch.arange(n).double())
        assert times or {round(float(value), 9) for value in data_set.flatten()} <= known


def test_rows_of_a_table_stay_together_and_are_drawn_once(folder: str) -> None:
    rows = {tuple(row) for table in read_inputs(folder) if table.shape[1] == 2 for row in table.tolist()}
    data_sets = [
        data_set for data_set in real_inputs(folder, 40, 60, 2, seeded()).tolist() if set(map(tuple, data_set)) <= rows
    ]
    assert data_sets
    assert all(len(set(map(tuple, data_set))) == 60 for data_set in data_sets)


def test_some_single_columns_are_equally_spaced_times(folder: str) -> None:
    X = real_inputs(folder, 200, 30, 1, seeded())
    share = float((X.squeeze(-1).diff(dim=1) == 1).all(1).double().mean())
    assert 0.3 < share < 0.5


@pytest.mark.parametrize("longest", [1 / 3, 3 / 4])
@pytest.mark.parametrize("n", [2, 5, 7, 18, 60, 500])
def test_periods_can_be_seen_in_the_points(n: int, longest: float) -> None:
    X = torch.linspace(-1, 2, n).double().expand(300, n).unsqueeze(-1)
    steps = visible_periods(X, longest, seeded()) / (3 / (n - 1))
    assert (steps >= 2.49).all()
    assert (steps <= max(3.01, longest * (n - 1) + 0.01)).all()
    assert ((steps - steps.round()).abs() < 1e-9).double().mean() > 0.4


# --- nuisances ---


@pytest.mark.parametrize("nuisance", sorted(set(NUISANCES), key=lambda f: f.__name__), ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 2, 40])
def test_a_nuisance_keeps_shapes_and_is_finite(nuisance, n: int) -> None:
    X, y = a_batch(n)
    new_X, new_y = nuisance(X.clone(), y.clone(), seeded())
    assert new_X.shape == X.shape
    assert new_y.shape == y.shape
    assert new_X.isfinite().all()
    assert new_y.isfinite().all()
    assert n == 1 or not (torch.equal(new_y, y) and torch.equal(new_X, X))


def test_nuisances_are_standardised_and_leave_the_rest_and_their_arguments_alone() -> None:
    X, y = a_batch(count=400)
    before = X.clone(), y.clone()
    new_X, new_y = with_nuisances(X, y, 0.5, seeded())
    assert torch.equal(X, before[0])
    assert torch.equal(y, before[1])
    assert torch.allclose(new_y.mean(1), torch.zeros(400).double(), atol=1e-6)
    assert torch.allclose(new_y.std(1, correction=0), torch.ones(400).double(), atol=1e-4)
    changed = ((new_y != y).any(1) | (new_X != X).flatten(1).any(1)).double().mean()
    assert 0.45 < float(changed) < 0.7  # one half, and three twentieths of the others


def test_a_target_that_becomes_constant_has_one_point_that_differs() -> None:
    X, y = torch.zeros(1, 5, 1).double(), torch.zeros(1, 5).double()
    for seed in range(40):
        new_y = with_nuisances(X, y, 1.0, seeded(seed))[1]
        assert torch.allclose(new_y.square().mean(), torch.ones(()).double(), atol=0.2 + 1e-6)  # 1 − 1/N


def test_labels_are_those_of_the_data_without_nuisances(folder: str) -> None:
    clean = SimulatorConfig("default", max_words=3, inputs="real", tables=folder, noise=(1e-3, 4.0))
    spoilt = SimulatorConfig("default", max_words=3, inputs="real", tables=folder, noise=(1e-3, 4.0), nuisances=1.0)
    a, b = (simulate(config, 50, 30, 3, seeded()) for config in (clean, spoilt))
    for name in ("captions", "variances", "roughness", "noise"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert not torch.equal(a.y, b.y)


# --- the simulator with all of it ---


@pytest.mark.parametrize("is_real", [True, False])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 1), (16, 3), (60, 1), (100, 8)])
def test_any_size_is_finite_standardised_and_the_same_for_the_same_seed(
    folder: str, is_real: bool, n: int, d: int
) -> None:
    config = world_data(folder if is_real else None)
    batch, again, other = (simulate(config, 40, n, d, seeded(seed)) for seed in (1, 1, 2))
    assert batch.X.shape == (40, n, d)
    for name in ("X", "y", "variances", "roughness", "noise"):
        assert getattr(batch, name).isfinite().all()
        assert torch.equal(getattr(batch, name), getattr(again, name))
    assert not torch.equal(batch.captions, other.captions)
    if n > 2:
        assert torch.allclose(batch.y.mean(1), torch.zeros(40), atol=1e-4)
        assert torch.allclose(batch.y.std(1, correction=0), torch.ones(40), atol=1e-3)


def test_shares_of_changing_noise_and_white() -> None:
    white, changing = (next(w.index for w in WORDS if str(w) == name) for name in ("White", "Linear*White"))
    config = SimulatorConfig("default", max_words=3, words=(1, 2, 3, 4), changing_noise=0.6, white=0.2)
    captions = simulate(config, 2000, 2, 1, seeded()).captions
    is_white = (captions == torch.tensor([white, PAD, PAD])).all(1)
    has_changing = (captions == changing).any(1)
    assert abs(float(is_white.double().mean()) - 0.2) < 0.03
    assert abs(float(has_changing.double().mean()) - 0.6 * 0.8 * 2 / 3) < 0.04  # captions of three words have no room
    assert all(len(set(c)) == len(c) for c in ([w for w in row if w != PAD] for row in captions.tolist()))


def test_a_trend_is_added_at_any_place() -> None:
    linear = next(w.index for w in WORDS if str(w) == "Linear")
    config = SimulatorConfig("default", max_words=3, words=(1, 2, 3, 4), trend=0.6)
    captions = simulate(config, 2000, 2, 1, seeded()).captions
    is_first, is_anywhere = captions[:, 0] == linear, (captions == linear).any(1)
    assert abs(float(is_anywhere.double().mean()) - 0.6 * 2 / 3) < 0.04  # captions of three words have no room
    assert abs(float(is_first.double().mean()) - 0.6 / 3 * (1 / 2 + 1 / 3)) < 0.03
    lengths = (captions != PAD).sum(1, keepdim=True)
    assert torch.equal(captions != PAD, torch.arange(3) < lengths)
    assert all(len(set(c)) == len(c) for c in ([w for w in row if w != PAD] for row in captions.tolist()))


def test_a_series_has_equally_spaced_times_and_periods_that_these_resolve() -> None:
    periodic = next(w.index for w in WORDS if str(w) == "Periodic")
    config = SimulatorConfig("default", inputs="times", words=(periodic,), noise=(1e-6, 1e-5), max_columns=1)
    batch = simulate(config, 50, 120, 1, seeded())
    steps = batch.X[..., 0].diff(dim=1)
    assert torch.allclose(steps, steps[:, :1].expand_as(steps), atol=1e-5)
    spectrum = torch.fft.rfft(batch.y).abs().square()[:, 1:]
    assert ((spectrum / spectrum.sum(1, keepdim=True)).amax(1) > 0.1).double().mean() > 0.9  # white noise has 0.08


def test_series_are_of_levels_and_seasons_and_many_have_both() -> None:
    captions = simulate(SERIES_DATA, 1000, 2, 1, seeded()).captions
    kernels = [Expression.from_indices([w for w in row if w != PAD]) for row in captions.tolist()]
    has_season = [any({"Periodic", "Cosine"} & {f.value for f in word.factors} for word in e) for e in kernels]
    has_trend = [any(str(word) == "Linear" for word in e) for e in kernels]
    assert sum(a and b for a, b in zip(has_season, has_trend, strict=True)) > 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_columns": 0}, "max_columns must be at least 1"),
        ({"inputs": "real"}, "real inputs need a folder"),
        ({"tables": "somewhere"}, "other inputs take none"),
        ({"nuisances": 1.5}, "nuisances must be a share"),
        ({"white": -0.1}, "white must be a share"),
    ],
)
def test_bad_options_are_explained(options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SimulatorConfig(**options)
