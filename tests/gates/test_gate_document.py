"""Any gate file is either refused in one line or loads as exactly that gate."""

import json

import laws
import numpy as np
import pytest
import tampered_documents

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import Certificate, Margins
from trustdoctor.gates.gate_file import GateDocument
from trustdoctor.scores import ScoreDocument

ROWS = laws.rows(1200)
NEW = laws.rows(30, seed=7)


def confident(rows, seed=0):
    rng = np.random.default_rng(seed)
    right = rng.random(rows) < 0.9
    return td.Predictions.from_confidence(rng.random(rows), right)


MARGINS = Margins(("flip", "shift"), (0.1, 0.2), (0.3, 0.1))
MAKE = {
    "frr": lambda: td.calibrate(ROWS, frr=0.1),
    "both": lambda: td.calibrate(ROWS, frr=0.3, trr=0.3),
    "cost": lambda: td.calibrate(ROWS, cost=10),
    "threshold": lambda: td.calibrate(ROWS, threshold=0),
    "groups": lambda: td.calibrate(ROWS, frr=0.1, groups="predicted"),
    "fitted": lambda: td.calibrate(ROWS, frr=0.1, score=td.RelU.fit(ROWS)),
    "unit": lambda: td.calibrate(confident(500), risk=0.2),
    "margins": lambda: td.Gate(0.5, margins=MARGINS),
    "unlabelled": lambda: td.calibrate_unlabelled(ROWS, risk=0.1),
    "bare": lambda: td.Gate.from_gamma(0.5),
}


def use(gate, kind):
    """Use a gate in every way; only library errors may be raised."""
    assert isinstance(repr(gate), str)
    assert gate == gate
    assert hash(gate) == hash(gate)
    if gate.margins is not None or gate.score is None:
        return
    try:
        rows = confident(30, seed=1) if kind == "unit" else NEW
        assert len(gate.screen(rows).accepted) == 30
        if gate.certificate is not None:
            tests = gate.watch().update(rows).tests
            assert all(np.isfinite(test.peak) for test in tests.values())
            assert gate.certificate.promise() in repr(gate)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017


def plain(content):
    """Leave out what a file need not say."""
    plain = tampered_documents.without_defaults(content, GateDocument)
    certificate = content.get("certificate")
    if certificate is not None:
        plain["certificate"] = tampered_documents.without_defaults(
            certificate, Certificate
        )
    if content["score"] is not None:
        plain["score"] = tampered_documents.without_defaults(
            content["score"], ScoreDocument
        )
    return plain


TELLING = {"target", "mode", "n_errors", "feasible"}
"""Parts of a certificate that differ between kinds; others are tried once."""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", MAKE)
def test_a_tampered_gate_is_refused_or_whole(kind, monkeypatch):
    content, n_loaded = json.loads(MAKE[kind]().to_json()), 0
    for change, text in tampered_documents.mutants(content):
        if kind != "frr" and change[0] == "certificate" and change[1] not in TELLING:
            continue
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, text=text: text)
        try:
            gate = td.Gate.load("gate.json")
        except FileError as error:
            assert "\n" not in str(error), change  # noqa: PT017
            assert len(str(error)) < 600, change  # noqa: PT017
            continue
        assert change[-1] != "twice", change
        use(gate, kind)
        rewritten = gate.to_json()
        if change[:3] != (
            "score",
            "fitted",
            "plain",
        ):  # with its own defaults
            assert tampered_documents.same(
                plain(json.loads(rewritten)), plain(json.loads(text))
            )
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, again=rewritten: again)
        assert td.Gate.load("gate.json") == gate, change
        n_loaded += 1
    assert n_loaded


def changed(gate, path, **changes):
    gate.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


GROUP = {"threshold": 0.0, "state": "threshold", "n": 5, "promised": True}


