"""Capture: the possible gain of a good kernel on real tables, and the share of it that a way of choosing achieves.

Every choice is evaluated in the same design: the chosen kernel with and without noise that changes (Linear*White), plain
RBF and Matern52 with BoTorch's priors, and a small tail, stacked. `always Matern32` is the zero. All 34 words are fitted
to each table, as users' kernels are, and the network's captions in cells of their own, so that another network needs
no other fits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import t as student_t

from kitt.errors import InvalidInputError
from kitt.fitting.candidates import with_changing_noise
from kitt.fitting.fit import Fitter
from kitt.fitting.gp import GP
from kitt.kernels.grammar import WORDS, Expression
from kitt.model.weights import stacked
from kitt.network.caption import caption
from kitt.table.dataset import Dataset
from kitt.table.scaling import FloatArray, Standardiser
from kitt_lab.bench.atlas import split
from kitt_lab.bench.comparisons import bootstrap_interval
from kitt_lab.bench.datasets import Source
from kitt_lab.bench.methods import fingerprint
from kitt_lab.bench.regret import VOCABULARY
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.bench.tables import Grid

ZERO = "Matern32"  # a kernel that can be chosen without the table
PLAIN = ("RBF", "Matern52")


# The design, as in the first measurement of capture; none of these numbers was tuned on it.
PARAMETER_PRICE = 0.25  # nats, in stacking
TAIL_WEIGHT = 0.003  # at least, of a Student t of the standardised target alone
TAIL_DEGREES = 3.0
POSSIBLE = 0.03  # nats per row that some word must gain for a table to count
CAP = 1.0  # largest gain or loss of a table, nats per row


# --- the cells -------------------------------------------------------------------------------------------------------


def word_cells(
    tables: Iterable[Source], splits: Iterable[int], rows: int, options: Mapping[str, Any], seed: int = 0
) -> list[Cell]:
    """All 34 words on a table: one cell."""
    cells = []
    for number in splits:
        for table in tables:
            shared = {"rows": rows, "options": dict(options), "seed": seed}
            key = {"bench": "capture", "table": table.name, "split": number, "what": "words", **shared}
            cells.append(Cell(key, judge_words, {"table": table, "number": number, **shared}))
    return cells


def caption_cells(
    tables: Iterable[Source],
    splits: Iterable[int],
    rows: int,
    options: Mapping[str, Any],
    model: str,
    k: int = 3,
    seed: int = 0,
) -> list[Cell]:
    """The k captions of a network."""
    cells, network = [], fingerprint(model)
    for words in word_cells(tables, splits, rows, options, seed):
        asked = {"model": model, "k": k}
        key = {**words.key, "what": "captions", **asked, "network": network}
        cells.append(Cell(key, judge_captions, {**words.arguments, **asked}))
    return cells


def judge_words(table: Source, number: int, rows: int, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    train, test = split(table, rows, number)
    return judged(train, test, [Expression((word,)) for word in WORDS], options, seed)


def judge_captions(
    table: Source, number: int, rows: int, options: Mapping[str, Any], seed: int, model: str, k: int
) -> dict[str, Any]:
    train, test = split(table, rows, number)
    said = [c.expression for c in caption(train.X, train.y, k, network=model)]
    return {**judged(train, test, said, options, seed), "captions": list(map(str, said))}


def judged(
    train: Dataset, test: Dataset, expressions: Sequence[Expression], options: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Test NLPD of the design with each expression, and its BIC with Linear*White added; one that fails has neither.

    If one of the two fits fails, it has no BIC.
    """
    plain = Fitter(train, random_state=seed, prior="botorch", **options)
    always = [Component.of(gp, test) for gp in map(plain.attempt, PLAIN) if isinstance(gp, GP)]
    named = Fitter(train, random_state=seed, **options)
    nlpd: dict[str, float] = {}
    bic: dict[str, float] = {}
    for expression in expressions:
        wanted = dict.fromkeys((expression, with_changing_noise(expression)))
        gps = [gp for gp in map(named.attempt, wanted) if isinstance(gp, GP)]
        if gps:
            components = [*(Component.of(gp, test) for gp in gps), *always]
            nlpd[str(expression)] = mixture_nlpd(components, train, test)
            if len(gps) == len(wanted):
                bic[str(expression)] = gps[-1].bic
    return {"nlpd": nlpd, "bic": bic, "n_train": train.n, "n_test": test.n, "d": train.d}


