"""Columns whose values cluster the errors are found, though no option names them."""

import numpy as np
import polars as pl
import pytest

from trustdoctor.engines import Means, calibrate_files, diagnose
from trustdoctor.files import Columns, find_source


def table(seed=0, *, documents=250, spread=True):
    """Draw rows of documents, some of which the model does not understand."""
    rng = np.random.default_rng(seed)
    n = 12 * documents
    logits = 2 * rng.normal(size=(n, 4))
    document = rng.permutation(np.repeat(np.arange(documents), 12))
    wrong = rng.random(n) < 0.12
    if spread:
        wrong = (rng.random(documents) < 0.2)[document] & (rng.random(n) < 0.6)
    predicted = logits.argmax(1)
    label = (predicted + wrong) % 4
    names = np.array([f"class {k}" for k in range(4)])
    return pl.DataFrame(
        {
            **{f"logit_{k}": logits[:, k] for k in range(4)},
            "label": label,
            "document": [f"d{number:04}" for number in document],
            "length": rng.integers(1, 90, n),
            "time": rng.random(n),
            "row": np.arange(n),
            "category": rng.integers(0, 12, n).astype(str),
            "predicted name": names[predicted],
            "remark": [None if k % 7 else "odd" for k in range(n)],
        }
    )


def write(rows, folder, kind):
    if kind == "folder":
        (folder / "in").mkdir()
        for k, file_rows in enumerate((rows[:1000], rows[1000:])):
            file_rows.write_csv(folder / "in" / f"{k}.csv")
        return folder / "in"
    path = folder / f"rows.{kind}"
    rows.write_csv(path) if kind == "csv" else rows.write_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_the_document_is_named_by_diagnose_and_calibrate(kind, tmp_path):
    source = find_source(write(table(), tmp_path, kind), Columns())
    lines = [w for w in diagnose(source).warnings if "Errors go together" in w]
    gate = calibrate_files(source, frr=0.1)
    lines += [n for n in gate.certificate.notes if "Errors go together" in n]
    assert len(lines) == 2
    for line in lines:
        assert "the same 'document' (250 values, 12.0 rows each)" in line
        assert line.endswith("Calibrate with --clusters document.")
    gate = calibrate_files(source, frr=0.2, clusters="document")
    assert not any("Errors go together" in note for note in gate.certificate.notes)


def test_of_files_that_are_streamed_the_first_rows_are_tested(tmp_path, monkeypatch):
    monkeypatch.setattr("trustdoctor.engines.shared_values.SAMPLE", 2000)
    monkeypatch.setattr(Means, "reads_at_once", lambda *_args, **_options: False)
    source = find_source(write(table(), tmp_path, "csv"), Columns())
    (line,) = [w for w in diagnose(source).warnings if "Errors go together" in w]
    assert "in the first 2,000 rows" in line
    gate = calibrate_files(source, frr=0.1)
    assert line in gate.certificate.notes


def test_independent_rows_raise_no_remark(tmp_path):
    for seed in range(20):
        rows = table(seed, spread=False)
        path = tmp_path / f"{seed}.parquet"
        rows.write_parquet(path)
        source = find_source(path, Columns())
        assert source.shared_columns == [
            *("document", "length", "row", "category", "predicted name", "remark")
        ]
        assert not any("Errors go" in line for line in diagnose(source).warnings), seed


def test_a_copy_of_the_predicted_class_is_not_a_cluster(tmp_path):
    """Some classes are harder, and a further column repeats the predicted class."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(1200, 40))
    predicted = logits.argmax(1)
    wrong = rng.random(1200) < np.where(predicted % 2, 0.5, 0.02)
    rows = pl.DataFrame({f"logit_{k}": logits[:, k] for k in range(40)}).with_columns(
        label=np.where(wrong, (predicted + 2) % 40, predicted),
        said=pl.Series([f"class {k}" for k in predicted]),
    )
    rows.write_parquet(tmp_path / "rows.parquet")
    source = find_source(tmp_path / "rows.parquet", Columns())
    assert not any("Errors go" in line for line in diagnose(source).warnings)
    other = rows.with_columns(batch=predicted * 31 % 40)
    other = other.with_columns(
        batch=pl.when(pl.int_range(pl.len()) % 50 == 0).then(7).otherwise("batch")
    )
    other.write_parquet(tmp_path / "other.parquet")
    source = find_source(tmp_path / "other.parquet", Columns())
    assert any("'batch'" in line for line in diagnose(source).warnings)
