"""How a kernel is fitted, declared once, and the time it may take."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from kitt.errors import InvalidInputError
from kitt.language.priors import preset


@dataclass(frozen=True)
class FitConfig:
    """How to fit. The defaults were measured on the UCI tables."""

    objective: Literal["map", "ml"] = "map"
    prior: str = "default"
    method: Literal["bfgs", "l-bfgs"] = "bfgs"
    draws: int = 150  # from the prior, beside the guesses; the paper's 1000 find a better optimum now and then
    starts: int = 6  # optimised on some of the rows
    coarse_rows: int = 300
    finished: int = 1  # optimised on all rows
    max_iterations: int = 200
    tolerance: float = 0.01  # nats; stop when a few iterations gain less
    deadline: float | None = None  # seconds for each fit
    exact_rows: int = 3000  # above, hyperparameters from a subset and a sparse posterior
    subset_rows: int = 1200
    inducing: int = 600

    def __post_init__(self) -> None:
        preset(self.prior)
        for name, value, allowed in (
            ("objective", self.objective, ("map", "ml")),
            ("method", self.method, ("bfgs", "l-bfgs")),
        ):
            if value not in allowed:
                raise InvalidInputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        counts = ("starts", "coarse_rows", "finished", "max_iterations", "exact_rows", "subset_rows", "inducing")
        for name in (*counts, "tolerance"):
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
    """Time left, and likelihoods evaluated so far."""

    end: float = math.inf
    evaluations: int = 0

    def spend(self) -> None:
        if self.spent:
            raise DeadlineError
        self.evaluations += 1

    @property
    def spent(self) -> bool:
        return time.monotonic() > self.end
