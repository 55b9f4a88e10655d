"""Series of the atlas: seasonal naive, forecasts of the last fifth, and those of other libraries as lines."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from atlas_work import run
from kitt.errors import InvalidInputError
from kitt.table.dataset import Dataset
from kitt_lab.baselines import method
from kitt_lab.bench import atlas, series
from kitt_lab.bench.methods import Spec
from kitt_lab.bench.runner import measure, read


def test_seasonal_naive() -> None:
    times = 2000 + np.arange(10) / 4
    y = np.array([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 6.0, 1.0, 2.0])
    fitted = method("seasonal-naive").fit(Dataset.from_arrays(times[:, None], y), 0)
    assert fitted.details["period"] == 4
    mean, std = fitted.predict(2000 + np.arange(10, 16)[:, None] / 4)
    assert mean.tolist() == [3.0, 6.0, 1.0, 2.0, 3.0, 6.0]
    assert std**2 == pytest.approx([4 / 6] * 4 + [8 / 6] * 2)
    with pytest.raises(InvalidInputError, match="got 2 columns"):
        method("seasonal-naive").fit(Dataset.from_arrays(np.random.default_rng(0).random((20, 2)), np.arange(20.0)), 0)


def test_series(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "series.jsonl"
    arguments = ["atlas", "--kind", "series", "--data", str(folder), "--jobs", "0", "--out", str(out)]
    arguments += ["--methods", "seasonal-naive,rbf-ard"]
    run(*arguments)
    entries = read(out)
    assert [entry["status"] for entry in entries] == ["ok"] * 4
    assert all(entry["result"]["n_test"] == 10 for entry in entries)
    table = run("table", str(out), "--kind", "series")
    assert "| seasonal-naive | 2 | 1.000 (1.000 to 1.000) | 0% | +0.000 (+0.000 to +0.000) | +0.000 |" in table
    against = {run(*asked, "--reference", "rbf-ard") for asked in (("table", str(out), "--kind", "series"), arguments)}
    assert all("rbf-ard" in text and "MAE over that of rbf-ard" in " ".join(text.split()) for text in against)
    assert "| rbf-ard | 2 | 1.000 (1.000 to 1.000) |" in against.pop() + against.pop()
    with pytest.raises(InvalidInputError, match="no lines of the reference 'theta': there are some of seasonal-naive"):
        series.series_grid(entries, "theta")


def test_forecasts_of_rivals_become_lines(folder: Path) -> None:
    source = next(s for s in atlas.sources(folder, kind="series") if s.name == "some.months")
    asked = series.task(source)
    assert (asked["period"], asked["steps"], len(asked["y"])) == (12, 10, 40)
    test = series.split(source)[1].y
    forecast = {"method": "theta", "mean": test.tolist(), "low": (test - 1).tolist(), "high": (test + 1).tolist()}
    entries = series.rival_line(source, {**forecast, "cpu_seconds": 0.1}, {"commit": "aaa"})
    result = entries["result"]
    assert (result["mae"], result["coverage_90"]) == (0.0, 1.0)
    assert result["nlpd"] == pytest.approx(-norm.logpdf(0, 0, 1 / norm.ppf(0.95)))
    failed = series.rival_line(source, {"method": "theta", "error": "no"}, {})
    assert failed["status"] == "failed"
    naive = [measure(cell) for cell in series.series_cells([source], [Spec("seasonal-naive")])]
    rows = series.series_grid([*naive, entries, failed]).rows
    assert [row[0] for row in rows] == ["seasonal-naive", "theta"]
    assert rows[1][2:4] == ("", "100%")  # an error of 0 has no ratio, but is the lower one