@pytest.mark.parametrize(
    ("names", "match"),
    [
        ([1, 1], "the group 1 twice"),
        (["a", "a"], "the group 'a' twice"),
        ([1, "1"], "all integers, or all strings"),
        ([True, 2], r"groups\[0\]\.group: expected int . str"),
        ([1.0, 2], r"groups\[0\]\.group: expected int . str"),
        ([None], r"groups\[0\]\.group: expected int . str"),
    ],
    ids=str,
)
def test_groups_are_of_one_kind_and_each_there_once(names, match, tmp_path):
    groups = [GROUP | {"group": name} for name in names]
    path = changed(td.Gate(0.0), tmp_path / "gate.json", groups=groups)
    with pytest.raises(FileError, match=match):
        td.Gate.load(path)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"target": 0}, "target"),
        ({"target": {}}, "target"),
        ({"target": {"frr": 0}}, "target"),
        ({"target": {"frr": 1}}, "target"),
        ({"target": {"risk": 0.1, "joint": 0.1}}, "target"),
        ({"target": {"cost": 5.0}}, "mode"),
        ({"target": {"cost": 5.0}, "mode": "expectation"}, "mode"),
        ({"target": {"risk": 0.1, "frr": 0.1}, "mode": "expectation"}, "mode"),
        ({"target": {"beauty": 0.1}}, "'beauty', which is not registered"),
        ({"confidence": 1.0}, r"certificate\.confidence: expected float < 1"),
        ({"n": -5}, r"certificate\.n: expected int >= 1"),
        ({"n": 1 << 60}, r"certificate\.n: expected int <"),
        ({"n": 100.0}, r"certificate\.n: expected int"),
        ({"n_errors": -1}, r"certificate\.n_errors: expected int >= 0"),
        ({"n_errors": 1300}, "its n_errors cannot be 1300"),
        ({"accepted": 1300}, "its accepted cannot be 1300"),
        ({"accepted_errors": 1200}, "its accepted_errors cannot be"),
        ({"accepted": None}, "its accepted_errors cannot be"),
        ({"n_errors": None}, "its accepted_errors cannot be"),
        ({"n_errors": None, "accepted_errors": None}, "its mode cannot be"),
        ({"rows_needed": 5}, "unknown field rows_needed"),
        ({"outlook": [[0, 0.1, 0.2, 0.3, 0.4]]}, "outlook"),
        ({"outlook": [[10, 1.1, 0.2, 0.3, 0.4]]}, "outlook"),
        ({"outlook": [[10, 0.1]]}, "outlook"),
        ({"outlook": 5}, "outlook: expected array"),
        ({"feasible": [2.0, 1.0]}, "feasible"),
        ({"notes": "text"}, "notes: expected array"),
        ({"passed": [["high", 5, 1, 0.1, 0.1]]}, "expected numbers, got 'high'"),
        ({"passed": [["inf", 5, 6, 0.1, 0.1]]}, "its passed cannot be"),
    ],
    ids=str,
)
def test_an_absurd_certificate_is_refused(change, field, tmp_path):
    gate, path = MAKE["frr"](), tmp_path / "gate.json"
    certificate = gate.certificate.to_dict() | change
    changed(gate, path, certificate=certificate)
    with pytest.raises(FileError, match=field):
        td.Gate.load(path)


def test_a_gate_with_margins_has_no_groups(tmp_path):
    gate = MAKE["margins"]()
    path = changed(gate, tmp_path / "gate.json", groups=[GROUP | {"group": 1}])
    with pytest.raises(FileError, match="has no groups"):
        td.Gate.load(path)


def test_equal_gates_have_equal_hashes(tmp_path):
    for kind, make in MAKE.items():
        gate, path = make(), tmp_path / f"{kind}.json"
        gate.save(path)
        loaded = td.Gate.load(path)
        assert gate == loaded
        assert {gate: 1}[loaded] == 1
        assert gate != td.Gate(123.0)
        assert gate != kind
        if gate.certificate is not None:
            assert hash(gate.certificate) == hash(loaded.certificate)
    score, other = td.RelU.fit(ROWS), td.RelU.fit(ROWS, shrink=0.2)
    assert td.Gate(0.0, score=score) == td.Gate(0.0, score=td.RelU.fit(ROWS))
    assert td.Gate(0.0, score=score) != td.Gate(0.0, score=other)


def test_equality_does_not_ask_arrays(monkeypatch):
    """A fitted score of somebody else's may compare its arrays."""
    from dataclasses import dataclass

    from trustdoctor.scores import SCORES, FittedScore

    @dataclass(frozen=True)
    class Distance(FittedScore):
        mean: np.ndarray
        name, needs, laws = "distance", frozenset({"features"}), frozenset()

        @classmethod
        def fit(cls, predictions):
            return cls(predictions.features.mean(0))

        def __call__(self, predictions):
            return np.linalg.norm(predictions.features - self.mean, axis=1)

    monkeypatch.setitem(SCORES, "distance", Distance)
    gate, equal_gate = (td.Gate(0.0, score=Distance(np.arange(3.0))) for _ in "ab")
    assert gate == equal_gate
    assert hash(gate) == hash(equal_gate)
    assert gate != td.Gate(0.0, score=Distance(np.arange(4.0)))
