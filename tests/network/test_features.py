"""The statistics: order does not matter, and they show what they are meant to show."""

import pytest
import torch

from kitt.lab.simulate import DEFAULT_DATA, SimulatorConfig, simulate
from kitt.network.features import FREQUENCIES, PROBE_FAMILIES, PROBE_SCALES, describe, prepare, probe


def tables(B=3, N=20, D=3, dtype=torch.float64):
    batch = simulate(DEFAULT_DATA, B, N, D, torch.Generator().manual_seed(0))
    return batch.X.to(dtype), batch.y.to(dtype)


def everything(X, y):
    t = prepare(X, y)
    rough = torch.ones(X.shape[0], X.shape[2], dtype=X.dtype)
    return (*describe(t), *probe(t, rough, torch.full((len(X),), 0.1, dtype=X.dtype)))


@pytest.mark.parametrize(("N", "D"), [(20, 3), (1, 1), (2, 4), (9, 1)])
def test_order_of_points_and_columns(N, D):
    X, y = tables(N=N, D=D)
    column, whole, probe_column, probe_whole = everything(X, y)
    points, columns = torch.randperm(N), torch.randperm(D)
    shuffled = everything(X[:, points][:, :, columns], y[:, points])
    for before, after in ((column[:, columns], shuffled[0]), (probe_column[:, columns], shuffled[2])):
        assert torch.allclose(before, after, atol=1e-9)
    for before, after in ((whole, shuffled[1]), (probe_whole, shuffled[3])):
        assert torch.allclose(before, after, atol=1e-9)


@pytest.mark.parametrize("make", [torch.zeros, torch.ones])
def test_degenerate_tables_stay_finite(make):
    for part in everything(make(2, 10, 3), make(2, 10)):
        assert torch.isfinite(part).all()


def test_the_spectrum_peaks_at_the_frequency():
    x = torch.linspace(-1.7, 1.7, 200).view(1, -1, 1)
    frequency = FREQUENCIES[25]
    y = (2 * torch.pi * frequency * x[..., 0]).sin() * 2**0.5
    column, *_ = describe(prepare(x, y))
    spectrum = column[0, 0, 11 : 11 + len(FREQUENCIES)]
    assert abs(int(spectrum.argmax()) - 25) <= 1


@pytest.mark.parametrize(("word", "family"), [(1, "rbf"), (2, "matern12")])
def test_probes_favour_the_family_that_made_the_data(word, family):
    batch = simulate(
        SimulatorConfig("default", words=(word,), active="all", noise=(1e-3, 1e-2)),
        40,
        100,
        1,
        torch.Generator().manual_seed(1),
    )
    t = prepare(batch.X, batch.y)
    _, whole = probe(t, batch.roughness.exp(), batch.noise.exp())
    scores = whole[:, : len(PROBE_FAMILIES) * len(PROBE_SCALES)].unflatten(1, (len(PROBE_FAMILIES), -1)).amax(-1)
    rival = "matern12" if family == "rbf" else "rbf"
    wins = scores[:, PROBE_FAMILIES.index(family)] > scores[:, PROBE_FAMILIES.index(rival)]
    assert wins.float().mean() > 0.8
