"""The page in a real browser."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from serving import CSV, EVIL, PATIENCE, Server, table, wait_for_report

from kitt.export import LIBRARIES
from kitt.model.document import Model

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With time enough for the report, even on a busy machine."""
    with Server(max_deadline=600.0, max_bytes=300_000, max_rows=2000, max_columns=20) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no {CHROMIUM}")
    with sync.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield running
        running.close()


@pytest.fixture
def tab(browser: Any, server: Server) -> Iterator[Callable[..., Any]]:
    """Opens tabs that must not complain: no script error, nothing that the policy blocks, nothing from outside."""
    contexts, complaints = [], []

    def opened(address: str = "/", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
        page.on("request", lambda asked: None if asked.url.startswith(server.url) else complaints.append(asked.url))
        page.goto(server.url + address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [text for text in complaints if not text.startswith(("blob:", "data:", "about:"))] == []


def upload(page: Any, content: str | bytes = CSV, name: str = "t.csv") -> None:
    payload = content.encode() if isinstance(content, str) else content
    page.set_input_files("#file", {"name": name, "mimeType": "text/csv", "buffer": payload})


def has_no_sideways_scroll(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="module")
def journey() -> dict[str, str]:
    """What the first test leaves for those after it: a job that is done."""
    return {}


def test_from_file_to_report(server: Server, tab: Callable[..., Any], journey: dict[str, str], tmp_path: Path) -> None:
    page = tab()
    upload(page)
    page.wait_for_selector("#bars tr")
    assert page.input_value("#target") == "y"
    assert re.fullmatch(r"\d\.\d\d", page.inner_text("#bars tr:first-child td:last-child"))  # the expected loss
    order = [float(text.strip("<> %")) for text in page.locator("#bars td:nth-child(2)").all_inner_texts()]
    assert order == sorted(order, reverse=True)
    assert page.locator("#bars .mark", has_text="tried first").count() == 1
    assert page.locator("#scatters svg circle").count() == 2 * 40  # the data, before anything is fitted
    assert page.locator("#properties tr").count() == 7
    assert page.locator("#columns-rows tr").count() >= 1
    assert set(page.locator("#captions meter").evaluate_all("all => all.map((meter) => meter.max)")) == {1}
    page.select_option("#target", EVIL)  # another target: other captions, at once
    page.locator("#captions-facts", has_text=EVIL).wait_for()
    page.select_option("#target", "y")
    page.select_option("#k", "1")
    page.wait_for_selector("#bars tr:only-child")
    page.click("#fit")
    page.wait_for_selector("#job:not([hidden])")  # what is being fitted may be over before it can be read
    second = tab(page.evaluate("location.hash").join(["/", ""]))  # a second tab shows the same job
    for view in (page, second):
        view.wait_for_selector("#downloads:not([hidden])")
        wait_for_report(view)
        report = view.frame_locator("#report")
        assert report.locator("#answer .kernel").inner_text()
    assert page.title() == "y · KITT"  # not owned
    assert EVIL in report.locator("body").inner_text()
    height = "document.querySelector('#report').clientHeight"  # it grows when the report tells it how high it is
    for _ in range(600):
        if page.evaluate(height) > 1500:  # all of it, without a scroll bar of its own
            break
        page.wait_for_timeout(50)
    assert page.evaluate(height) > 1500
    journey["job"] = page.evaluate("location.hash")
    downloads(page, tmp_path)
    new_rows(page)
    history(page)


def downloads(page: Any, folder: Path) -> None:
    saved = {}
    for link in page.locator("#downloads a:visible").all():
        with page.expect_download() as waiting:
            link.click()
        saved[waiting.value.suggested_filename] = folder / waiting.value.suggested_filename
        shutil.copy(waiting.value.path(), saved[waiting.value.suggested_filename])
    assert set(saved) == {"kitt-report.html", "kitt-model.json", *(f"kitt_{library}.py" for library in LIBRARIES)}
    report = saved["kitt-report.html"].read_text()
    assert "/static/" not in report
    assert "navigator.clipboard" in report
    assert EVIL not in report
    assert Model.from_dict(json.loads(saved["kitt-model.json"].read_text())).encoding.target == "y"
    for library in LIBRARIES:
        compile(saved[f"kitt_{library}.py"].read_text(), library, "exec")


def new_rows(page: Any) -> None:
    """Predictions of other rows; a file that lacks a column is told which."""
    few = table(6).drop(columns="y")
    for content, message in ((few.drop(columns="a"), "got no a"), (few, "6 rows of new.csv predicted")):
        payload = content.to_csv(index=False).encode()
        page.set_input_files("#new-rows", {"name": "new.csv", "mimeType": "text/csv", "buffer": payload})
        page.locator("#predicted", has_text=message).wait_for()
    assert page.locator("#predictions tr").count() == 6
    with page.expect_download() as waiting:
        page.click("#predicted a")
    made = pd.read_csv(waiting.value.path())
    assert list(made)[-4:] == ["mean", "std", "q5", "q95"]
    assert (made["q5"] < made["q95"]).all()


def test_new_rows_with_levels_that_were_not_seen(server: Server, tab: Callable[..., Any]) -> None:
    """They are told, and a cell with a comma stays one cell."""
    page = tab()
    upload(page, table().assign(city=["Rome, Italy", "Oslo"] * 20)[["city", "a", "y"]].to_csv(index=False))
    page.wait_for_selector("#bars tr")
    page.select_option("#deadline", "10")
    page.click("#fit")
    page.wait_for_selector("#downloads:not([hidden])")
    rows = 'city,a\n"Rome, Italy",1\n"Paris ""P"", France",0.5\n'
    page.set_input_files("#new-rows", {"name": "new.csv", "mimeType": "text/csv", "buffer": rows.encode()})
    page.locator("#predicted", has_text="2 rows of new.csv predicted").wait_for()
    assert "levels not seen before" in page.inner_text("#predicted")
    assert page.locator("#predictions tr:nth-child(3) td").nth(0).inner_text() == 'Paris "P", France'
    assert page.locator("#predictions tr:nth-child(3) td").count() == 6


def history(page: Any) -> None:
    """Back to the table and to the start, forward again, and a reload of each."""
    page.go_back()
    page.wait_for_selector("#table:not([hidden])")
    page.wait_for_selector("#bars tr")
    page.go_back()
    page.wait_for_selector("#start:not([hidden])")
    page.go_forward()
    page.wait_for_selector("#table:not([hidden])")
    page.reload()
    page.wait_for_selector("#table:not([hidden]) #table-title:text-is('t.csv')")
    page.go_forward()
    page.wait_for_selector("#downloads:not([hidden])")
    page.reload()
    wait_for_report(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(tab: Callable[..., Any], journey: dict[str, str], scheme: str) -> None:
    page = tab(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.wait_for_selector("#examples a")
    assert has_no_sideways_scroll(page)
    upload(page, table(30, 8).rename(columns={"x0": "long" * 40}).to_csv(index=False))
    page.wait_for_selector("#bars tr")
    for part in page.locator("summary:visible").all():
        part.click()
    assert has_no_sideways_scroll(page)
    if "job" in journey:
        page.goto(page.url.split("#")[0] + journey["job"])
        wait_for_report(page)
        assert has_no_sideways_scroll(page)
        assert page.frames[-1].evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "most"), [(1280, 3500), (390, 7000)])
def test_the_report_is_short_and_links_open_what_is_folded(
    tab: Callable[..., Any], journey: dict[str, str], width: int, most: int
) -> None:
    if "job" not in journey:
        pytest.skip("the first test left no report")
    page = tab("/" + journey["job"], viewport={"width": width, "height": 900})
    report = page.frame_locator("#report")
    wait_for_report(page)
    assert page.frames[-1].evaluate("document.documentElement.scrollHeight") <= most
    assert not report.locator("#code pre").first.is_visible()
    report.locator("nav a[href='#code']").click()
    report.locator("#code pre").first.wait_for()


def test_with_the_keyboard_alone(tab: Callable[..., Any]) -> None:
    """Example, target, fit, cancel; then back at the table."""
    page = tab()
    page.wait_for_selector("#examples a")
    steps = ["skip", "home", "file"]
    for step in steps:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == step
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#table:not([hidden]) #table-title:text-is('visitors.csv')")
    page.wait_for_selector("#bars tr")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "fit"  # what to find: a kernel or a forecast
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "target"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#progress:not([hidden])")
    page.focus("#cancel")
    page.keyboard.press("Enter")
    page.wait_for_selector("#table:not([hidden])")
    unlabelled = "[...document.querySelectorAll('input, select, iframe')].filter(e => !e.labels?.length && !e.title)"
    assert page.evaluate(f"{unlabelled}.length") == 0


def test_bad_files_are_told(tab: Callable[..., Any], server: Server) -> None:
    page = tab()
    page.wait_for_selector("#examples a")
    for content, message in [
        (b"\x00\x01", "binary"),
        (b"1" * 400_000, "at most 0.3"),
        (b"a,y\n1,2\n", "8 usable rows"),
    ]:
        page.evaluate("document.querySelector('#error').hidden = true")
        upload(page, content)
        page.wait_for_selector("#error:not([hidden])")
        assert message in page.inner_text("#error")
    page.goto(f"{server.url}/#job/none")
    page.wait_for_selector("#error:not([hidden]):has-text('is gone')")
    page.set_viewport_size({"width": 1800, "height": 900})
    edges = "['#error', '#drop'].map((id) => Math.round(document.querySelector(id).getBoundingClientRect().left))"
    assert len(set(page.evaluate(edges))) == 1  # the banner stands where the content stands


def test_missing_values_and_texts_have_their_switches(tab: Callable[..., Any]) -> None:
    page = tab()
    upload(
        page, table().assign(id=[f"p{i}" for i in range(40)], y=lambda t: t["y"].where(t.index > 2)).to_csv(index=False)
    )
    page.wait_for_selector("#bars tr")  # 40 different texts are set aside
    assert page.is_checked("#drop-missing")
    assert page.is_hidden("#error")
    page.uncheck("#drop-missing")
    page.wait_for_selector("#error:not([hidden])")
    assert "tick 'Leave out rows with missing values'" in page.inner_text("#error")
    assert "=True" not in page.inner_text("#error")
