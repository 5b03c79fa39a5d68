"""Lists of classes for the rows that a scikit-learn model's gate rejects."""

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    PredefinedSplit,
    train_test_split,
)
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import trustdoctor as td
from trustdoctor import gates
from trustdoctor.adapters.sklearn import CROSS_FITTED_LISTS, TrustedClassifier
from trustdoctor.errors import InputError
from trustdoctor.scores import ROUNDING

NAMES = np.array(["ant", "bee", "cow", "dog", "eel", "fly"])
VALUES = {
    "frr": 0.2, "trr": 0.6, "risk": 0.3, "joint": 0.2, "coverage": 0.7, "cost": 4.0,
    "threshold": -1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    x, y = make_classification(
        2400, 8, n_informative=6, n_classes=6, n_clusters_per_class=1, flip_y=0.2,
        random_state=0,
    )  # fmt: skip
    return train_test_split(x, NAMES[y], random_state=0)


@pytest.fixture(scope="module")
def fitted(rows):
    x, _, y, _ = rows
    return LogisticRegression().fit(x[:600], y[:600])


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass():
    check_estimator(TrustedClassifier(LogisticRegression(), shortlist=0.9))


@pytest.mark.parametrize(
    "shortlist", [0.8, {"level": 0.8, "method": "aps", "max_size": 4}]
)
@pytest.mark.parametrize("name", gates.TARGETS)
@pytest.mark.sampled(3)
def test_every_target_lists_as_calibrate_does(name, shortlist, rows, fitted):
    """The same rows set both where the threshold is next to an order statistic."""
    _, new, _, new_y = rows
    labels = np.searchsorted(NAMES, new_y)
    p = td.Predictions.from_probs(fitted.predict_proba(new), labels)
    gate = td.calibrate(p, shortlist=shortlist, **{name: VALUES[name]})
    model = TrustedClassifier(
        fitted, shortlist=shortlist, cv="prefit", **{name: VALUES[name]}
    ).fit(new, new_y)
    assert model.gate_.shortlist == gate.shortlist
    assert model.gate_.threshold == gate.threshold
    assert model.gate_.certificate.notes == gate.certificate.notes
    assert model.gate_.certificate.n == (600 if gate.shortlist.same_rows else 400)
    lists = model.predict_trusted(new).shortlist
    assert np.array_equal(lists, gate.screen(p).shortlist)


def test_lists_hold_the_label_that_was_given(rows):
    """It need not be the most probable one."""
    x, new, y, new_y = rows
    y, new_y = y < "dog", new_y < "dog"
    odd = FixedThresholdClassifier(LogisticRegression(), threshold=0.9).fit(x, y)
    model = TrustedClassifier(odd, coverage=0.3, shortlist=0.5, cv="prefit")
    decisions = model.fit(new, new_y).predict_trusted(new)
    rejected, answered = (
        np.flatnonzero(~decisions.accepted),
        odd.predict(new).astype(int),
    )
    assert decisions.shortlist[rejected, answered[rejected]].all()
    assert not decisions.shortlist[decisions.accepted].any()
    other = odd.predict_proba(new)[rejected, 1 - answered[rejected]]
    listed = decisions.shortlist[rejected, 1 - answered[rejected]]
    least = np.exp(-model.gate_.shortlist.rule.threshold)
    assert np.array_equal(listed, other >= least)
    assert (odd.predict_proba(new).argmax(1) != answered)[rejected].any()


def test_the_threshold_is_an_order_statistic(rows, fitted):
    """Of rejected rows that the gate has not seen, by hand."""
    _, new, _, new_y = rows
    model = TrustedClassifier(fitted, cost=3.0, shortlist=0.75, cv="prefit")
    gate = model.fit(new, new_y).gate_
    calibration_rows = np.random.default_rng(0).permutation(len(new))[: len(new) // 3]
    p = fitted.predict_proba(new[calibration_rows])
    truth = np.searchsorted(NAMES, new_y[calibration_rows])
    strange = 1 - p[np.arange(len(calibration_rows)), truth]
    strange[p.argmax(1) == truth] = -1
    rejected = np.sort(strange[~model.accept(new[calibration_rows])])
    expected = rejected[int(np.ceil((len(rejected) + 1) * 0.75)) - 1]
    assert gate.shortlist.rule.rows == len(rejected)
    expected = -np.log(1 - expected)
    expected += ROUNDING * max(1, expected)  # room for rounding
    assert gate.shortlist.least_probability == pytest.approx(
        np.exp(-expected), rel=1e-12
    )


def test_lists_by_name_have_the_most_probable_first(rows, fitted):
    x, new, _, new_y = rows
    options = {"level": 0.9, "max_size": 4}
    model = TrustedClassifier(fitted, frr=0.2, shortlist=options, cv="prefit")
    decisions = model.fit(new, new_y).predict_trusted(x)
    lists, p = model.shortlists(x), fitted.predict_proba(x)
    assert len(lists) == len(x)
    kinds = set()
    for mask, names, row in zip(decisions.shortlist, lists, p, strict=True):
        ordered = NAMES[np.argsort(-row)]
        assert names.tolist() == [n for n in ordered if mask[NAMES.tolist().index(n)]]
        kinds.add(len(names))
    assert {0, 2, 6} <= kinds
    assert 5 not in kinds
    plain = TrustedClassifier(fitted, cv="prefit").fit(new, new_y)
    assert plain.predict_trusted(x).shortlist is None
    with pytest.raises(InputError, match="no lists"):
        plain.shortlists(x)


def test_lists_hold_the_truth_as_often_as_asked(rows):
    """Over splits, of prefit models and of cross-fitted ones."""
    x = np.concatenate([rows[0], rows[1]])
    y = np.concatenate([rows[2], rows[3]])
    coverages = {"prefit": [], "cross-fitted": []}
    for seed in range(12):
        train, new, train_y, new_y = train_test_split(
            x, y, train_size=1500, random_state=seed
        )
        fitted = LogisticRegression().fit(train[:700], train_y[:700])
        prefit = TrustedClassifier(fitted, frr=0.3, shortlist=0.8, cv="prefit")
        crossed = TrustedClassifier(LogisticRegression(), frr=0.3, shortlist=0.8)
        prefit.fit(train[700:], train_y[700:])
        crossed.fit(train, train_y)
        for name, model in (("prefit", prefit), ("cross-fitted", crossed)):
            decisions = model.predict_trusted(new)
            truth = np.searchsorted(NAMES, new_y)
            hits = decisions.shortlist[np.arange(len(new)), truth]
            coverages[name].append(hits[~decisions.accepted].mean())
    for rates in coverages.values():
        assert 0.78 < np.mean(rates) < 0.84
    assert crossed.gate_.certificate.notes[-1] == CROSS_FITTED_LISTS
    assert CROSS_FITTED_LISTS not in prefit.gate_.certificate.notes


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_a_class_missing_from_a_fold(method, rows):
    """No list of its own holds it; the lists' columns are the final model's."""
    x, new, y, _ = rows
    y = np.where(np.arange(len(y)) < 3, "gnu", y)
    options = {"level": 0.9, "method": method}
    model = TrustedClassifier(LogisticRegression(max_iter=500), shortlist=options)
    lists = model.fit(x, y).predict_trusted(new).shortlist
    assert model.classes_.tolist() == [*NAMES, "gnu"]
    assert lists.shape == (len(new), 7)
    cv = PredefinedSplit(np.where(np.arange(len(y)) < 900, 0, -1))
    split = clone(model).set_params(cv=cv, frr=0.3).fit(x, y)
    assert split.classes_.tolist() == NAMES.tolist()
    decisions = split.predict_trusted(new)
    assert decisions.shortlist.shape == (len(new), 6)
    assert decisions.shortlist[~decisions.accepted].any(1).all()
    assert split.gate_.shortlist.n_classes == 6


def test_unknown_classes_can_ask_for_full_reviews(rows):
    """Where most of the rejected rows are of a class that was never seen."""
    x, new, y, _ = rows
    far = np.arange(len(y)) < 900
    y = np.where(far & (np.arange(len(y)) % 2 == 0), "gnu", y)
    cv = PredefinedSplit(np.where(far, 0, -1))
    for method in ("lac", "aps"):
        options = {"level": 0.9, "method": method}
        model = TrustedClassifier(LogisticRegression(), coverage=0.5, cv=cv)
        decisions = model.set_params(shortlist=options).fit(x, y).predict_trusted(new)
        assert decisions.shortlist[~decisions.accepted].all()


class Unsorted(ClassifierMixin, BaseEstimator):
    """A classifier whose classes are in no order."""

    def fit(self, x, y):
        self.inner_ = LogisticRegression().fit(x, y)
        self.classes_ = self.inner_.classes_[::-1]
        return self

    def predict(self, x):
        return self.inner_.predict(x)

    def predict_proba(self, x):
        return self.inner_.predict_proba(x)[:, ::-1]


@pytest.mark.parametrize("cv", [5, "prefit"])
def test_columns_are_those_of_the_estimator(cv, rows):
    x, new, y, _ = rows
    models = [
        TrustedClassifier(kind, frr=0.3, shortlist=0.8, cv=cv).fit(x[600:], y[600:])
        for kind in (LogisticRegression().fit(x, y), Unsorted().fit(x, y))
    ]
    plain, odd = (model.predict_trusted(new) for model in models)
    assert models[1].classes_.tolist() == NAMES[::-1].tolist()
    assert np.array_equal(odd.accepted, plain.accepted)
    assert np.array_equal(odd.shortlist[:, ::-1], plain.shortlist)


def test_decision_values_count_as_logits(rows):
    x, new, y, _ = rows
    model = TrustedClassifier(LinearSVC(), frr=0.3, shortlist=0.8).fit(x, y)
    decisions = model.predict_trusted(new)
    p = td.Predictions.from_logits(model.decision_function(new))
    assert np.array_equal(decisions.shortlist, model.gate_.screen(p).shortlist)
    binary = TrustedClassifier(LinearSVC(), frr=0.3, shortlist=0.6)
    assert binary.fit(x, y > "cow").predict_trusted(new).shortlist.shape[1] == 2


def test_it_works_where_estimators_work(rows, fitted):
    x, new, _, new_y = rows
    model = TrustedClassifier(FrozenEstimator(fitted), shortlist={"level": 0.8})
    assert clone(model).get_params()["shortlist"] == {"level": 0.8}
    assert TrustedClassifier(fitted).get_params()["shortlist"] is None

    def shortness(model, rows, _labels):
        return -np.mean([len(names) for names in model.shortlists(rows)])

    settings = [{"level": 0.9, "method": "raps"}, 0.6]
    search = GridSearchCV(model, {"shortlist": settings}, cv=2, scoring=shortness)
    assert search.fit(new, new_y).best_params_ == {"shortlist": 0.6}
    loaded = pickle.loads(pickle.dumps(search.best_estimator_))
    lists = loaded.predict_trusted(x).shortlist
    assert np.array_equal(lists, search.best_estimator_.predict_trusted(x).shortlist)


def test_mistakes_are_named(rows, fitted):
    x, new, y, new_y = rows
    for shortlist, match in (
        (0.2, "from 0.5 to below 1"),
        ({"level": 0.9, "size": 3}, "got 'size'"),
        ({"method": "best"}, "lac, aps, raps"),
        ({"free": 3}, "belong to raps"),
    ):
        model = TrustedClassifier(fitted, shortlist=shortlist, cv="prefit")
        with pytest.raises(InputError, match=match):
            model.fit(new, new_y)
    too_few = TrustedClassifier(fitted, shortlist=0.9, cost=2.0, cv="prefit")
    with pytest.raises(InputError, match="more rows than 2"):
        too_few.fit(new[:2], new_y[:2])
    inner = TrustedClassifier(fitted, cv="prefit", reject_label="?", frr=0.3)
    outer = TrustedClassifier(inner.fit(new, new_y), shortlist=0.9, cv="prefit")
    with pytest.raises(InputError, match=r"its own classes, got '\?'"):
        outer.fit(x, y)
