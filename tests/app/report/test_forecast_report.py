"""The report of a forecast: the answer first, its parts, past origins, candidates; one file that fetches nothing."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_report import Page

import kitt
from kitt.app.report import render_report

EVIL = "<script>alert(1)</script> $x^$"


@pytest.fixture(scope="module")
def monthly() -> kitt.Forecast:
    rng = np.random.default_rng(3)
    t = np.arange(72)
    y = np.exp(3 + 0.01 * t + 0.2 * np.sin(2 * np.pi * t / 12) + 0.02 * rng.normal(size=72))
    return kitt.forecast(pd.Series(y, pd.date_range("2012-01-01", periods=72, freq="MS"), name="sales"), horizon=18)


@pytest.fixture(scope="module")
def step() -> kitt.Forecast:
    rng = np.random.default_rng(0)
    return kitt.forecast(pd.Series(10.0 * (np.arange(60) > 35) + rng.normal(size=60), name=EVIL), horizon=6)


@pytest.fixture(scope="module")
def short() -> kitt.Forecast:
    return kitt.forecast([3.0, 5.0, 4.0, 6.0, 5.0, 7.0, 6.0, 8.0], horizon=1)


def test_the_answer_comes_first(monthly: kitt.Forecast) -> None:
    page = render_report(monthly, "air.csv")
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles == ["The answer", "The parts", "Forecasts of the past", "The candidates", "How it was made"]
    text = Page(page).text
    assert "The next 18 months of sales" in text
    assert "air.csv" in text
    assert text.index(monthly.explain()) < text.index("The parts")
    assert "Trend" in text
    assert "Season of 12" in text
    assert "Coverage of 90 % intervals" in text
    assert all(str(structure) in text for structure in monthly.structures)
    assert f"{monthly.to_frame()['q0.95'].iloc[0]:.5g}" in text


@pytest.mark.parametrize("name", ["monthly", "step", "short"])
def test_one_file_that_fetches_nothing(name: str, request: pytest.FixtureRequest) -> None:
    text = render_report(request.getfixturevalue(name))
    page = Page(text)
    assert len(text.encode()) < 400_000
    assert page.tags["script"] == page.tags["style"] == page.tags["main"] == 1
    assert "http" not in text
    assert not [key for key, _ in page.attributes if key.startswith("on") or key == "style"]
    ids = [value for key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(ids)
    assert not re.search(r"\bnan\b|\binf\b|None\b", page.text)


def test_names_from_the_series_are_text(step: kitt.Forecast) -> None:
    page = render_report(step)
    assert "<script>alert" not in page
    assert Page(page).text.count(EVIL) > 3
    if step.active_changes:
        assert "from here on another level" in page


def test_a_short_series_claims_nothing(short: kitt.Forecast) -> None:
    text = Page(render_report(short)).text
    assert "The next 1 step of y" in text
    assert short.past is not None or "nothing is claimed about errors" in text


def test_many_steps_are_not_all_listed(monthly: kitt.Forecast) -> None:
    longer = monthly.at(pd.date_range("2018-01-01", periods=80, freq="MS"))
    assert "the first 60 of 80 steps" in Page(render_report(longer)).text


def test_with_addresses_nothing_is_inline(monthly: kitt.Forecast) -> None:
    page = render_report(replace(monthly), script_url="/r.js", style_url="/r.css")
    assert '<link rel="stylesheet" href="/r.css">' in page
    assert "<style>" not in page


def test_a_zone_is_drawn(monthly: kitt.Forecast, tmp_path) -> None:
    y = pd.Series(
        np.sin(np.arange(30)), pd.date_range("2024-03-20", periods=30, freq="D", tz="Europe/Berlin"), name="v"
    )
    made = kitt.forecast(y, horizon=3, season=0, changes=False)
    kitt.write_report(made, tmp_path / "zone.html")
    assert "2024-04-19" in (tmp_path / "zone.html").read_text()
