"""The report: one file, nothing fetched, everything from the table escaped, every figure with names on its axes."""

import math
import re
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch

import kitt
from kitt.app.report import asset, content, figures, render_report, write_report
from kitt.app.report.figures import ColumnAxis, MeanAndBand
from kitt.errors import InvalidInputError, MissingExtraError
from kitt.fitting.options import Options
from kitt.kernels.grammar import WORDS
from kitt.model.components import Component
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.predictive import Tail
from kitt.model.suggestion import Suggestion
from kitt.network import features
from kitt.network.caption import Caption, Captions
from kitt.table.table import Table

QUICK = {"draws": 10, "starts": 1, "max_iterations": 15}
SCRIPT, MATHS = "<script>alert(1)</script>", "$x^$"


def suggestion(frame: pd.DataFrame, expression: str, **options) -> Suggestion:
    """What `suggest` would give if the network had named an expression."""
    dataset = kitt.Dataset.from_frame(frame)
    plain = kitt.fit("RBF", dataset, random_state=0, prior="botorch", **QUICK)
    best = kitt.fit(expression, dataset, random_state=0, **QUICK)
    said = (Caption(kitt.parse(expression), 0.4, 0.01), Caption(kitt.parse("RBF"), 0.1, 0.02))
    captions = Captions(said, (1 / len(WORDS),) * len(WORDS), dataset.n, 0.5, (1.0,) * dataset.d, 0.1)
    model = Model.of(Mixture.of((best, plain.as_plain()), [0.8, 0.2]), dataset)
    return Suggestion(dataset, Options(**options), captions, model, (), dataset.notes, {"caption": 0.1, "fit": 2.0})


def frame(n: int = 50, d: int = 8, names: list[str] | None = None, target: str = "strength") -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (n, d))
    columns = dict(zip(names or [f"x{i}" for i in range(d)], X.T, strict=True))
    return pd.DataFrame(columns).assign(**{target: np.sin(X[:, 0]) + 0.3 * X[:, -1] + 0.1 * rng.normal(size=n)})


@pytest.fixture(scope="module")
def one() -> Suggestion:
    x = np.linspace(0, 20, 60)
    y = np.sin(2 * np.pi * x / 5) + 0.2 * x + 0.1 * np.random.default_rng(0).normal(size=60)
    return suggestion(pd.DataFrame({"time [s]": x, "height [m]": y}), "Linear + Periodic")


@pytest.fixture(scope="module")
def evil() -> Suggestion:
    table = frame(50, 3, [SCRIPT, MATHS, '$\\frac{1}{2 "quoted" & \x07 ]]> -- _'], "y$_<b>")
    return suggestion(
        table.assign(kind=["a", "<i>", "$c", "d", "e"] * 10)[[*table.columns[:3], "kind", "y$_<b>"]], "RBF"
    )


@pytest.fixture(scope="module")
def pages(one: Suggestion, evil: Suggestion) -> dict[str, str]:
    many = suggestion(frame(), "Linear*RBF + Matern32 + White")
    titled = {"one": (one, None), "eight": (many, "bridges & more.csv"), "evil": (evil, "\ud800.csv")}
    return {name: render_report(*of) for name, of in titled.items()}


