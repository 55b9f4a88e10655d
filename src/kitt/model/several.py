"""Several outputs of one table: an independent model for each of them, and one object for all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kitt.errors import CheckpointError, InvalidInputError, MissingExtraError
from kitt.files import check_checksum, check_format, checksum, load_document, write_text
from kitt.model.document import Model
from kitt.model.suggestion import Suggestion
from kitt.table.outputs import column_of, outputs_of
from kitt.table.reading import listed
from kitt.table.scaling import FloatArray

FORMAT, VERSION = "kitt-models", 1


@dataclass(frozen=True, eq=False, repr=False)
class Models:
    """A model for each of several outputs, which are predicted, updated, exported and saved together.

    `kitt.suggest(X, Y, fit=True).fitted` is one. Outputs are independent of each other, given the inputs.

    Attributes
    ----------
    models : tuple of Model
        One for each output; `models["price"]` and `models[0]` are single ones, to explain and to look into.
    targets : tuple of str
        The names of the outputs.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 6, 30)
    >>> models = kitt.suggest(x[:, None], np.stack([np.sin(x), x**2], 1), fit=True, effort="quick").fitted
    >>> mean, std = models.predict([[3.0], [4.0]])
    >>> models.targets, mean.shape, models["y1"].predict([[3.0]])[0].round(1)
    (('y1', 'y2'), (2, 2), array([0.1]))
    """

    models: tuple[Model, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", tuple(self.models))
        if not self.models or len(set(self.targets)) < len(self.models):
            raise InvalidInputError(f"expected models of different targets, got those of {listed(self.targets)}")

    @cached_property
    def targets(self) -> tuple[str, ...]:
        return tuple(model.encoding.target for model in self.models)

    def __getitem__(self, target: str | int) -> Model:
        if isinstance(target, str) and target not in self.targets:
            raise InvalidInputError(f"expected one of the outputs {listed(self.targets)}; got '{target}'")
        return self.models[self.targets.index(target) if isinstance(target, str) else target]

    def __len__(self) -> int:
        return len(self.models)

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def __repr__(self) -> str:
        """The models, without their rows."""
        return "\n".join(map(repr, self.models))

    def predict(self, table: Any, noisy: bool = True) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation, each of shape (M, outputs), of M rows in raw units (see `Model.predict`)."""
        mean, std = zip(*(model.predict(table, noisy) for model in self.models), strict=True)
        return np.stack(mean, 1), np.stack(std, 1)

    def sample(self, table: Any, count: int = 1, noisy: bool = True, random_state: int | None = None) -> FloatArray:
        """Draws (count, M, outputs), joint over the rows and independent between the outputs (see `Model.sample`)."""
        seeds = np.random.SeedSequence(random_state).generate_state(len(self.models))
        draws = [m.sample(table, count, noisy, int(seed)) for m, seed in zip(self.models, seeds, strict=True)]
        return np.stack(draws, -1)

    def update(self, table: Any, Y: Any = None, noise: ArrayLike | None = None) -> Models:
        """Condition every model on more rows, with Y (M, outputs) or a table that holds the outputs (see `Model.update`).

        Returns
        -------
        Models
            `refit_reasons` of each model say why its parameters should be fitted again, if they should.
        """
        if Y is None:
            return Models(tuple(model.update(table, noise=noise) for model in self.models))
        columns = outputs_of(Y, self.targets)
        known = [column_of(noise, j, len(columns)) for j in range(len(columns))]
        several = zip(self.models, columns.values(), known, strict=True)
        return Models(tuple(model.update(table, y, own) for model, y, own in several))

    def to_botorch(self, single: bool = False, bounds: Any = None) -> Any:
        """All models for BoTorch: a `ModelList` of whole mixtures, or if `single` a `ModelListGP` of one kernel for each.

        The arguments are those of `Model.to_botorch`.
        """
        try:
            from botorch.models.model import ModelList
            from botorch.models.model_list_gp_regression import ModelListGP
        except ModuleNotFoundError as error:
            raise MissingExtraError(error.name or "botorch", "export", "a model for BoTorch") from error
        models = [model.to_botorch(single=single, bounds=bounds) for model in self.models]
        return ModelListGP(*models) if single else ModelList(*models)

    def to_dict(self, rows: bool = True) -> dict[str, Any]:
        """The document that `save` writes: that of each model, as `Model.to_dict` gives it."""
        return {"format": FORMAT, "version": VERSION, "models": [model.to_dict(rows) for model in self.models]}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Models:
        """The models of a document; `CheckpointError` if it is of another kind or contradicts itself."""
        if isinstance(document, Mapping) and document.get("format") == FORMAT:
            check_checksum(document)
        models = check_format(document, FORMAT, VERSION).get("models")
        if not isinstance(models, list):
            raise CheckpointError(f'expected a list of "models" in a {FORMAT} document, got {type(models).__name__}')
        try:
            return cls(tuple(map(Model.from_dict, models)))
        except InvalidInputError as error:
            raise CheckpointError(f"this {FORMAT} document contradicts itself: {error}") from error

    def save(self, path: str | os.PathLike[str], rows: bool = True) -> None:
        """Write all models to one file, with or without their rows. Writing is atomic."""
        document = self.to_dict(rows)
        document["checksum"] = checksum(document)
        write_text(path, json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Models:
        """The models of a file that `save` wrote."""
        return load_document(path, FORMAT, cls.from_dict)


@dataclass(frozen=True, eq=False, repr=False)
class Suggestions(Sequence[Suggestion]):
    """The result of `kitt.suggest` for several outputs: a `Suggestion` for each.

    Attributes
    ----------
    suggestions : tuple of Suggestion
        `suggestions[0]` is that of the first output, and so on.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 6, 30)
    >>> both = kitt.suggest(x[:, None], np.stack([2 * x, x**2], 1))
    >>> len(both), len(both[0].captions)
    (2, 3)
    """

    suggestions: tuple[Suggestion, ...]

    def __getitem__(self, place: Any) -> Any:
        return self.suggestions[place]

    def __len__(self) -> int:
        return len(self.suggestions)

    @cached_property
    def fitted(self) -> Models:
        """The fitted models; raises an error if nothing was fitted."""
        return Models(tuple(suggestion.fitted for suggestion in self.suggestions))

    def save(self, path: str | os.PathLike[str], rows: bool = True) -> None:
        """Write the fitted models to a file, as `Models.save` does."""
        self.fitted.save(path, rows)

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self.suggestions))
