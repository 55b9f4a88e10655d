"""Several outputs: one model for each, as if it were fitted alone; together in predictions, files, updates and BoTorch."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models import ModelListGP

import kitt
from kitt.errors import CheckpointError, InvalidInputError

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 4, (24, 2))
Y = np.stack([np.sin(2 * X[:, 0]) + X[:, 1], 50 + 3 * X[:, 1] ** 2], 1) + 0.05 * RNG.standard_normal((24, 2))
FRAME = pd.DataFrame(X, columns=["a", "b"]).assign(low=Y[:, 0], high=Y[:, 1])
QUICK = {"k": 1, "effort": "quick", "warp": False}


@pytest.fixture(scope="module")
def several() -> kitt.Suggestions:
    return kitt.suggest(FRAME, target=["low", "high"], fit=True, **QUICK)


def test_each_output_is_fitted_as_if_alone(several: kitt.Suggestions) -> None:
    models = several.fitted
    assert models.targets == ("low", "high")
    mean, std = models.predict(FRAME[["a", "b"]])
    assert mean.shape == std.shape == (24, 2)
    np.testing.assert_allclose(mean, Y, atol=0.5)
    alone = kitt.suggest(FRAME.drop(columns="low"), target="high", fit=True, **QUICK)
    assert [str(c.expression) for c in several[1].captions] == [str(c.expression) for c in alone.captions]
    np.testing.assert_allclose(models["high"].predict(FRAME)[0], alone.fitted.predict(FRAME)[0], rtol=1e-4)


def test_a_matrix_and_a_frame_of_outputs_have_names() -> None:
    said = kitt.suggest(X, Y, **QUICK)
    assert [s.dataset.target for s in said] == ["y1", "y2"]
    said = kitt.suggest(FRAME[["a", "b"]], FRAME[["low", "high"]], **QUICK)
    assert [s.dataset.target for s in said] == ["low", "high"]
    assert [s.dataset.names for s in said] == [("a", "b")] * 2
    assert isinstance(kitt.suggest(X, Y[:, :1], **QUICK), kitt.Suggestion)


def test_a_row_without_one_output_is_used_for_the_other() -> None:
    holes = FRAME.copy()
    holes.loc[2, "low"] = np.nan
    noise = np.stack([np.full(24, 0.01), np.linspace(0.1, 1, 24)], 1)
    said = kitt.suggest(holes, target=["low", "high"], drop_missing=True, noise=noise, **QUICK)
    assert [s.dataset.n for s in said] == [23, 24]
    np.testing.assert_array_equal(said[1].dataset.noise, noise[:, 1])


def test_one_file_has_all_models(several: kitt.Suggestions, tmp_path) -> None:
    several.save(tmp_path / "both.json")
    again = kitt.Models.load(tmp_path / "both.json")
    np.testing.assert_allclose(again.predict(FRAME), several.fitted.predict(FRAME), rtol=1e-9)
    with pytest.raises(CheckpointError, match="another kind of file"):
        kitt.load(tmp_path / "both.json")
    document = json.loads((tmp_path / "both.json").read_text())
    document["models"].pop()
    with pytest.raises(CheckpointError, match="checksum"):
        kitt.Models.from_dict(document)
    twice = {**several.fitted.to_dict(), "models": [several.fitted.to_dict()["models"][0]] * 2}
    with pytest.raises(CheckpointError, match="different targets"):
        kitt.Models.from_dict(twice)


def test_more_rows_are_for_all_models(several: kitt.Suggestions) -> None:
    models, more, values = several.fitted, X[:3] + 0.1, Y[:3]
    frame = pd.DataFrame(more, columns=["a", "b"])
    one, other = models.update(frame, values), models.update(frame.assign(low=values[:, 0], high=values[:, 1]))
    np.testing.assert_allclose(one.predict(FRAME), other.predict(FRAME))
    assert all(model.rows is not None and model.rows.n == 27 for model in one)
    with pytest.raises(InvalidInputError, match=r"shape \(N, 2\)"):
        models.update(frame, values[:, :1])


def test_botorch_has_all_outputs(several: kitt.Suggestions) -> None:
    models, points = several.fitted, torch.tensor(X)
    posterior = models.to_botorch().posterior(points)
    np.testing.assert_allclose(posterior.mean.numpy(), models.predict(FRAME, noisy=False)[0], rtol=1e-6)
    singles = models.to_botorch(single=True)
    assert isinstance(singles, ModelListGP)
    assert singles.posterior(points).mean.shape == (24, 2)


def test_draws_are_independent_between_outputs(several: kitt.Suggestions) -> None:
    draws = several.fitted.sample(FRAME, 400, random_state=0)
    assert draws.shape == (400, 24, 2)
    assert abs(np.corrcoef(draws[:, 0, 0], draws[:, 0, 1])[0, 1]) < 0.2


def test_a_deadline_is_for_all_outputs() -> None:
    steps: list[tuple[str, float]] = []
    said = kitt.suggest(X, Y, fit=True, deadline=0.02, progress=lambda *step: steps.append(step), **QUICK)
    assert len(said.fitted) == 2
    shares = [share for _, share in steps]
    assert shares == sorted(shares)
    assert {text.split(":")[0] for text, _ in steps} == {"captioning", "y1", "y2"}


def test_an_output_that_is_none_is_named(several: kitt.Suggestions) -> None:
    with pytest.raises(InvalidInputError, match="'medium'"):
        several.fitted["medium"]
    with pytest.raises(InvalidInputError, match="target"):
        kitt.suggest(FRAME, target=["low", "medium"], **QUICK)
