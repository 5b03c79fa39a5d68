"""What a system says of its answers itself: a confidence, or a doubt."""

from trustdoctor.scores.contract import GivenScore
from trustdoctor.scores.registry import register

register(GivenScore("confidence"))
register(GivenScore("doubt"))