@dataclass(frozen=True)
class Component:
    """What stacking and scoring need of a fitted model."""

    left_out: FloatArray  # log density of each training row given the others, of the standardised target
    test: FloatArray  # log density of each test row, in original units
    price: float  # of its parameters, nats per training row

    @classmethod
    def of(cls, model: GP, test: Dataset) -> Component:
        price = PARAMETER_PRICE * model.parameter_count / model.rows
        return cls(model.loo.log_density.numpy(), model.log_density(test.X, test.y), price)


def mixture_nlpd(components: Sequence[Component], train: Dataset, test: Dataset) -> float:
    """NLPD of the stacked components and the tail, whose weight has a lower limit."""
    scaling = Standardiser.fit(train.X, train.y)
    inside, outside = (student_t.logpdf(scaling.transform_y(y), TAIL_DEGREES) for y in (train.y, test.y))
    tail = Component(inside, outside + scaling.log_density_offset, 0.0)
    every = [*components, tail]
    w = stacked(np.stack([c.left_out - c.price for c in every], 1))
    if w[-1] < TAIL_WEIGHT:
        w[:-1] *= (1 - TAIL_WEIGHT) / (1 - w[-1])
        w[-1] = TAIL_WEIGHT
    densities = np.stack([c.test for c, weight in zip(every, w, strict=True) if weight > 0], 1)
    return -float(np.mean(logsumexp(densities + np.log(w[w > 0]), axis=1)))


# --- ways of choosing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One split of one table: test NLPD of the design with each expression, their BIC, and the captions of the network."""

    nlpd: Mapping[str, float]
    bic: Mapping[str, float]
    captions: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return [word for word in VOCABULARY if word in self.nlpd]

    @property
    def fitted_captions(self) -> list[str]:
        """The captions that could be fitted; if there are none, the reference kernel."""
        return [text for text in self.captions if text in self.nlpd] or [ZERO]

    def verified(self, texts: Iterable[str]) -> float:
        return self.nlpd[min(texts, key=lambda text: self.bic.get(text, math.inf))]

    def hindsight(self, texts: Iterable[str]) -> float:
        return min(self.nlpd[text] for text in texts)


CHOICES: dict[str, Callable[[Case], float]] = {
    "the network's first caption": lambda case: case.nlpd[case.fitted_captions[0]],
    "its captions, verified: best BIC with Linear*White": lambda case: case.verified(case.fitted_captions),
    "its captions, best in hindsight": lambda case: case.hindsight(case.fitted_captions),
    "all 34 words, verified": lambda case: case.verified(case.words),
    "a random word, on average": lambda case: float(np.mean([case.nlpd[word] for word in case.words])),
    "RBF always": lambda case: case.nlpd["RBF"],
}


def cases(lines: Iterable[Line], rows: int, model: str) -> dict[str, list[Case]]:
    """By table: the splits that have both words and captions of this network."""
    words, said = {}, {}
    for line in lines:
        key = line["key"]
        if key.get("bench") == "capture" and line["status"] == "ok" and key["rows"] == rows:
            if key["what"] == "words":
                words[key["table"], key["split"]] = line["result"]
            elif key["model"] == model:
                said[key["table"], key["split"]] = line["result"]
    cases_of: dict[str, list[Case]] = defaultdict(list)
    for group, own in words.items():
        if group in said and {ZERO, "RBF"} <= own["nlpd"].keys():
            nlpd, bic = ({**said[group][name], **own[name]} for name in ("nlpd", "bic"))
            cases_of[group[0]].append(Case(nlpd, bic, tuple(said[group]["captions"])))
    return dict(cases_of)


