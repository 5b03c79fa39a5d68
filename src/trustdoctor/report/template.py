"""Pages: one file each, which loads nothing else and runs no script but its own."""

import base64
import hashlib
import json
from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from trustdoctor.metrics import Estimate
from trustdoctor.visible import visible

MOST_TEXT = 400
"""Characters of a text that a page shows."""

MOST_NAME = 80
"""Characters of a name that a page shows."""

_SHARED_SCRIPTS = ("dom.js", "charts.js", "tables.js")


def fill_page(
    name: str, payload: dict[str, Any], scripts: tuple[str, ...] = (), **content: Any
) -> str:
    """Return the page of that name; the payload is for its script.

    Its template, script and style add to those that all pages share.
    """
    script = "".join(map(read_asset, (*_SHARED_SCRIPTS, *scripts, f"{name}.js")))
    return (
        make_environment(read_asset)
        .get_template(f"{name}.html")
        .render(
            **content,
            payload=embed_json(payload),
            css=read_asset("components.css") + read_asset(f"{name}.css"),
            js=script,
            script_hash=hash_content(script),
            version=version("trustdoctor"),
        )
    )


def make_environment(read: Callable[[str], str]) -> Any:
    """Return the environment of the templates that `read` returns by their names."""
    from jinja2 import Environment, FunctionLoader

    environment = Environment(
        loader=FunctionLoader(read),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible_texts,
    )
    environment.filters |= {
        "estimate": Estimate.percent,
        "counts": _counts,
        "many": "{:,}".format,
        "plain": "{:.10g}".format,
        "counted": _counted,
        "words": _unbroken_words,
    }
    return environment


def read_asset(name: str) -> str:
    """Return a template, a script or a style of the report."""
    return (files("trustdoctor.report") / "assets" / name).read_text(encoding="utf-8")


def hash_content(text: str) -> str:
    """Return the hash by which a browser runs this very script, and no other."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def embed_json(payload: dict[str, Any]) -> Any:
    """Return JSON that cannot end the element it stands in."""
    from markupsafe import Markup

    text = json.dumps(_visible_texts(payload), separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def shorten(text: Any, most: int = MOST_TEXT) -> str:
    """Return the beginning of a text, in one line.

    Examples
    --------
    >>> shorten("one  two three", most=8)
    'one two…'
    """
    if text is None:
        return ""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    # Cut first: a cell may hold megabytes.
    beginning = str(text)[: 4 * most].encode("utf-8", "replace").decode()
    line = " ".join(beginning.split())
    return line if len(line) <= most else line[: most - 1] + "\u2026"


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def _visible_texts(value: Any) -> Any:
    """Return a value whose texts steer no terminal and no line of text."""
    if type(value) is str:  # and not markup, which is our own
        return visible(value)
    if isinstance(value, dict):
        return {
            _visible_texts(name): _visible_texts(inner) for name, inner in value.items()
        }
    return [_visible_texts(v) for v in value] if isinstance(value, list) else value


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _counts(rate: Estimate) -> str:
    return f"{rate.count:,} of {rate.n or 0:,}"


def _unbroken_words(command: str) -> Any:
    """Return a command whose words are not broken at the end of a line."""
    from markupsafe import Markup

    word = Markup('<span class="word">{}</span>')
    return Markup(" ").join(map(word.format, visible(command).split(" ")))
