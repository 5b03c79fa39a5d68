"""The database's clock, believed while it goes as this process's does.

A clock that jumps ahead would make all rows too old and all labels too late at once;
it may jump back a minute later, and what was deleted does not come back.
"""

import logging
import time

JUMP = 3600.0
"""Seconds by which the database's clock may get away from this process's."""

LONGEST_REST = 7 * 86400.0
"""Seconds that a store may have rested before a start."""

PAUSE = 86400.0
"""Seconds after which a jump is believed."""

_log = logging.getLogger("trustdoctor.service")


class Clock:
    """Tells the time to act by."""

    def __init__(self) -> None:
        self._seen: tuple[float, float] | None = None
        self._held: tuple[float, float] | None = None

    def tell(self, now: float, newest: float | None = None) -> float:
        """Return the database's time, or what it would be without its jump.

        Parameters
        ----------
        now : float
            What the database says.
        newest : float, optional
            The time of the newest row: what the first look is compared with.

        Examples
        --------
        >>> clock = Clock()
        >>> clock.tell(1000.0), clock.is_trusted
        (1000.0, True)
        >>> round(clock.tell(1e9)), clock.is_trusted
        (1000, False)
        """
        own = time.monotonic()
        held = self._held
        if held is not None:
            expected = held[0] + own - held[1]
            if now - expected > JUMP and own - held[1] < PAUSE:
                return expected
            self._held, self._seen = None, (now, own)
            return now
        if self._seen is None:
            rested = now - (now if newest is None else newest)
            before, most = (now - rested, own), LONGEST_REST
        else:
            before, most = self._seen, JUMP
        expected = before[0] + own - before[1]
        if now - expected > most:
            _log.warning("the clock jumped ahead: nothing expires or is deleted today")
            self._held = expected, own
            return expected
        self._seen = now, own
        return now

    @property
    def is_trusted(self) -> bool:
        """Whether the database's time is the one to act by."""
        return self._held is None
