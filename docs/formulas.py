"""Formulas as MathML, which browsers draw without a script.

An extension of Markdown for ``$$ ... $$`` in pages, and an extension of griffe for the
``.. math::`` of docstrings.
"""

import re
from typing import Any

from griffe import Extension
from latex2mathml.converter import convert
from markdown import Extension as MarkdownExtension
from markdown import Markdown
from markdown.preprocessors import Preprocessor

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


class Formulas(Extension):
    """Draws the formulas of docstrings."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Replace what stands in reStructuredText."""
        if obj.docstring is not None:
            text = DOCSTRING.sub(drawn, obj.docstring.value)
            obj.docstring.value = ROLE.sub(inline, text)


class _Pages(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return PAGE.sub(drawn, "\n".join(lines)).split("\n")


class PageFormulas(MarkdownExtension):
    """Draws the formulas of pages."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Come before the parts of Markdown that find HTML (20) and code (25)."""
        md.preprocessors.register(_Pages(md), "formulas", 100)


def makeExtension(**settings: Any) -> PageFormulas:  # noqa: N802
    """Return the extension, as Markdown asks for it."""
    return PageFormulas(**settings)
