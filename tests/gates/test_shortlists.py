"""Shortlists against written-out definitions and MAPIE; shortlists in files."""

import json
import math
import pickle
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import tampered_documents

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import describe_lists, shortlists
from trustdoctor.gates.shortlists import (
    ListRule,
    Shortlist,
    read_shortlist,
    shortlist_content,
)

INF = np.inf
METHODS = {
    "lac": {},
    "aps": {"method": "aps"},
    "raps": {"method": "raps", "penalty": 0.07, "free": 2},
}


def lists(threshold=1.0, classes=5, **options):
    return Shortlist(0.9, ListRule(threshold, 50), classes, **options)


def logits(rows=40, classes=5, seed=0):
    """Rows with ties, and with classes that cannot be."""
    z = 2 * np.random.default_rng(seed).normal(size=(rows, classes))
    z[rows // 2 :] = np.round(z[rows // 2 :])
    z[::3, 1] = -INF
    z[1] = 0
    return z


def defined(row, method, penalty=0.0, free=0):
    """Return the nonconformity of each class, in 50 digits."""
    with mpmath.workdps(50):
        mass = [mpmath.exp(mpmath.mpf(float(logit))) for logit in row]
        p = [logit / mpmath.fsum(mass) for logit in mass]
        order = sorted(range(len(row)), key=lambda k: (-row[k], k))
        out = []
        for k in range(len(row)):
            place = order.index(k)
            if method == "lac":
                nonconformity = -mpmath.log(p[k]) if p[k] else mpmath.inf
            else:
                nonconformity = mpmath.fsum(p[j] for j in order[:place]) - 1
                nonconformity += penalty * max(0, place + 1 - free)
            out.append(float(nonconformity) if place else -INF)
        return out


@pytest.mark.parametrize("name", METHODS)
def test_nonconformity_is_what_the_definition_says(name):
    options, z = METHODS[name], logits()
    scores = lists(**options).nonconformity(z)
    expected = [defined(row, **({"method": "lac"} | options)) for row in z]
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-14)
    assert (scores.min(1) == -INF).all()
    assert (scores.argmin(1) == z.argmax(1)).all()


@pytest.mark.parametrize("name", METHODS)
def test_a_list_has_the_classes_up_to_the_threshold(name, monkeypatch):
    options, z = METHODS[name], logits(90)
    nonconformity = lists(**options).nonconformity(z)
    thresholds = np.quantile(nonconformity[np.isfinite(nonconformity)], [0.1, 0.5, 0.9])
    for at in (-INF, *thresholds.tolist(), INF):
        shortlist = lists(at, **options)
        sets = shortlist.prediction_sets(z)
        assert (sets == (nonconformity <= at)).all()
        assert sets[np.arange(90), z.argmax(1)].all()
        short = replace(shortlist, max_size=2).prediction_sets(z)
        fits = sets.sum(1) <= 2
        assert (short[fits] == sets[fits]).all()
        assert short[~fits].all()
        monkeypatch.setattr(shortlists, "_BLOCK", 7)
        assert (shortlist.prediction_sets(z) == sets).all()
        monkeypatch.undo()
    assert lists(INF).prediction_sets(z).all()
    assert (lists(-INF).prediction_sets(z).sum(1) == 1).all()


def test_numbers_on_a_list_do_not_depend_on_their_neighbours(rng):
    z = rng.normal(size=(400, 37)).astype(np.float32)
    for options in METHODS.values():
        together = lists(classes=37, **options).nonconformity(z)
        for rows in (slice(0, 1), slice(5, 80), [399, 2, 7]):
            alone = lists(classes=37, **options).nonconformity(z[rows])
            assert np.array_equal(alone, together[rows])


def test_groups_have_separate_thresholds():
    z, groups = logits(6), ["a", "b", "c"] * 2
    rules = {"a": ListRule(-INF, 3), "b": ListRule(1.5, 30)}
    short = lists(groups=rules)
    sets = short.prediction_sets(z, groups=groups)
    assert (sets[::3].sum(1) == 1).all()
    assert (sets[1::3] == (short.nonconformity(z[1::3]) <= 1.5)).all()
    assert sets[2::3].all(), "a group that is not known gets a full review"
    with pytest.raises(InputError, match="no groups were given"):
        short.prediction_sets(z)
    assert short.least_probability is None
    assert "of each group" in short.promise()
    assert lists(2.0).least_probability == pytest.approx(np.exp(-2))


def rows(classes=4, n=60, seed=3, **options):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    return td.Predictions.from_logits(z, rng.integers(0, classes, n), **options)


