"""A fitted GP taken apart at some of its rows: each word alone, the columns it depends on, the noise.

A GP with a sum of kernels is a sum of GPs, and its posterior mean is the sum of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kitt.explain.facts import Comparison, Effect, Explanation, Noise, Part
from kitt.fitting.fit import FittedGP
from kitt.gp.sparse import SparsePosterior
from kitt.language.grammar import Primitive, Word
from kitt.model.candidates import PLAIN
from kitt.model.document import Model
from kitt.model.mixture import Mixture
from kitt.model.suggestion import Suggestion
from kitt.table.dataset import Dataset, Encoding
from kitt.table.scaling import FloatArray, Standardiser

Groups = list[tuple[str, list[int]]]  # columns of the table, with the columns of X that stand for them
_ROWS = 256  # rows looked at; fewer where there are many columns
_MANY_COLUMNS = 40


def explain(what: FittedGP | Mixture | Model | Suggestion) -> Explanation:
    """Say what a fitted model found: what each word contributes, on which columns it depends, and how much is noise.

    Parameters
    ----------
    what : Suggestion, Model, Mixture or FittedGP
        Of a mixture of several kernels, the one with the largest weight is explained.

    Returns
    -------
    Explanation
        Printing it gives a paragraph; its attributes and `to_dict` have the numbers.

    Examples
    --------
    >>> import numpy as np, kitt
    >>> x = np.linspace(0, 10, 60)
    >>> explanation = kitt.explain(kitt.fit("Linear", (x[:, None], 3 * x + np.cos(40 * x)), random_state=0))
    >>> [str(part.word) for part in explanation.parts]
    ['Linear']
    >>> explanation.parts[0].share > 0.9
    True
    """
    if isinstance(what, Suggestion):
        return explain(what.fitted)
    if isinstance(what, Model):
        return _explain(what.mixture, what.is_plain, what.rows)
    mixture = Mixture.of((what,), [1.0]) if isinstance(what, FittedGP) else what
    return _explain(mixture, [model.expression in PLAIN for model in mixture.models], None)


def _explain(mixture: Mixture, is_plain: Sequence[bool], table: Dataset | None) -> Explanation:
    order = sorted(range(len(mixture.models)), key=lambda k: (k != mixture.best, -mixture.weights[k]))
    model = mixture.models[order[0]]
    words = _Words(model)
    s = model.fitted_kernel.standardiser or _identity(len(model.fitted_kernel.columns))
    X = words.basis if table is None else torch.tensor(s.transform_x(table.X))
    rows = _some(len(X), X.shape[1])
    X = X[torch.from_numpy(rows)]
    groups = _groups(model.fitted_kernel.columns, table.encoding if table else None)
    with torch.no_grad(), np.errstate(over="ignore", under="ignore"):  # units may be beside the largest floats
        parts, columns, noise = _decompose(model, words, X, groups, s)
    caveats = model.warnings
    if model.rows < 30:
        caveats = (f"only {model.rows} rows: many kernels fit as few points equally well", *caveats)
    return Explanation(
        target=model.fitted_kernel.target,
        expression=model.expression,
        weight=float(mixture.weights[order[0]]),
        others=tuple((mixture.models[i].expression, float(mixture.weights[i])) for i in order[1:]),
        parts=tuple(sorted(parts, key=lambda part: -part.share)),
        columns=columns,
        noise=noise,
        rows=rows,
        comparison=_compare(mixture, is_plain),
        dates=frozenset(c.name for c in table.encoding.columns if c.kind == "date") if table else frozenset(),
        caveats=caveats,
        transformed=float(
            sum(w for m, w in zip(mixture.models, mixture.weights, strict=True) if not m.warp.is_identity)
        ),
    )


def _identity(dims: int) -> Standardiser:
    return Standardiser(np.zeros(dims), np.ones(dims), 0.0, 1.0)


def _some(n: int, dims: int) -> NDArray[np.intp]:
    """Positions of a random subset of rows, the same each time."""
    most = _ROWS if dims <= _MANY_COLUMNS else _ROWS // 3
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def _groups(names: Sequence[str], encoding: Encoding | None) -> Groups:
    """Columns of the table with the columns of X that stand for them: several for one of levels."""
    if encoding is None:
        return [(name, [d]) for d, name in enumerate(names)]
    place = {name: d for d, name in enumerate(names)}
    return [(c.name, [place[output] for output in c.outputs]) for c in encoding.columns if c.outputs]


class _Words:
    """The signal words of a fitted GP: each posterior mean is k_w(basis, x)' alpha."""

    def __init__(self, model: FittedGP) -> None:
        p = self.posterior = model.posterior
        if isinstance(p, SparsePosterior):
            half = torch.linalg.solve_triangular(p.LB.mT, p.c.unsqueeze(-1), upper=True)
            self.basis, self.alpha = p.Z, torch.linalg.solve_triangular(p.L.mT, half, upper=True).squeeze(-1)
        else:
            self.basis, self.alpha = p.X, p.alpha
        self.here = p.kernel.terms(p.theta, self.basis)

    def means(self, X: Tensor) -> Tensor:
        """(W, n)"""
        there = self.posterior.kernel.terms(self.posterior.theta, X)
        rows = [a.matrix(b).mT @ self.alpha for a, b in zip(self.here, there, strict=True)]
        return torch.stack(rows) if rows else X.new_zeros(0, len(X))

    def covariance(self, word: int, X: Tensor) -> Tensor:
        """Joint posterior covariance (n, n) of one word."""
        p = self.posterior
        there = p.kernel.terms(p.theta, X)[word]
        A = torch.linalg.solve_triangular(p.L, self.here[word].matrix(there), upper=False)
        C = there.matrix(there, same=True) - A.mT @ A
        if isinstance(p, SparsePosterior):
            V = torch.linalg.solve_triangular(p.LB, A, upper=False)
            C = C + V.mT @ V
        return C


