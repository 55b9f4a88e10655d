"""The numbers of an explanation as a short paragraph, which says where they are uncertain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kitt.formatting import number, percent
from kitt.language.grammar import Primitive

if TYPE_CHECKING:
    from kitt.explain.facts import Effect, Explanation, Part

_NEGLIGIBLE = 0.01
_CLEAR = 0.7  # correlation from which a direction is told
_NAMED = 4  # columns told by name
_ROUGHNESS = {
    Primitive.RBF: "very smooth",
    Primitive.MATERN52: "smooth",
    Primitive.MATERN32: "moderately rough",
    Primitive.MATERN12: "rough",
}


def paragraph(e: Explanation) -> str:
    sentences = [*_signal(e), *_uncertain(e.parts), _noise(e), *_weights(e), *_comparison(e), *_caveats(e)]
    return " ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)


def _signal(e: Explanation) -> Iterable[str]:
    told = [part for part in e.parts if part.share >= _NEGLIGIBLE]
    if sum(part.share for part in told) < 0.05:
        yield f"the columns explain next to nothing of the variation in {e.target}."
        return
    for i, part in enumerate(told):
        subject = f"{_amount(part.share)} of the variation in {e.target} ({percent(part.share)})"
        lead = f"{subject} is" if i == 0 else f"on top of it, {percent(part.share)} is"
        yield f"{lead} {_noun(part)} {_columns(part)}{_repetition(part, e.dates)}."
        yield from _directions(part)
    little = [str(part.word) for part in e.parts if abs(part.share) < _NEGLIGIBLE]
    if little:
        yield f"{_listed(little)} {'add' if len(little) > 1 else 'adds'} less than 1 %."


def _amount(share: float) -> str:
    return "most" if share >= 0.5 else "a good part" if share >= 0.2 else "a small part"


def _noun(part: Part) -> str:
    """What kind of function a word is, up to the names of its columns."""
    factors = part.word.factors
    rough = [_ROUGHNESS[p] for p in factors if p in _ROUGHNESS]
    linear = factors.count(Primitive.LINEAR)
    if linear == len(factors):
        return "a straight-line trend in" if linear == 1 else "a quadratic trend in"
    if Primitive.PERIODIC in factors or Primitive.COSINE in factors:
        if not _repeats(part):
            return "a function of"
        kind = "a repeating pattern" if Primitive.PERIODIC in factors else "a wave"
        kind += ", slowly changing," if rough else ", stronger in some ranges than others," if linear else ""
        return f"{kind} in"
    kind = max(rough, key=list(_ROUGHNESS.values()).index)
    return f"a {kind} function{', stronger in some ranges than others,' if linear else ''} of"


def _repeats(part: Part) -> bool:
    """Whether the strongest column shows a period: it fits into the table, and the word comes back after it."""
    strongest = part.effects[0]
    return strongest.span is not None and strongest.repeats and 1.5 * min(strongest.periods) < strongest.span


def _columns(part: Part) -> str:
    if not part.active:
        return "many columns together"
    return _listed([_with_slope(effect) for effect in part.active], _NAMED)


def _with_slope(effect: Effect) -> str:
    if effect.slope is None:
        return effect.column
    slope, error = effect.slope
    return f"{effect.column} ({number(slope)} ± {number(error)} per unit)"


def _repetition(part: Part, dates: frozenset[str]) -> str:
    """The period along the strongest column, if the table shows it."""
    strongest = part.effects[0]
    if not strongest.periods:
        return ""
    if strongest.span is None or not _repeats(part):
        return f" (the kernel is {part.word}, but it cannot be told whether it repeats)"
    period = min(strongest.periods)
    cycles, unit = strongest.span / period, " days" if strongest.column in dates else ""
    seen = f"about {cycles:.0f} times" if cycles >= 2 else "less than twice"
    return f", which comes back every {number(period)}{unit} of {strongest.column} ({seen} in this table)"


def _directions(part: Part) -> Iterable[str]:
    if any(effect.slope for effect in part.active):
        return  # the slopes say it
    rising = [f.column for f in part.active if f.direction is not None and f.direction > _CLEAR]
    falling = [f.column for f in part.active if f.direction is not None and f.direction < -_CLEAR]
    said = [f"{verb} with {_listed(names, _NAMED)}" for verb, names in (("rises", rising), ("falls", falling)) if names]
    if said:
        yield f"it mostly {' and '.join(said)}."


def _uncertain(parts: Sequence[Part]) -> Iterable[str]:
    vague = [part for part in parts if abs(part.share) >= _NEGLIGIBLE and not part.is_certain]
    if len(parts) > 1 and vague:
        yield f"how much of it is due to {_listed([str(part.word) for part in vague])} is uncertain: the words overlap."
    elif vague:
        yield "its shape is uncertain: the table says little about it."


def _noise(e: Explanation) -> str:
    n = e.noise
    text = f"noise makes up about {percent(n.share)}, with a standard deviation of about {number(n.level)}"
    if n.share < _NEGLIGIBLE:
        text = f"there is hardly any noise (a standard deviation of about {number(n.level)})"
    if n.column is not None and n.direction is not None and n.high > 1.2 * n.low:
        change = f"from about {number(n.low)} to {number(n.high)} over the table"
        if abs(n.direction) >= _CLEAR:
            change += f", and it {'grows' if n.direction > 0 else 'shrinks'} with {n.column}"
        return f"{text}; it varies {change}."
    return f"{text}."


def _weights(e: Explanation) -> Iterable[str]:
    count = 1 + sum(weight >= 0.005 for _, weight in e.others)
    if count == 1:
        return
    if e.transformed >= 0.005:
        yield (
            f"this describes {e.expression}, which has {percent(e.weight)} of the weight among {count} kernels that are "
            f"averaged; kernels of the transformed target have {percent(e.transformed)}."
        )
        return
    standing = "no kernel stands out: " if e.weight < 0.5 else ""
    yield (
        f"{standing}this describes {e.expression}, the heaviest ({percent(e.weight)}) of {count} kernels that are averaged."
    )


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
