"""Numbers from the lines of a benchmark: scores by method, table and split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from scipy.stats import t

from kitt.errors import InvalidInputError
from kitt.kernels.grammar import WORDS
from kitt.table.means import mean_and_error
from kitt_lab.bench.runner import Line

Split = tuple[int, int]  # its number, and the seed of the method
Scores = dict[str, dict[str, dict[Split, float]]]  # method -> table -> split -> value
COPIES = 0.05  # share of copied test rows above which a table is reported twice
WITHOUT = " without copies"
EXHAUSTIVE = "all 34 words"


def label(key: Mapping[str, Any]) -> str:
    """A method with the settings that differ from its own."""
    settings = ";".join(f"{name}={value}" for name, value in key.get("settings", {}).items())
    return key["method"] + (f":{settings}" if settings else "")


def of_methods(lines: Sequence[Line], methods: Sequence[str]) -> list[Line]:
    """The lines of some methods, in their order, behind those of none; a name stands for all settings."""
    of_none = [line for line in lines if "method" not in line["key"]]
    others = [line for line in lines if "method" in line["key"]]
    by_method = [[line for line in others if name in (label(line["key"]), line["key"]["method"])] for name in methods]
    if missing := [name for name, own in zip(methods, by_method, strict=True) if not own]:
        there = ", ".join(dict.fromkeys(label(line["key"]) for line in others))
        raise InvalidInputError(f"no lines of {', '.join(missing)}: there are some of {there or 'no method'}")
    return [*of_none, *chain.from_iterable(by_method)]


def collect(lines: Iterable[Line], measure: str, variant: str | None = None) -> Scores:
    """A measure by method, table and split. A table with many copied test rows counts twice: with and without them."""
    lines = measured_lines(lines)
    out: Scores = defaultdict(lambda: defaultdict(dict))
    twice = _with_copies(lines)
    for line in lines:
        key, result = line["key"], line["result"]
        values = result if variant is None else result.get("variants", {}).get(variant, {})
        split = key["split"], key.get("seed", 0)
        if values.get(measure) is not None:
            out[label(key)][key["table"]][split] = values[measure]
        if key["table"] in twice and values.get(f"{measure}_without_copies") is not None:
            out[label(key)][key["table"] + WITHOUT][split] = values[f"{measure}_without_copies"]
    return {method: dict(tables) for method, tables in out.items()}


def measured_lines(lines: Iterable[Line]) -> list[Line]:
    """The lines of methods that have results, of one rule of splitting: split 0 of another has other rows."""
    done = [line for line in lines if line["status"] == "ok" and "method" in line["key"]]
    rules: dict[str, set[str]] = defaultdict(set)
    for line in done:
        rules[line["key"]["table"]].add(str(line["key"].get("rows")))
    for table, of_table in rules.items():
        if len(of_table) > 1:
            raise InvalidInputError(
                f"expected lines of one rule of splitting for each table, got {', '.join(sorted(of_table))} of '{table}'",
                "choose one with --rule",
            )
    return done


def _with_copies(lines: Sequence[Line]) -> set[str]:
    """Tables of whose test rows, over all splits, too many are copies of training rows."""
    copies: dict[str, float] = defaultdict(float)
    for line in lines:
        copies[line["key"]["table"]] += line["result"].get("copies", 0) - COPIES * line["result"].get("n_test", 0)
    return {table for table, excess in copies.items() if excess > 0}


def lines_of_networks(lines: Iterable[Line], bench: str) -> list[Line]:
    """The lines of a benchmark of networks that have results; all of one name must be of one checkpoint."""
    done = [line for line in lines if line["status"] == "ok" and line["key"].get("bench") == bench]
    states: dict[str, set[str | None]] = defaultdict(set)
    for line in done:
        states[line["key"]["model"]].add(line["key"].get("network"))
    if several := [model for model, checkpoints in states.items() if len(checkpoints) > 1]:
        raise InvalidInputError(
            f"expected lines of one checkpoint of each name, got several of {', '.join(several)}",
            "keep those of each in a file of its own",
        )
    return done


def failures(lines: Iterable[Line]) -> dict[tuple[str, str], int]:
    """Failed cells by method and table."""
    out: dict[tuple[str, str], int] = defaultdict(int)
    for line in lines:
        if line["status"] != "ok" and "method" in line["key"]:
            out[label(line["key"]), line["key"]["table"]] += 1
    return dict(out)


def mean_error(values: Iterable[float]) -> tuple[float, float, int]:
    """Mean, standard error (not a number for a single value), and how many."""
    numbers = list(values)
    return *mean_and_error(numbers), len(numbers)


def mean_interval(values: Iterable[float]) -> tuple[float, float]:
    """Mean, and half of its 95 % interval by Student's t (not a number for a single value)."""
    mean, error, count = mean_error(values)
    return mean, float(t.ppf(0.975, count - 1)) * error


def table_names(scores: Scores) -> list[str]:
    return list(dict.fromkeys(name for tables in scores.values() for name in tables))


def ranked_tables(scores: Scores) -> list[str]:
    """Those that count in averages: a table with copies counts once, without them."""
    names = table_names(scores)
    return [name for name in names if name + WITHOUT not in names]


def paired(a: Mapping[Split, float], b: Mapping[Split, float]) -> list[float]:
    """Differences on the splits that both have."""
    return [a[split] - b[split] for split in a if split in b]


def selection_seconds(lines: Sequence[Line]) -> Scores:
    """The seconds of selection: of methods, of the network alone, and of all 34 words.

    Those of the network are lines of `latency`, those of the words lines of `words` with default settings.
    """
    scores = collect(lines, "select_seconds")
    out: Scores = {m: s for m, s in scores.items() if any(v > 0 for splits in s.values() for v in splits.values())}
    fits: dict[str, dict[Split, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in (line for line in lines if line["status"] == "ok"):
        key, result = line["key"], line["result"]
        if key.get("bench") == "latency" and "head" in key:
            out.setdefault(f"network, {key['head']}", {}).setdefault(key["table"], {})[0, 0] = result["median"]
        elif key.get("bench") == "words" and not key["options"] and "+" not in key["expression"]:
            fits[key["table"]][key["split"], key["seed"]].append(result["fit_seconds"])
    complete = {
        name: {split: sum(v) for split, v in splits.items() if len(v) == len(WORDS)} for name, splits in fits.items()
    }
    return out | ({EXHAUSTIVE: complete} if any(complete.values()) else {})