class Page(HTMLParser):
    """Tags opened and not closed, attributes, and visible text; an error where they do not nest."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += f"{data} "


@pytest.mark.parametrize("name", ["one", "eight", "evil"])
def test_one_file_that_fetches_nothing(pages: dict[str, str], name: str) -> None:
    text = pages[name]
    page = Page(text)
    assert len(text.encode()) < 400_000
    assert page.tags["script"] == page.tags["style"] == page.tags["main"] == 1
    assert "http" not in text
    names = [key for key, _ in page.attributes]
    assert not [key for key in names if key.startswith("on") or key == "style" or ":" in key]
    assert all(value.startswith("#") for key, value in page.attributes if key in ("href", "src"))
    ids = [value for key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    assert targets <= set(ids)
    assert not re.search(r"\bnan\b|\binf\b|None\b", page.text.partition("In your library")[0])


def test_the_answer_comes_first(pages: dict[str, str]) -> None:
    text = Page(pages["eight"]).text
    headings = re.findall(r"<h2>(.*?)</h2>", pages["eight"])
    assert headings == ["The answer", "The fit", "The evidence", "In your library", "How it was made"]
    assert "bridges & more.csv" in text
    assert "Against a plain RBF kernel" in text
    assert "40.0" in text  # the network's probability
    assert all(library in text for library in ("GPyTorch", "BoTorch", "scikit-learn", "GPflow", "GPJax"))


def test_one_column_is_drawn_along_itself_and_many_one_by_one(pages: dict[str, str]) -> None:
    assert "What is left" in pages["one"]
    assert "One column at a time" not in pages["one"]
    assert "One column at a time" in pages["eight"]
    assert "total Sobol index" in pages["eight"]


def test_names_from_the_table_are_text(pages: dict[str, str]) -> None:
    assert "alert(1)" in pages["evil"]
    assert SCRIPT not in pages["evil"]
    assert "<b>:" not in pages["evil"]
    assert "\x07" not in pages["evil"]
    text = Page(pages["evil"]).text
    assert text.count(SCRIPT) > 5
    assert text.count(MATHS) > 5
    pages["evil"].encode()


def test_scripts_and_styles_may_stand_elsewhere(one: Suggestion) -> None:
    text = render_report(one, script_url="/static/report.js", style_url="/static/report.css")
    page = Page(text)
    assert '<script src="/static/report.js"></script>' in text
    assert '<link rel="stylesheet" href="/static/report.css">' in text
    assert page.tags["style"] == 0
    assert "addEventListener" in asset("report.js")
    assert "prefers-color-scheme" in asset("report.css")


def test_nothing_fitted_is_an_error_that_says_what_to_do(one: Suggestion) -> None:
    with pytest.raises(InvalidInputError, match="fit=True"):
        render_report(Suggestion(one.dataset, one.options, one.captions))


def test_the_file_is_written_whole_or_not_at_all(one: Suggestion, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("kitt.app.report.html.render_report", lambda *_: "<p>ünï</p>")
    write_report(one, tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == "<p>ünï</p>"
    with pytest.raises(InvalidInputError, match="cannot write"):
        write_report(one, tmp_path / "missing" / "r.html")
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.parametrize("library", ["jinja2", "matplotlib"])
def test_a_missing_library_is_named(monkeypatch, library: str) -> None:
    for module in [name for name in sys.modules if name.startswith(("kitt.app.report.", f"{library}."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"'{library}.*pip install '\.\[report\]'"):
        _ = kitt.app.report.write_report


@pytest.mark.parametrize("expression", ["White", "Cosine + Linear*White"])
def test_dates_noise_and_few_rows(expression: str) -> None:
    rng = np.random.default_rng(0)
    dates = pd.date_range("2020-01-01", periods=12, freq="7D")
    table = pd.DataFrame({"when": dates, "sales": rng.normal(size=12)})
    text = Page(render_report(suggestion(table, expression))).text
    assert "2020" in text
    assert "dates, in days since" in text


def test_the_command(tmp_path, monkeypatch, capsys) -> None:
    from kitt.app.cli import main as cli

    frame(30, 2).to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "r.html"
    line = ["kitt", "report", str(tmp_path / "t.csv"), "-t", "strength", "-o", str(out), "-k", "1", "--deadline", "2"]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    assert "t.csv" in out.read_text(encoding="utf-8")
    assert "r.html" in capsys.readouterr().out.replace("\n", "")


# --- figures --------------------------------------------------------------------------------------------------------------

X = np.linspace(1, 2, 5000)
CURVE, COLUMN, LIMITS = MeanAndBand(X[:50], X[:50], X[:50] - 1, X[:50] + 1, "RBF"), ColumnAxis(MATHS), (0.1, 3.0)
POINTS, NONE = (X[:8], X[:8]), (X[:0], X[:0])
FIGURES = {
    "spectrum": (
        lambda: figures.spectrum(COLUMN, X, X, X, [0.6]),
        [f"Frequency (cycles per unit of {MATHS})", "Power"],
    ),
    "variogram": (lambda: figures.variogram(COLUMN, POINTS, NONE, LIMITS), [f"Distance ({MATHS})", "Half squared"]),
    "smoothing_error": (
        lambda: figures.smoothing_error(COLUMN, NONE, NONE, LIMITS),
        ["Smoothing width", "Squared error"],
    ),
    "fit": (lambda: figures.fit(COLUMN, "<y>", X, X, CURVE), [MATHS, "<y>", "95 % of observations"]),
    "scatter": (lambda: figures.scatter(COLUMN, "<y>", X, X), [MATHS, "<y>"]),
    "words": (lambda: figures.words(COLUMN, "<y>", [CURVE] * 7, (X, X)), [MATHS, "<y>", "RBF"]),
    "predicted_observed": (lambda: figures.predicted_observed("<y>", X, X), ["Predicted <y>", "Observed <y>"]),
    "residuals": (lambda: figures.residuals("<y>", X, X), ["Predicted <y>", "Error (predicted std. dev.)"]),
    "calibration": (lambda: figures.calibration(X - 1), ["Predicted probability of a lower value", "Share of rows"]),
    "effect": (lambda: figures.effect(COLUMN, "<y>", CURVE, X, LIMITS), [MATHS, "<y>"]),
    "level_effect": (
        lambda: figures.level_effect(COLUMN, "<y>", ["a", "$b$"] * 25, CURVE, LIMITS),
        [MATHS, "<y>", "$b$"],
    ),
    "heat_map": (lambda: figures.heat_map([MATHS, "b"], [("RBF", "9 %")], np.array([[0.1], [1]])), ["Column", "Word"]),
}


def test_every_figure_is_tested() -> None:
    assert set(FIGURES) == {name for name in figures.__all__ if name[0].islower()}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_small_svg_with_names_on_their_axes(name: str) -> None:
    draw, labels = FIGURES[name]
    svg = draw()
    root = ElementTree.fromstring(svg)
    shown = [element.text or "" for element in root.iter() if element.tag.endswith("}text")]
    for label in labels:
        assert any(label in text for text in shown)
    assert root.attrib["aria-label"]
    assert len(svg) < 150_000
    assert "#000000" not in svg
    assert "currentColor" in svg
    assert svg == draw()


@pytest.mark.parametrize("rows", [40, 60, 100, 500])
def test_percentages_on_an_axis_are_not_rounded(rows: int) -> None:
    """Ticks at 2.5, 5.0 and 7.5 % are not called 2, 5 and 8 %."""
    svg = figures.calibration(np.random.default_rng(rows).uniform(size=rows))
    texts = [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]
    shares = sorted(float(text[:-1]) for text in texts if text.endswith("%"))
    assert len(shares) > 2
    assert np.diff(shares) == pytest.approx(np.diff(shares)[0])


def test_figures_can_be_pixels() -> None:
    assert FIGURES["effect"][0]().png(60).startswith(b"\x89PNG")


def test_long_and_odd_names_fit_on_an_axis() -> None:
    for odd in ("n" * 500, "\n\t", "\ud800\x00", "名前", "_private", ""):
        assert ElementTree.fromstring(figures.predicted_observed(odd, X[:9], X[:9])) is not None


# --- numbers --------------------------------------------------------------------------------------------------------------


def test_left_out_rows_are_those_that_no_parameter_has_seen(one: Suggestion) -> None:
    evidence = one.fitted.evidence()
    assert ((evidence.pit >= 0) & (evidence.pit <= 1)).all()
    assert 0.8 < evidence.coverage(0.95) <= 1
    assert evidence.r2 < 1
    assert content.folds_text(evidence) == f"{one.dataset.n} rows in 20 folds"


def test_shares_of_columns_add_up(pages: dict[str, str]) -> None:
    explanation = kitt.explain(suggestion(frame(), "RBF"), check=False)
    rows = content.shares(explanation)
    assert sum(share for _, share, _, _ in rows) == pytest.approx(1, abs=1e-6)
    assert rows[-1][0] == "everything else"


def test_a_transformed_target_is_reported_in_its_units() -> None:
    """Left-out rows of a mixture with a transform, a noise model, a spread and a tail."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 80)
    table = pd.DataFrame({"x": x, "price": 1e4 * np.exp(np.sin(2 * x) + 0.05 * np.exp(0.6 * x) * rng.normal(size=80))})
    one = suggestion(table, "RBF")
    warped = kitt.fit("RBF", Table.of(one.dataset).warped(), random_state=0, **QUICK)
    parts = (Component(0, 0.2, changing_noise=True, spread=4.0), Component(1, 0.1), Component(2, 0.7))
    mixture = Mixture((*one.mixture.models, warped), parts, Tail(0.01))
    one = replace(one, model=Model.of(mixture, one.dataset))
    out = one.fitted.evidence()
    assert 0.8 < out.coverage(0.95) <= 1
    assert 0.5 < out.r2 < 1
    assert np.corrcoef(out.mean, out.observed)[0, 1] > 0.7
    gains = [row.gain for row in content.kernel_rows(one)]
    assert max(gains) > 0
    assert "price" in Page(render_report(one)).text


