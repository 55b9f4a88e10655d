"""Numbers formatted for readers, in all texts that this package writes."""

from __future__ import annotations


def percent(share: float) -> str:
    if 0.995 <= share < 1:
        return ">99 %"
    return "<1 %" if 0 <= share < 0.005 else f"{100 * share:.0f} %"


def number(value: float) -> str:
    """Two significant digits, without needless exponents."""
    return f"{float(f'{value:.2g}'):,.12g}" if 1e-4 <= abs(value) < 1e7 else f"{value:.2g}"


def counted(count: int, what: str) -> str:
    """1 row, 2 rows."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
