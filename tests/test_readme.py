"""What the README shows was really printed."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax


@pytest.fixture(scope="module")
def readme(request):
    return (request.getfixturevalue("root") / "README.md").read_text()


def shown(readme, before):
    """The indented block after a line."""
    block = re.search(re.escape(before) + r"\n\n((?:(?:    .*)?\n)+)", readme)[1]
    return [line.strip() for line in block.strip().splitlines()]


def test_the_python_block_prints_what_is_shown(readme):
    code = re.search(r"```python\n(import numpy.*?)```", readme, re.DOTALL)[1]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert [x.strip() for x in out.getvalue().splitlines()] == shown(readme, "\nprints")


def test_the_demo_prints_what_is_shown(readme):
    command = [Path(sys.executable).with_name("trustdoctor"), "demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = shown(readme, "`make demo` prints")
    assert [x.strip() for x in done.stdout.splitlines()][: len(lines)] == lines


@pytest.fixture
def demos(root, tmp_path):
    """The predictions of the demo as a CSV of probabilities."""
    with np.load(root / "src/trustdoctor/data/cifar10-densenet.npz") as bundled:
        probs, labels = softmax(bundled["logits"], axis=1), bundled["labels"]
    table = {f"prob_{i}": probs[:, i] for i in range(10)} | {"label": labels}
    pl.DataFrame(table).write_csv(tmp_path / "preds.csv")
    return tmp_path


def printed(folder, command):
    program = Path(sys.executable).with_name("trustdoctor")
    done = subprocess.run(
        [program, *command.split()],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    return [x.strip() for x in done.stdout.splitlines()]


def test_calibrating_on_the_demos_predictions_prints_what_is_shown(readme, demos):
    lines = shown(readme, "On the predictions of the demo the first prints")
    assert printed(demos, "calibrate preds.csv --frr 0.05 -o gate.json") == lines


def test_screening_the_demos_predictions_prints_what_is_shown(readme, demos):
    found = printed(demos, "screen preds.csv --gamma 0.2 -o decided.csv")
    lines = shown(readme, "The second prints, for the predictions of the demo,")
    assert found == lines
    assert pl.read_csv(demos / "decided.csv").columns[-2:] == ["score", "accepted"]
