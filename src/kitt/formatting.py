"""Numbers formatted for readers, in all texts that this package writes."""

from __future__ import annotations

import math


def percent(share: float) -> str:
    if 0.995 <= share < 1:
        return ">99 %"
    return "<1 %" if 0 <= share < 0.005 else f"{100 * share:.0f} %"


def number(value: float, digits: int = 2) -> str:
    """A number with few significant digits, without needless exponents."""
    text = f"{value:.{digits}g}"
    return f"{float(text):,.12g}" if 1e-4 <= abs(value) < 1e7 else text


def measured(value: float, error: float) -> str:
    """A value and its error or spread: two digits of that, and the value as finely."""
    if not (math.isfinite(error) and 1e-4 <= error < 1e7):
        return f"{number(value)} ± {number(error)}"
    digits = 1 - math.floor(math.log10(error))
    told = (f"{round(v, digits) + 0.0:,.{max(digits, 0)}f}" for v in (value, error))  # + 0.0: no negative zero
    return " ± ".join(told)


def counted(count: int, what: str) -> str:
    """1 row, 2 rows."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
