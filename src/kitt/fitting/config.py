"""How a kernel is fitted, declared once, and the time it may take."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from kitt.errors import InvalidInputError
from kitt.language.priors import preset


@dataclass(frozen=True)
class StartsConfig:
    """How starting values are read off a table; comments as in `FitConfig`."""

    frequencies: int = 256  # of each column's spectrum, and more where columns are few: `kitt bench timeseries`
    waves: int = 2048  # plane waves tried, for Cosine; unrecorded
    refined_waves: int = 48  # of them, improved by Gauss-Newton steps: 12 tables of `kitt bench atlas`
    wave_steps: int = 8
    dense_columns: int = 2  # at most, for rows to lie so close that short lengthscales show: `kitt bench timeseries`
    shortening: tuple[int, ...] = (1, 4, 16, 64)  # lengthscales tried there are so much shorter: the same
    wave_lengthscale: float = 0.7  # at which Periodic is about a wave; unrecorded
    decisive_bic: float = 10.0  # difference of BIC that leaves no doubt about a season (Kass & Raftery, 1995)
    period_multiples: tuple[int, ...] = (
        2,
        3,
        4,
        5,
        6,
    )  # of the highest peak's, tried as its season: `bench timeseries`


@dataclass(frozen=True)
class FitConfig:
    """How to fit. A comment names the benchmark on which a default was chosen; `unrecorded` says that none is on record."""

    objective: Literal["map", "ml"] = "map"  # `kitt bench words` and `kitt bench uci`
    prior: str = "default"
    method: Literal["bfgs", "l-bfgs"] = "bfgs"  # `kitt bench fit`
    draws: int = 20  # from the prior, beside the guesses: tests/fitting/test_fit.py has tables that need them
    starts: int = 2  # optimised on some of the rows: `kitt bench starts`
    coarse_rows: int = 150  # those rows, at most: `kitt bench atlas`
    direct_rows: int = 600  # up to which a kernel is optimised on all rows at once: `kitt bench atlas`
    max_iterations: int = 200  # UCI tables
    tolerance: float = 0.05  # nats; stop when a few iterations gain less: UCI tables
    deadline: float | None = None  # seconds for each fit
    exact_rows: int = 3000  # above, hyperparameters from a subset and a sparse posterior: UCI tables
    subset_rows: int = 1200  # UCI tables
    inducing: int = 600  # UCI tables
    # The search on some of the rows
    scored_rows: int = 100  # on which all draws and guesses are compared; unrecorded
    batch_steps: int = 5  # on those rows, of the best starts together; `kitt bench starts`
    batch_patience: int = 3  # of those steps that gain less than the tolerance end it; unrecorded
    longest_step: float = 2.0  # of those, in any raw parameter; unrecorded
    trials: int = 1  # starts that are then optimised on `coarse_rows`; with three, one is the middle of the prior
    trial_iterations: int = 12  # of each trial; unrecorded
    coarse_iterations: int = 30  # of the best trial, its first ones included; unrecorded
    patience: int = 3  # iterations that must together gain more than the tolerance, on any rows; unrecorded
    search_share: float = 0.5  # of the deadline, which the search may take; unrecorded
    comparison_share: float = 0.1  # of the deadline, for comparing a kernel that is perhaps not fitted; unrecorded
    guesses: StartsConfig = field(default_factory=StartsConfig)
    # The curvature that BFGS begins with
    fisher_rows: int = 64  # from which it is estimated: `kitt bench fit`
    min_curvature: float = 0.1  # of any parameter: `kitt bench fit`
    dense_parameters: int = 500  # at most, for which it is a matrix; with more, L-BFGS-B is used; unrecorded

    def __post_init__(self) -> None:
        preset(self.prior)
        for name, value, allowed in (
            ("objective", self.objective, ("map", "ml")),
            ("method", self.method, ("bfgs", "l-bfgs")),
        ):
            if value not in allowed:
                raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        free = ("objective", "prior", "method", "draws", "deadline", "batch_steps", "guesses")
        for name in (f.name for f in fields(self) if f.name not in free):
            if not getattr(self, name) > 0:
                raise InvalidInputError(f"{name} must be positive, got {getattr(self, name)}")
        if self.draws < 0 or (self.deadline is not None and not self.deadline > 0):
            raise InvalidInputError("draws must not be negative, and a deadline must be a positive number of seconds")

    @classmethod
    def of(cls, config: FitConfig | None, options: dict[str, Any]) -> FitConfig:
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in options if name not in known]:
            raise InvalidInputError(f"no fit option is called {', '.join(unknown)}; the options are {', '.join(known)}")
        return replace(config or cls(), **options)


class DeadlineError(Exception):
    """A budget is spent."""


@dataclass
class Budget:
    """The time at which to stop, by `time.monotonic`, and likelihoods evaluated so far."""

    end: float = math.inf
    evaluations: int = 0

    @classmethod
    def until(cls, end: float) -> Budget:
        """That ends at a time of the clock on the wall, `time.time`."""
        return cls(time.monotonic() + end - time.time())

    def spend(self) -> None:
        if self.spent:
            raise DeadlineError
        self.evaluations += 1

    @property
    def spent(self) -> bool:
        return time.monotonic() > self.end
