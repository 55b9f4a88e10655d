"""The pipeline: the six inference steps of the paper, one after the other. Everything a user does goes through here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import Any, get_args

from kitt.errors import FitError, InvalidInputError
from kitt.fitting.fit import Failure, FittedGP, Fitter
from kitt.language.grammar import Expression, parse
from kitt.model.candidates import STEPS, grow
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.weights import Weighting, weights
from kitt.network.caption import Captions, caption
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray

PLAIN = ("RBF", "Matern52")  # the kernels users have today, with BoTorch's priors: always tried too
Progress = Callable[[str, float], None]  # what is being done, and the share that is done


@dataclass(frozen=True)
class Options:
    """Every choice of the pipeline, declared once."""

    k: int = 3  # captions to fit
    model: str = "default"  # checkpoint
    head: str = "decoder"
    search: str = "beam"
    ranking: str = "prudent"
    weights: Weighting = "stacking"
    sums: bool = True  # also fit sums that grow from the captions
    plain: bool = True  # also consider plain RBF-ARD and Matern52-ARD
    objective: str = "map"
    deadline: float | None = None  # seconds for all fits together
    fit_options: Mapping[str, Any] | None = None  # further fields of `objective.FitConfig`
    random_state: int = 0

    def __post_init__(self) -> None:
        if self.weights not in get_args(Weighting):
            raise InvalidInputError(f"weights must be one of {', '.join(get_args(Weighting))}, got '{self.weights}'")
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise InvalidInputError(f"k, the number of captions, must be a whole number of at least 1, got {self.k!r}")
        if self.deadline is not None and not self.deadline > 0:
            raise InvalidInputError(f"the deadline must be a positive number of seconds, got {self.deadline}")

    @classmethod
    def of(cls, **options: Any) -> Options:
        known = [f.name for f in fields(cls)]
        if unknown := [name for name in options if name not in known]:
            raise InvalidInputError(f"no option is called {', '.join(unknown)}; the options are {', '.join(known)}")
        return cls(**options)


@dataclass(frozen=True, eq=False)
class Suggestion:
    """What KITT says about a table: captions at once, and a fitted model if it was asked for."""

    dataset: Dataset
    options: Options
    captions: Captions
    model: Model | None = None
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage

    @property
    def best(self) -> Expression:
        """The expression of the heaviest model, or the first caption if nothing was fitted."""
        return self.captions.ranked[0].expression if self.model is None else self.model.best.expression

    @property
    def mixture(self) -> Mixture:
        return self.fitted.mixture

    @property
    def fitted(self) -> Model:
        """The model; an error that says how to get one, if there is none."""
        if self.model is None:
            raise InvalidInputError("nothing was fitted: call suggest with fit=True")
        return self.model

    def save(self, path: str | PathLike[str], rows: bool = True) -> None:
        self.fitted.save(path, rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON; without the rows."""
        out: dict[str, Any] = {
            "target": self.dataset.target,
            "rows": self.dataset.n,
            "columns": list(self.dataset.names),
            "captions": [
                {"expression": str(c.expression), "probability": c.probability, "expected_loss": c.expected_loss}
                for c in self.captions.ranked
            ],
            "strangeness": self.captions.strangeness,
            "noise": self.captions.noise,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
        }
        if self.model is not None:
            out["kernels"] = [
                {
                    "expression": str(m.expression),
                    "weight": float(w),
                    "is_plain": plain,
                    "log_marginal_likelihood": m.log_marginal_likelihood,
                    "loo_log_density": m.loo_log_density,
                    "bic": m.bic,
                    "converged": m.converged,
                    "seconds": m.seconds,
                    "warnings": list(m.warnings),
                }
                for m, w, plain in zip(self.mixture.models, self.mixture.weights, self.model.is_plain, strict=True)
            ]
            out["failures"] = list(map(str, self.failures))
        return out

    def __str__(self) -> str:
        lines = ["probability  loss  kernel"]  # the loss that is expected, in nats a row
        for c in self.captions.ranked:
            loss = "   –" if c.expected_loss is None else f"{c.expected_loss:4.2f}"
            lines.append(f"{c.probability:11.1%}  {loss}  {c.expression}")
        if self.model is not None:
            lines += ["", "     weight        fitted kernel"]
            parts = zip(self.model.weights, self.model.kernels, self.model.is_plain, strict=True)
            lines += [
                f"{w:11.1%}        {k.expression}{' (plain)' * p}" for w, k, p in sorted(parts, key=lambda t: -t[0])
            ]
        return "\n".join([*lines, *(f"note: {text}" for text in self.warnings), *map(str, self.failures)])


