"""What KITT says about a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from kitt.errors import InvalidInputError
from kitt.fitting.fit import Failure
from kitt.language.grammar import Expression
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.options import Options
from kitt.network.caption import Captions
from kitt.table.dataset import Dataset


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
                    "rows": m.rows,
                    "is_plain": plain,
                    "target_transform": None if m.warp.is_identity else m.warp.kind,
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
            parts = zip(self.model.weights, self.model.kernels, self.model.is_plain, self.model.warps, strict=True)
            for w, kernel, plain, warp in sorted(parts, key=lambda t: -t[0]):
                of = " of the transformed target" * (not warp.is_identity)
                lines.append(f"{w:11.1%}        {kernel.expression}{of}{' (plain)' * plain}")
        return "\n".join([*lines, *(f"note: {text}" for text in self.warnings), *map(str, self.failures)])


def cautions(dataset: Dataset, captions: Captions) -> Iterator[str]:
    if dataset.n < 30:
        yield f"only {dataset.n} rows: many kernels fit as few points equally well"
    if captions.is_strange:
        yield "the table looks unlike anything the network was trained on: trust the fits more than the captions"
