"""A fitted model taken apart at some of its rows: what each column does, the words of the heaviest kernel, and noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kitt.clock import Clock
from kitt.errors import InvalidInputError
from kitt.explanation.claims import Claims, check_claims
from kitt.explanation.facts import Check, Comparison, Effect, Explanation, Noise, Part
from kitt.explanation.words import Words
from kitt.fitting.gp import GP
from kitt.kernels.grammar import Primitive, Word
from kitt.model.curves import Curve, Shape, curve, level_names, level_shape, shape
from kitt.model.document import Model
from kitt.model.evidence import PLAIN, Evidence, EvidenceConfig
from kitt.model.mixture import Mixture
from kitt.model.sensitivity import MANY_COLUMNS, Groups, Interaction, groups_of, sensitivity
from kitt.model.suggestion import Suggestion
from kitt.model.surface import Surface
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray, Standardiser

Levels = Mapping[str, tuple[str, ...]]  # of the columns of texts

# Set by hand.
ROWS = 256  # of the table, at which the words are evaluated
CURVES = 12  # columns along which the curve is computed, the strongest ones
EVIDENCE = 0.5  # share of the time before a deadline in which rows are left out of the whole model
DISAGREEMENT = 0.5  # relative distance of a kernel's own curve from that of the average, from which it disagrees
PREDICTION = "the predicted value"  # with which noise may grow, as with a column
CLEARER = 0.01  # by how much its correlation must be larger than that of a column, whose name says more


def explain(what: Any, check: bool = True, deadline: float | None = None) -> Explanation:
    """Explain a fitted model: what each column does, with which others, and how much is noise.

    Parameters
    ----------
    what : Suggestion, Model, Mixture, GP or a fitted KITTRegressor
        What is told of a mixture of several kernels is true of their average, which is what predicts.
    check : bool
        Check every statement on left-out rows, which takes seconds: the text says what they show, what they do not, and
        what they show to be absent. Without checks, the text does not mention periods or changing noise.
    deadline : float, optional
        Seconds after which no further check is begun; the text says what was left out. Without a deadline, the same table,
        seed and version give the same words on every machine.

    Returns
    -------
    Explanation
        Printing it gives a paragraph; its attributes and `to_dict` have the numbers.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 10, 60)
    >>> noise = np.random.default_rng(0).normal(size=60)
    >>> explanation = kitt.explain(kitt.fit("Linear", x[:, None], 3 * x + noise, random_state=0))
    >>> explanation.effects[0].shape.kind
    'rises'
    >>> explanation.parts[0].share > 0.9
    True
    """
    what = getattr(what, "suggestion_", what)  # of a fitted KITTRegressor
    if isinstance(what, Suggestion):
        return explain(what.fitted, check, deadline)
    if not isinstance(what, GP | Mixture | Model):
        raise InvalidInputError(
            f"expected something fitted, such as kitt.suggest(..., fit=True); got {type(what).__name__}: fit it first"
        )
    clock = Clock.unlimited().at_most(deadline)
    if isinstance(what, Model):
        known: dict[tuple[bool, float | None], Explanation] = what.__dict__.setdefault("_explanations", {})
        if (check, deadline) not in known:  # a check takes seconds
            evidence = None
            if check:
                evidence = what.evidence(config=EvidenceConfig(seconds=EVIDENCE * clock.seconds))
            known[check, deadline] = _explain(what.mixture, what.rows, evidence, check, clock)
        return known[check, deadline]
    mixture = Mixture.of((what,), [1.0]) if isinstance(what, GP) else what
    return _explain(mixture, None, None, check, clock)


def _explain(
    mixture: Mixture, table: Dataset | None, evidence: Evidence | None, check: bool, clock: Clock
) -> Explanation:
    order = sorted(range(len(mixture.models)), key=lambda k: (k != _explained(mixture, evidence), -mixture.weights[k]))
    model, others = mixture.models[order[0]], [mixture.models[k] for k in order[1:]]
    words, surface = Words(model), Surface(mixture)
    s = surface.standardiser
    X = words.basis if table is None else torch.tensor(s.transform_x(table.X))
    rows = _some(len(X), X.shape[1])
    X = X[torch.from_numpy(rows)]
    groups = groups_of(model.fitted_kernel.columns, table.encoding if table else None)
    with torch.no_grad(), np.errstate(over="ignore", under="ignore"):  # in units close to the largest floats
        levels = {c.name: c.levels for c in table.encoding.columns if c.levels} if table else {}
        variance = surface.noise_variance(X)
        parts, directions, whole = _parts(model, words, X, groups, s, levels, variance)
        effects, interactions = _effects_of_columns(surface, X, groups, directions, levels)
        ordered = [(name, place) for name, place in groups if name not in levels]
        noise = _noise(surface, X, ordered, variance, float(variance.mean()) / whole)
    claims = check_claims(model, others, parts, effects, groups, s, evidence, clock) if check else Claims()
    weights = [float(mixture.weights[k]) for k in order]
    u = model.warp.inverse(model.y.numpy())
    with np.errstate(over="ignore", under="ignore"):
        level = float(s.inverse_mean(u.mean())), float(u.std() * s.y_scale)
    return Explanation(
        target=model.fitted_kernel.target,
        expression=model.expression,
        position=order[0],
        weight=weights[0],
        others=tuple((other.expression, weight) for other, weight in zip(others, weights[1:], strict=True)),
        parts=tuple(sorted(parts, key=lambda part: -part.share)),
        effects=_by_importance(effects, claims.checks),
        noise=noise,
        rows=rows,
        comparison=None if evidence is None else Comparison(PLAIN, *evidence.gain),
        dates={c.name: c.origin for c in table.encoding.columns if c.kind == "date"} if table else {},
        caveats=_caveats(model),
        transformed=sum(w for m, w in zip((model, *others), weights, strict=True) if not m.warp.is_identity),
        offset=s.y_mean + float(words.means(X).sum(0).mean()) * s.y_scale if parts else s.y_mean,
        level=level,
        interactions=interactions,
        explained=claims.explained,
        repetitions=claims.repetitions,
        checks=claims.checks,
        unchecked=claims.unchecked,
    )


def _by_importance(effects: Sequence[Effect], checks: Sequence[Check]) -> tuple[Effect, ...]:
    """Effects of columns that left-out rows need by what they gain there, then the others by their share of the variance."""
    gains = {check.about: check.gain for check in checks if check.claim == "column" and check.is_supported}
    return tuple(sorted(effects, key=lambda effect: (-gains.get(effect.column, 0.0), -effect.sensitivity)))


def _explained(mixture: Mixture, evidence: Evidence | None) -> int:
    """The kernel to explain: the heaviest; where left-out rows are predicted, the heaviest that predicts anything."""
    if mixture.models[mixture.best].expression.signal or evidence is None or evidence.r2 <= 0:
        return mixture.best
    signal = [k for k, m in enumerate(mixture.models) if m.expression.signal and m.warp.is_identity]
    return max(signal, key=lambda k: mixture.weights[k], default=mixture.best)


def _caveats(model: GP) -> tuple[str, ...]:
    few = (f"only {model.rows} rows: many kernels fit as few points equally well",) * (model.rows < 30)
    return few + model.warnings


def _some(n: int, dims: int) -> NDArray[np.intp]:
    """Positions of a random subset of rows, the same each time."""
    most = ROWS if dims <= MANY_COLUMNS else ROWS // 3
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def _parts(
    model: GP, words: Words, X: Tensor, groups: Groups, s: Standardiser, levels: Levels, noise: Tensor
) -> tuple[list[Part], Tensor, float]:
    """The words of a kernel; the direction (G,) of their sum along each column; and the variance of an observation."""
    means = words.means(X)
    total = means.sum(0)
    variance = float(total.var(correction=0) + noise.mean())
    sensitivity, direction = _sensitivities(words, X, groups)
    share = _shares(means) * float(total.var(correction=0)) / variance
    parts = []
    for i, word in enumerate(model.expression.signal):
        mean, C = means[i], words.covariance(i, X)
        shape = (C.diagonal().mean() - C.mean()).clamp_min(0)
        facts = _column_facts(model, word, i, words, groups, s)
        parts.append(
            Part(
                word=word,
                share=float(share[i]),
                spread=float(mean.std(correction=0)) * s.y_scale,
                uncertainty=math.sqrt(float(shape)) * s.y_scale,
                mean=(mean - mean.mean()).numpy() * s.y_scale,
                std=C.diagonal().clamp_min(0).sqrt().numpy() * s.y_scale,
                effects=_effects(X, groups, s, sensitivity[i], direction[i], facts, levels),
            )
        )
    return parts, direction[-1], variance


def _shares(means: Tensor) -> Tensor:
    """(W,) the share of each word in the variance of their sum: its covariance with the sum.

    A word that cancels others has a negative covariance; it counts as nothing, and the others make up the whole.
    """
    centred = means - means.mean(-1, keepdim=True)
    covariance = (centred * centred.sum(0)).mean(-1).clamp_min(0)
    return covariance / covariance.sum().clamp_min(1e-300)


def _sensitivities(words: Words, X: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """(W + 1, G) how much, and in which direction, each word and their sum move when one column moves.

    How much is the total Sobol index, if every column had its values independently of the others.
    """
    rng = np.random.default_rng(1)
    X = X.clone()
    for _, place in groups:
        X[:, place] = X[torch.from_numpy(rng.permutation(len(X)))][:, place]
    other, means = X[torch.from_numpy(rng.permutation(len(X)))], words.means(X)
    both = torch.cat([means, means.sum(0, keepdim=True)])
    variance = both.var(-1, correction=0).clamp_min(1e-300)
    much, where = [], []
    for _, place in groups:
        moved = X.clone()
        moved[:, place] = other[:, place]
        after = words.means(moved)
        change = torch.cat([after, after.sum(0, keepdim=True)]) - both
        step = (moved - X)[:, place[0]]
        much.append(0.5 * change.square().mean(-1) / variance)
        scale = (change.square().sum(-1) * step.square().sum()).sqrt().clamp_min(1e-300)
        where.append((change @ step) / scale)
    return torch.stack(much, -1), torch.stack(where, -1)


def _effects_of_columns(
    surface: Surface, X: Tensor, groups: Groups, direction: Tensor, levels: Levels
) -> tuple[tuple[Effect, ...], tuple[Interaction, ...]]:
    """How the mean depends on each column: shares that add up, and the curve along each of the strongest."""
    indices, s = sensitivity(surface.mean, X, groups, surface.covariance), surface.standardiser
    strongest = np.argsort(-indices.total)[:CURVES].tolist()
    effects = []
    for g, (name, place) in enumerate(groups):
        more: dict[str, Any] = {"alone": float(indices.first[g]), "alone_error": float(indices.first_error[g])}
        more["sensitivity_error"] = float(indices.total_error[g])
        if name in levels:
            if g in strongest:
                line = curve(surface, X, place)
                form = level_shape(line, level_names(X, place, levels[name]))
                more |= {"shape": _in_units(form, s), "disagreeing": _disagreeing(surface, line.own)}
        elif len(place) == 1:
            d, x = place[0], X[:, place[0]]
            more |= {"direction": float(direction[g]), "span": float(x.max() - x.min()) * float(s.x_scale[d])}
            if g in strongest:
                line = curve(surface, X, [d])
                form, at = _in_units(shape(line, x.numpy()), s, d), _along(line.curve.x, s, d)
                in_units = Curve(at, s.inverse_mean(line.curve.mean), line.curve.std * s.y_scale)
                more |= {"curve": in_units, "shape": form, "disagreeing": _disagreeing(surface, line.own)}
        effects.append(Effect(name, float(indices.total[g]), **more))
    return tuple(effects), indices.pairs


def _disagreeing(surface: Surface, own: FloatArray) -> tuple[str, ...]:
    """The heavy kernels whose own curve, level aside, differs from that of the average by more than half of it."""
    centred = own - own.mean(1, keepdims=True)
    average = surface.weights @ centred
    size = float(np.sqrt(np.square(average).sum()))
    return tuple(
        str(surface.mixture.models[surface.used[i]].expression)
        for i in surface.heavy
        if np.sqrt(np.square(centred[i] - average).sum()) > DISAGREEMENT * size
    )


def _along(x: ArrayLike, s: Standardiser, place: int) -> FloatArray:
    """Standardised values of one column in its units."""
    one = Standardiser(s.x_mean[place : place + 1], s.x_scale[place : place + 1], s.y_mean, s.y_scale)
    return one.inverse_x(np.reshape(x, (-1, 1)))[:, 0]


def _in_units(form: Shape, s: Standardiser, place: int | None = None) -> Shape:
    """The shape of a standardised curve in the units of the table."""
    at = form.at if form.at is None or place is None else float(_along(form.at, s, place)[0])
    slope = form.slope
    if slope is not None and place is not None:
        unit = float(s.y_scale / s.x_scale[place])
        slope = slope[0] * unit, slope[1] * unit
    return replace(form, at=at, rise=form.rise * s.y_scale, error=form.error * s.y_scale, slope=slope)


def _effects(
    X: Tensor,
    groups: Groups,
    s: Standardiser,
    sensitivity: Tensor,
    direction: Tensor,
    facts: list[dict[str, Any]],
    levels: Levels,
) -> tuple[Effect, ...]:
    """How one word depends on each column; levels of a text have no direction, span or slope."""
    effects = []
    for g, (name, place) in enumerate(groups):
        x = X[:, place[0]]
        single: dict[str, Any] = {}
        if len(place) == 1 and name not in levels:
            span = float(x.max() - x.min()) * float(s.x_scale[place[0]])
            single = {"direction": float(direction[g]), "span": span, **facts[g]}
        effects.append(Effect(name, float(sensitivity[g]), **single))
    return tuple(sorted(effects, key=lambda effect: -effect.sensitivity))


def _column_facts(
    model: GP, word: Word, index: int, words: Words, groups: Groups, s: Standardiser
) -> list[dict[str, Any]]:
    """The lengthscale, periods and slope of one word along each column, in original units."""
    values = model.fitted_kernel.parameters

    def read(factor: int, name: str) -> FloatArray:
        return np.array(values[f"{word}[{factor}].{name}"]) * 1.0

    precision, periods = np.zeros(len(s.x_scale)), []
    for j, primitive in enumerate(word.factors):
        if primitive is Primitive.PERIODIC:
            periods.append(read(j, "period") * s.x_scale)
        elif primitive is Primitive.COSINE:
            with np.errstate(divide="ignore"):
                periods.append(s.x_scale / np.abs(read(j, "frequency")))
        elif primitive.is_bandwidth:
            precision += read(j, "lengthscale") ** -2.0
    slopes = _slopes(words, index, s) if word.factors == (Primitive.LINEAR,) else None
    facts = []
    for _, (d, *_more) in groups:
        fact: dict[str, Any] = {"periods": tuple(float(p[d]) for p in periods if np.isfinite(p[d]))}
        if precision[d] > 0:
            fact["lengthscale"] = float(precision[d] ** -0.5 * s.x_scale[d])
        if slopes is not None:
            fact["slope"] = (float(slopes[0][d]), float(slopes[1][d]))
        facts.append(fact)
    return facts


def _slopes(words: Words, index: int, s: Standardiser) -> tuple[FloatArray, FloatArray]:
    """Slope of a linear word along each column, and its standard deviation: what one step from the centre changes."""
    dims = len(s.x_scale)
    X = torch.cat([torch.zeros(1, dims, dtype=torch.float64), torch.eye(dims, dtype=torch.float64)])
    mean, C = words.means(X)[index], words.covariance(index, X)
    variance = C.diagonal()[1:] + C[0, 0] - 2 * C[0, 1:]
    unit = s.y_scale / s.x_scale
    return (mean[1:] - mean[0]).numpy() * unit, variance.clamp_min(0).sqrt().numpy() * unit


def _noise(surface: Surface, X: Tensor, groups: Groups, variance: Tensor, share: float) -> Noise:
    """The level of the noise, and with which column or with the prediction it changes."""
    mean, scale = surface.mean(X), surface.standardiser.y_scale
    level = math.sqrt(float(variance.mean())) * scale
    low, high = (float(q) for q in np.quantile(variance.sqrt().numpy(), (0.05, 0.95)) * scale)
    centred = variance.sqrt() - variance.sqrt().mean()
    if high < 1.05 * low:
        return Noise(share, level, low, high)
    followed = {name: X[:, place[0]] for name, place in groups} | {PREDICTION: mean}
    with_column = {
        name: float(torch.nan_to_num(torch.corrcoef(torch.stack([centred, values]))[0, 1]))
        for name, values in followed.items()
    }
    column = max(with_column, key=lambda name: abs(with_column[name]) - CLEARER * (name == PREDICTION))
    return Noise(share, level, low, high, column, with_column[column])
