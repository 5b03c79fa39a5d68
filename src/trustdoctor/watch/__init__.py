"""Whether a promise still holds."""

from trustdoctor.watch.bets import Bet
from trustdoctor.watch.watching import Watch

__all__ = ["Bet", "Watch"]