def test_kernels_are_compared_with_the_plain_one(one: Suggestion) -> None:
    best, plain = content.kernel_rows(one)
    assert (best.probability, best.weight, best.is_plain) == (0.4, 0.8, False)
    assert (plain.probability, plain.gain, plain.error, plain.is_plain) == (None, 0.0, 0.0, True)
    models = one.mixture.models
    assert best.gain == pytest.approx((models[0].loo_log_density - models[1].loo_log_density) / one.dataset.n)


def test_parameters_are_in_units() -> None:
    fitted = kitt.fit("Linear", kitt.Dataset.from_frame(frame(30, 1)), random_state=0, **QUICK)
    told = content.parameters(fitted.fitted_kernel)
    slope, zero = (float(value.replace(",", "").replace("−", "-")) for value in told.rows[0][1])
    x = np.array([[1.0], [7.0]])
    s = fitted.fitted_kernel.standardiser
    K = (
        fitted.fitted_kernel.kernel.matrix(fitted.fitted_kernel.theta, torch.from_numpy(s.transform_x(x))).numpy()
        * s.y_scale**2
    )
    np.testing.assert_allclose(slope**2 * (x - zero) @ (x - zero).T, K, rtol=0.05, atol=0.02 * K.max())
    assert told.words == [("Linear", 2)]