def _decompose(
    model: FittedGP, words: _Words, X: Tensor, groups: Groups, s: Standardiser
) -> tuple[list[Part], tuple[Effect, ...], Noise]:
    kernel, theta = model.posterior.kernel, model.posterior.theta
    means = words.means(X)
    total, noise = means.sum(0), kernel.noise(theta, X)
    variance = float(total.var(correction=0) + noise.mean())
    sensitivity, direction = _sensitivities(words, X, means, groups)
    parts = []
    for i, word in enumerate(model.expression.signal):
        mean, C = means[i], words.covariance(i, X)
        shape = (C.diagonal().mean() - C.mean()).clamp_min(0)
        facts = _column_facts(model, word, i, words, groups, s)
        strongest = int(sensitivity[i].argmax())
        if periods := facts[strongest]["periods"]:
            d = groups[strongest][1][0]
            facts[strongest]["repeats"] = _repeats(words, i, X, d, min(periods) / float(s.x_scale[d]))
        parts.append(
            Part(
                word=word,
                share=float(((mean - mean.mean()) * (total - total.mean())).mean()) / variance,
                spread=float(mean.std(correction=0)) * s.y_scale,
                uncertainty=math.sqrt(float(shape)) * s.y_scale,
                mean=mean.numpy() * s.y_scale,
                std=C.diagonal().clamp_min(0).sqrt().numpy() * s.y_scale,
                effects=_effects(X, groups, s, sensitivity[i], direction[i], facts),
            )
        )
    columns = _effects(X, groups, s, sensitivity[-1], direction[-1], [{}] * len(groups))
    return parts, columns, _noise(X, groups, noise, s, float(noise.mean()) / variance)


def _sensitivities(words: _Words, X: Tensor, means: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """(W + 1, G) of each word and of their sum: how much, and in which direction, it moves when one column moves."""
    other = X[torch.from_numpy(np.random.default_rng(1).permutation(len(X)))]
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


def _repeats(words: _Words, word: int, X: Tensor, column: int, period: float) -> bool:
    """Whether a word, trends aside, changes over half a period and hardly over a whole one."""

    def bend(step: float) -> Tensor:
        """Mean square of f(x − step) − 2 f(x) + f(x + step)."""
        shift = torch.zeros_like(X)
        shift[:, column] = step
        before, here, after = (words.means(X + side * shift)[word] for side in (-1, 0, 1))
        return (before - 2 * here + after).square().mean()

    half, variance = bend(period / 2), words.means(X)[word].var(correction=0)
    return bool(half > 0.01 * variance and bend(period) < 0.5 * half)


def _effects(
    X: Tensor,
    groups: Groups,
    s: Standardiser,
    sensitivity: Tensor,
    direction: Tensor,
    facts: list[dict[str, Any]],
) -> tuple[Effect, ...]:
    effects = []
    for g, (name, place) in enumerate(groups):
        x = X[:, place[0]]
        single: dict[str, Any] = {}
        if len(place) == 1:
            span = float(x.max() - x.min()) * float(s.x_scale[place[0]])
            single = {"direction": float(direction[g]), "span": span, **facts[g]}
        effects.append(Effect(name, float(sensitivity[g]), **single))
    return tuple(sorted(effects, key=lambda effect: -effect.sensitivity))


def _column_facts(
    model: FittedGP, word: Word, index: int, words: _Words, groups: Groups, s: Standardiser
) -> list[dict[str, Any]]:
    """Of each column: lengthscale, periods and slope, in original units."""
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


def _slopes(words: _Words, index: int, s: Standardiser) -> tuple[FloatArray, FloatArray]:
    """Slope of a linear word along each column, and its standard deviation: what one step from the centre changes."""
    dims = len(s.x_scale)
    X = torch.cat([torch.zeros(1, dims, dtype=torch.float64), torch.eye(dims, dtype=torch.float64)])
    mean, C = words.means(X)[index], words.covariance(index, X)
    variance = C.diagonal()[1:] + C[0, 0] - 2 * C[0, 1:]
    unit = s.y_scale / s.x_scale
    return (mean[1:] - mean[0]).numpy() * unit, variance.clamp_min(0).sqrt().numpy() * unit


def _noise(X: Tensor, groups: Groups, variance: Tensor, s: Standardiser, share: float) -> Noise:
    level = math.sqrt(float(variance.mean())) * s.y_scale
    low, high = (float(q) for q in np.quantile(variance.sqrt().numpy(), (0.05, 0.95)) * s.y_scale)
    centred = variance.sqrt() - variance.sqrt().mean()
    if high < 1.05 * low:
        return Noise(share, level, low, high)
    with_column = {
        name: float(torch.nan_to_num(torch.corrcoef(torch.stack([centred, X[:, place[0]]]))[0, 1]))
        for name, place in groups
    }
    column = max(with_column, key=lambda name: abs(with_column[name]))
    return Noise(share, level, low, high, column, with_column[column])


def _compare(mixture: Mixture, is_plain: Sequence[bool]) -> Comparison | None:
    """The mixture against the plain kernel that predicts left-out rows best, row by row."""
    plain = [model for model, yes in zip(mixture.models, is_plain, strict=True) if yes]
    if not plain or len(mixture.models) == 1:
        return None
    best = max(plain, key=lambda model: model.loo_log_density)
    gain = mixture.leave_one_out().log_density(mixture.target) - best.loo_log_densities
    return Comparison(best.expression, float(gain.mean()), float(gain.std() / math.sqrt(len(gain))))
