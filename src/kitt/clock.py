"""The one way in which time is limited: a clock, which is passed on from the caller to the last step of an optimiser."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Clock:
    """A number of seconds that begins when the clock is made.

    >>> clock = Clock(60.0)
    >>> clock.is_over, round(clock.share(0.5).seconds), Clock.unlimited().left
    (False, 30, inf)
    """

    seconds: float
    start: float = field(default_factory=time.monotonic)

    @classmethod
    def unlimited(cls) -> Clock:
        """A clock that is never over."""
        return cls(math.inf)

    @property
    def spent(self) -> float:
        """The seconds since the clock was made."""
        return time.monotonic() - self.start

    @property
    def left(self) -> float:
        """The seconds until the clock is over, at least zero."""
        return max(0.0, self.seconds - self.spent)

    @property
    def is_over(self) -> bool:
        return self.left <= 0.0

    def share(self, part: float) -> Clock:
        """A clock from now on for a part of the time that is left."""
        return Clock(part * self.left)

    def at_most(self, seconds: float | None) -> Clock:
        """A clock from now on that is over with this one, or after so many seconds if that is earlier."""
        return Clock(self.left if seconds is None else min(self.left, seconds))
