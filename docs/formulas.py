"""Formulas as MathML, which browsers draw without a script.

A hook of mkdocs for ``$$ ... $$`` in pages, and an extension of griffe for the
``.. math::`` of docstrings.
"""

import re
from typing import Any

from griffe import Extension
from latex2mathml.converter import convert

PAGE = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.MULTILINE | re.DOTALL)
DOCSTRING = re.compile(r"^ *\.\. math:: (.*?)(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
ROLE = re.compile(r":math:`(.*?)`")


def drawn(match: re.Match[str]) -> str:
    """Return a formula on a line of its own."""
    formula = " ".join(match[1].split())
    return f'<div class="formula">{convert(formula, display="block")}</div>'


def inline(match: re.Match[str]) -> str:
    """Return a formula in a line of text."""
    return str(convert(match[1]))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Draw the formulas of a page."""
    return PAGE.sub(drawn, markdown)


class Formulas(Extension):
    """Draws the formulas of docstrings."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Replace what stands in reStructuredText."""
        if obj.docstring is not None:
            text = DOCSTRING.sub(drawn, obj.docstring.value)
            obj.docstring.value = ROLE.sub(inline, text)
