"""The pages of the service: live, review, login. Each is one file.

Scripts and styles stand in the page, and `page_headers` names them by hash: a browser
runs these, and nothing that came with a row. The room of reports is imported when a
page is asked for: it takes 0.1 s, which a start should not wait for.
"""

from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from trustdoctor.gates import TARGETS
from trustdoctor.service.access import SESSION
from trustdoctor.watch import RATE_NAMES

_SCRIPTS = {
    "live": (
        "dom.js",
        "charts.js",
        "tables.js",
        "time_series.js",
        "common.js",
        "live.js",
    ),
    "review": ("dom.js", "common.js", "review.js"),
    "login": (),
}
_PAGES = ("/", "/review")
_OF_THE_REPORT = {
    *("dom.js", "charts.js", "tables.js", "time_series.js"),
    "components.css",
}


def render_live(*, tokens: bool = False) -> str:
    """Return the page that shows how the service stands, second by second.

    Parameters
    ----------
    tokens : bool
        Whether the service asks for tokens; the page then has a button to log out.

    Examples
    --------
    >>> "Does the gate keep its promise?" in render_live()
    True
    """
    return _render("live", tokens=tokens)


def render_review(*, tokens: bool = False) -> str:
    """Return the page on which people label rows, one after the other.

    Parameters
    ----------
    tokens : bool
        Whether the service asks for tokens; the page then has a button to log out.

    Examples
    --------
    >>> "Cannot say" in render_review()
    True
    """
    return _render("review", tokens=tokens)


def render_login(message: str = "", next: str = "/") -> str:
    """Return the form that takes a token; it needs no script.

    Parameters
    ----------
    message : str
        What to say above the form, such as why the last token was refused.
    next : str
        The page to go to after the login, "/" or "/review"; anything else is "/".

    Examples
    --------
    >>> "This token is unknown." in render_login("This token is unknown.")
    True
    """
    page = next if next in _PAGES else "/"
    hours = SESSION // 3600
    return _render("login", message=message, next=page, hours=hours)


@cache
def page_headers() -> dict[str, str]:
    """Return the HTTP headers that all pages are sent with.

    The content security policy allows the pages' own scripts and style by hash, images
    in data URLs, and requests to the service itself. Referrers stay on within the
    service: without them browsers send `Origin: null` with a form, which it refuses.

    Examples
    --------
    >>> "default-src 'none'" in page_headers()["Content-Security-Policy"]
    True
    """
    scripts = " ".join(
        _source(_script(page)) for page, names in _SCRIPTS.items() if names
    )
    rules = (
        "default-src 'none'",
        f"script-src {scripts}",
        f"style-src {_source(_style())}",
        "img-src data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": "; ".join(rules),
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def _render(name: str, **content: Any) -> str:
    from trustdoctor.report import embed_json, make_environment

    payload = {
        "names": RATE_NAMES,
        "unlabelled": ["accepted", *_without_labels()],
        "tokens": content.get("tokens", False),
    }
    template = make_environment(_read_file).get_template(f"{name}.html")
    return template.render(
        **content,
        page=name,
        data=embed_json(payload),
        css=_style(),
        js=_script(name),
        version=version("trustdoctor"),
    )


def _without_labels() -> list[str]:
    """Return the targets that can be watched without labels."""
    return [name for name, target in TARGETS.items() if not target.needs_labels]


@cache
def _script(name: str) -> str:
    return "".join(map(_read_file, _SCRIPTS[name]))


@cache
def _style() -> str:
    return "\n" + _read_file("components.css") + _read_file("page.css")


def _read_file(name: str) -> str:
    """Return a file of these pages, or one that they share with the report's."""
    from trustdoctor.report import read_asset

    if name in _OF_THE_REPORT:
        return read_asset(name)
    return (files("trustdoctor.service") / "page" / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Return a script or a style as a source of the policy."""
    from trustdoctor.report import hash_content

    return f"'sha256-{hash_content(text)}'"
