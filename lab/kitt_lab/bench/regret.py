"""Regret: how much worse, in nats per test row, a choice of kernel is than the best of the 34 words on the same split.

KITT's choices, sums and single words, are compared with fixed choices, random choices, and choices after fitting all 34
words. The fits are lines of `words`; those that a choice needs beyond the 34 words are run there too. A choice that could
not be fitted counts as the worst word on the split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from kitt.kernels.grammar import WORDS
from kitt.network.caption import caption
from kitt.network.ranking import RANKINGS
from kitt_lab.bench.datasets import Source, split
from kitt_lab.bench.methods import fingerprint
from kitt_lab.bench.runner import Cell, Line
from kitt_lab.bench.scores import mean_interval
from kitt_lab.bench.words import canonical, word_cell

VOCABULARY = tuple(map(str, WORDS))
Fits = Mapping[str, Mapping[str, Any]]  # expression -> its numbers, on one split of one table
Choice = tuple[str, ...]  # expressions, the first one first
Group = tuple[str, int]  # table and split


@dataclass(frozen=True)
class Advisor:
    """A network with the head and the ranking that are used."""

    model: str = "default"
    head: str = "decoder"
    ranking: str = "expected-loss"

    def __str__(self) -> str:
        return f"{self.model}, {self.head}, {self.ranking}"


ADVISORS = [(head, ranking) for head in ("decoder", "classifier") for ranking in RANKINGS]  # KITT's own first


def choices(
    tables: Iterable[Source], splits: Sequence[int], rows: str, advisors: Sequence[Advisor], k: int = 3
) -> dict[Advisor, dict[Group, Choice]]:
    """The choices of each advisor for the training rows of every table and split."""
    out: dict[Advisor, dict[Group, Choice]] = {advisor: {} for advisor in advisors}
    for table in tables:
        for number in splits:
            train = split(table.load(), rows, number).train
            for a in advisors:
                said = caption(train.X, train.y, k, network=a.model, head=a.head, ranking=a.ranking)
                out[a][table.name, number] = tuple(canonical(str(c.expression)) for c in said)
    return out


def needed_cells(
    tables: Iterable[Source],
    said: Mapping[Advisor, Mapping[Group, Choice]],
    rows: str,
    options: Mapping[str, Any],
    seed: int = 0,
) -> list[Cell]:
    """The fits that the choices need: all 34 words, and every sum that was said."""
    by_name = {table.name: table for table in tables}
    groups = dict.fromkeys(group for groups in said.values() for group in groups)
    cells = []
    for name, number in groups:
        texts = dict.fromkeys([*VOCABULARY, *(text for groups in said.values() for text in groups[name, number])])
        cells += [word_cell(by_name[name], number, rows, text, options, seed) for text in texts]
    return cells


def by_split(lines: Iterable[Line], rows: str, options: Mapping[str, Any], seed: int = 0) -> dict[Group, Fits]:
    """Lines of `words` made with these settings, by table and split; a failed fit is left out."""
    fits_by_group: dict[Group, dict[str, Any]] = defaultdict(dict)
    for line in lines:
        key = line["key"]
        same = key.get("bench") == "words" and (key["rows"], key["options"], key["seed"]) == (rows, dict(options), seed)
        if same and line["status"] == "ok":
            fits_by_group[key["table"], key["split"]][key["expression"]] = line["result"]
    return {group: fits for group, fits in fits_by_group.items() if any(word in fits for word in VOCABULARY)}


def probability_cells(tables: Iterable[Source], splits: Iterable[int], rows: str, models: Sequence[str]) -> list[Cell]:
    """Each network's probabilities of all 34 words; a cell belongs to one state of a checkpoint."""
    cells = []
    for model in models:
        network = fingerprint(model)
        for table in tables:
            for number in splits:
                key = {"bench": "probabilities", "table": table.name, "split": number, "rows": rows, "model": model}
                arguments = {"table": table, "number": number, "rows": rows, "model": model}
                cells.append(Cell({**key, "network": network}, probabilities, arguments))
    return cells


def probabilities(table: Source, number: int, rows: str, model: str) -> dict[str, Any]:
    train = split(table.load(), rows, number).train
    said = caption(train.X, train.y, 1, network=model, head="classifier")
    return {"words": dict(zip(VOCABULARY, said.words, strict=True)), "strangeness": said.strangeness}


# --- choices that need no network ------------------------------------------------------------------------------------


def _best_by(measure: str, sign: float) -> Callable[[Fits], Choice]:
    """All words, the best first."""

    def choose(fits: Fits) -> Choice:
        return tuple(sorted((w for w in VOCABULARY if w in fits), key=lambda w: sign * fits[w][measure]))

    return choose


