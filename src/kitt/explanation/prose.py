"""The numbers of an explanation as a short paragraph: only what left-out rows support, with what it gains there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kitt.formatting import measured, number, percent
from kitt.kernels.grammar import Primitive
from kitt.network.properties import ROUGH, SMOOTH

if TYPE_CHECKING:
    from kitt.explanation.facts import Effect, Explanation, Part, Repetition

# What the paragraph mentions; set by hand.
NEGLIGIBLE = 0.01  # share of the variance below which a part is left out
NAMED = 4  # columns that are listed by name
STEPS = 20  # parts of the span of a column between which places along it are distinguished
WHOLE = 0.9  # share of the signal that repeats, from which all of it is said to repeat
OWN_EFFECT = 0.02  # share of the variance from which the shape of a column's own effect is described
INTERACTION = 0.05  # share of the variance of the mean from which an interaction is mentioned
UNLEARNED = 0.05  # share of the variance that is neither noise of the fit nor predicted on left-out rows
NOISE_RATIO = 1.2  # of the largest to the smallest noise from which it is said to vary
NOISE_CORRELATION = 0.7  # smallest one, with a column or the prediction, of noise that is said to vary
WEIGHT = 0.005  # of a kernel that counts as averaged


def paragraph(e: Explanation) -> str:
    if not e.is_signal:
        return " ".join(map(_capital, [*_nothing(e), *_caveats(e)]))
    sentences = [
        *_signal(e),
        *_repetitions(e),
        *_worth(e),
        *_shapes(e),
        *_together(e),
        *_uncertain(e),
        _noise(e),
        *_weights(e),
        *_comparison(e),
        *_caveats(e),
    ]
    return " ".join(map(_capital, sentences))


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


# --- what kind of function --------------------------------------------------------------------------------------------


def _nothing(e: Explanation) -> Iterator[str]:
    mean, spread = e.level
    if (check := e.check("hidden")) is not None and check.is_supported:
        has, they = ("has", "it") if check.about.startswith("1 ") else ("have", "they")
        yield f"{check.about} {has} a {e.target} so far from all others that it hides what the columns explain."
        yield f"{they} should be looked at, and left out of a new fit if wrong."
        yield f"of the variation among the other rows the columns explain about {percent(check.gain)}."
        return
    if (check := e.check("typical")) is not None and check.is_supported:
        yield f"large errors of some rows hide how much of the variation in {e.target} the columns explain."
        yield (
            f"relative to the scatter that is predicted for them, left-out rows lie {percent(check.gain)} ± "
            f"{percent(check.error)} closer to their predictions than to the median of all: the columns do explain some."
        )
    else:
        yield (
            f"the columns explain nothing of {e.target} that left-out rows show: its mean and standard deviation are "
            f"{measured(mean, spread)}."
        )
    if e.is_supported("noise") and (text := _varying(e)):
        yield text


@dataclass(frozen=True)
class _Item:
    """What one sentence describes: a part with structure of its own, or all other parts together."""

    share: float
    noun: str
    columns: str


def _signal(e: Explanation) -> Iterator[str]:
    scale = _scale(e)
    for i, item in enumerate(_items(e)):
        share = percent(max(item.share, 0.0) * scale)
        subject = f"{_amount(item.share * scale)} of the variation in {e.target} ({share})"
        lead = f"{subject} is" if i == 0 else f"on top of it, {share} is"
        yield f"{lead} {item.noun} {item.columns}."


def _scale(e: Explanation) -> float:
    """The factor of all shares: what left-out rows show to be explained, relative to what the fit explains."""
    fitted = 1 - e.noise.share
    explained = fitted if e.explained is None else min(fitted, max(e.explained, 0.0))
    return explained / max(fitted, 1e-12)


def _items(e: Explanation) -> list[_Item]:
    described = [part for part in e.parts if part.share >= NEGLIGIBLE] or list(e.parts[:1])
    own = [part for part in described if _has_structure(e, part)]
    items = [_Item(part.share, _noun(e, part), _columns(e, [part])) for part in own]
    if rest := [part for part in described if part not in own]:
        share = sum(part.share for part in rest)
        items.append(_Item(share, f"a {_roughness(e, rest)}function of", _columns(e, rest)))
    return sorted(items, key=lambda item: -item.share)


def _has_structure(e: Explanation, part: Part) -> bool:
    linear = part.word.factors.count(Primitive.LINEAR)
    if linear == len(part.word.factors):
        return len(e.parts) == 1 or e.is_supported("trend", str(part.word))
    return linear > 0 and e.is_supported("strength", str(part.word))


def _noun(e: Explanation, part: Part) -> str:
    """What kind of function a word is, up to the names of its columns."""
    factors = part.word.factors
    linear = factors.count(Primitive.LINEAR)
    if linear == len(factors):
        return "a straight-line trend in" if linear == 1 else "a quadratic trend in"
    return f"a {_roughness(e, [part])}function, stronger in some ranges than others, of"


def _roughness(e: Explanation, parts: Sequence[Part]) -> str:
    """Smooth or rough, if these words are either and left-out rows support it."""
    kinds = {p for part in parts for p in part.word.factors if p in (*SMOOTH, *ROUGH)}
    kind = "rough" if kinds & {*ROUGH} else "smooth"
    if kind == "rough" and len(e.repetitions) > 1:
        return ""  # a kernel with one period is rough where it has to follow another
    return f"{kind} " if kinds and e.is_supported(kind) else ""


def _amount(share: float) -> str:
    return "most" if share >= 0.5 else "a good part" if share >= 0.2 else "a small part"


def _columns(e: Explanation, parts: Sequence[Part]) -> str:
    """The columns that parts depend on: by name those that the model needs, or the only one."""
    active = {effect.column: effect for part in parts for effect in part.effects if _counts(e, effect)}
    if len(e.columns) == 1:
        return _with_slope(e, next(iter(active.values()), e.columns[0]))
    is_named = {name: not e.checks or len(active) == 1 or _is_needed(e, name) for name in active}
    named = [_with_slope(e, active[name]) for name, is_needed in is_named.items() if is_needed]
    rest = [name for name, is_needed in is_named.items() if not is_needed]
    if active and not rest:
        return _listed(named, NAMED)
    if named and len(rest) == 1:
        return f"{_listed(named, NAMED)}, and perhaps of {rest[0]}"
    is_checked = all(e.check("column", name) is not None for name in rest)
    shown = ", none of which could be shown to be needed by itself" if is_checked else ""
    others = f"{'others' if named else 'several columns'}{shown}"
    return f"{_listed(named, NAMED)}, and of {others}" if named else others


def _counts(e: Explanation, effect: Effect) -> bool:
    """Whether a part depends on a column: clearly, or a little on one that the model needs."""
    return effect.is_active or (effect.sensitivity >= NEGLIGIBLE and _is_needed(e, effect.column))


def _is_needed(e: Explanation, column: str) -> bool:
    """Whether the mean needs a column: left-out rows are predicted worse without it, and not for its part in the noise."""
    if len(e.columns) == 1 or any(repetition.column == column for repetition in e.repetitions):
        return True
    return e.is_supported("column", column) and any(c.column == column and c.is_clear for c in e.columns)


def _with_slope(e: Explanation, effect: Effect) -> str:
    if effect.slope is None:
        return effect.column
    slope, error = effect.slope
    return f"{effect.column} ({number(slope)} ± {number(error)} per {'day' if effect.column in e.dates else 'unit'})"


# --- periods ----------------------------------------------------------------------------------------------------------


def _period(e: Explanation, repetition: Repetition) -> str:
    unit = " days" if repetition.column in e.dates else ""
    times = f"about {repetition.cycles:.0f} times in this table"
    if repetition.share is not None:
        times += f"; this makes {percent(repetition.share * _scale(e))} of the variation"
    period = float(f"{repetition.period:.3g}")  # three digits: a period is known better than most numbers
    return f"{period:,.12g}{unit} of {repetition.column} ({times})"


def _repetitions(e: Explanation) -> Iterator[str]:
    """The periods, the share of the variation that repeats, and what they gain on left-out cycles."""
    if not e.repetitions:
        return
    whole = sum(repetition.share or 0.0 for repetition in e.repetitions) > WHOLE * (1 - e.noise.share)
    every = _listed([f"every {_period(e, repetition)}" for repetition in e.repetitions])
    yield f"{'it' if whole else 'a part of it'} comes back {every}."
    longest = {r.column: r for r in sorted(e.repetitions, key=lambda repetition: repetition.period)}
    for repetition in (r for r in longest.values() if r.level is not None):
        yield f"beside that, the level {repetition.level} with {repetition.column}."
    worths = [f"{number(r.check.gain)} ± {number(r.check.error)}" for r in e.repetitions]
    yield f"without what comes back, left-out cycles are predicted worse, by {_listed(worths)} nats per row."


# --- columns ----------------------------------------------------------------------------------------------------------


def _worth(e: Explanation) -> Iterator[str]:
    """What each column gains on left-out rows."""
    needed = [c for c in e.checks if c.claim == "column" and c.is_supported]
    if len(e.columns) > 1 and needed:
        needed.sort(key=lambda c: -c.gain)
        worths = _listed([f"{number(c.gain)} without {c.about}" for c in needed[:NAMED]])
        yield f"left-out rows are predicted worse by {worths} (nats per row)."


def _shapes(e: Explanation) -> Iterator[str]:
    """Directions, lowest and highest points, and where a curve levels off."""
    sloped = {f.column for part in e.parts if _has_structure(e, part) for f in part.active if f.slope is not None}
    repeating = {repetition.column for repetition in e.repetitions}
    said: list[str] = []
    plain: dict[str, list[str]] = {"rises": [], "falls": []}
    for effect in e.columns[: NAMED + 2]:
        shape = effect.shape
        if shape is None or shape.kind == "none" or effect.column in sloped | repeating:
            continue
        if (effect.alone or 0.0) < max(OWN_EFFECT, 2 * (effect.alone_error or 0.0)):
            continue  # it matters only together with others
        if e.checks and not _is_needed(e, effect.column):
            continue
        if shape.levels is not None:
            said.append(f"is lowest at {effect.column} {shape.levels[0]} and highest at {shape.levels[1]}")
        elif shape.kind in ("lowest", "highest"):
            said.append(f"is {shape.kind} near {_place(e, effect)} of {effect.column}")
        elif shape.at is not None:
            said.append(f"{shape.kind} with {effect.column} and levels off beyond {_place(e, effect)}")
        else:
            plain[shape.kind].append(effect.column)
    said = [*(f"{kind} with {_listed(columns)}" for kind, columns in plain.items() if columns), *said]
    if said:
        yield f"the mean{', over the other columns,' if len(e.columns) > 1 else ''} {'; '.join(said)}."


def _place(e: Explanation, effect: Effect) -> str:
    """Where along a column, no finer than the curve tells it; of dates, the day."""
    at = (effect.shape and effect.shape.at) or 0.0
    if effect.column in e.dates:
        return (datetime.fromisoformat(e.dates[effect.column]) + timedelta(days=at)).date().isoformat()
    if not effect.span or not math.isfinite(effect.span):
        return number(at)
    step = 10.0 ** math.floor(math.log10(effect.span) - math.log10(STEPS))
    return f"{round(at / step) * step + 0.0:,.10g}"


def _together(e: Explanation) -> Iterator[str]:
    for pair in e.interactions[:2]:
        if pair.share < max(INTERACTION, 2 * pair.error) or (
            e.checks and not all(_is_needed(e, c) for c in pair.columns)
        ):
            continue
        both = f"{percent(pair.share)} ± {percent(pair.error)}"
        yield f"together, {pair.columns[0]} and {pair.columns[1]} make {both} of what is explained, beyond each by itself."


def _uncertain(e: Explanation) -> Iterable[str]:
    if len(e.parts) == 1 and not e.parts[0].is_certain:
        yield "its shape is uncertain: the table says little about it."


# --- noise and the rest -----------------------------------------------------------------------------------------------


def _noise(e: Explanation) -> str:
    n = e.noise
    text = f"noise makes up about {percent(n.share)}, with a standard deviation of about {number(n.level)}"
    if e.explained is not None and e.explained < 1 - n.share - UNLEARNED:
        left = 1 - max(e.explained, 0.0)
        text = (
            f"the rest, {percent(left)} (a typical error of {number(left**0.5 * e.level[1])}), is noise or could not be "
            f"learned from these rows; the kernel takes {percent(n.share)} for noise"
        )
    elif n.share < NEGLIGIBLE:
        text = f"there is hardly any noise (a standard deviation of about {number(n.level)})"
    return f"{text}. {_varying(e)}".strip() if e.is_supported("noise") else f"{text}."


def _varying(e: Explanation) -> str:
    n = e.noise
    if n.column is None or n.direction is None or n.high <= NOISE_RATIO * n.low:
        return ""
    if abs(n.direction) < NOISE_CORRELATION:  # large errors at a jump of the function look like noise that varies
        return ""
    grows = "grows" if n.direction > 0 else "shrinks"
    ends = f"{number(n.low)} to {number(n.high)}"  # of noise, and of what the function leaves where it jumps
    return f"The scatter around the mean varies from about {ends} over the table, and it {grows} with {n.column}."


def _weights(e: Explanation) -> Iterable[str]:
    others = [weight for _, weight in e.others]
    count = sum(weight >= WEIGHT for weight in (e.weight, *others))
    among = f" among {count} kernels that are averaged" if count > 1 else ""
    if e.transformed >= WEIGHT:
        yield (
            f"this describes {e.expression}, which has {percent(e.weight)} of the weight{among}; kernels of the transformed "
            f"target have {percent(e.transformed)}."
        )
    elif e.weight < max(others, default=0.0):
        yield f"this describes {e.expression}, which has {percent(e.weight)} of the weight{among}."
    elif count > 1:
        standing = "no kernel stands out: " if e.weight < 0.5 else ""
        heaviest = f"the heaviest ({percent(e.weight)}) of {count} kernels that are averaged"
        yield f"{standing}this describes {e.expression}, {heaviest}."


def _comparison(e: Explanation) -> Iterable[str]:
    c = e.comparison
    if c is None:
        return
    if not c.is_clear or abs(c.gain) < 0.005:
        yield f"left-out rows are predicted about as well as by a plain {c.plain} kernel."
    else:
        by = f"{number(abs(c.gain))} ± {number(c.error)} nats per row"
        how = "better" if c.gain > 0 else "worse"
        yield f"left-out rows are predicted {how} than by a plain {c.plain} kernel (by {by})."


def _caveats(e: Explanation) -> Iterable[str]:
    if e.caveats:
        yield f"bear in mind: {'; '.join(e.caveats)}."


def _listed(names: Sequence[str], most: int = 6) -> str:
    names = [*names[:most], f"{len(names) - most} more"] if len(names) > most else list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
