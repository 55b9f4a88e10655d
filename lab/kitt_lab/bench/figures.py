"""The figures of the benchmark, as pure functions of its lines: each gives back a matplotlib figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import spearmanr

from kitt.errors import InvalidInputError, MissingExtraError
from kitt.kernels.exact import draw
from kitt.kernels.grammar import WORDS
from kitt.kernels.priors import LogNormal, implied_lengthscale, shrinkage
from kitt_lab.bench.calibration import curves
from kitt_lab.bench.recovery import BINS, TOPS, calibration_error, exhaustive_summary, summary
from kitt_lab.bench.runner import Line
from kitt_lab.bench.scores import (
    Scores,
    collect,
    lines_of_networks,
    mean_error,
    ranked_tables,
    selection_seconds,
    table_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOISE = {
    "rbf-constant-noise": "constant",
    "rbf-linear-noise": "Linear×White, no shift",
    "rbf-shifted-noise": "Linear×White, shifted",
}
_STYLES = ("-", "--", ":")


def _figure(columns: int, rows: int = 1, width: float = 4.2, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report", "drawing a figure") from error
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows, columns)).flat)


def _need(drawn: Any, what: str) -> None:
    if not drawn:
        raise InvalidInputError(f"the lines hold nothing to draw: expected some of {what}")


# --- recovery --------------------------------------------------------------------------------------------------------


def recovery_figure(lines: Sequence[Line], kind: str = "primitives", prior: str = "paper") -> Figure:
    """Share of data sets whose word is among the first ones: against N at D = 4, and against D."""
    rows = [row for row in summary(lines) if (row["kind"], row["prior"]) == (kind, prior)]
    _need(rows, "kitt bench recovery")
    sizes = sorted({row["n"] for row in rows})
    sweeps = [
        ("points N, in 4 dimensions", "n", [r for r in rows if r["d"] == 4]),
        (f"dimensions D, {sizes[-1]} points", "d", [r for r in rows if r["n"] == sizes[-1]]),
        (f"dimensions D, {sizes[0]} points", "d", [r for r in rows if r["n"] == sizes[0]]),
    ]
    figure, axes = _figure(3)
    for ax, (text, x, chosen) in zip(axes, sweeps, strict=True):
        _recovery_panel(ax, chosen, x)
        ax.set(xlabel=text, ylim=(0, 1))
    asked = (kind, prior, 4, "bic")
    fits = [r for r in exhaustive_summary(lines) if (r["kind"], r["prior"], r["d"], r["who"]) == asked]
    if fits:
        axes[0].plot([r["n"] for r in fits], [r["top1"] for r in fits], "k*", label="34 fits, best BIC, top 1")
    axes[0].set_ylabel("recovered")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=7, fontsize=7, frameon=False)
    return figure


def _recovery_panel(ax: Axes, rows: Sequence[Mapping[str, Any]], x: str) -> None:
    for m, model in enumerate(dict.fromkeys(row["model"] for row in rows)):
        own = sorted((row for row in rows if row["model"] == model), key=lambda row: row[x])
        for k, style in zip(TOPS, _STYLES, strict=True):
            error = [row[f"top{k}_error"] or 0.0 for row in own]
            label = f"{model}, top {k}"
            ax.errorbar(
                [r[x] for r in own], [r[f"top{k}"] for r in own], error, fmt=style + "o", c=f"C{m}", ms=3, label=label
            )
    for k, style in zip(TOPS, _STYLES, strict=True):
        ax.axhline(k / len(WORDS), color="0.7", linestyle=style, linewidth=0.8)
    ticks = sorted({row[x] for row in rows})
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(t) for t in ticks], minor=False)
    ax.minorticks_off()


def reliability_figure(lines: Sequence[Line]) -> Figure:
    """How often the first choice is right, against the probability it was given."""
    by_name = {f"{model}, {head}": bins for (model, _, head), bins in curves(lines).items()}
    for line in lines_of_networks(lines, "recovery"):
        name, bins = f"{line['key']['model']}, recovery", np.array(line["result"]["calibration"])
        by_name[name] = by_name[name] + bins if name in by_name else bins
    _need(by_name, "kitt bench calibration or kitt bench recovery")
    figure, (ax,) = _figure(1)
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
    for name, bins in by_name.items():
        filled = bins[bins[:, 0] >= 10]
        label = f"{name}, error {calibration_error(bins):.3f}"
        ax.plot(filled[:, 1] / filled[:, 0], filled[:, 2] / filled[:, 0], "o-", ms=3, label=label)
    ax.set(xlabel=f"probability of the first choice ({BINS} bins)", ylabel="share right", xlim=(0, 1), ylim=(0, 1))
    ax.legend(fontsize=7)
    return figure


# --- methods ---------------------------------------------------------------------------------------------------------


def time_figure(lines: Sequence[Line]) -> Figure:
    """Seconds to choose a kernel, by table, on a logarithmic scale."""
    scores = selection_seconds(lines)
    _need(scores, "kitt bench uci with methods that choose a kernel")
    figure, (ax,) = _figure(1, width=7)
    names = ranked_tables(scores)
    _by_table(ax, scores, names, lambda v: max(v, 1e-4))
    ax.set(yscale="log", ylabel="seconds to choose a kernel")
    return figure


def nlpd_figure(lines: Sequence[Line], measure: str = "nlpd") -> Figure:
    """A panel for each table: mean and standard error of every method."""
    scores = collect(lines, measure)
    _need(scores, "kitt bench uci")
    names, methods = table_names(scores), list(scores)
    columns = min(3 if len(names) % 3 == 0 else 4, len(names))
    figure, axes = _figure(columns, math.ceil(len(names) / columns), 3.6, 0.8 + 0.26 * len(methods))
    for ax, name in zip(axes, names, strict=False):
        for place, method in enumerate(methods):
            if values := scores[method].get(name):
                mean, error, _ = mean_error(values.values())
                ax.errorbar(
                    mean, place, xerr=0.0 if math.isnan(error) else error, fmt="o", ms=4, color=f"C{place % 10}"
                )
        ax.set(title=name, ylim=(len(methods) - 0.5, -0.5))
        ax.set_yticks(range(len(methods)), methods, fontsize=7)
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    figure.supxlabel(f"{measure.upper()} (lower is better)")
    return figure


def noise_figure(lines: Sequence[Line]) -> Figure:
    """NLPD of RBF with three noise models, less that with constant noise on the same splits."""
    scores = {m: t for m, t in collect(lines, "nlpd").items() if m in NOISE}
    _need("rbf-constant-noise" in scores, "kitt bench uci --methods rbf-constant-noise,rbf-linear-noise,...")
    base = scores["rbf-constant-noise"]
    gain: Scores = {
        NOISE[m]: {
            t: {s: v - base[t][s] for s, v in splits.items() if s in base.get(t, {})} for t, splits in own.items()
        }
        for m, own in scores.items()
    }
    figure, (ax,) = _figure(1, width=6)
    _by_table(ax, gain, ranked_tables(gain), float)
    ax.set_ylabel("NLPD against constant noise")
    return figure


def _by_table(ax: Axes, scores: Scores, names: Sequence[str], shown: Callable[[float], float]) -> None:
    for place, (method, tables) in enumerate(scores.items()):
        offset = 0.6 * ((place + 0.5) / len(scores) - 0.5)
        for i, name in enumerate(names):
            if values := tables.get(name):
                mean, error, _ = mean_error(values.values())
                label = method if i == next(j for j, n in enumerate(names) if tables.get(n)) else None
                yerr = 0.0 if math.isnan(error) else error
                ax.errorbar(i + offset, shown(mean), yerr, fmt="o", ms=4, color=f"C{place % 10}", label=label)
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right")
    ax.legend(fontsize=7)


# --- one table, one prior --------------------------------------------------------------------------------------------


def words_figure(lines: Sequence[Line], table: str = "yacht", split: int = 0) -> Figure:
    """The network's probability of each word against the test density of its fit (paper, Figure of Yacht)."""
    points, names = word_points(lines, table, split)
    _need(len(points), f"kitt bench words and kitt bench regret on {table}, split {split}")
    figure, (ax,) = _figure(1, width=6.5, height=4.5)
    ax.scatter(points[:, 0], points[:, 1], s=14)
    best = set(np.argsort(-points[:, 1])[:6]) | set(np.argsort(-points[:, 0])[:6])
    for i in best:
        ax.annotate(names[i], points[i], fontsize=7, xytext=(3, 2), textcoords="offset points")
    rank = spearmanr(points).statistic
    ax.set(xlabel="probability by the network", ylabel="exp(mean test log density)", xscale="log")
    ax.set_title(f"{table}: rank correlation {rank:.2f} over {len(points)} words", fontsize=9)
    return figure


