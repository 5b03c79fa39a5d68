"""What README and the documentation show was really printed."""

import importlib.util
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trustdoctor.scores import MODEL_SCORES
from trustdoctor.scores.fitted import FITTED

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_blocks_print_what_is_shown(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    assert load(ROOT / "tests" / "blocks.py").updated(text, tmp_path) == text


def test_blocks_that_are_neither_run_nor_excused_are_refused(tmp_path):
    blocks = load(ROOT / "tests" / "blocks.py")
    for text in (
        "```sh\nls\n```",
        "```text\nalone\n```",
        "```console\n$ exit 3\n```",
        "```python\nprint(1)\n```",
        "```python\nprint(1)\n```\n```python\n2\n```",
        "- a list\n  ```python\n  1\n  ```",
        '```python title="x"\n1\n```',
    ):
        with pytest.raises(AssertionError):
            blocks.updated(text, tmp_path)
    excused = "<!-- not run: it is long -->\n```sh\nls\n```"
    assert blocks.updated(excused, tmp_path) == excused
    wrong = "```python\nprint(2)\n```\n```text\n1\n```"
    assert blocks.updated(wrong, tmp_path) == wrong.replace("1", "2")


def test_the_page_on_doctor_is_what_its_commands_give(shared):
    page = (ROOT / "docs" / "what-doctor-does.md").read_text(encoding="utf-8")
    assert load(ROOT / "benchmarks" / "doctor_page.py").make(shared) == page


def test_every_score_has_a_page():
    pages = {path.stem for path in (ROOT / "docs" / "scores").glob("*.md")}
    assert pages == {*MODEL_SCORES, *FITTED, "radius", "second_opinion", "index"}
    nav = (ROOT / "mkdocs.yml").read_text()
    for name in pages:
        assert f"scores/{name}.md" in nav


def test_the_documentation_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", tmp_path]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    site = "\n".join(p.read_text() for p in tmp_path.rglob("*.html"))
    loaded = re.findall(r'(?:src|<link[^>]*href)="(https?:[^"]*)"', site)
    assert loaded == []  # pages open offline


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(example, tmp_path):
    done = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = textwrap.dedent(load(example).__doc__.split("prints::\n\n")[1])
    assert [x.rstrip() for x in done.stdout.splitlines()] == shown.splitlines()
