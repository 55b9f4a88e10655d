"""Forecasts on the page and over HTTP: a table becomes a report and a file of values, and errors name the field."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from serving import EVIL, Server, eventually, wait_for_report
from test_page import browser, has_no_sideways_scroll, tab, upload

__all__ = ["browser", "tab"]  # fixtures
MONTHS = pd.date_range("2018-01-01", periods=40, freq="MS")


def monthly() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    y = 20 + 5 * np.sin(2 * np.pi * np.arange(40) / 12) + 0.5 * rng.normal(size=40)
    return pd.DataFrame({"month": MONTHS.strftime("%B %Y"), EVIL: rng.normal(size=40).round(3), "units": y.round(2)})


CSV = monthly().to_csv(index=False)


def finished(server: Server, job: dict[str, Any]) -> dict[str, Any]:
    states = ("done", "failed", "cancelled")
    return eventually(lambda: (now := server.http.get(job["links"]["self"]).json())["state"] in states and now)


def test_a_forecast_over_http(server: Server) -> None:
    response = server.post("forecast", CSV, "sales.csv", target="units", time="month", horizon=4)
    assert response.status_code == 202
    job = response.json()
    assert (job["kind"], job["target"], job["rows"], job["captions"]) == ("forecast", "units", 40, None)
    done = finished(server, job)
    assert done["state"] == "done", done["error"]
    assert [row["index"] for row in done["result"]["forecast"]] == [
        "2021-05-01",
        "2021-06-01",
        "2021-07-01",
        "2021-08-01",
    ]
    assert "'units' is expected at" in done["result"]["explanation"]
    values = pd.read_csv(io.StringIO(server.http.get(done["links"]["values"]).text))
    assert list(values) == ["month", "mean", "q0.05", "q0.25", "q0.5", "q0.75", "q0.95"]
    assert len(values) == 4
    report = server.http.get(done["links"]["report"], params={"download": True}).text
    assert "The next 4 months of units" in report
    assert "/static/" not in report
    assert "model" not in done["links"]
    for path in ("model", "code/gpytorch"):
        assert "this job is a forecast" in server.error(server.http.get(f"/api/jobs/{job['id']}/{path}"), 404)


def test_columns_and_what_is_known(server: Server) -> None:
    price = np.random.default_rng(0).normal(size=33)
    units = [*(5 - 2 * price[:30]), None, None, None]
    question = {"columns": {"price": price.tolist(), "units": units}, "known": ["price"], "season": [0]}
    done = finished(server, server.http.post("/api/forecast", json=question).json())
    assert done["state"] == "done", done["error"]
    means = [row["mean"] for row in done["result"]["forecast"]]
    assert np.allclose(means, 5 - 2 * price[30:], atol=0.3)


def test_what_cannot_be_forecast_is_refused_in_words(server: Server) -> None:
    def refused(content: str = CSV, **fields: Any) -> str:
        return server.error(server.post("forecast", content, **fields), 422)

    assert "horizon: input should be greater than or equal to 1" in refused(horizon=0)
    assert "horizon: input should be less than or equal to 10000" in refused(horizon=20_000)
    assert "season.0: input should be a valid number" in refused(season="year")
    assert "did you mean 'month'" in refused(time="moth")
    assert "time: expected one of" in refused(time="moth")
    assert "got 'units' in two" in refused(target="units", time="units")
    assert "numbers in the target 'month'" in refused(target="month")
    assert "at least 8 values" in refused("\n".join(CSV.splitlines()[:6]), target="units", time="month")
    assert "rows after the last value" in refused(known=EVIL, target="units")
    assert "at least two steps" in refused(season=1.5, target="units", time="month")
    unknown = "price,units\n" + "".join(f"{i},{i}\n" for i in range(12)) + ",\n"
    assert "price" in refused(unknown.replace("\n,\n", "\nhigh,\n"), known="price", target="units")
    twice = refused(CSV + CSV.splitlines()[3] + "\n", time="month")
    assert "March 2018" not in twice
    assert "send one series at a time" in twice
    assert "extra" in refused(k=3).lower()
    fit = server.post("fit", CSV.replace("month", "when"), exclude="when", target="units", k=1, deadline=1).json()
    assert finished(server, fit)["state"] == "done"
    assert "this job is a fit" in server.error(server.http.get(f"/api/jobs/{fit['id']}/values"), 404)


def test_times_are_recognised(server: Server) -> None:
    columns = server.post("table", CSV).json()["columns"]
    assert [column["is_time"] for column in columns] == [True, False, False]


def test_some_values_of_each_column_are_there_to_be_drawn(server: Server) -> None:
    rows = "".join(f"{i},{'' if i == 5 else i / 2},w\n" for i in range(1000))
    numbers, holes, words = (c["series"] for c in server.post("table", "a,b,c\n" + rows).json()["columns"])
    assert len(numbers) == 300
    assert numbers[0] == [0, 0.0]
    assert numbers[-1] == [999, 999.0]
    assert 5 not in [row for row, _ in holes]
    assert words == []


def test_from_file_to_forecast(server: Server, tab: Callable[..., Any], tmp_path: Path) -> None:
    page = tab()
    upload(page, CSV, "sales.csv")
    page.wait_for_selector("#series:not([hidden])")  # dates: probably a series
    assert page.input_value("#time") == "month"
    assert page.input_value("#series-target") == "units"
    assert page.locator("#captions").is_hidden()
    assert (
        page.locator("#line polyline").get_attribute("points").count(",") == 40
    )  # the data, before anything is fitted
    page.select_option("#time", "")
    page.select_option("#series-target", "month")
    assert page.locator("#line polyline").count() == 0
    page.click("#forecast")
    page.locator("#error", has_text="numbers in the target 'month'").wait_for()
    page.select_option("#series-target", "units")
    page.select_option("#time", "month")
    page.fill("#horizon", "6")
    page.click("#forecast")
    page.wait_for_selector("#downloads:not([hidden])")
    report = page.frame_locator("#report")
    report.locator("h1", has_text="The next 6 months of units").wait_for()
    assert report.locator("#answer svg").first.is_visible()
    assert report.locator("#answer tbody tr").count() == 6
    assert page.title() == "units · KITT"
    assert page.locator("#get-model").is_hidden()
    assert page.locator("#new-rows-box").is_hidden()
    saved = {}
    for link in ("#get-report", "#get-values"):
        with page.expect_download() as waiting:
            page.click(link)
        saved[waiting.value.suggested_filename] = tmp_path / waiting.value.suggested_filename
        shutil.copy(waiting.value.path(), saved[waiting.value.suggested_filename])
    assert set(saved) == {"kitt-report.html", "kitt-forecast.csv"}
    assert len(pd.read_csv(saved["kitt-forecast.csv"])) == 6
    for width, scheme in ((390, "dark"), (820, "light"), (1280, "dark")):
        view = tab("/" + page.evaluate("location.hash"), viewport={"width": width, "height": 844}, color_scheme=scheme)
        wait_for_report(view)
        assert has_no_sideways_scroll(view)
        assert view.frames[-1].evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.go_back()
    page.wait_for_selector("#table:not([hidden])")
    page.check("input[value=fit]")
    page.wait_for_selector("#question:not([hidden])")
    assert page.locator("#series").is_hidden()


def test_a_table_on_a_phone(tab: Callable[..., Any]) -> None:
    page = tab(viewport={"width": 390, "height": 844}, color_scheme="dark")
    upload(page, monthly().rename(columns={EVIL: "long" * 40}).to_csv(index=False))
    page.wait_for_selector("#series:not([hidden])")
    page.click("#known-box summary")
    assert page.locator("#known label:visible").count() == 1  # neither the time nor what is forecast
    assert has_no_sideways_scroll(page)
