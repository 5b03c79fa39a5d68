"""Gates as files: those of version 0.1, those with a fitted score, tampered ones."""

import base64
import json
import math
from pathlib import Path

import laws
import numpy as np
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError
from trustdoctor.gates import gate_file

OLD = Path(__file__).parents[1] / "samples" / "v0.1"


@pytest.mark.parametrize("path", sorted(OLD.glob("gate-*.json")), ids=lambda p: p.stem)
def test_gates_of_version_0_1_load(path, tmp_path):
    """Every field that 0.1 wrote is understood, and written again as it was."""
    gate, old = td.Gate.load(path), json.loads(path.read_text())
    gate.save(tmp_path / "new.json")
    new = json.loads((tmp_path / "new.json").read_text())
    assert new.pop("schema") == 2
    assert old.pop("schema") == 1
    assert new.pop("fitted") is None
    seen = old["certificate"] and old["certificate"].pop("observed")
    assert (new["certificate"] and new["certificate"].pop("observed")) == seen
    assert new == old
    assert td.Gate.load(tmp_path / "new.json") == gate


def test_a_gate_without_a_list_of_what_passed_loads(tmp_path):
    """Gates for risk had none before; the rest of the file is as it was."""
    scores = np.random.default_rng(0).normal(size=2000)
    errors = np.arange(2000) % 20 == 0
    gate = td.calibrate_scores(scores + 3 * errors, errors, risk=0.04)
    gate.save(tmp_path / "gate.json")
    content = json.loads((tmp_path / "gate.json").read_text())
    assert content["certificate"].pop("passed")
    assert "luck" not in content["certificate"]
    (tmp_path / "gate.json").write_text(json.dumps(content))
    old = td.Gate.load(tmp_path / "gate.json")
    assert (old.threshold, old.certificate.passed) == (gate.threshold, ())


def test_a_gate_of_version_0_1_decides_as_it_did():
    """Its threshold and score, by hand."""
    gate = td.Gate.load(OLD / "gate-frr.json")
    z = np.random.default_rng(1).normal(size=(500, 4)) * 3
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    g = (p**2).sum(1)
    content = json.loads((OLD / "gate-frr.json").read_text())
    by_hand = np.log((1 - g) / g) <= content["threshold"]
    assert np.array_equal(gate.screen(z, kind="logits").accepted, by_hand)
    per_class = td.Gate.load(OLD / "gate-per-class.json")
    groups = json.loads((OLD / "gate-per-class.json").read_text())["groups"]
    limits = {rule["group"]: rule["threshold"] for rule in groups}
    by_hand = np.log((1 - g) / g) <= np.array([limits[k] for k in z.argmax(1)])
    assert np.array_equal(per_class.screen(z, kind="logits").accepted, by_hand)


@pytest.mark.parametrize("name", ["frr", "per-class"])
def test_watch_states_of_version_0_1_load(name, tmp_path):
    gate = td.Gate.load(OLD / f"gate-{name}.json")
    watch = td.Watch.load(OLD / f"watch-{name}.json", gate)
    old = json.loads((OLD / f"watch-{name}.json").read_text())
    assert watch.level == old["level"]
    for test, tally in old["tallies"].items():
        found = watch.tests[test]
        assert found.peak == math.log(tally["peak"])
        if found.groups is None:  # of groups version 0.1 kept no counts
            assert (found.n, found.counted) == (tally["n"], tally["hits"])
    watch.save(tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text())["schema"] == 3
    assert td.Watch.load(tmp_path / "new.json", gate).tests == watch.tests
    other = td.Gate.load(OLD / "gate-trr.json")
    with pytest.raises(FileError, match="another gate"):
        td.Watch.load(OLD / f"watch-{name}.json", other)


@pytest.fixture
def fitted(tmp_path):
    p = laws.rows(1500)
    gate = td.calibrate(p, score=td.RelU.fit(laws.rows(900, seed=2)), frr=0.1)
    gate.save(tmp_path / "gate.json")
    return gate, tmp_path / "gate.json"


