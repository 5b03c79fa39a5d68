"""Text from files, made safe to show: control characters of a terminal are escaped."""

import re

# Control characters but tabs and ends of lines, changes of direction (which can make a
# text read as another: CVE-2021-42574), and unpaired surrogates, which no stream takes.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return text with control characters and changes of direction escaped.

    Unpaired surrogates are escaped as well. Tabs and ends of lines stay.

    Examples
    --------
    >>> print(visible("\x1b[31mcat"))
    \x1b[31mcat
    """
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)