RIVALS: dict[str, Callable[[Fits], Choice]] = {
    "RBF always": lambda fits: ("RBF",),
    "Matern52 always": lambda fits: ("Matern52",),
    "Linear*Matern32 always": lambda fits: ("Linear*Matern32",),
    "best log posterior of 34 fits": _best_by("log_posterior", -1),
    "best likelihood of 34 fits": _best_by("lml", -1),
    "best BIC of 34 fits": _best_by("bic", 1),
    "best leave-one-out of 34 fits": _best_by("loo", -1),
}


# --- the numbers -----------------------------------------------------------------------------------------------------


def regret(fits: Fits, choice: Choice) -> float:
    """Best of a choice against the best of the 34 words; negative if a sum beats every word.

    If nothing of the choice could be fitted, it is charged with the worst word.
    """
    words = _words(fits)
    return min((fits[text]["nlpd"] for text in choice if text in fits), default=max(words)) - min(words)


def _words(fits: Fits) -> list[float]:
    """NLPD of every word that could be fitted."""
    return [fits[word]["nlpd"] for word in VOCABULARY if word in fits]


def random_regret(fits: Fits, k: int = 1) -> float:
    """Expected regret of the best of k different words drawn at random."""
    scores = np.array(_words(fits))
    return float(np.mean([scores[list(drawn)].min() for drawn in combinations(range(len(scores)), k)]) - scores.min())


def regret_table(
    groups: Mapping[Group, Fits], said: Mapping[Advisor, Mapping[Group, Choice]], k: int = 3
) -> list[dict[str, Any]]:
    """A row for each way of choosing: mean regret of the first choice, of the best of k, and of that with the best BIC.

    `difference` is that of the first choice of the first row less that of this row, mean over their tables, with half of
    its 95 % interval by Student's t.
    """
    rows = [_row(str(advisor), groups, chosen, k) for advisor, chosen in said.items()]
    for name, choose in RIVALS.items():
        rows.append(_row(name, groups, {group: choose(fits) for group, fits in groups.items()}, k))
    rows.append(
        _summary("random word", _each(groups, random_regret), _each(groups, lambda fits: random_regret(fits, k)))
    )
    rows.append(_summary("median word", _each(groups, _median)))
    return [row | _difference(rows[0]["by_table"], row["by_table"]) for row in rows]


def _difference(reference: Mapping[str, float], own: Mapping[str, float]) -> dict[str, float | None]:
    gains = [reference[table] - own[table] for table in own if table in reference]
    mean, half = mean_interval(gains) if gains and reference is not own else (None, None)
    return {"difference": mean, "difference_error": half if len(gains) > 1 else None}


def _each(groups: Mapping[Group, Fits], regret: Callable[[Fits], float]) -> dict[str, list[float]]:
    out: dict[str, list[float]] = defaultdict(list)
    for (table, _), fits in groups.items():
        out[table].append(regret(fits))
    return out


def _median(fits: Fits) -> float:
    return float(np.median(_words(fits))) - min(_words(fits))


def _row(name: str, groups: Mapping[Group, Fits], chosen: Mapping[Group, Choice], k: int) -> dict[str, Any]:
    first, best, fitted = (defaultdict[str, list[float]](list) for _ in range(3))
    for group, fits in ((group, fits) for group, fits in groups.items() if chosen.get(group)):
        choice = chosen[group][:k]
        ranked = sorted((text for text in choice if text in fits), key=lambda text: fits[text]["bic"])
        parts = [(first, choice[:1])] + [(best, choice), (fitted, tuple(ranked[:1]))] * (len(choice) > 1)
        for out, part in parts:
            out[group[0]].append(regret(fits, part))
    return _summary(name, first, best, fitted)


def _summary(
    name: str,
    first: Mapping[str, list[float]],
    best: Mapping[str, list[float]] | None = None,
    fitted: Mapping[str, list[float]] | None = None,
) -> dict[str, Any]:
    """The mean over tables, which have the same weight whatever the number of their splits."""

    def mean(values: Mapping[str, list[float]] | None) -> float | None:
        return float(np.mean([np.mean(v) for v in values.values()])) if values else None

    return {
        "who": name,
        "first": mean(first),
        "best_of_k": mean(best),
        "bic_of_k": mean(fitted),
        "by_table": {table: float(np.mean(values)) for table, values in first.items()},
        "best_by_table": {table: float(np.mean(values)) for table, values in (best or {}).items()},
    }
