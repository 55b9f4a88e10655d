"""How time is limited."""

import math

import pytest

from kitt.clock import Clock


def test_a_clock_is_over_after_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("kitt.clock.time.monotonic", lambda: now[0])
    clock = Clock(8.0, start=now[0])
    now[0] = 104.0
    assert (clock.spent, clock.left, clock.is_over) == (4.0, 4.0, False)
    assert clock.share(0.5).seconds == 2.0
    assert (clock.at_most(1.0).seconds, clock.at_most(60.0).seconds, clock.at_most(None).seconds) == (1.0, 4.0, 4.0)
    now[0] = 108.0
    assert clock.is_over
    assert clock.share(0.5).seconds == 0.0


def test_an_unlimited_clock_is_never_over() -> None:
    clock = Clock.unlimited()
    assert not clock.is_over
    assert clock.left == clock.share(0.5).left == math.inf
    assert clock.at_most(3.0).seconds == 3.0
    assert Clock(0.0).is_over
