"""What steers a terminal or a page is spelled out in both."""

import html
import json
import re

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.evaluation import evaluate_logits

CONTROL = ("\x1b", "\x00", "\x7f", "\x9b", "\u202e", "\u2066", "\ud800", "\x08", "\r")
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def words(value):
    """Yield every text of parsed JSON, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words(inner)


def clean(page):
    """Check a page, and what its script would read, and return both."""
    assert not STEERING.search(page)
    assert not STEERING.search(html.unescape(page))
    page.encode()
    (payload,) = re.findall(
        r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL
    )
    for word in words(json.loads(payload)):
        assert not STEERING.search(word), word
    return html.unescape(page)


@pytest.fixture
def rows(rng):
    z = rng.normal(size=(200, len(CONTROL)))
    labels = np.where(rng.random(200) < 0.7, z.argmax(1), 0)
    return td.Predictions.from_logits(z, labels)


def test_texts_on_the_page_are_escaped(rows):
    odd = [f"one{c}[31mtwo" for c in CONTROL]
    every = [odd[i % len(odd)] for i in range(len(rows))]
    evaluation = td.evaluate(rows, scores=["alpha", "msp"])
    page = evaluation.to_html(
        class_names=odd,
        ids=every,
        texts=every,
        source="".join(odd),
        file="".join(odd),
        options=("--labels", odd[0]),
        perturbed={odd[0]: evaluate_logits(rows, rows.logits, score="alpha")},
    )
    shown = clean(page)
    for character in CONTROL:
        assert f"one{ascii(character)[1:-1]}[31mtwo" in shown, ascii(character)


def test_the_page_of_a_file_is_escaped(rows, run, tmp_path):
    names = [f"n{i}{c}[2J" for i, c in enumerate(CONTROL) if c not in "\ud800\r"]
    z = rows.logits[:, : len(names)]
    labels = np.minimum(rows.labels, len(names) - 1)
    table = pl.DataFrame({f"logit_{name}": z[:, i] for i, name in enumerate(names)})
    table = table.with_columns(
        pl.Series("label", [names[i] for i in labels]),
        pl.Series("text\x1b", [names[0]] * len(rows)),
    )
    table.write_parquet(tmp_path / "a\x1b[31m.parquet")
    completed = run(
        *("diagnose", "a\x1b[31m.parquet", "--html", "b\x1b.html"),
        *("--ids", "text\x1b", "--texts", "text\x1b"),
        cwd=tmp_path,
    )
    assert completed.returncode == 0, completed.stderr
    assert not STEERING.search(completed.stdout + completed.stderr)
    shown = clean((tmp_path / "b\x1b.html").read_text(encoding="utf-8"))
    assert r"n0\x1b[2J" in shown
    assert r"a\x1b[31m.parquet" in shown


def test_gates_of_odd_groups_cannot_control_the_terminal(capsys, tmp_path):
    from trustdoctor.report import make_console, show_gate

    rng = np.random.default_rng(0)
    groups = [f"g{CONTROL[i % 4]}" for i in range(400)]
    z = rng.normal(size=(400, 3))
    labels = np.where(rng.random(400) < 0.7, z.argmax(1), 0)
    p = td.Predictions.from_logits(z, labels, groups=groups)
    gate = td.calibrate(p, frr=0.2, groups="given")
    console = make_console(quiet=False)
    show_gate(console, gate, tmp_path / "g\x1b.json")
    out = capsys.readouterr().out
    assert r"g\x1b" in out
    assert not STEERING.search(out)
