"""The notebooks run, and print what they show.

``python tests/test_notebooks.py`` brings what they show up to date.
"""

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NEEDS = {"sklearn": "sklearn", "pytorch": "torch"}


def run(path, folder):
    """Return the notebook with what its cells print now."""
    book = json.loads(path.read_text(encoding="utf-8"))
    scope, code = {"__name__": "__notebook__"}, 0
    with contextlib.chdir(folder):
        for cell in book["cells"]:
            if cell["cell_type"] == "code":
                code += 1
                printed = _printed("".join(cell["source"]), scope)
                cell["execution_count"], cell["outputs"] = code, _shown(printed)
    return book


def _printed(source, scope):
    if source.startswith("!"):
        return "".join(_shell(line.removeprefix("!")) for line in source.splitlines())
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), scope)
        if last is not None:
            _display(eval(compile(ast.Expression(last.value), "cell", "eval"), scope))
    return out.getvalue()


def _display(value):
    """Ask for the page of what stands last in a cell, as a notebook does."""
    if hasattr(value, "_repr_html_"):
        assert "<" in value._repr_html_()
    else:
        assert value is None or isinstance(value, Path)


def _shell(command):
    places = [str(Path(sys.executable).parent), os.environ["PATH"]]
    completed = subprocess.run(
        command,
        shell=True,
        env=os.environ | {"PATH": os.pathsep.join(places), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout


def _shown(printed):
    lines = printed.splitlines(keepends=True)
    stream = {"name": "stdout", "output_type": "stream", "text": lines}
    return [stream] if lines else []


def _written(book):
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_print_what_they_show(path, tmp_path):
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    text = path.read_text(encoding="utf-8")
    assert _written(run(path, tmp_path)) == text
    assert len(text) < 100_000


def test_there_is_a_notebook_for_each_way_in():
    assert [path.stem for path in NOTEBOOKS] == ["csv", "pytorch", "sklearn"]


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as scratch:
            written = _written(run(notebook, scratch))
        notebook.write_text(written, encoding="utf-8")
