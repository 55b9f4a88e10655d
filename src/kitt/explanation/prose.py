"""The numbers of an explanation as a short paragraph: what left-out rows show, what they do not, and what they exclude."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kitt.explanation.facts import MARGINS, NATS, Answer, Check
from kitt.formatting import measured, number, percent

if TYPE_CHECKING:
    from kitt.explanation.facts import Effect, Explanation, Repetition
    from kitt.model.curves import Shape

# What the paragraph mentions; set by hand.
NEGLIGIBLE = 0.01  # share of the variance that is not worth a word
SENTENCES = 6  # columns that have a sentence of their own; others are listed
LISTED = 12  # columns that are listed by name
DETAILED = 4  # columns that are not shown to be needed, of which it is told what was seen
COSTLY = 0.1  # nats per row, from which it is told in any case
LEVELS = 4  # levels of a column that are told in order; of more, the first and the last
STEPS = 20  # parts of the span of a column between which places along it are distinguished
WHOLE = 0.9  # share of the signal that repeats, from which all of it is said to repeat
INTERACTION = 0.05  # share of the variance of the mean from which an interaction is mentioned
UNLEARNED = 0.05  # share of the variance that is neither noise of the fit nor predicted on left-out rows
NOISE_RATIO = 1.2  # of the largest to the smallest noise from which it is said to vary
NOISE_CORRELATION = 0.7  # smallest one, with a column or the prediction, of noise that is said to vary
WEIGHT = 0.005  # of a kernel that counts as averaged
GUESSES = 3  # columns on which the model relies, that are named where left-out rows do not show a signal


def paragraph(e: Explanation) -> str:
    sentences = [*_signal(e), *_columns(e), _noise(e), *_weights(e), *_comparison(e)] if e.is_signal else _nothing(e)
    return " ".join(map(_capital, [*sentences, *_unchecked(e), *_caveats(e)]))


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


# --- whether the columns explain anything ----------------------------------------------------------------------------


def _nothing(e: Explanation) -> Iterator[str]:
    """What is said where left-out rows do not show a signal, of which there are four kinds."""
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
    elif (check := e.check("signal")) is not None and check.answer is Answer.NOT_SHOWN:
        yield from _undecided(e, check)
    else:
        most = "" if check is None else f", or less than {percent(max(check.most, 0.01))} of its variation"
        level = f"its mean and standard deviation are {measured(mean, spread)}"
        yield f"the columns explain nothing of {e.target}{most}: {level}."
    if e.is_supported("noise") and (text := _varying(e)):
        yield text


def _undecided(e: Explanation, check: Check) -> Iterator[str]:
    """What was seen, its error, and how many rows would probably decide it."""
    seen = f"{_signed_percent(check.gain)} ± {percent(check.error)}"
    most = "any share of it" if check.most >= 0.995 else f"up to {percent(check.most)}"
    yield (
        f"whether the columns explain anything of {e.target} is not shown: of its variation, {seen} is predicted in "
        f"left-out rows, and the columns could explain {most}."
    )
    if (rows := check.rows_to_decide) is not None:
        yield f"about {_rounded(rows)} rows would probably decide it."
    guesses = [effect.column for effect in e.effects[:GUESSES] if effect.is_clear and effect.is_active]
    if len(e.effects) > 1 and guesses:
        yield f"until then it is a guess that {e.target} depends most on {_listed(guesses)}."
    yield f"its mean and standard deviation are {measured(*e.level)}."


def _signed_percent(share: float) -> str:
    return percent(share) if share >= 0 else f"-{percent(-share).removeprefix('<')}"


def _rounded(rows: int) -> str:
    """A number of rows with two digits."""
    return f"{int(float(f'{rows:.1e}')):,}"


def _signal(e: Explanation) -> Iterator[str]:
    kind = (
        "rough" if e.is_supported("rough") and len(e.repetitions) < 2 else "smooth" if e.is_supported("smooth") else ""
    )
    # A kernel with one period is rough where it has to follow another one.
    function = f", by a {kind} function" if kind else ""
    explain = "the columns explain" if len(e.effects) > 1 else f"the column {e.effects[0].column} explains"
    if (check := e.check("signal")) is None:
        yield f"by the fit alone, {explain} {percent(1 - e.noise.share)} of the variation in {e.target}."
    else:
        share = percent(check.gain) + (f" ± {percent(check.error)}" if check.error >= 0.005 else "")
        yield f"left-out rows show that {explain} {share} of the variation in {e.target}{function}."


# --- one sentence for each column that matters -----------------------------------------------------------------------


def _columns(e: Explanation) -> Iterator[str]:
    told = [effect for effect in e.effects if _matters(e, effect)]
    for effect in told[:SENTENCES]:
        yield _sentence(e, effect)
    if more := [effect.column for effect in told[SENTENCES:]]:
        yield f"less, but clearly, it depends on {_listed(more, LISTED)}."
    yield from _others(e, told)


def _matters(e: Explanation, effect: Effect) -> bool:
    """Whether left-out rows show that a column is needed; without a check, whether the mean clearly depends on it."""
    active = [other.column for other in e.effects if other.is_active]
    if active == [effect.column] or any(r.column == effect.column for r in e.repetitions):
        return True
    if e.checks:
        return e.is_supported("column", effect.column)
    return effect.is_clear and effect.sensitivity >= NEGLIGIBLE


def _others(e: Explanation, told: Sequence[Effect]) -> Iterator[str]:
    """Columns that are not shown to be needed, those that are shown not to be, and those that were not checked."""
    others = [effect.column for effect in e.effects if effect not in told]
    answers = {name: e.check("column", name) for name in others}
    unclear = [(name, c) for name, c in answers.items() if c is not None and c.answer is Answer.NOT_SHOWN]
    unclear.sort(key=lambda item: -item[1].gain)
    absent = [name for name, c in answers.items() if c is not None and c.answer is Answer.ABSENT]
    if unclear:
        seen = [f"{name} ({_seen(check, is_first=check is unclear[0][1])})" for name, check in unclear]
        most = max(DETAILED, sum(check.gain > COSTLY for _, check in unclear))
        yield f"it is not shown whether {e.target}, beside the other columns, depends on {_listed(seen, most, 'or')}."
    if absent:
        each, one = ("each of ", "any one of them") if len(absent) > 1 else ("the column ", "it")
        yield (
            f"{each}{_listed(absent, LISTED)} can be left out: without {one}, left-out rows are predicted worse by less "
            f"than {MARGINS[NATS]:g} nats per row."
        )
    if e.checks and (rest := [name for name, c in answers.items() if c is None and name not in e.unchecked]):
        many = f"{len(rest)} further columns" if len(rest) > 1 else f"the column {rest[0]}"
        yield f"{many}, on which the mean depends least, {'were' if len(rest) > 1 else 'was'} not checked."


def _seen(check: Check, is_first: bool) -> str:
    """What left-out rows show of a column, and how many rows would probably decide, in few words after the first column."""
    rows = "" if (count := check.rows_to_decide) is None else f"; about {_rounded(count)} rows"
    more, unit = (" would probably decide", " nats per row") if is_first else ("", "")
    return f"{measured(check.gain, check.error)}{unit}{rows}{more if rows else ''}"


def _sentence(e: Explanation, effect: Effect) -> str:
    """What is said of one column: its shape, its share and its gain, with whom it acts, and which kernels disagree."""
    clauses = _repetitions(e, effect) or _shape(e, effect)
    return f"{clauses}{_worth(e, effect)}{_together(e, effect)}{_disagreement(effect)}."


def _worth(e: Explanation, effect: Effect) -> str:
    """The share of the variation and the gain on left-out rows, in parentheses."""
    facts = []
    if len(e.effects) > 1:
        explained = 1 - e.noise.share if e.explained is None else e.explained
        facts.append(f"{percent(min(effect.sensitivity, 1.0) * explained)} of the variation")
        if (check := e.check("column", effect.column)) is not None:
            facts.append(f"{measured(check.gain, check.error)} nats per row on left-out rows")
    return f" ({', '.join(facts)})" if facts else ""


def _shape(e: Explanation, effect: Effect) -> str:
    """The shape along a column, if it is told, or why it is not."""
    name, target = effect.column, e.target
    if not effect.is_clear:
        return f"the mean of {target} does not clearly depend on {name}, which may matter for the scatter"
    if _is_shared(e, effect):
        return f"on {name}, {target} depends mostly together with other columns"
    if (shape := told_shape(e, effect)) is None:
        return f"along {name}, {target} changes in a shape that is not clear"
    if shape.kind == "up and down":
        return f"along {name}, {target} goes up and down"
    if shape.levels:
        return f"of the levels of {name}, {target} is {_order(shape.levels)}"
    by = f"by {measured(shape.rise, shape.error)} in all"
    if shape.overall:
        return f"on the whole, {target} {shape.kind} with {name}, {by}"
    if shape.slope is not None:
        slope = f"{measured(abs(shape.slope[0]), shape.slope[1])} per {'day' if name in e.dates else 'unit'}"
        return f"with {name}, {target} {shape.kind} in a nearly straight line, by {slope}"
    if shape.kind in ("lowest", "highest"):
        return f"along {name}, {target} is {shape.kind} near {_place(e, effect)}"
    if shape.kind.startswith("step"):
        return f"along {name}, {target} steps {shape.kind.removeprefix('step ')} near {_place(e, effect)}, {by}"
    levels_off = "" if shape.at is None else f" and levels off beyond {_place(e, effect)}"
    return f"with {name}, {target} {shape.kind}{levels_off}, {by}"


def told_shape(e: Explanation, effect: Effect) -> Shape | None:
    """The shape that the text tells of a column that matters, if it tells one."""
    if not effect.is_clear or _is_shared(e, effect) or effect.shape is None or effect.shape.kind == "none":
        return None
    return effect.shape


def _is_shared(e: Explanation, effect: Effect) -> bool:
    """Whether a column acts with others, and hardly by itself."""
    pairs = [p for p in e.interactions if effect.column in p.columns and p.share >= INTERACTION]
    return bool(pairs) and (effect.alone or 0.0) < max(NEGLIGIBLE, 2 * (effect.alone_error or 0.0))


def _order(levels: Sequence[str]) -> str:
    if len(levels) > LEVELS or len(levels) == 2:
        return f"lowest at {levels[0]} and highest at {levels[-1]}"
    return f"lowest at {levels[0]}, then {', then '.join(levels[1:-1])}, and highest at {levels[-1]}"


def _together(e: Explanation, effect: Effect) -> str:
    """With whom a column acts: told once for each pair, at the more important of the two."""
    order = [other.column for other in e.effects]
    for pair in e.interactions[:4]:
        first, second = sorted(pair.columns, key=order.index)
        if first != effect.column or pair.share < max(INTERACTION, 2 * pair.error):
            continue
        if e.checks and not all(e.is_supported("column", name) for name in pair.columns):
            continue
        return (
            f"; this depends on {second}: together, {first} and {second} make {percent(pair.share)} ± "
            f"{percent(pair.error)} of what is explained, beyond each by itself"
        )
    return ""


def _disagreement(effect: Effect) -> str:
    if not effect.disagreeing:
        return ""
    has = "has" if len(effect.disagreeing) == 1 else "have"
    return f"; the kernels disagree, and {_listed(effect.disagreeing)} {has} another curve along {effect.column}"


# --- periods ----------------------------------------------------------------------------------------------------------


def _scale(e: Explanation) -> float:
    """The factor of all shares: what left-out rows show to be explained, relative to what the fit explains."""
    fitted = 1 - e.noise.share
    explained = fitted if e.explained is None else min(fitted, max(e.explained, 0.0))
    return explained / max(fitted, 1e-12)


def _period(e: Explanation, repetition: Repetition) -> str:
    unit = " days" if repetition.column in e.dates else ""
    times = f"about {repetition.cycles:.0f} times in this table"
    if repetition.share is not None:
        times += f"; this makes {percent(repetition.share * _scale(e))} of the variation"
    gain = measured(repetition.check.gain, repetition.check.error)
    times += f" and gains {gain} nats per row on left-out cycles"
    period = float(f"{repetition.period:.3g}")  # three digits: a period is known better than most numbers
    return f"{period:,.12g}{unit} ({times})"


def _repetitions(e: Explanation, effect: Effect) -> str:
    """The periods along a column, the share of the variation that repeats, and what they gain on left-out cycles."""
    own = [r for r in e.repetitions if r.column == effect.column]
    if not own:
        return ""
    whole = sum(repetition.share or 0.0 for repetition in e.repetitions) > WHOLE * (1 - e.noise.share)
    every = _listed([f"every {_period(e, repetition)}" for repetition in own])
    level = max(own, key=lambda repetition: repetition.period).level
    besides = "" if level is None else f"; beside that, the level {level}"
    return f"along {effect.column}, {'' if whole else 'a part of '}{e.target} comes back {every}{besides}"


def _place(e: Explanation, effect: Effect) -> str:
    """Where along a column, no finer than the curve tells it; of dates, the day."""
    at = (effect.shape and effect.shape.at) or 0.0
    if effect.column in e.dates:
        return (datetime.fromisoformat(e.dates[effect.column]) + timedelta(days=at)).date().isoformat()
    if not effect.span or not math.isfinite(effect.span):
        return number(at)
    step = 10.0 ** math.floor(math.log10(effect.span) - math.log10(STEPS))
    return f"{round(at / step) * step + 0.0:,.10g}"


# --- noise and the rest -----------------------------------------------------------------------------------------------


def _noise(e: Explanation) -> str:
    n = e.noise
    text = f"noise makes up about {percent(n.share)}, with a standard deviation of about {number(n.level)}"
    if e.explained is not None and e.explained < 1 - n.share - UNLEARNED:
        left = 1 - max(e.explained, 0.0)
        text = (
            f"the rest, {percent(left)} (a typical error of {number(left**0.5 * e.level[1])}), is noise or could not be "
            f"learned from these rows; the model takes {percent(n.share)} for noise"
        )
    elif n.share < NEGLIGIBLE:
        text = "there is hardly any noise" + (f" (a standard deviation of about {number(n.level)})" if n.level else "")
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
    count = sum(weight >= WEIGHT for weight in (e.weight, *(weight for _, weight in e.others)))
    if count < 2:
        return
    heaviest, weight = max(((e.expression, e.weight), *e.others), key=lambda part: part[1])
    text = (
        f"this describes the average of {count} kernels, of which {heaviest} has the largest weight, {percent(weight)}"
    )
    yield text + (f"; the gains of columns are those of {e.expression} alone." if e.check("column") else ".")
    if e.transformed >= WEIGHT:
        yield f"kernels of the transformed target have {percent(e.transformed)} of the weight."


def _comparison(e: Explanation) -> Iterable[str]:
    c = e.comparison
    if c is None:
        return
    if not c.is_clear or abs(c.gain) < 0.005:
        yield f"left-out rows are predicted about as well as by a plain {c.plain} kernel."
    else:
        by = f"{measured(abs(c.gain), c.error)} nats per row"
        how = "better" if c.gain > 0 else "worse"
        yield f"left-out rows are predicted {how} than by a plain {c.plain} kernel (by {by})."


def _unchecked(e: Explanation) -> Iterable[str]:
    if e.unchecked:
        yield f"for lack of time these were not checked: {_listed(e.unchecked, LISTED)}."


def _caveats(e: Explanation) -> Iterable[str]:
    if e.caveats:
        yield f"bear in mind: {'; '.join(e.caveats)}."


def _listed(names: Sequence[str], most: int = 6, last: str = "and") -> str:
    names = [*names[:most], f"{len(names) - most} more"] if len(names) > most else list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
