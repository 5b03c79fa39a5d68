"""Gates as files: of earlier versions, with a fitted score, tampered with."""

import base64
import json

import laws
import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError
from trustdoctor.gates import gate_file
from trustdoctor.scores import documents


@pytest.mark.parametrize("schema", [1, 2])
def test_gates_of_earlier_versions_are_made_again(schema, tmp_path):
    td.Gate(0.0).save(tmp_path / "gate.json")
    content = json.loads((tmp_path / "gate.json").read_text())
    (tmp_path / "gate.json").write_text(json.dumps(content | {"schema": schema}))
    with pytest.raises(FileError, match=r"an earlier version .* Calibrate it again"):
        td.Gate.load(tmp_path / "gate.json")


def test_a_gate_without_a_list_of_passed_thresholds_loads(tmp_path):
    """Gates for risk had none before; the rest of the file is as it was."""
    scores = np.random.default_rng(0).normal(size=2000)
    errors = np.arange(2000) % 20 == 0
    gate = td.calibrate_scores(scores + 3 * errors, errors, risk=0.04)
    gate.save(tmp_path / "gate.json")
    content = json.loads((tmp_path / "gate.json").read_text())
    assert content["certificate"].pop("passed")
    assert "passed_by_chance" not in content["certificate"]
    (tmp_path / "gate.json").write_text(json.dumps(content))
    old = td.Gate.load(tmp_path / "gate.json")
    assert (old.threshold, old.certificate.passed) == (gate.threshold, ())


# Neighbours of noise rank errors no better than chance, or worse: no matter here.
reversed_scores = pytest.mark.filterwarnings(
    "ignore::trustdoctor.errors.OddLabelsWarning"
)


@pytest.fixture
def fitted(tmp_path):
    p = laws.rows(1500)
    gate = td.calibrate(p, score=td.RelU.fit(laws.rows(900, seed=2)), frr=0.1)
    gate.save(tmp_path / "gate.json")
    return gate, tmp_path / "gate.json"


def test_a_small_fitted_score_is_embedded_in_the_file(fitted):
    gate, path = fitted
    assert [p.name for p in path.parent.iterdir()] == ["gate.json"]
    loaded = td.Gate.load(path)
    assert loaded.score.digest == gate.score.digest
    p = laws.rows(200, seed=5)
    assert np.array_equal(loaded.screen(p).doubts, gate.screen(p).doubts)


@reversed_scores
def test_a_large_one_goes_into_a_separate_file(tmp_path, monkeypatch):
    p = laws.rows(1500)
    gate = td.calibrate(p, score=td.KNN.fit(laws.rows(900, seed=2), k=5), frr=0.1)
    monkeypatch.setattr(documents, "EMBEDDED_BYTES", 1000)
    gate.save(tmp_path / "gate.json")
    (beside,) = tmp_path.glob("gate.knn-*.safetensors")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gate.json", beside.name]
    assert len((tmp_path / "gate.json").read_text()) < 3000
    new = laws.rows(200, seed=5)
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert np.array_equal(loaded.screen(new).doubts, gate.screen(new).doubts)
    td.KNN.fit(laws.rows(900, seed=3), k=5).save(beside)
    with pytest.raises(FileError, match="was changed: the digest is another"):
        td.Gate.load(tmp_path / "gate.json")
    beside.unlink()
    with pytest.raises(FileError, match="there is no file"):
        td.Gate.load(tmp_path / "gate.json")
    content = json.loads((tmp_path / "gate.json").read_text())
    content["score"]["fitted"]["file"] = f"../{beside.name}"
    (tmp_path / "gate.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match="expected the name of a file beside"):
        td.Gate.load(tmp_path / "gate.json")


@pytest.mark.parametrize(
    "name",
    ["x" * 250 + ".json", "ü" * 127, "x" + "ü" * 127, "\udcff\udcfe.json"],
    ids=["long", "even", "odd", "not UTF-8"],
)
def test_long_names_leave_room_for_the_separate_file(name, tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "EMBEDDED_BYTES", 1000)
    gate = td.Gate(0.0, score=td.KNN.fit(laws.rows(900, seed=2), k=5))
    gate.save(tmp_path / name)
    assert td.Gate.load(tmp_path / name) == gate
    assert len(list(tmp_path.iterdir())) == 2


def _set(*path, to):
    def change(content):
        for step in path[:-1]:
            content = content[step]
        content[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_set("fitted", to=3), "score.fitted: expected object"),
        (_set("fitted", to={}), "missing field digest"),
        (_set("fitted", "arrays", to=[]), "score.fitted.arrays: expected object"),
        (_set("fitted", "arrays", "matrix", "shape", to=[400, 400]), "of shape"),
        (_set("fitted", "arrays", "matrix", "shape", to=[-4, -4]), "expected int >= 0"),
        (_set("fitted", "arrays", "matrix", "shape", to="4"), "expected array"),
        (_set("fitted", "arrays", "matrix", "type", to="|O"), "invalid enum value"),
        (_set("fitted", "arrays", "matrix", "base64", to="!"), "base64"),
        (_set("fitted", "plain", "temperature", to=2.0), "digest is another"),
        (_set("fitted", "plain", "temperature", to=None), "not valid"),
        (_set("fitted", "digest", to="0"), "digest is another"),
        (_set("fitted", "surprise", to=1), "surprise"),
        (_set("name", to="alpha"), "not valid"),
        (_set("name", to="beauty"), "not valid"),
        (_set("temperature", to=2.0), "takes no temperature"),
        (_set("fitted", to=None), "must be fitted first"),
    ],
)
def test_a_tampered_fitted_score_is_refused(change, match, fitted):
    _, path = fitted
    content = json.loads(path.read_text())
    change(content["score"])
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=match):
        td.Gate.load(path)


def test_nothing_in_the_file_is_a_pickle(fitted):
    _, path = fitted
    arrays = json.loads(path.read_text())["score"]["fitted"]["arrays"]
    raw = base64.b64decode(arrays["matrix"]["base64"])
    assert np.array_equal(np.frombuffer(raw).reshape(4, 4), fitted[0].score.matrix)


@reversed_scores
def test_a_save_that_fails_leaves_the_gate_that_was_there(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "EMBEDDED_BYTES", 1000)
    p, path = laws.rows(1500), tmp_path / "gate.json"
    first, second = (
        td.calibrate(p, score=td.KNN.fit(laws.rows(900, seed=s), k=5), frr=0.1)
        for s in (2, 3)
    )
    first.save(path)

    def full(*_):
        raise td.errors.OutputError(*_[:1])

    monkeypatch.setattr(gate_file, "write_text", full)
    with pytest.raises(td.errors.OutputError):
        second.save(path)
    new = laws.rows(200, seed=5)
    loaded = td.Gate.load(path)
    assert np.array_equal(loaded.screen(new).doubts, first.screen(new).doubts)
