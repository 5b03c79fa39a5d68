"""A language model's endpoint as a stage of a cascade, asked over a real connection."""

import json

import numpy as np
import polars as pl
import pytest
from endpoint_server import CHOICES, endpoint, say, serving

import trustdoctor as td
from trustdoctor.errors import InputError

RNG = np.random.default_rng(0)
N = 400
TEXTS = [f"text {i} {'x' * (i % 7)}" for i in range(N)]
LABELS = RNG.integers(0, 2, N)
SMALL = 1.2 * np.eye(2)[LABELS] + RNG.normal(size=(N, 2))


def sure(text):
    """Answer rightly, mostly; rows know their number."""
    right = CHOICES[LABELS[int(text.split()[1])]]
    other = CHOICES[1 - CHOICES.index(right)]
    return {right: 0.9, other: 0.08, "Hm": 0.02}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(say) as running:
        running.say = sure
        yield running


def small(rows=slice(None)):
    ids = np.arange(N)[rows]
    return td.Predictions.from_logits(
        SMALL[rows], LABELS[rows], ids=ids, class_names=CHOICES
    )


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
def test_only_rows_in_doubt_are_asked_about_and_once(server, tmp_path):
    model = endpoint(server, answers=tmp_path / "answers.jsonl")
    options = {"data": TEXTS, "ids": np.arange(N)}
    two = td.Cascade.calibrate(
        [small(), model], risk=0.05, costs=[0, 1, 10], combine="own", **options
    )
    assert len(server.requests) == N  # all of them, to calibrate
    repeated = endpoint(server, answers=tmp_path / "others.jsonl")
    server.requests.clear()
    decisions = two.screen([small(), repeated], **options)
    doubted = np.flatnonzero(two.screen([small()]).goes_to == "stage 2")
    assert sorted(server.texts) == sorted(TEXTS[i] for i in doubted)
    assert 0 < len(doubted) < N
    server.requests.clear()
    decisions_by_file = two.screen([small(), repeated], **options)
    assert not server.requests
    np.testing.assert_array_equal(decisions_by_file.doubts, decisions.doubts)


def test_other_choices_are_refused_before_any_call(server):
    model = endpoint(server, choices=("good", "bad"))
    with pytest.raises(InputError, match="expected the same classes in every stage"):
        td.Cascade.calibrate(
            [small(), model],
            risk=0.1,
            costs=[0, 1, 10],
            data=TEXTS,
            ids=np.arange(N),
        )
    assert not server.requests


def test_the_command_line_asks_within_a_budget_and_goes_on(server, run, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(CHOICES) + "\n")
    columns = {f"logit_{j}": SMALL[:, j] for j in range(2)}
    table = pl.DataFrame({"id": np.arange(N), **columns, "review": TEXTS})
    table.with_columns(label=pl.Series(LABELS)).write_csv(tmp_path / "small.csv")
    endpoint(server).save(tmp_path / "llm.json")
    assert "key" not in json.loads((tmp_path / "llm.json").read_text())
    line = ["cascade", "small.csv", "llm.json", "--text", "review", "--costs", "0,1,10"]
    line += ["--risk", "10%", "--class-names", "names.txt", "-o", "two.json"]
    line += ["--allow-odd-labels"]  # the endpoint is always right
    stopped = run(*line, "--max-calls", "150", cwd=tmp_path)
    assert stopped.returncode == 2
    assert "150 rows are answered, 250 are left" in stopped.stderr
    assert not (tmp_path / "two.json").exists()
    assert len(server.requests) == 150
    process = run(*line, "--max-calls", "400", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert len(server.requests) == N
    screen = ["screen", "small.csv", "llm.json", "--gate", "two.json", "--text"]
    screen += ["review", "--class-names", "names.txt", "-o", "decided.csv"]
    assert run(*screen, cwd=tmp_path).returncode == 0
    assert len(server.requests) == N  # all answers are kept
    decided = pl.read_csv(tmp_path / "decided.csv")
    assert set(decided["goes_to"].drop_nulls()) <= {"a person"}
    bare = run(*line[:3], "--costs", "0,1,10", "--risk", "10%", "-o", "x", cwd=tmp_path)
    assert "name their column in small.csv with --text NAME" in bare.stderr
