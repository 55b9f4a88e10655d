"""Every choice of the pipeline, declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, get_args

from kitt.errors import InvalidInputError
from kitt.fitting.candidates import EFFORTS, Effort
from kitt.fitting.config import FitConfig
from kitt.kernels.priors import Preset, preset
from kitt.network.caption import checked_seed

Weighting = Literal["network", "bic", "lml", "stacking", "uniform"]
Progress = Callable[[str, float], None]  # what is being done, and the share that is done


@dataclass(frozen=True)
class Options:
    """Every choice of the pipeline, declared once."""

    k: int = 3  # number of captions
    network: str = "default"  # its checkpoint: a bundled name or a file; a path becomes text
    head: str = "decoder"
    search: str = "beam"
    ranking: str = "expected-loss"
    reading: str | None = None  # quick, careful or all: how many rows the network reads; by default careful for a model
    effort: str = "normal"  # how much is fitted: quick, normal or thorough
    weights: Weighting = "stacking"
    growth: int | None = None  # words that may be added to the best caption; by default as many as the effort has
    warp: bool = True  # also fit a transform of the target, where that is closer to normal
    kernels: Sequence[str] = ()  # of one's own, which are fitted beside those that the network proposes
    prior: str | Preset = "default"  # of parameters: a preset's name, or a preset; plain kernels have BoTorch's
    objective: str = "map"
    deadline: float | None = None  # seconds for the whole call
    fit_options: Mapping[str, Any] | None = None  # further fields of `fitting.config.FitConfig`
    random_state: int = 0

    def __post_init__(self) -> None:
        if self.weights not in get_args(Weighting):
            raise InvalidInputError(f"weights must be one of {', '.join(get_args(Weighting))}, got '{self.weights}'")
        if self.effort not in EFFORTS:
            raise InvalidInputError(f"effort must be one of {', '.join(EFFORTS)}, got '{self.effort}'")
        if isinstance(self.k, bool) or not isinstance(self.k, Integral) or self.k < 1:
            raise InvalidInputError(f"k, the number of captions, must be a whole number of at least 1, got {self.k!r}")
        if self.growth is not None and (not isinstance(self.growth, Integral) or self.growth < 0):
            raise InvalidInputError(
                f"growth, the number of words to add, must be a whole number of at least 0, got {self.growth!r}"
            )
        object.__setattr__(self, "kernels", (self.kernels,) if isinstance(self.kernels, str) else tuple(self.kernels))
        preset(self.prior)
        object.__setattr__(self, "random_state", checked_seed(self.random_state))
        if isinstance(self.network, os.PathLike):
            object.__setattr__(self, "network", os.fspath(self.network))
        if self.deadline is not None and not (isinstance(self.deadline, Real) and self.deadline > 0):
            raise InvalidInputError(f"the deadline must be a positive number of seconds, got {self.deadline!r}")

    @classmethod
    def of(cls, **options: Any) -> Options:
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in options if name not in known]:
            raise InvalidInputError(f"no option is called {', '.join(unknown)}; the options are {', '.join(known)}")
        return cls(**options)

    @property
    def effort_config(self) -> Effort:
        """How much is fitted."""
        usual = EFFORTS[self.effort]
        return usual if self.growth is None else replace(usual, growth=self.growth)

    @property
    def fit_config(self) -> FitConfig:
        """How kernels are fitted, as far as it is the same for all priors and efforts."""
        return FitConfig.of(None, dict(self.fit_options or {}))

    def of_captions(self, fit: bool) -> dict[str, Any]:
        """The options of `kitt.caption`, except for the number of captions; of a table that is to be fitted, or not."""
        chosen = {name: getattr(self, name) for name in ("network", "head", "search", "ranking", "random_state")}
        usual = "careful" if fit and self.effort != "quick" else "quick"
        return {**chosen, "reading": self.reading or usual}