def test_curves_are_what_they_are_called() -> None:
    generator = torch.Generator().manual_seed(0)
    X, y = torch.randn(1, 40, 2, generator=generator).double(), torch.randn(1, 40, generator=generator).double()
    X, y = X - X.mean(1, keepdim=True), (y - y.mean()) / y.std(correction=0)
    curves = features.curves(features.describe(features.prepare(X, y))[0])
    x, target = X[0, :, 1], y[0]
    phase = 2 * math.pi * features.FREQUENCIES[7] * x
    power = ((target @ phase.cos()) ** 2 + (target @ phase.sin()) ** 2) / 40
    assert float(curves.power[0, 1, 0, 7]) == pytest.approx(float(power), abs=2e-3)
    place = features.PASSES.index((features.WIDTHS[2], False))
    W = torch.exp(-0.5 * ((x[:, None] - x) / features.WIDTHS[2]) ** 2).fill_diagonal_(0)
    gap = (W * (target[:, None] - target) ** 2).sum() / 2 / W.sum()
    assert float(curves.variogram[0, 1, 0, place]) == pytest.approx(float(gap), rel=1e-2)
    assert float(curves.neighbours[0, 1, place]) == pytest.approx(float(W.sum() / 40), rel=1e-4)
    error = (target - W @ target / (W.sum(1) + 0.05)).square().mean()
    assert float(curves.error[0, 1, 0, place]) == pytest.approx(float(error), rel=1e-4)