def suggest(
    X: Any,
    y: Any = None,
    k: int = 3,
    *,
    fit: bool = False,
    target: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Suggestion:
    """Name the kernel of a table, and with `fit` make a model of it.

    `X` and `y` are arrays, or `X` is a DataFrame, a Dataset or a file and `target` names its column (default: the last).
    `options` are the fields of `Options`.
    """
    dataset = as_dataset(X, y, target)
    return suggest_dataset(dataset, Options.of(k=k, **options), fit=fit, progress=progress)


def suggest_dataset(
    dataset: Dataset, options: Options, *, fit: bool = True, progress: Progress | None = None
) -> Suggestion:
    report = progress or (lambda what, share: None)
    clock = _Clock()
    report("captioning", 0.0)
    captions = _caption(dataset.X, dataset.y, options)  # paper, Inference, steps 1 to 4
    clock.stop("caption")
    notes = (*dataset.notes, *_warnings(dataset, captions))
    if not fit:
        return Suggestion(dataset, options, captions, warnings=notes, seconds=clock.seconds)
    models, is_plain, failures = _fit_candidates(dataset, captions, options, report)  # step 5
    clock.stop("fit")
    mixture = Mixture(tuple(models), weights(models, options.weights, log_probabilities(models, captions)))  # step 6
    clock.stop("average")
    model = Model.of(mixture, dataset, is_plain)
    return Suggestion(dataset, options, captions, model, tuple(failures), notes, clock.seconds)


def as_dataset(X: Any, y: Any = None, target: str | None = None) -> Dataset:
    """A Dataset from whatever a user has: arrays, a DataFrame, a file, or a Dataset."""
    if isinstance(X, Dataset):
        return X
    if y is not None:
        names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
        target = target or str(getattr(y, "name", None) or "y")
        while names and target in names:
            target += "_"
        if names is None:
            return Dataset.from_arrays(X, y, None, target)
        return Dataset.from_frame(X.set_axis(names, axis=1).assign(**{target: _column(y, len(X))}), target)
    if hasattr(X, "columns"):
        return Dataset.from_frame(X, target)
    if isinstance(X, str | PathLike) or hasattr(X, "read"):
        return Dataset.read(X, target)
    raise InvalidInputError(
        f"expected arrays X and y, or a DataFrame, Dataset or file that holds both; got {type(X).__name__} and no y"
    )


def _column(y: Any, rows: int) -> Any:
    """The values of y, without an index that pandas would align."""
    import numpy as np

    values = np.asarray(y)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.shape != (rows,):
        raise InvalidInputError(f"expected y of shape ({rows},), one value for each row of X; got shape {values.shape}")
    return values


def _fit_candidates(
    dataset: Dataset, captions: Captions, options: Options, report: Progress
) -> tuple[list[FittedGP], list[bool], list[Failure]]:
    """The network's captions and what grows from them with our prior, then the plain kernels with BoTorch's."""
    said = [c.expression for c in captions.ranked]
    total = len(said) + STEPS * options.sums + len(PLAIN) * options.plain
    chosen: dict[str, Any] = {"objective": options.objective, **(options.fit_options or {})}
    if options.deadline is not None:
        chosen["deadline"] = options.deadline / total  # each has its share of the time

    def fitter(prior: str) -> Fitter:
        return Fitter(dataset, random_state=options.random_state, **{"prior": prior, **chosen})

    named, plain = fitter("default"), fitter("botorch")

    def fit(one: Fitter, expressions: Iterable[Expression]) -> None:
        for expression in expressions:
            done = sum(len(f.fitted) + len(f.failures) for f in (named, plain))
            report(f"fitting {expression}", done / total)
            one.attempt(expression)

    fit(named, said)
    if options.sums:
        fit(named, grow(said, named))
    if options.plain:
        fit(plain, map(parse, PLAIN))
    report("averaging", 1.0)
    failures = named.failures + plain.failures
    if not named.fitted + plain.fitted:
        raise FitError("no kernel could be fitted: " + "; ".join(map(str, failures)))
    is_plain = [False] * len(named.fitted) + [True] * len(plain.fitted)
    return [model for _, model in named.fitted + plain.fitted], is_plain, failures


def _caption(X: FloatArray, y: FloatArray, options: Options) -> Captions:
    """Steps 1 to 4."""
    asked = {name: getattr(options, name) for name in ("model", "head", "search", "ranking", "random_state")}
    return caption(X, y, options.k, **asked)


def log_probabilities(models: Sequence[FittedGP], captions: Captions) -> list[float]:
    """The network's log-probability of each model's expression; of what it did not say, the product of its words'."""
    out = []
    for model in models:
        said = [c.probability for c in captions.ranked if c.expression.same_sum(model.expression)]
        words = [captions.words[i] for i in model.expression.indices]
        out.append(math.log(max(said[0] if said else math.prod(words), 1e-12)))
    return out


def _warnings(dataset: Dataset, captions: Captions) -> Iterator[str]:
    if dataset.n < 30:
        yield f"only {dataset.n} rows: many kernels fit as few points equally well"
    if captions.is_strange:
        yield "the table looks unlike anything the network was trained on: trust the fits more than the captions"


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stop(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now
