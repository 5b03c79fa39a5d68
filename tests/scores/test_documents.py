"""Scores within documents: the same score comes back, and changed ones are refused."""

import json
from dataclasses import replace

import laws
import msgspec
import numpy as np
import pytest
import tampered_documents

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError, TrustDoctorError
from trustdoctor.scores import (
    ScoreDocument,
    documents,
    find_score,
    read_score,
    save_beside,
    score_document,
)

FITTED = [name for name, entry in td.SCORES.items() if laws.is_fitted(entry)]
NAMED = ["alpha", "gen", "pnorm:p=4", "normalised_alpha:p=4,t=0.1", "confidence"]


@pytest.fixture(scope="module")
def rows():
    return laws.rows()


def written(score, **options):
    document = score_document(score, **options)
    return json.dumps(msgspec.to_builtins(document), allow_nan=False)


def read(text, folder=None):
    return read_score(
        envelope.convert(envelope.parse(text), ScoreDocument), folder=folder
    )


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("name", NAMED)
def test_formulas_come_back(name, temperature):
    if name == "confidence" and temperature != 1:
        return
    score = find_score(name, temperature=temperature)
    loaded = read(written(score))
    assert loaded == score
    assert (loaded.name, loaded.temperature) == (name, temperature)


@pytest.mark.filterwarnings("ignore::trustdoctor.errors.OddLabelsWarning")
@pytest.mark.parametrize("name", FITTED)
def test_fitted_scores_come_back_to_the_bit(name, rows, tmp_path):
    score = td.SCORES[name].fit(rows)
    loaded = read(written(score))
    assert loaded == score
    assert hash(loaded) == hash(score)
    assert np.array_equal(loaded(rows), score(rows))
    score.save(tmp_path / "a.safetensors")
    beside = read(written(score, file="a.safetensors"), tmp_path)
    assert beside == loaded
    assert beside != td.SCORES[name].fit(laws.rows(seed=1))
    assert beside != name


def test_whole_numbers_where_a_float_is_declared_keep_their_digest(rows):
    score = td.Mahalanobis.fit(rows, ridge=0)
    assert read(written(score)) == score == replace(score, ridge=0.0)
    warm = replace(td.RelU.fit(rows), temperature=np.float64(2))
    assert read(written(warm)) == warm


def test_large_scores_are_written_to_a_separate_file(rows, tmp_path, monkeypatch):
    score = td.KNN.fit(rows, k=5)
    path = tmp_path / "gate.json"
    assert save_beside(score, path) is save_beside(find_score("alpha"), path) is None
    monkeypatch.setattr(documents, "EMBEDDED_BYTES", score.nbytes - 1)
    file = save_beside(score, path)
    assert [entry.name for entry in tmp_path.iterdir()] == [file]
    assert read(written(score, file=file), tmp_path) == score
    td.KNN.fit(rows, k=6).save(tmp_path / file)
    with pytest.raises(FileError, match="was changed: the digest is another"):
        read(written(score, file=file), tmp_path)
    td.RelU.fit(rows).save(tmp_path / file)
    with pytest.raises(FileError, match="names knn, and holds a rel_u score"):
        read(written(score, file=file), tmp_path)
    for odd in (f"../{file}", "a/b", "", "a\0b"):
        with pytest.raises(FileError, match=r"file beside the document|there is no"):
            read(written(score, file=odd), tmp_path)
    with pytest.raises(FileError, match="holds its fitted score, got one that names"):
        read(written(score, file=file))


@pytest.mark.parametrize("name", ["rel_u", "knn", "tuned"])
def test_changed_documents_are_refused_or_the_same(name, rows):
    score = td.SCORES[name].fit(rows[:60] if name == "knn" else rows)
    content = json.loads(written(score))
    n_refused = 0
    for change, text in tampered_documents.mutants(content):
        try:
            loaded = read(text)
        except (TrustDoctorError, ValueError):  # envelope.parse raises ValueError
            n_refused += 1
        else:
            assert loaded == score, change
    assert n_refused > 200


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"temperature": 0}, r"^temperature: expected float > 0"),
        ({"temperature": True}, r"^temperature: expected float, got bool"),
        ({"name": None}, r"^name: expected str, got null"),
        ({"more": 1}, r"^unknown field more"),
        ({"name": "beauty"}, "expected a score out of alpha, beta"),
        ({"name": "rel_u"}, "must be fitted first"),
        ({"fitted": {}}, r"^fitted: missing field digest"),
        ({"fitted": {"digest": "x"}}, "expected plain and arrays, or a file"),
        ({"fitted": {"digest": "x", "arrays": {"a": {}}}}, r"^fitted\.arrays.*missing"),
    ],
)
def test_errors_name_the_place(change, match):
    content = {"name": "alpha", "temperature": 1.0} | change
    with pytest.raises((FileError, InputError), match=match):
        read(json.dumps(content))
