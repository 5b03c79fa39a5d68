"""Pages: one file each, which asks for nothing else and runs no script but its own."""

import base64
import hashlib
import json
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from trustdoctor.metrics import Estimate
from trustdoctor.visible import visible

MOST_TEXT = 400
MOST_NAME = 80


def fill_page(
    name: str, payload: dict[str, Any], scripts: tuple[str, ...] = (), **content: Any
) -> str:
    """Return the page of that name; the payload is for its script.

    Its template, scripts and style add to those of `look`, which all pages share.
    """
    from jinja2 import Environment, FunctionLoader

    environment = Environment(
        loader=FunctionLoader(_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "estimate": Estimate.percent,
        "counts": _counts,
        "many": "{:,}".format,
        "plain": "{:.10g}".format,
        "counted": _counted,
        "words": _words,
    }
    js = "".join(map(_file, ("look/charts.js", *scripts, f"{name}.js")))
    return environment.get_template(f"{name}.html").render(
        **content,
        payload=_embedded(payload),
        css=_file("look/look.css") + _file(f"{name}.css"),
        js=js,
        script_hash=_script_hash(js),
        version=version("trustdoctor"),
    )


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
    whole = str(text)[: 4 * most].encode("utf-8", "replace").decode()
    plain = " ".join(whole.split())
    return plain if len(plain) <= most else plain[: most - 1] + "\u2026"


def _file(name: str) -> str:
    return (files("trustdoctor.report") / name).read_text(encoding="utf-8")


def _script_hash(script: str) -> str:
    """Return what lets this very script run, and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _shown(value: Any) -> Any:
    """Return a value whose texts can be shown as they are."""
    if type(value) is str:  # and not markup, which is our own
        return visible(value)
    if isinstance(value, dict):
        return {_shown(name): _shown(inner) for name, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list) else value


def _embedded(payload: dict[str, Any]) -> Any:
    """Return JSON that cannot end the element it stands in."""
    from markupsafe import Markup

    text = json.dumps(_shown(payload), separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _counted(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def _words(command: str) -> Any:
    """Return a command whose words are not broken at the end of a line."""
    from markupsafe import Markup

    word = Markup('<span class="word">{}</span>')
    return Markup(" ").join(map(word.format, visible(command).split(" ")))


def _counts(rate: Estimate) -> str:
    return f"{rate.count:,} of {rate.n or 0:,}"
