"""Text out of files, as it may be shown: what steers a terminal is spelled out."""

import re

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return text with control characters and changes of direction spelled out.

    So is half a character, which no stream takes. Tabs and ends of lines stay.

    Examples
    --------
    >>> print(visible("\x1b[31mcat"))
    \x1b[31mcat
    """
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)
