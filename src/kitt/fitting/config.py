"""How a kernel is fitted, declared once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from kitt.errors import InvalidInputError
from kitt.kernels.priors import Preset, preset

_COARSE_SHARE = 2 / 3  # share of the rows of a larger table that the coarse search has: `kitt bench uci`, split 0
_MAX_COARSE_ROWS = 600  # largest number of these rows


@dataclass(frozen=True)
class StartsConfig:
    """How starting values are derived from a table; the comments are as in `FitConfig`."""

    wave_steps: int = 8  # Gauss-Newton steps by which the best plane waves are improved: `kitt bench starts`
    shortening: tuple[int, ...] = (1, 4, 16, 64)  # divisors of lengthscales that are tried: `kitt bench timeseries`
    # A column is rough if residuals of neighbours along it agree by this many standard errors: `kitt bench atlas`, all
    rough_score: float = 2.5
    # Multiples of the period with the highest peak that are tried as the season: `kitt bench timeseries`
    period_multiples: tuple[int, ...] = (2, 3, 4, 5, 6)


@dataclass(frozen=True)
class FitConfig:
    """How to fit.

    The comment of a field names the benchmark on which its default was chosen. "Set by hand" means that the first value
    that worked was kept and that no benchmark compares it with others.
    """

    objective: Literal["map", "ml"] = "map"  # `kitt bench words` and `kitt bench uci`
    prior: str | Preset = "default"
    method: Literal["bfgs", "l-bfgs"] = "bfgs"  # `kitt bench fit`
    draws: int = 8  # starts of a single word drawn from the prior, beside the guesses: tests/fitting/test_fit.py
    starts: int = 2  # best starts on a hundred rows that go on from there: `kitt bench starts`
    coarse_rows: int = 300  # rows of the coarse search; a smaller table is searched whole: `kitt bench atlas`
    direct_rows: int = 600  # up to this many rows there is no search on `coarse_rows`: `kitt bench atlas`
    max_iterations: int = 200  # UCI tables
    tolerance: float = 0.1  # nats; stop when `patience` iterations together gain less: `kitt bench atlas`
    exact_rows: int = 3000  # above, hyperparameters come from a subset and the posterior is sparse: UCI tables
    subset_rows: int = 1200  # rows of that subset: UCI tables
    inducing: int = 600  # inducing points of that posterior: UCI tables
    # The search on some of the rows.
    batch_steps: int = 0  # optimiser steps of these starts on those rows, all together: `kitt bench atlas`
    trials: int = 1  # starts then optimised on `coarse_rows`; of three, one is the prior's median: `kitt bench starts`
    trial_iterations: int = 12  # of each of these starts; set by hand
    patience: int = 2  # iterations that must together gain more than the tolerance: `kitt bench atlas`
    guesses: StartsConfig = field(default_factory=StartsConfig)

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
        return max(self.coarse_rows, min(_MAX_COARSE_ROWS, round(_COARSE_SHARE * rows)))