def test_a_gate_gives_lists_to_rejected_rows_alone():
    p = rows()
    gate = td.Gate(-0.5, score="alpha", shortlist=lists(1.2, classes=4))
    screened = gate.screen(p)
    assert screened.accepted.any()
    assert not screened.accepted.all()
    assert not screened.shortlist[screened.accepted].any()
    expected = gate.shortlist.prediction_sets(p.logits[~screened.accepted])
    assert (screened.shortlist[~screened.accepted] == expected).all()
    none = replace(gate, state="accept-all").screen(p)
    assert not none.shortlist.any()
    assert td.Gate(-0.5, score="alpha").screen(p).shortlist is None


def test_rows_without_every_class_are_refused():
    gate = td.Gate(-0.5, score="confidence", shortlist=lists(1.2))
    stated = td.Predictions.from_confidence([0.9, 0.2])
    with pytest.raises(InputError, match="logits or probabilities of every class"):
        gate.screen(stated)
    top = td.Predictions.from_topk([[0.5, 0.2]], [[0, 1]], n_classes=5)
    gate = td.Gate(-0.5, score="alpha", shortlist=lists(1.2))
    with pytest.raises(InputError, match="every class, got Answers"):
        gate.screen(top)
    with pytest.raises(InputError, match="expected rows of 5 classes"):
        gate.screen(rows(4))


def plainly(mask, p):
    """Write lists out row by row."""
    names = p.class_names or [str(k) for k in range(p.n_classes)]
    out = []
    for row, z in zip(mask, p.logits, strict=True):
        on = sorted(np.flatnonzero(row), key=lambda k: (-z[k], k))
        text = " | ".join(names[k].replace("|", "\\|") for k in on)
        out.append("full review" if row.all() else text)
    return out


@pytest.mark.parametrize("names", [None, ["cat", "a|b", "ö x", "", "full review"]])
def test_lists_as_text_have_the_most_probable_class_first(names, rng, monkeypatch):
    z = logits(300)
    p = td.Predictions.from_logits(z, class_names=names)
    mask = rng.random((300, 5)) < 0.5
    mask[:5], mask[5:9] = True, False
    texts = describe_lists(mask, p)
    assert texts.tolist() == plainly(mask, p)
    assert texts.dtype == object
    assert {type(text) for text in texts.tolist()} == {str}
    monkeypatch.setattr(shortlists, "_BLOCK", 30)
    assert describe_lists(mask, p).tolist() == texts.tolist()
    assert describe_lists(mask[:0], p[:0]).tolist() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"level": 0.4},
        {"level": 1.0},
        {"level": "0.9"},
        {"level": True},
        {"n_classes": 1},
        {"n_classes": 2.0},
        {"method": "map"},
        {"max_size": 0},
        {"max_size": True},
        {"penalty": -1},
        {"penalty": np.nan},
        {"penalty": INF},
        {"free": -1},
        {"free": 1.5},
    ],
    ids=str,
)
def test_invalid_shortlists_are_refused(wrong):
    usual = {"level": 0.9, "rule": ListRule(1.0, 5), "n_classes": 3}
    with pytest.raises(InputError, match="of a shortlist") as caught:
        Shortlist(**(usual | wrong))
    assert "\n" not in str(caught.value)
    for threshold, count in ((np.nan, 5), ("x", 5), (1.0, -1), (1.0, 2.0), (1, 5)):
        with pytest.raises(InputError, match="a threshold and a number of rows"):
            ListRule(threshold, count)


def test_equal_shortlists_are_equal_and_cross_processes():
    short = lists(1.5, groups={"a": ListRule(0.5, 3)})
    same = lists(1.5, groups={"a": ListRule(0.5, 3)})
    other = lists(1.5, groups={"a": ListRule(0.6, 3)})
    assert short == same
    assert hash(short) == hash(same)
    assert short != other
    assert pickle.loads(pickle.dumps(short)) == short
    gates = [td.Gate(0.0, score="alpha", shortlist=s) for s in (short, same, other)]
    assert gates[0] == gates[1]
    assert hash(gates[0]) == hash(gates[1])
    assert gates[0] != gates[2]
    assert gates[0] != td.Gate(0.0, score="alpha")
    assert pickle.loads(pickle.dumps(gates[0])) == gates[0]