def test_a_small_fitted_score_stands_in_the_file(fitted):
    gate, path = fitted
    assert [p.name for p in path.parent.iterdir()] == ["gate.json"]
    again = td.Gate.load(path)
    assert again.fitted.digest == gate.fitted.digest
    p = laws.rows(200, seed=5)
    assert np.array_equal(again.screen(p).scores, gate.screen(p).scores)


def test_a_large_one_goes_into_a_file_beside_it(tmp_path, monkeypatch):
    p = laws.rows(1500)
    gate = td.calibrate(p, score=td.KNN.fit(laws.rows(900, seed=2), k=5), frr=0.1)
    monkeypatch.setattr(gate_file, "EMBEDDED", 1000)
    gate.save(tmp_path / "gate.json")
    (beside,) = tmp_path.glob("gate.knn-*.safetensors")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gate.json", beside.name]
    assert len((tmp_path / "gate.json").read_text()) < 3000
    new = laws.rows(200, seed=5)
    again = td.Gate.load(tmp_path / "gate.json")
    assert np.array_equal(again.screen(new).scores, gate.screen(new).scores)
    td.KNN.fit(laws.rows(900, seed=3), k=5).save(beside)
    with pytest.raises(FileError, match="was changed: the digest is another"):
        td.Gate.load(tmp_path / "gate.json")
    beside.unlink()
    with pytest.raises(FileError, match="there is no file"):
        td.Gate.load(tmp_path / "gate.json")
    content = json.loads((tmp_path / "gate.json").read_text())
    content["fitted"]["file"] = f"../{beside.name}"
    (tmp_path / "gate.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match="expected a file beside the gate"):
        td.Gate.load(tmp_path / "gate.json")


@pytest.mark.parametrize(
    "name",
    ["x" * 250 + ".json", "ü" * 127, "x" + "ü" * 127, "\udcff\udcfe.json"],
    ids=["long", "even", "odd", "not UTF-8"],
)
def test_long_names_leave_room_for_the_one_beside(name, tmp_path, monkeypatch):
    monkeypatch.setattr(gate_file, "EMBEDDED", 1000)
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
        (_set("fitted", to=3), "expected fields"),
        (_set("fitted", to={}), "lacks or adds"),
        (_set("fitted", "arrays", to=[]), "by name"),
        (_set("fitted", "arrays", "matrix", "shape", to=[400, 400]), "of shape"),
        (_set("fitted", "arrays", "matrix", "shape", to=[-4, -4]), "arrays of"),
        (_set("fitted", "arrays", "matrix", "shape", to="4"), "expected a list"),
        (_set("fitted", "arrays", "matrix", "type", to="|O"), "arrays of <f8"),
        (_set("fitted", "arrays", "matrix", "base64", to="!"), "base64"),
        (_set("fitted", "plain", "temperature", to=2.0), "digest is another"),
        (_set("fitted", "plain", "temperature", to=None), "not valid"),
        (_set("fitted", "digest", to="0"), "digest is another"),
        (_set("fitted", "surprise", to=1), "surprise"),
        (_set("score", to="alpha"), "not valid"),
        (_set("score", to="beauty"), "not valid"),
        (_set("temperature", to=2.0), "takes no temperature"),
        (_set("fitted", to=None), "is fitted on labelled rows first"),
    ],
)
def test_a_tampered_fitted_score_is_refused(change, match, fitted):
    _, path = fitted
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=match):
        td.Gate.load(path)


def test_nothing_in_the_file_is_a_pickle(fitted):
    _, path = fitted
    arrays = json.loads(path.read_text())["fitted"]["arrays"]
    raw = base64.b64decode(arrays["matrix"]["base64"])
    assert np.array_equal(np.frombuffer(raw).reshape(4, 4), fitted[0].fitted.matrix)


def test_a_save_that_fails_leaves_the_gate_that_was_there(tmp_path, monkeypatch):
    monkeypatch.setattr(gate_file, "EMBEDDED", 1000)
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
    again = td.Gate.load(path)
    assert np.array_equal(again.screen(new).scores, first.screen(new).scores)


def test_a_schema_1_gate_holds_no_fitted_score(fitted):
    _, path = fitted
    content = json.loads(path.read_text()) | {"schema": 1}
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="lacks or adds: classes, fitted"):
        td.Gate.load(path)