def word_points(lines: Iterable[Line], table: str, split: int) -> tuple[np.ndarray, list[str]]:
    """(probability, density) of each word that was fitted, and the words."""
    own = [line for line in lines if line["status"] == "ok" and line["key"].get("table") == table]
    own = [line for line in own if line["key"].get("split") == split]
    chances = [line for line in own if line["key"]["bench"] == "probabilities"]
    if not chances:
        return np.empty((0, 2)), []
    rows, said = chances[-1]["key"]["rows"], chances[-1]["result"]["words"]
    fitted = [line for line in own if line["key"]["bench"] == "words" and line["key"]["rows"] == rows]
    fits = {line["key"]["expression"]: line["result"] for line in fitted}
    names = [str(word) for word in WORDS if str(word) in fits]
    density = [math.exp(min(-fits[name]["nlpd"], 700.0)) for name in names]
    return np.column_stack([[said[name] for name in names], density]), names


def shrinkage_figure(draws: int = 20_000, seed: int = 0) -> Figure:
    """Lengthscales and draws of a product of two RBFs before and after the correction of its prior (paper, supplement)."""
    generator = torch.Generator().manual_seed(seed)
    shift, widen = shrinkage(2)
    priors = {"as for one RBF": LogNormal(0.0, 1.0), "corrected": LogNormal(shift, widen)}
    figure, axes = _figure(3)
    bins = np.linspace(-4, 4, 60).tolist()
    single = LogNormal(0.0, 1.0).sample((draws,), generator).log().numpy()
    axes[0].hist(single, bins, density=True, color="0.8", label="one RBF")
    x = torch.linspace(-2.5, 2.5, 150, dtype=torch.float64)
    for i, (name, prior) in enumerate(priors.items()):
        product = implied_lengthscale(prior.sample((draws, 2), generator))
        axes[0].hist(product.log().numpy(), bins, density=True, histtype="step", color=f"C{i}", label=f"two, {name}")
        K = torch.exp(-0.5 * (x[:, None] - x) ** 2 / product[:6, None, None] ** 2) + 1e-8 * torch.eye(len(x))
        axes[i + 1].plot(x.numpy(), draw(K, generator).T.numpy(), color=f"C{i}", linewidth=0.8)
        axes[i + 1].set(title=f"draws from RBF×RBF, {name}", xlabel="x", ylim=(-3, 3))
    axes[0].set(xlabel="log of the lengthscale of the product")
    axes[0].legend(fontsize=7)
    return figure