def drawn(n, seed, classes=6):
    """Rows whose labels are drawn by their probabilities."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(n, classes))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return td.Predictions.from_probs(p, labels), p


class FixedClassifier:
    """A classifier whose inputs are its probabilities."""

    def __init__(self, classes):
        self.classes_ = np.arange(classes)

    def fit(self, *_):
        return self

    def predict(self, x):
        return x.argmax(1)

    def predict_proba(self, x):
        return x

    def __sklearn_is_fitted__(self):
        return True


def test_mapie_gives_the_same_lists_on_the_rejected_rows():
    """By LAC: the threshold is so far out that a correct row is never beyond it."""
    from mapie.classification import SplitConformalClassifier

    p, probs = drawn(3000, seed=0)
    new, new_labels = drawn(2000, seed=1)
    gate = td.shortlist(td.Gate(0.8, score="alpha"), p, level=0.9)
    rejected = ~gate.screen(p).accepted
    conformal = SplitConformalClassifier(
        FixedClassifier(6), confidence_level=0.9, conformity_score="lac", prefit=True
    )
    conformal.conformalize(probs[rejected], p.labels[rejected])
    screened = gate.screen(new)
    assert gate.shortlist.rule.rows == rejected.sum() > 1000
    _, sets = conformal.predict_set(new_labels[~screened.accepted])
    assert (sets[:, :, 0] == screened.shortlist[~screened.accepted]).all()


def test_mapie_sums_the_same_masses():
    from mapie.conformity_scores import APSConformityScore

    p, probs = drawn(500, seed=2)
    mass, _ = APSConformityScore.get_true_label_cumsum_proba(
        p.labels, probs, np.arange(6)
    )
    nonconformity = lists(classes=6, method="aps").nonconformity(p.logits)
    of_prediction, true = (
        np.take_along_axis(array, p.labels[:, None], 1)[p.errors]
        for array in (nonconformity, probs)
    )
    np.testing.assert_allclose(
        of_prediction + 1, mass[p.errors] - true, rtol=0, atol=1e-12
    )


# In a gate's file: whole and as they were, or refused in a line.


def labelled_rows(n=900, seed=0):
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
def test_a_gate_with_lists_survives_its_file(name, tmp_path):
    p, new = labelled_rows(), labelled_rows(300, seed=1)
    gate = MAKE[name](p)
    gate.save(tmp_path / "gate.json")
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert loaded == gate
    assert hash(loaded) == hash(gate)
    assert loaded.to_json() == gate.to_json()
    before, after = gate.screen(new), loaded.screen(new)
    assert (before.shortlist == after.shortlist).all()
    assert json.loads(gate.to_json(), parse_constant=pytest.fail)


def test_numbers_that_json_has_no_words_for_are_kept():
    for at in (math.inf, -math.inf, 0.0, 1e-300):
        groups = {3: ListRule(at, 0), 4: ListRule(-at, 9)}
        short = Shortlist(0.9, ListRule(at, 5), 7, groups=groups)
        text = json.dumps(shortlist_content(short), allow_nan=False)
        assert read_shortlist(json.loads(text)) == short
    assert read_shortlist(None) is None


def test_a_file_without_lists_has_no_word_of_them():
    gate = td.calibrate(labelled_rows(), frr=0.1)
    assert "shortlist" not in json.loads(gate.to_json())


def use(gate, p):
    """Screen rows; refusals must fit in one line."""
    try:
        screened = gate.screen(p)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    if gate.shortlist is None:
        assert screened.shortlist is None
        return
    assert screened.shortlist.shape == (len(p), 4)
    assert screened.shortlist.any(1).tolist() == (~screened.accepted).tolist()


@pytest.mark.parametrize("name", MAKE)
def test_tampered_lists_are_refused_or_whole(name, monkeypatch):
    content = json.loads(MAKE[name](labelled_rows()).to_json())
    new, n_loaded = labelled_rows(30, seed=1), 0
    for change, text in tampered_documents.mutants({"shortlist": content["shortlist"]}):
        if change[-1] == "twice":
            continue
        gate_text = json.dumps(content | json.loads(text))
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, text=gate_text: text)
        try:
            gate = td.Gate.load("gate.json")
        except FileError as error:
            assert "\n" not in str(error), change  # noqa: PT017
            assert len(str(error)) < 600, change  # noqa: PT017
            continue
        use(gate, new)
        repeated = json.loads(gate.to_json()).get("shortlist")
        assert tampered_documents.same(
            repeated, json.loads(gate_text).get("shortlist")
        ), change
        n_loaded += 1
    assert n_loaded


def test_keys_given_twice_are_refused(tmp_path):
    text = MAKE["lac"](labelled_rows()).to_json()
    for key in ("level", "threshold", "groups"):
        doubled = text.replace(f'"{key}":', f'"{key}": 1, "{key}":', 2)
        (tmp_path / "gate.json").write_text(doubled)
        with pytest.raises(FileError):
            td.Gate.load(tmp_path / "gate.json")
