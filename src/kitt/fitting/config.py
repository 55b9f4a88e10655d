"""How a kernel is fitted, declared once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from kitt.errors import InvalidInputError
from kitt.kernels.priors import preset


@dataclass(frozen=True)
class StartsConfig:
    """How starting values are derived from a table; the comments are as in `FitConfig`."""

    frequencies: int = 256  # in each column's spectrum; more where there are few columns: `kitt bench timeseries`
    waves: int = 2048  # plane waves that are tried for Cosine; set by hand
    refined_waves: int = 48  # the best of these, improved by Gauss-Newton steps: 12 tables of `kitt bench atlas`
    wave_steps: int = 8  # number of these steps: `kitt bench starts`
    dense_columns: int = 2  # up to this many columns, short lengthscales are tried too: `kitt bench timeseries`
    shortening: tuple[int, ...] = (1, 4, 16, 64)  # divisors of these lengthscales: `kitt bench timeseries`
    # A column is rough if residuals of neighbours along it agree by this many standard errors: `kitt bench atlas`, all
    rough_score: float = 2.5
    rough_columns: int = 2  # largest number of such columns; set by hand
    # Shares of the pairs of neighbours that are compared, the closest ones: `kitt bench atlas`, all
    neighbours: tuple[float, ...] = (0.5, 0.25)
    wave_lengthscale: float = 0.7  # with which Periodic is close to a cosine wave; set by hand
    decisive_bic: float = 10.0  # difference of BIC that is decisive for a season (Kass & Raftery, 1995)
    # Multiples of the period with the highest peak that are tried as the season: `kitt bench timeseries`
    period_multiples: tuple[int, ...] = (2, 3, 4, 5, 6)
    # What a table suggests before anything is fitted, on the standardised scale; all set by hand.
    crude_lengthscale: float = 1.5  # in units of sqrt(D)
    crude_noise: tuple[float, float] = (1e-3, 0.5)  # range of the noise variance that neighbours suggest
    min_slope: float = 1e-3  # added to the squared coefficients of a linear regression
    lengthscales: tuple[float, float] = (0.05, 50.0)  # range of those that a fitted Matern52 suggests
    shortest_lengthscale: float = 1e-3  # the same range begins here where rows show short lengthscales
    # Active and neutral parameters of each primitive; all set by hand.
    stationary: tuple[float, ...] = (1.0, 2.5)  # lengthscales, in units of the suggested ones
    neutral_stationary: float = 10.0  # the same of a nearly constant factor, of which the suggested ones are at least 1
    growth_shift: float = 2.0  # |shift| of a Linear whose variance grows as the residuals do
    growth_slope: float = 0.1  # its smallest slope, in units of 1 / D
    neutral_shift: float = 6.0  # |shift| of a nearly constant Linear
    long_period: float = 8.0  # of Periodic along a column without a period
    neutral_frequency: float = 0.02  # of a nearly constant Cosine
    apart: float = 0.4  # by which the logarithms of the scales of two equal factors differ from their mean
    cauchy_middle: float = 0.25  # start of a parameter with a Cauchy prior, in units of its scale, for a gradient
    # Variances and noise with which the guesses are combined; all set by hand.
    variances: tuple[float, float] = (0.5, 10.0)  # range of the variance of a word alone
    noise_levels: tuple[float, ...] = (0.01, 0.1)  # for a word alone, beside the suggested one
    rough_noise: tuple[float, ...] = (0.01, 0.001)  # the same where a column is rough
    rough_lengthscales: tuple[float, ...] = (1.0, 10.0)  # factors of the lengthscales of the other columns there
    outlier: float = 3.0  # standard deviations to which residuals are clipped before neighbours are compared
    # Of a word that is added to a sum: its variance in units of the residual's, and the share of the noise that remains.
    added: tuple[tuple[float, float], ...] = ((0.1, 1.0), (1.0, 0.5))
    # The same of a word of noise, its variance in units of the noise variance.
    added_noise: tuple[tuple[float, float], ...] = ((0.5, 0.5), (0.2, 0.01), (1.0, 0.01), (5.0, 0.01))


@dataclass(frozen=True)
class FitConfig:
    """How to fit.

    The comment of a field names the benchmark on which its default was chosen. "Set by hand" means that the first value
    that worked was kept and that no benchmark compares it with others.
    """

    objective: Literal["map", "ml"] = "map"  # `kitt bench words` and `kitt bench uci`
    prior: str = "default"
    method: Literal["bfgs", "l-bfgs"] = "bfgs"  # `kitt bench fit`
    draws: int = 8  # starts of a single word drawn from the prior, beside the guesses: tests/fitting/test_fit.py
    starts: int = 2  # best starts on `scored_rows` that go on from there: `kitt bench starts`
    coarse_rows: int = 300  # rows of the coarse search; a smaller table is searched whole: `kitt bench atlas`
    coarse_share: float = 2 / 3  # of a larger table this share, up to `max_coarse_rows`: `kitt bench uci`, split 0
    max_coarse_rows: int = 600
    direct_rows: int = 600  # up to this many rows there is no search on `coarse_rows`: `kitt bench atlas`
    max_iterations: int = 200  # UCI tables
    tolerance: float = 0.1  # nats; stop when `patience` iterations together gain less: `kitt bench atlas`
    exact_rows: int = 3000  # above, hyperparameters come from a subset and the posterior is sparse: UCI tables
    subset_rows: int = 1200  # rows of that subset: UCI tables
    inducing: int = 600  # inducing points of that posterior: UCI tables
    # The search on some of the rows.
    scored_rows: int = 100  # rows on which all draws and guesses are compared; set by hand
    batch_steps: int = 0  # optimiser steps of these starts on those rows, all together: `kitt bench atlas`
    first_steps: int = 5  # the same for the Matern52 that gives other starts
    batch_patience: int = 3  # stop after this many steps that gain less than the tolerance; set by hand
    longest_step: float = 2.0  # largest change of an unconstrained parameter in one step; set by hand
    trials: int = 1  # starts then optimised on `coarse_rows`; of three, one is the prior's median: `kitt bench starts`
    trial_iterations: int = 12  # of each of these starts; set by hand
    coarse_iterations: int = 30  # of the best of them, its first iterations included; set by hand
    patience: int = 2  # iterations that must together gain more than the tolerance: `kitt bench atlas`
    steep_gradient: float = 1.0  # with a larger entry of the gradient, twice as many iterations; set by hand
    coarse_tolerance: float = 10.0  # tolerance on some of the rows, in units of `tolerance`; set by hand
    batch_tolerance: float = 20.0  # the same of the steps on `scored_rows`; set by hand
    min_distance: float = 0.2  # in some unconstrained parameter, between starts that go on; set by hand
    search_share: float = 0.5  # share of the time that the coarse search may take; set by hand
    guesses: StartsConfig = field(default_factory=StartsConfig)
    # The Hessian that BFGS starts from.
    fisher_rows: int = 64  # rows from which it is estimated: `kitt bench fit`
    min_curvature: float = 0.1  # smallest curvature of any parameter: `kitt bench fit`
    dense_parameters: int = 500  # with more parameters, L-BFGS-B is used instead; set by hand
    memory: int = 30  # steps that L-BFGS-B remembers; set by hand
    gradient_tolerance: float = 1e-3  # largest entry of a gradient that counts as zero; set by hand
    runs: int = 2  # of the optimiser at most, if its line search fails; set by hand

    def __post_init__(self) -> None:
        preset(self.prior)
        for name, value, allowed in (
            ("objective", self.objective, ("map", "ml")),
            ("method", self.method, ("bfgs", "l-bfgs")),
        ):
            if value not in allowed:
                raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        free = ("objective", "prior", "method", "draws", "batch_steps", "guesses")
        for name in (f.name for f in fields(self) if f.name not in free):
            if not getattr(self, name) > 0:
                raise InvalidInputError(f"{name} must be positive, got {getattr(self, name)}")
        if self.draws < 0:
            raise InvalidInputError(f"draws must not be negative, got {self.draws}")

    @classmethod
    def of(cls, config: FitConfig | None, options: dict[str, Any]) -> FitConfig:
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in options if name not in known]:
            raise InvalidInputError(f"no fit option is called {', '.join(unknown)}; the options are {', '.join(known)}")
        return replace(config or cls(), **options)

    def coarse_rows_of(self, rows: int) -> int:
        """The number of rows of the coarse search of a table with this many."""
        return max(self.coarse_rows, min(self.max_coarse_rows, round(self.coarse_share * rows)))