# --- the numbers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Captured:
    """The result of one way of choosing: its share of the possible gain, and its loss on the other tables."""

    who: str
    share: float
    share_interval: tuple[float, float]
    elsewhere: float  # mean loss against always Matern32, nats per row
    elsewhere_interval: tuple[float, float]
    worst: float
    worst_table: str
    tables: int  # with something to gain
    others: int


def possible_gain(case: Case) -> float:
    """The gain of the best word in hindsight over always Matern32."""
    return case.nlpd[ZERO] - case.hindsight(case.words)


def captured(who: str, choose: Callable[[Case], float], cases_of: Mapping[str, Sequence[Case]]) -> Captured:
    """Splits are averaged within a table; gains and losses of a table beyond a nat count as one nat."""
    names = list(cases_of)
    possible = np.array([np.mean([possible_gain(case) for case in cases_of[name]]) for name in names])
    own = np.array([np.mean([case.nlpd[ZERO] - choose(case) for case in cases_of[name]]) for name in names])

    def share(rows: Any) -> float:
        counted = rows[possible[rows] >= POSSIBLE]
        gained = np.clip(own[counted], -CAP, CAP).sum()
        return float(gained / np.minimum(possible[counted], CAP).sum()) if len(counted) else math.nan

    def elsewhere(rows: Any) -> float:
        others = rows[possible[rows] < POSSIBLE]
        return float(-np.clip(own[others], -CAP, CAP).mean()) if len(others) else math.nan

    every, worst = np.arange(len(names)), int(own.argmin())
    return Captured(
        who=who,
        share=share(every),
        share_interval=bootstrap_interval(len(names), share),
        elsewhere=elsewhere(every),
        elsewhere_interval=bootstrap_interval(len(names), elsewhere),
        worst=-float(own[worst]),
        worst_table=names[worst],
        tables=int((possible >= POSSIBLE).sum()),
        others=int((possible < POSSIBLE).sum()),
    )


def capture_table(cases_of: Mapping[str, Sequence[Case]]) -> list[Captured]:
    return [captured(who, choose, cases_of) for who, choose in CHOICES.items()] if cases_of else []


def capture_grids(lines: Sequence[Line]) -> list[Grid]:
    """A table for each number of training rows and each network of which there are lines."""
    keys = [line["key"] for line in lines if line["key"].get("bench") == "capture"]
    said = [key for key in keys if key["what"] == "captions"]
    asked = dict.fromkeys((key["rows"], key["model"]) for key in said)
    if not asked:
        raise InvalidInputError("there are no lines of captions: run `kitt bench capture` first")
    settings = {(key["seed"], str(key["options"])) for key in keys}
    states = {(key["rows"], key["model"], key["k"], key["network"]) for key in said}
    if len(settings) > 1 or len(states) > len(asked):
        raise InvalidInputError(
            "the lines were made with different options, seeds, numbers of captions or networks of one name: "
            "keep those of one setting in a file"
        )
    return [capture_grid(lines, rows, model) for rows, model in asked]


def capture_grid(lines: Iterable[Line], rows: int, model: str = "default") -> Grid:
    table = capture_table(cases(lines, rows, model))
    counts = f"{table[0].tables} tables, and {table[0].others} others" if table else "no tables"
    title = (
        f"Capture at {rows} rows by the network '{model}': share of the gain over always {ZERO} that the best word has in "
        f"hindsight, on tables with at least {POSSIBLE} nats per row to gain ({counts}); mean loss elsewhere"
    )
    head = ("who chooses the first kernel", "capture (95 %)", "elsewhere (95 %)", "worst table")
    return Grid(title, head, tuple(map(_row, table)))


def _row(c: Captured) -> tuple[str, ...]:
    return (
        c.who,
        _with_interval(c.share, c.share_interval, ".2f"),
        _with_interval(c.elsewhere, c.elsewhere_interval, "+.3f"),
        f"{c.worst:+.2f} {c.worst_table}",
    )


def _with_interval(value: float, interval: tuple[float, float], form: str) -> str:
    return "" if math.isnan(value) else f"{value:{form}} ({interval[0]:{form}} to {interval[1]:{form}})"
