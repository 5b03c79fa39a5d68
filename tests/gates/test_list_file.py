"""Lists in a gate's file: whole and as they were, or refused in a line."""

import json
import math

import numpy as np
import pytest
import tampering

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates.list_file import list_content, read_shortlist
from trustdoctor.gates.shortlists import ListRule, Shortlist


def rows(n=900, seed=0):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 4))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return td.Predictions.from_logits(z, labels)


MAKE = {
    "lac": lambda p: td.calibrate(p, frr=0.1, shortlist=0.9),
    "raps": lambda p: td.calibrate(
        p, trr=0.8, shortlist={"level": 0.5, "method": "raps", "max_size": 3}
    ),
    "groups": lambda p: td.calibrate(p, frr=0.3, groups="predicted", shortlist=0.8),
    "endless": lambda p: td.calibrate(p, threshold=3.0, shortlist=0.99),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_gate_with_lists_is_what_it_was_saved_as(name, tmp_path):
    p, new = rows(), rows(300, seed=1)
    gate = MAKE[name](p)
    gate.save(tmp_path / "gate.json")
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert loaded == gate
    assert hash(loaded) == hash(gate)
    assert loaded.to_json() == gate.to_json()
    one, two = gate.screen(new), loaded.screen(new)
    assert (one.shortlist == two.shortlist).all()
    assert json.loads(gate.to_json(), parse_constant=pytest.fail)


def test_numbers_that_json_has_no_words_for_are_kept():
    for at in (math.inf, -math.inf, 0.0, 1e-300):
        groups = {3: ListRule(at, 0), 4: ListRule(-at, 9)}
        short = Shortlist(0.9, ListRule(at, 5), 7, groups=groups)
        text = json.dumps(list_content(short), allow_nan=False)
        assert read_shortlist(json.loads(text)) == short
    assert read_shortlist(None) is None


def test_a_file_without_lists_has_no_word_of_them():
    gate = td.calibrate(rows(), frr=0.1)
    assert "shortlist" not in json.loads(gate.to_json())


def use(gate, p):
    """Screen rows; what cannot be done is told in a line."""
    try:
        done = gate.screen(p)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    if gate.shortlist is None:
        assert done.shortlist is None
        return
    assert done.shortlist.shape == (len(p), 4)
    assert done.shortlist.any(1).tolist() == (~done.accepted).tolist()


@pytest.mark.parametrize("name", MAKE)
def test_tampered_lists_are_refused_or_whole(name, monkeypatch):
    content = json.loads(MAKE[name](rows()).to_json())
    new, kept = rows(30, seed=1), 0
    for what, text in tampering.mutants({"shortlist": content["shortlist"]}):
        if what[-1] == "twice":
            continue
        whole = json.dumps(content | json.loads(text))
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, text=whole: text)
        try:
            gate = td.Gate.load("gate.json")
        except FileError as error:
            assert "\n" not in str(error), what  # noqa: PT017
            assert len(str(error)) < 600, what  # noqa: PT017
            continue
        use(gate, new)
        again = json.loads(gate.to_json()).get("shortlist")
        assert tampering.same(again, json.loads(whole).get("shortlist")), what
        kept += 1
    assert kept


def test_keys_given_twice_are_refused(tmp_path):
    text = MAKE["lac"](rows()).to_json()
    for key in ("level", "threshold", "groups"):
        doubled = text.replace(f'"{key}":', f'"{key}": 1, "{key}":', 2)
        (tmp_path / "gate.json").write_text(doubled)
        with pytest.raises(FileError):
            td.Gate.load(tmp_path / "gate.json")
