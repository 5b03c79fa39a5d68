"""The pages of the service as text."""

import base64
import hashlib
import html
import re

import pytest
from injections import INJECTIONS

from trustdoctor.service.pages import (
    page_headers,
    render_live,
    render_login,
    render_review,
)

PAGES = {"live": render_live, "review": render_review, "login": render_login}
POLICY = page_headers()["Content-Security-Policy"]


@pytest.fixture(params=PAGES)
def page(request):
    return PAGES[request.param]()


def rule(name):
    (directive,) = [
        directive_text
        for directive_text in POLICY.split("; ")
        if directive_text.split()[0] == name
    ]
    return directive.split()[1:]


def hashed(text):
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def test_a_page_is_one_small_file_that_loads_nothing(page):
    assert len(page.encode()) < 60_000
    assert "http://" not in page.replace('"http://www.w3.org/2000/svg"', "")
    assert "https://" not in page
    assert " src=" not in page
    assert re.findall(r"<link [^>]*>", page) == ['<link rel="icon" href="data:,">']
    assert "@import" not in page
    assert "url(" not in page


def test_the_policy_allows_the_scripts_and_the_style_by_hash_and_no_others(page):
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert {hashed(script) for script in scripts} <= set(rule("script-src"))
    assert rule("style-src") == [hashed(style)]
    assert not re.search(r"\s(on\w+|style)=", page.partition("<script")[0])
    assert "unsafe" not in POLICY
    assert rule("default-src") == ["'none'"]
    assert rule("frame-ancestors") == ["'none'"]


def test_login_runs_no_script():
    assert "<script" not in render_login()
    assert len(rule("script-src")) == 2  # live and review


@pytest.mark.parametrize("name", ["live", "review"])
def test_scripts_put_in_text_and_never_markup(name):
    script = PAGES[name]()
    for way in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
        assert way not in script
    assert "new Function" not in script


@pytest.mark.parametrize("message", INJECTIONS)
def test_the_login_message_is_escaped(message):
    page = render_login(message)
    plain = re.search(r'role="alert">(.*?)</p>', page)[1]
    assert "<" not in plain
    assert "\u202e" not in page
    assert html.unescape(plain) == message.replace("\u202e", r"\u202e").replace(
        "\u2066", r"\u2066"
    )
    assert 'role="alert"' not in render_login()


@pytest.mark.parametrize(
    ("target", "expected"),
    [("/", "/"), ("/review", "/review"), ("//evil", "/"), ('"><b>', "/"), ("", "/")],
)
def test_login_leads_on_to_pages_of_the_service_alone(target, expected):
    page = render_login(next=target)
    assert f'<input type="hidden" name="next" value="{expected}">' in page
    assert page.count('name="next"') == 1


@pytest.mark.parametrize("render", [render_live, render_review])
def test_logging_out_is_offered_where_there_are_tokens(render):
    assert 'action="/logout"' in render(tokens=True)
    assert 'action="/logout"' not in render()


def test_the_same_page_is_the_same_text(page):
    assert page in [render() for render in PAGES.values()]
