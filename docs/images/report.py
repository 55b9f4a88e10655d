"""Make the pictures of report and page in this folder: python docs/images/report.py [table with several columns].

Needs playwright and a chromium. The pictures here show the concrete table of the UCI repository.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
from playwright.sync_api import Error, Page, sync_playwright
from sklearn.datasets import load_diabetes

import kitt
from kitt.app.report import write_report

HERE = Path(__file__).parent


def diabetes() -> pd.DataFrame:
    frame = load_diabetes(as_frame=True, scaled=False).frame
    return frame.rename(columns={"target": "progress"})


@contextmanager
def new_tab(height: int) -> Iterator[Page]:
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1100, "height": height})
        browser.close()


def shoot_report(page: Path, name: str, height: int) -> None:
    """The top of a report."""
    with new_tab(height) as tab:
        tab.goto(page.as_uri())
        tab.screenshot(path=HERE / name)


def shoot_page(table: Path, name: str, port: int = 8799) -> None:
    """What `kitt serve` says about a table before anything is fitted."""
    server = subprocess.Popen([sys.executable, "-m", "kitt.app.cli", "serve", "--port", str(port)])
    try:
        with new_tab(900) as tab:
            for _ in range(60):
                with suppress(Error):
                    tab.goto(f"http://127.0.0.1:{port}")
                    break
                time.sleep(1)
            tab.set_input_files("#file", table)
            tab.wait_for_selector("#bars tr")
            tab.screenshot(path=HERE / name)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        many = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "diabetes.csv"
        if not many.exists():
            diabetes().to_csv(many, index=False)
        write_report(kitt.suggest(kitt.Dataset.read(many), fit=True), report, many.name)
        shoot_report(report, "report-many.png", 1450)
        shoot_page(many, "page.png")
