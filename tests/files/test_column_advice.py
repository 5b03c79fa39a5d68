"""The command that a refusal suggests works when it is pasted."""

import shlex

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError


@pytest.fixture
def shares(rng):
    z = rng.normal(size=(60, 3))
    return np.exp(z) / np.exp(z).sum(1, keepdims=True)


def table(shares, kind):
    names = ["cat", "dog", "ship"]
    predicted = [names[i] for i in shares.argmax(1)]
    plain = {name: shares[:, i] for i, name in enumerate(names)}
    ids = {"number": [f"A{i}" for i in range(60)], "amount": np.arange(60) * 10.0}
    return {
        "named": ids | plain | {"label": predicted},
        "other label": ids | plain | {"y_true": predicted},
        "stated": {"conf": shares.max(1), "prediction": predicted, "label": predicted},
        "judged": {"confidence": shares.max(1), "correct": [True] * 60},
        "binary": ids | {"chance": shares[:, 0], "target": ["yes", "no"] * 30},
    }[kind]


@pytest.mark.parametrize("kind", ["named", "other label", "stated", "judged", "binary"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_suggested_fixes_work(kind, suffix, shares, run, tmp_path):
    rows = pl.DataFrame(table(shares, kind))
    path = tmp_path / f"rows{suffix}"
    (rows.write_csv if suffix == ".csv" else rows.write_parquet)(path)
    completed = run("diagnose", path)
    assert completed.returncode == 2
    advice = completed.stderr.partition("Name them: ")[2].strip().removesuffix(".")
    options = shlex.split(advice.replace("LABEL", "yes"))
    completed = run("diagnose", path, *options)
    assert completed.returncode == 0, (advice, completed.stderr)


def test_a_missing_column_of_labels_is_named(shares, run, tmp_path):
    rows = pl.DataFrame(table(shares, "named")).drop("label")
    rows.write_csv(tmp_path / "rows.csv")
    for command in (
        ("diagnose",),
        ("compare",),
        ("calibrate", "--frr", "5%", "-o", "g"),
    ):
        completed = run(
            command[0],
            "rows.csv",
            "--probs",
            "cat,dog,ship",
            *command[1:],
            cwd=tmp_path,
        )
        assert completed.returncode == 2
        assert "--labels NAME" in completed.stderr
        assert "amount" in completed.stderr


def test_percent_signs_are_read_with_percent(shares, tmp_path):
    rows = {f"prob_{i}": [f"{100 * p:.4f} %" for p in shares[:, i]] for i in range(3)}
    pl.DataFrame(rows).write_csv(tmp_path / "signs.csv")
    with pytest.raises(td.errors.FileError, match="--percent"):
        td.read(tmp_path / "signs.csv")
    predictions = td.read(tmp_path / "signs.csv", percent=True)
    assert np.allclose(np.exp(predictions.logits), shares, atol=1e-5)


def test_misplaced_tables_and_columns_are_reported(shares):
    frame = pl.DataFrame(table(shares, "named"))
    with pytest.raises(InputError, match=r"Predictions\.from_frame"):
        td.read(frame)
    with pytest.raises(InputError, match="labels as the name of a column"):
        td.Predictions.from_frame(frame, probs=["cat", "dog"], labels=frame["label"])
    numbered = pl.DataFrame(shares, schema=["0", "1", "2"]).with_columns(
        pl.Series("3", shares.argmax(1))
    )
    predictions = td.Predictions.from_frame(numbered, probs=[0, 1, 2], labels=3)
    assert not predictions.errors.any()


def test_no_columns_at_all_are_refused(shares, run, tmp_path):
    frame = pl.DataFrame(table(shares, "named"))
    frame.write_csv(tmp_path / "rows.csv")
    for option in (("--probs", ","), ("--logits", " , "), ("--probs", "")):
        completed = run("diagnose", "rows.csv", *option, cwd=tmp_path)
        assert completed.returncode == 2, (option, completed.stderr)
    with pytest.raises(InputError, match="got none"):
        td.Predictions.from_frame(frame, probs=[])


def test_a_gate_among_predictions_is_not_one_of_them(shares, tmp_path):
    rows = {f"prob_{i}": shares[:, i] for i in range(3)}
    pl.DataFrame(rows).write_csv(tmp_path / "rows.csv")
    td.Gate(0.0, score="alpha").save(tmp_path / "gate.json")
    assert len(td.read(tmp_path)) == 60
    with pytest.raises(td.errors.FileError, match=r"call the file \.jsonl"):
        td.read(tmp_path / "gate.json")
