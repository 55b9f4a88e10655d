"""Sizes, colours and axes of all figures: small SVG texts that take on the colours of the page around them.

`INK` becomes `currentColor`, the background is clear, and everything else has one of the colours of Okabe and Ito (2008),
which colour-blind readers can distinguish. Names from tables are text and nothing else: never markup, never mathematics.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
import zlib
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, ParamSpec
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from kitt.model.plots import BLUE, INK

ORANGE, GREEN, RED, PURPLE, SKY = "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
COLOURS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)
PANEL, WIDE = (250.0, 165.0), (720.0, 240.0)  # sizes in points
_NAMESPACE = "http://www.w3.org/2000/svg"
_LOCK = threading.Lock()  # matplotlib keeps its settings in one place
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kitt",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
    "grid.alpha": 0.13,
    "grid.color": INK,
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "path.simplify_threshold": 0.2,
}


class Svg(str):
    """A picture as SVG text; a template takes it as markup, and `png` draws it anew as pixels on white."""

    _paint: Callable[[], Figure]

    def png(self, dpi: int = 200) -> bytes:
        file = io.BytesIO()
        with _LOCK, mpl.rc_context(_STYLE):
            _arranged(self._paint()).savefig(file, format="png", dpi=dpi, facecolor="white")
        return file.getvalue()

    def __html__(self) -> str:
        return self.replace(f' xmlns="{_NAMESPACE}"', "", 1)


P = ParamSpec("P")


def picture(paint: Callable[P, Figure]) -> Callable[P, Svg]:
    """Make a function that draws return SVG text. The first line of its docstring is the description for screen readers."""

    @wraps(paint)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Svg:
        file = io.BytesIO()
        with _LOCK, mpl.rc_context(_STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # the browser has fonts of its own
            _arranged(paint(*args, **kwargs)).savefig(file, format="svg", transparent=True, metadata={"Date": None})
        svg = Svg(_clean(file.getvalue(), (paint.__doc__ or "").split("\n")[0]))
        svg._paint = lambda: paint(*args, **kwargs)
        return svg

    return drawn


def _clean(text: bytes, title: str) -> str:
    """The SVG text of matplotlib without sizes, styles, ids and comments that conflict with a page."""
    ElementTree.register_namespace("", _NAMESPACE)
    root, prefix = ElementTree.fromstring(text), f"p{zlib.crc32(text):08x}"
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for element in root.iter():
        _plain_attributes(element, prefix)
        element.text, element.tail = _text(element.text), None
    _unwrap(root)
    for name in ("version", "id"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": title, "font-family": "system-ui, sans-serif", "fill": "currentColor"}
    root.attrib |= {"stroke-linejoin": "round"}
    return ElementTree.tostring(root, encoding="unicode")


def _text(text: str | None) -> str | None:
    return text if text and text.strip() else None


def _plain_attributes(element: ElementTree.Element, prefix: str) -> None:
    """Styles become attributes, which no content policy forbids; black becomes the ink; ids belong to one picture."""
    attributes: dict[str, str] = {}
    for name, value in element.attrib.items():
        if name == "style":
            attributes |= dict(re.findall(r"([\w-]+): ([^;]+)", value))
        elif name == "id" and element.tag.endswith("}g"):
            continue
        else:
            attributes[name.rpartition("}")[2]] = value
    for name in ("font-family", "stroke-linejoin", "stroke-miterlimit"):
        attributes.pop(name, None)
    for name, value in attributes.items():
        if name in ("fill", "stroke") and value == INK:
            attributes[name] = "currentColor"
        elif name == "id":
            attributes[name] = f"{prefix}-{value}"
        elif name in ("href", "clip-path"):
            attributes[name] = value.replace("#", f"#{prefix}-")
        elif name in ("d", "x", "y", "transform"):
            attributes[name] = re.sub(r"\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), value)
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    element.attrib.clear()
    element.attrib.update(attributes)


def _unwrap(element: ElementTree.Element) -> None:
    """Drop groups that do nothing."""
    children: list[ElementTree.Element] = []
    for child in element:
        _unwrap(child)
        empty = child.tag.endswith("}g") and not child.attrib
        children += list(child) if empty else [child]
    element[:] = children


def _arranged(figure: Figure) -> Figure:
    """Give the panels, one below the other, all the room that labels leave."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    for _ in range(2):  # panels of another size have other ticks, whose labels may be longer
        _arrange(figure, renderer)
    return figure


def _arrange(figure: Figure, renderer: Any) -> None:
    """Give the panels the room that their present labels leave."""
    width, height = figure.bbox.size
    inner = [axes.get_window_extent(renderer) for axes in figure.axes]
    outer = [axes.get_tightbbox(renderer) or box for axes, box in zip(figure.axes, inner, strict=True)]
    pad, pairs = 3 / 72 * figure.dpi, list(zip(inner, outer, strict=True))
    left, right = max(a.x0 - b.x0 for a, b in pairs) + pad, max(b.x1 - a.x1 for a, b in pairs) + pad
    bottom, top = max(a.y0 - b.y0 for a, b in pairs) + pad, max(b.y1 - a.y1 for a, b in pairs) + pad
    gap = top + 2 * pad  # above each panel its title
    panel = (height - bottom - top - gap * (len(inner) - 1)) / len(inner)
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height, hspace=gap / panel)


# --- frames ---------------------------------------------------------------------------------------------------------------


def frame(size: tuple[float, float] = PANEL, rows: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of a size in points with panels one below the other."""
    figure = Figure(figsize=(size[0] / 72, size[1] / 72))
    axes = figure.subplots(rows, 1, squeeze=False, **options)[:, 0]
    return figure, list(axes)


def logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, with plain numbers on it; call it after drawing."""
    axis: Any = axes.xaxis if which == "x" else axes.yaxis
    axes.set_xscale("log") if which == "x" else axes.set_yscale("log")
    low, high = axis.get_view_interval()
    decades = np.log10(high / low) if low > 0 else 1.0
    axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.2 else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
