"""The statistics: order does not matter, and they show what they are meant to show."""

import pytest
import torch

from kitt.network.features import FREQUENCIES, PROBE_FAMILIES, PROBE_SCALES, describe, prepare, probe, spectra_of
from kitt.network.waves import REGRESSIONS, wave_statistics
from kitt_lab.simulate import DEFAULT_DATA, SimulatorConfig, simulate


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
    spectrum = column[0, 0, spectra_of(column)][: len(FREQUENCIES)]
    assert abs(int(spectrum.argmax()) - 25) <= 1


TIME = torch.arange(150.0, dtype=torch.float64)


def sine(period: float) -> torch.Tensor:
    return (2 * torch.pi * TIME / period).sin()


@pytest.mark.parametrize(
    ("y", "better", "worse"),
    [
        (sine(12.3) + TIME / 30, "trend, wave", "wave"),
        (sine(12.3) + TIME / 30, "trend, wave", "trend"),
        (sine(12.3) + (TIME / 50) ** 2, "bend, wave", "trend, wave"),
        (sine(12.3) + sine(7.7), "trend, two waves", "trend, harmonics"),
        ((2 * sine(12.3)).exp(), "trend, harmonics", "trend, wave"),
        (sine(12.3) * TIME, "trend, growing wave", "trend, wave"),
    ],
)
def test_regressions_tell_trends_waves_harmonics_and_two_waves_apart(y: torch.Tensor, better: str, worse: str) -> None:
    y = y + 0.05 * y.std() * torch.randn(150, generator=torch.Generator().manual_seed(0))
    X = ((TIME - TIME.mean()) / TIME.std(correction=0)).view(1, -1, 1)
    column, _ = describe(prepare(X.float(), ((y - y.mean()) / y.std(correction=0))[None].float()))
    left = dict(zip(REGRESSIONS, column[0, 0].tolist(), strict=False))
    assert left[better] < -3.5  # logarithm of the share of the variance
    assert left[better] < left[worse] - 1.5


LEVELS = {
    "binary": lambda g: (torch.rand(200, generator=g) < 0.4).double(),
    "few levels": lambda g: torch.randint(5, (200,), generator=g).double(),
    "constant": lambda g: torch.zeros(200, dtype=torch.float64),
    "heavy tails": lambda g: torch.sinh(1.2 * torch.randn(200, generator=g, dtype=torch.float64)),
}


@pytest.mark.parametrize("kind", LEVELS)
def test_waves_depend_neither_on_order_nor_on_sign_nor_on_the_batch(kind: str) -> None:
    """In single precision, in which rounding differs with the order of the sums."""
    g = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = LEVELS[kind](g)
        x = ((x - x.mean()) / x.std().clamp_min(1e-9)).float().view(1, -1, 1)
        y = (torch.randn(200, generator=g) + 0.5 * x[0, :, 0]).view(1, 1, -1)
        order = torch.randperm(200, generator=g)
        statistics = wave_statistics(x, y)
        for again in (
            wave_statistics(x[:, order], y[..., order]),
            wave_statistics(-x, y),
            wave_statistics(x.expand(8, -1, -1), y.expand(8, -1, -1))[3:4],
        ):
            assert torch.allclose(statistics, again, atol=0.1)
        assert torch.allclose(statistics[..., :8], wave_statistics(x[:, order], y[..., order])[..., :8], atol=1e-3)


@pytest.mark.parametrize("n", [40, 60, 100, 200])
def test_of_several_waves_through_the_same_points_the_slowest_counts(n: int) -> None:
    t = torch.arange(float(n))
    x = ((t - t.mean()) / t.std(correction=0)).view(1, -1, 1)
    y = (2 * torch.pi * t / 9.3).sin() + 0.2 * torch.randn(n, generator=torch.Generator().manual_seed(n))
    frequency = wave_statistics(x, y.view(1, 1, -1))[0, 0, len(REGRESSIONS)].exp()
    per_step = float(frequency * (x[0, 1, 0] - x[0, 0, 0]))
    assert abs(1 / per_step - 9.3) < 0.3


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_too_few_points_leave_everything_open(n: int) -> None:
    X, y = torch.randn(2, n, 3), torch.randn(2, 3, n)
    statistics = wave_statistics(X, y)
    assert statistics.isfinite().all()
    assert (statistics[..., len(REGRESSIONS) - 3] == 0).all()  # as many regressors as points, or more


def test_waves_of_a_column_are_seen_beside_the_trends_of_others() -> None:
    X = torch.randn(1, 300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = 3 * X[..., 0] + (2 * torch.pi * 1.3 * X[..., 1]).sin()
    column, _ = describe(prepare(X, (y - y.mean()) / y.std()))
    left = column[0, :, list(REGRESSIONS).index("trend, wave")]
    assert left[1] < -4 < left[2]


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


def test_probes_of_rows_that_are_nearly_equal_are_finite() -> None:
    """Without noise, the covariance of such rows has no Cholesky factor in single precision."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(3, 80, 2, generator=generator)
    X[1] = X[1, :1] + 1e-6 * X[1]
    t = prepare(X, torch.randn(3, 80, generator=generator))
    statistics = probe(t, torch.full((3, 2), 1e-4), torch.zeros(3))
    assert all(part.isfinite().all() for part in statistics)
