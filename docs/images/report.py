"""Make the pictures of the report in this folder: python docs/images/report.py [table with several columns].

Needs playwright and a chromium. The pictures here show the concrete table of the UCI repository.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_diabetes

import kitt
from kitt.report import write_report

HERE = Path(__file__).parent


def greenhouse() -> pd.DataFrame:
    """Twelve made-up days in a greenhouse: warm afternoons, and a spring that warms the nights."""
    rng = np.random.default_rng(3)
    days = np.sort(rng.uniform(0, 12, 150))
    warmth = 14 + 0.4 * days + 8 * np.exp(1.5 * (np.sin(2 * np.pi * (days - 0.35)) - 1)) + 0.5 * rng.normal(size=150)
    return pd.DataFrame({"time [days]": days, "temperature [°C]": warmth}).round(3)


def diabetes() -> pd.DataFrame:
    frame = load_diabetes(as_frame=True, scaled=False).frame
    return frame.rename(columns={"target": "progress"})


def shoot(page: Path, name: str, scheme: str, height: int, start: str = "") -> None:
    """The top of a page, or what begins with a heading."""
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1100, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        tab.goto(page.as_uri())
        if start:
            tab.locator(start).evaluate("element => element.scrollIntoView()")
        tab.screenshot(path=HERE / name)
        browser.close()


if __name__ == "__main__":
    many = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("diabetes.csv")
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder) / "one.html", Path(folder) / "many.html"
        write_report(kitt.suggest(greenhouse(), fit=True), one, "greenhouse.csv")
        table = kitt.Dataset.read(many) if many.exists() else diabetes()
        write_report(kitt.suggest(table, fit=True), other, many.name)
        shoot(one, "report-one-input.png", "light", 2000)
        shoot(other, "report-many.png", "light", 1450)
        shoot(one, "report-dark.png", "dark", 1150, "#fit")
