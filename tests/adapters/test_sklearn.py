import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    ShuffleSplit,
    TunedThresholdClassifierCV,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import trustdoctor as td
from trustdoctor import gates
from trustdoctor.adapters.sklearn import CROSS_FITTED, OUT_OF_FOLD, TrustedClassifier
from trustdoctor.errors import InputError


@pytest.fixture(scope="module")
def rows():
    x, y = make_classification(
        900, 8, n_informative=5, n_classes=3, flip_y=0.15, random_state=0
    )
    return train_test_split(x, y, random_state=0)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass():
    check_estimator(TrustedClassifier(LogisticRegression()))


def test_answers_are_those_of_the_estimator(rows):
    x, new, y, new_y = rows
    model = TrustedClassifier(LogisticRegression(), frr=0.1).fit(x, y)
    plain = LogisticRegression().fit(x, y)
    assert np.array_equal(model.predict(new), plain.predict(new))
    assert np.array_equal(model.predict_proba(new), plain.predict_proba(new))
    assert np.array_equal(model.decision_function(new), plain.decision_function(new))
    assert model.score(new, new_y) == plain.score(new, new_y)
    screened = model.predict_trusted(new)
    accepted, labels = screened.accepted, screened.predicted
    p = td.Predictions.from_probs(plain.predict_proba(new))
    np.testing.assert_allclose(screened.doubts, td.alpha(p.logits))
    assert np.array_equal(accepted, model.gate_.screen(p).accepted)
    assert np.array_equal(accepted, model.accept(new))
    accuracy, coverage = model.trusted_score(new, new_y)
    assert accuracy == (labels == new_y)[accepted].mean()
    assert coverage == accepted.mean()
    assert accuracy > model.score(new, new_y)


def test_rejected_rows_get_their_label(rows):
    x, new, y, _ = rows
    for reject in (-1, "ask a person"):
        model = TrustedClassifier(LogisticRegression(), reject_label=reject, frr=0.3)
        labels = model.fit(x, y).predict(new)
        rejected = ~model.accept(new)
        assert rejected.any()
        assert all(label == reject for label in labels[rejected])
        plain = model.estimator_.predict(new)[~rejected]
        assert [int(label) for label in labels[~rejected]] == plain.tolist()


def test_string_labels(rows):
    x, new, y, new_y = rows
    names = np.array(["ant", "bee", "cow"])
    model = TrustedClassifier(LogisticRegression(), reject_label="?").fit(x, names[y])
    assert set(model.predict(new)) <= {"ant", "bee", "cow", "?"}
    assert model.classes_.tolist() == names.tolist()
    assert model.score(new, names[new_y]) > 0.5


@pytest.mark.parametrize("kind", [RidgeClassifier(), LinearSVC()])
def test_decision_values_count_as_logits(kind, rows):
    x, new, y, _ = rows
    model = TrustedClassifier(kind, score="margin", coverage=0.8).fit(x, y)
    z = model.decision_function(new)
    np.testing.assert_allclose(model.predict_trusted(new).doubts, td.margin(z))
    assert not hasattr(model, "predict_proba")
    binary = TrustedClassifier(clone(kind), score="beta").fit(x, y > 0)
    value = np.abs(binary.decision_function(new))
    np.testing.assert_allclose(binary.predict_trusted(new).doubts, -value, atol=1e-12)


def test_a_fitted_score_sits_behind_a_classifier(rows):
    x, new, y, new_y = rows
    plain = LogisticRegression().fit(x, y)
    gate_rows = td.Predictions.from_probs(plain.predict_proba(new[:100]), new_y[:100])
    score = td.RelU.fit(gate_rows)
    model = TrustedClassifier(plain, score=score, cv="prefit", coverage=0.7)
    refitted = clone(model).set_params(estimator=plain).fit(new[100:], new_y[100:])
    screened = refitted.predict_trusted(x)
    p = td.Predictions.from_probs(plain.predict_proba(x))
    np.testing.assert_allclose(screened.doubts, score(p))
    assert np.array_equal(screened.accepted, refitted.gate_.screen(p).accepted)
    assert 0.5 < screened.accepted.mean() < 0.9
    assert refitted.gate_.score_name == "rel_u"


def test_cross_fitting_promises_nothing_and_says_what_holds(rows):
    x, _, y, _ = rows
    certificate = TrustedClassifier(LogisticRegression()).fit(x, y).gate_.certificate
    assert not certificate.guarantee
    assert CROSS_FITTED in certificate.notes
    assert certificate.target == {"frr": 0.05}
    assert certificate.n == len(y)


def test_held_out_rows_carry_a_promise(rows):
    x, new, y, new_y = rows
    prefit = TrustedClassifier(LogisticRegression().fit(x, y), cv="prefit", frr=0.1)
    prefit.fit(new, new_y)
    assert prefit.gate_.certificate.guarantee
    assert prefit.estimator_ is prefit.estimator
    cv = ShuffleSplit(1, test_size=0.4, random_state=0)
    split = TrustedClassifier(LogisticRegression(), cv=cv, trr=0.5).fit(x, y)
    assert split.gate_.certificate.guarantee
    assert split.gate_.certificate.n == round(0.4 * len(y))
    train, _ = next(cv.split(x))
    plain = LogisticRegression().fit(x[train], y[train])
    assert np.array_equal(split.estimator_.coef_, plain.coef_)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("load", [load_digits, load_breast_cancer])
def test_the_promised_frr_holds_over_a_hundred_splits(load):
    data, target = load(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
    rates, cross = [], []
    for seed in range(100):
        x, unseen, y, unseen_y = train_test_split(
            data, target, train_size=150, random_state=seed
        )
        if seed % 10 == 0:  # one model, many calibrations
            fitted = clone(model).fit(x, y)
            crossed = TrustedClassifier(clone(model), frr=0.1).fit(x, y)
        gate_rows, new, gate_y, new_y = train_test_split(
            unseen, unseen_y, train_size=200, random_state=seed
        )
        gated = TrustedClassifier(fitted, cv="prefit", frr=0.1).fit(gate_rows, gate_y)
        for classifier, out in ((gated, rates), (crossed, cross)):
            decisions = classifier.predict_trusted(new)
            correct = decisions.predicted == new_y
            out.append((~decisions.accepted)[correct].mean())
    # At most 10% of the calibrations may break the promise; three standard errors.
    spread = 0.02  # of a rate measured on the new rows
    assert np.mean(np.array(rates) > 0.1 + spread) <= 0.1 + 3 * np.sqrt(0.09 / 100)
    assert np.mean(cross) <= 0.1 + spread


def test_it_works_where_estimators_work(rows):
    x, new, y, _ = rows
    search = GridSearchCV(
        make_pipeline(StandardScaler(), TrustedClassifier(LogisticRegression())),
        {
            "trustedclassifier__estimator__C": [1e-4, 1.0],
            "trustedclassifier__frr": [0.5, 0.05],
        },
        cv=3,
    ).fit(x, y)
    best = search.best_params_
    assert best["trustedclassifier__estimator__C"] == 1.0
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] == scores[1]  # rejecting more is not rewarded
    assert len(cross_val_score(TrustedClassifier(LogisticRegression()), x, y)) == 5
    model = TrustedClassifier(RandomForestClassifier(20, random_state=0)).fit(x, y)
    loaded = pickle.loads(pickle.dumps(model))
    assert np.array_equal(loaded.accept(new), model.accept(new))
    assert clone(model).get_params()["score"] is None


def test_weights_go_to_the_estimator_and_the_gate_counts_rows(rows):
    x, _, y, _ = rows
    weights = np.where(y == 0, 5.0, 1.0)
    model = TrustedClassifier(LogisticRegression()).fit(x, y, sample_weight=weights)
    plain = LogisticRegression().fit(x, y, sample_weight=weights)
    assert np.array_equal(model.estimator_.coef_, plain.coef_)
    assert model.gate_.certificate.n == len(y)


def test_weights_are_routed_where_routing_is_on(rows):
    import sklearn

    x, _, y, _ = rows
    weights = np.where(y == 0, 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = LogisticRegression().set_fit_request(sample_weight=True)
        model = TrustedClassifier(asks).fit(x, y, sample_weight=weights)
        ignores = LogisticRegression().set_fit_request(sample_weight=False)
        other = TrustedClassifier(ignores).fit(x, y, sample_weight=weights)
        scored = cross_val_score(
            TrustedClassifier(asks)
            .set_fit_request(sample_weight=True)
            .set_score_request(sample_weight=True),
            x,
            y,
            params={"sample_weight": weights},
        )
    assert len(scored) == 5
    plain = LogisticRegression().fit(x, y, sample_weight=weights)
    assert np.array_equal(model.estimator_.coef_, plain.coef_)
    assert np.array_equal(other.estimator_.coef_, LogisticRegression().fit(x, y).coef_)


class BareClassifier(ClassifierMixin, BaseEstimator):
    def fit(self, _x, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, x):
        return np.full(len(x), self.classes_[0])


def test_mistakes_are_named(rows):
    x, new, y, _ = rows
    with pytest.raises(InputError, match="predict_proba or decision_function"):
        TrustedClassifier(BareClassifier()).fit(x, y)
    with pytest.raises(InputError, match="cv as a number"):
        TrustedClassifier(LogisticRegression(), cv="later").fit(x, y)
    with pytest.raises(InputError, match="takes no sample_weight"):
        TrustedClassifier(BareClassifier()).fit(x, y, sample_weight=np.ones(len(y)))
    with pytest.raises(InputError, match="a score out of"):
        TrustedClassifier(LogisticRegression(), score="magic").fit(x, y)
    with pytest.raises(InputError, match="one target"):
        TrustedClassifier(LogisticRegression(), risk=0.1, joint=0.9).fit(x, y)
    with pytest.raises(InputError, match="needs true logits"):
        TrustedClassifier(LogisticRegression(), score="energy").fit(x, y)
    fitted = LogisticRegression().fit(x, y)
    with pytest.raises(InputError, match="classes that the estimator knows"):
        TrustedClassifier(fitted, cv="prefit").fit(new, np.full(len(new), 7))


def test_a_class_of_one_row_is_accepted(rows):
    x, _, y, _ = rows
    y = np.where(np.arange(len(y)) == 0, 9, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TrustedClassifier(LogisticRegression()).fit(x, y)
    assert 9 in model.classes_


def test_the_errors_are_those_of_the_labels_given(rows):
    from sklearn.model_selection import FixedThresholdClassifier

    x, new, y, new_y = rows
    y, new_y = y == 0, new_y == 0
    odd = FixedThresholdClassifier(LogisticRegression(), threshold=0.02).fit(x, y)
    model = TrustedClassifier(odd, coverage=0.9, cv="prefit").fit(new, new_y)
    assert model.gate_.certificate.n_errors == (odd.predict(new) != new_y).sum()
    decisions = model.predict_trusted(new)
    assert np.array_equal(decisions.predicted, odd.predict(new))
    beta = TrustedClassifier(odd, score="beta", coverage=0.9, cv="prefit")
    scores = beta.fit(new, new_y).predict_trusted(new).doubts
    p = odd.predict_proba(new)[np.arange(len(new)), decisions.predicted.astype(int)]
    np.testing.assert_allclose(scores, np.log((1 - p) / p), rtol=1e-6, atol=1e-9)
    assert decisions.accepted.any()


def test_one_vs_one_votes_are_not_logits(rows):
    from sklearn.svm import SVC

    x, _, y, _ = rows
    with pytest.raises(InputError, match="pairs of classes"):
        TrustedClassifier(SVC(decision_function_shape="ovo")).fit(x, y)
    TrustedClassifier(SVC(), score="margin").fit(x, y)


def test_rows_count_once_and_are_not_seen_before(rows):
    from sklearn.model_selection import RepeatedKFold

    x, _, y, _ = rows
    every = np.arange(len(y))
    for cv in (
        [(every, every)],
        [(every[::2], np.repeat(every[1::2], 3))],
        RepeatedKFold(n_splits=3, n_repeats=2),
    ):
        with pytest.raises(InputError, match="at most once"):
            TrustedClassifier(LogisticRegression(), cv=cv).fit(x, y)
    for cv in (1, 0, -3):
        with pytest.raises(InputError, match="2 folds"):
            TrustedClassifier(LogisticRegression(), cv=cv).fit(x, y)


def test_fitting_again_forgets_the_previous_estimator(rows):
    x, _, y, _ = rows
    model = TrustedClassifier(LogisticRegression()).fit(x, y)
    model.set_params(estimator=LinearSVC(), score="energy").fit(x, y)
    model.set_params(estimator=LogisticRegression())
    before = model.classes_
    with pytest.raises(InputError, match="true logits"):
        model.fit(x, np.where(y == 2, 1, y))
    assert model.classes_ is before  # a failed fit changes nothing


def test_labels_for_rejections_are_not_a_class_and_keep_their_type(rows):
    x, new, y, _ = rows
    with pytest.raises(InputError, match="is a class"):
        TrustedClassifier(LogisticRegression(), reject_label=1).fit(x, y)
    for kind in (float, np.uint8):
        model = TrustedClassifier(LogisticRegression(), reject_label=-1, frr=0.3)
        labels = model.fit(x, y.astype(kind)).predict(new)
        assert labels.dtype.kind in "if"
        assert set(labels.tolist()) == {-1, 0, 1, 2}


def test_a_pipelines_step_gets_its_weights(rows):
    x, _, y, _ = rows
    weights = np.where(y == 0, 5.0, 1.0)
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    model = TrustedClassifier(inner).fit(
        x, y, logisticregression__sample_weight=weights
    )
    plain = clone(inner).fit(x, y, logisticregression__sample_weight=weights)
    assert np.array_equal(model.estimator_[-1].coef_, plain[-1].coef_)


def test_groups_go_to_the_splitter(rows):
    from sklearn.model_selection import GroupKFold

    x, _, y, _ = rows
    groups = np.arange(len(y)) % 7
    model = TrustedClassifier(LogisticRegression(), cv=GroupKFold(3))
    assert model.fit(x, y, groups=groups).gate_.certificate.n == len(y)
    with pytest.raises(ValueError, match="groups"):
        model.fit(x, y)


def test_the_score_is_a_parameter_and_scoring_a_method(rows):
    x, new, y, new_y = rows
    model = TrustedClassifier(LogisticRegression(), score="beta", frr=0.1)
    assert model.get_params()["score"] == "beta"
    assert "score_name" not in model.get_params()
    assert "score='beta'" in repr(model)
    assert clone(model).get_params()["score"] == "beta"
    cloned = clone(model).set_params(score="msp", estimator__C=2.0)
    assert (cloned.get_params()["score"], cloned.estimator.C) == ("msp", 2.0)
    assert cloned.fit(x, y).gate_.score_name == "msp"
    plain = LogisticRegression(C=2.0).fit(x, y)
    assert cloned.score(new, new_y) == plain.score(new, new_y)
    loaded = pickle.loads(pickle.dumps(cloned))
    assert loaded.get_params()["score"] == "msp"
    before = TrustedClassifier(LogisticRegression(), score_name="beta")
    assert before.get_params() == model.set_params(frr=None).get_params() | {
        "estimator": before.estimator
    }
    assert before.set_params(score_name="msp").get_params()["score"] == "msp"
    with pytest.raises(ValueError, match="Invalid parameter 'scores'"):
        model.set_params(scores="beta")
    assert "score" in model._repr_html_()


def test_a_search_goes_over_scores(rows):
    x, new, y, new_y = rows
    model = make_pipeline(StandardScaler(), TrustedClassifier(LogisticRegression()))
    scores = ["alpha", "beta", td.SCORES["margin"]]

    def trusted(pipeline, x, y):
        return pipeline[-1].trusted_score(pipeline[:-1].transform(x), y)[0]

    search = GridSearchCV(
        model, {"trustedclassifier__score": scores}, cv=3, scoring=trusted
    ).fit(x, y)
    assert len(set(search.cv_results_["mean_test_score"])) > 1
    assert search.best_params_["trustedclassifier__score"] in scores
    pipeline = search.best_estimator_
    assert pipeline.score(new, new_y) == pipeline[-1].score(
        pipeline[:-1].transform(new), new_y
    )


VALUES = {
    "frr": 0.1, "trr": 0.6, "risk": 0.2, "joint": 0.1, "coverage": 0.7, "cost": 4.0,
    "threshold": -1.0,
}  # fmt: skip


@pytest.mark.parametrize("name", gates.TARGETS)
def test_every_target_sets_the_gate_that_calibrate_sets(name, rows):
    x, new, y, new_y = rows
    plain = LogisticRegression().fit(x, y)
    p = td.Predictions.from_probs(plain.predict_proba(new), new_y)
    gate = td.calibrate(p, score="beta", **{name: VALUES[name]})
    for targets in ({name: VALUES[name]}, {"target": {name: VALUES[name]}}):
        model = TrustedClassifier(plain, score="beta", cv="prefit", **targets)
        model_gate = model.fit(new, new_y).gate_
        assert model_gate.threshold == pytest.approx(gate.threshold, rel=1e-12)
        assert model_gate.certificate.target == gate.certificate.target
        assert model_gate.certificate.guarantee == gate.certificate.guarantee
    crossed = (
        TrustedClassifier(LogisticRegression(), **targets).fit(x, y).gate_.certificate
    )
    promised = gates.TARGETS[name].promised
    assert crossed.notes[-1] == (CROSS_FITTED if promised else OUT_OF_FOLD)


def test_two_targets_hold_together(rows):
    x, new, y, new_y = rows
    plain = LogisticRegression().fit(x, y)
    p = td.Predictions.from_probs(plain.predict_proba(new), new_y)
    gate = td.calibrate(p, frr=0.6, trr=0.4)
    for targets in ({"frr": 0.6, "trr": 0.4}, {"frr": 0.6, "target": {"trr": 0.4}}):
        model = TrustedClassifier(plain, cv="prefit", **targets).fit(new, new_y)
        assert model.gate_.threshold == pytest.approx(gate.threshold)
        assert model.gate_.certificate.target == {"frr": 0.6, "trr": 0.4}


def test_a_target_that_was_registered_sets_the_gate(rows):
    x, _, y, _ = rows
    share = gates.Target(
        "toy", "{}% accepted", "Accept a share.",
        gates.Rule("A quantile.", lambda rows, value, _: gates.Cut(
            score=rows.of_kind("all").kth(int(value * len(rows)))[1]
        )),
        promised=False,
    )  # fmt: skip
    td.register_target(share)
    try:
        model = TrustedClassifier(LogisticRegression(), target={"toy": 0.5}, cv=3)
        search = GridSearchCV(model, {"target": [{"toy": 0.5}, {"toy": 0.9}]}, cv=2)
        assert search.fit(x, y).best_params_["target"] in ({"toy": 0.5}, {"toy": 0.9})
        assert model.fit(x, y).gate_.certificate.target == {"toy": 0.5}
        assert 0.4 < model.accept(x).mean() < 0.6
    finally:
        del gates.TARGETS["toy"]
    with pytest.raises(InputError, match="expected a target out of"):
        model.fit(x, y)
    with pytest.raises(InputError, match="expected a target out of"):
        model.set_params(target={"mode": "expectation"}).fit(x, y)
    for wrong in ({"frr": 0.1}, 0.1):
        with pytest.raises(InputError, match="target as a dict"):
            model.set_params(target=wrong, frr=0.05).fit(x, y)


def counting(x, y):
    """Return a fitted pipeline whose classifier counts how often it is fitted."""

    class Counted(LogisticRegression):
        fits = 0

        def fit(self, *args, **options):
            type(self).fits += 1
            return super().fit(*args, **options)

    return make_pipeline(StandardScaler(), Counted()).fit(x, y), Counted


def test_a_fitted_pipeline_is_not_fitted_again(rows):
    x, new, y, new_y = rows
    pipe, counted = counting(x, y)
    gate = td.calibrate(
        td.Predictions.from_probs(pipe.predict_proba(new), new_y), frr=0.1
    )
    for fitted, cv in ((pipe, "prefit"), (FrozenEstimator(pipe), 5)):
        model = TrustedClassifier(fitted, frr=0.1, cv=cv).fit(new, new_y)
        assert counted.fits == 1
        assert model.gate_.certificate.guarantee
        assert model.gate_.certificate.n == len(new)
        assert model.gate_.threshold == pytest.approx(gate.threshold)
        assert np.array_equal(model.predict(x), pipe.predict(x))
        assert np.array_equal(model.predict_proba(x), pipe.predict_proba(x))
        assert model.n_features_in_ == 8


def test_a_frozen_estimator_outlives_a_search(rows):
    """As CalibratedClassifierCV does, it keeps the fitted model and takes all rows."""
    x, new, y, new_y = rows
    pipe, counted = counting(x, y)
    model = TrustedClassifier(FrozenEstimator(pipe))
    search = GridSearchCV(model, {"score": ["alpha", "beta"], "frr": [0.1, 0.3]}, cv=3)
    best = search.fit(new, new_y).best_estimator_
    assert counted.fits == 1
    assert best.gate_.certificate.n == len(new)
    assert np.array_equal(best.predict(x), pipe.predict(x))
    weighted = model.fit(new, new_y, sample_weight=np.ones(len(new)))  # ignored, as by
    assert weighted.gate_.certificate.n == len(new)  # FrozenEstimator.fit itself
    plain = GridSearchCV(
        TrustedClassifier(pipe, cv="prefit"), {"frr": [0.1]}, cv=2, error_score="raise"
    )
    with pytest.raises(NotFittedError, match=r"FrozenEstimator\(fitted\)"):
        plain.fit(new, new_y)
    for unfitted in (LogisticRegression(), FrozenEstimator(LogisticRegression())):
        with pytest.raises(NotFittedError, match="not fitted"):
            TrustedClassifier(unfitted, cv="prefit").fit(x, y)


def test_around_a_pipeline_no_step_sees_the_gates_rows(rows):
    x, _, y, _ = rows
    cv = ShuffleSplit(1, test_size=0.4, random_state=0)
    around = TrustedClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), cv=cv
    ).fit(x, y)
    train, _ = next(cv.split(x))
    assert np.allclose(around.estimator_[0].mean_, x[train].mean(0))
    inside = make_pipeline(
        StandardScaler(),
        TrustedClassifier(LogisticRegression(), cv=cv, reject_label=-1, frr=0.3),
    ).fit(x, y)
    assert np.allclose(inside[0].mean_, x.mean(0))
    rejected = ~inside[-1].accept(inside[:-1].transform(x))
    assert np.array_equal(inside.predict(x) == -1, rejected)
    assert rejected.any()


def test_texts_go_through_a_pipeline():
    from sklearn.feature_extraction.text import CountVectorizer

    texts = ["good film", "bad film", "good plot", "bad plot"] * 20
    names = np.array(["yes", "no"] * 40)
    pipe = make_pipeline(CountVectorizer(), LogisticRegression())
    model = TrustedClassifier(pipe, coverage=0.5, cv=4).fit(texts, names)
    assert model.predict(["a good one"]).tolist() == ["yes"]
    assert model.predict_trusted(texts).doubts.shape == (80,)


def test_votes_of_pairs_are_found_inside(rows):
    from sklearn.svm import SVC

    x, _, y, _ = rows
    pipe = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))
    search = GridSearchCV(pipe, {"svc__C": [1.0]}, cv=2)
    for model in (pipe, search, FrozenEstimator(clone(pipe).fit(x, y))):
        with pytest.raises(InputError, match="pairs of classes"):
            TrustedClassifier(model, score="margin").fit(x, y)


def test_an_estimator_without_classes_is_named(rows):
    from sklearn.linear_model import LinearRegression

    x, _, y, _ = rows
    with pytest.raises(InputError, match="classes_, got LinearRegression"):
        TrustedClassifier(LinearRegression().fit(x, y), cv="prefit").fit(x, y)


@pytest.mark.parametrize("cv", [3, "prefit"])
def test_the_estimators_own_threshold_decides(cv):
    """Doubt and errors are those of `predict`, and alpha is refused."""
    x, y = make_classification(3000, 8, weights=[0.8], flip_y=0.1, random_state=0)
    x, new, y, new_y = train_test_split(x, y, random_state=0)
    for estimator in (
        FixedThresholdClassifier(LogisticRegression(), threshold=0.2),
        TunedThresholdClassifierCV(LogisticRegression(), scoring="balanced_accuracy"),
    ):
        moved = clone(estimator)
        if cv == "prefit":
            moved.fit(x[:1000], y[:1000])
        model = TrustedClassifier(moved, risk=0.1, cv=cv).fit(x[1000:], y[1000:])
        decisions, gate = model.predict_trusted(new), model.gate_
        assert (gate.score_name, gate.decided_by) == ("beta", "predicted")
        assert any(
            "answer is not the most probable" in n for n in gate.certificate.notes
        )
        probs = model.predict_proba(new)
        assert (decisions.predicted != probs.argmax(1)).any()
        assert np.array_equal(decisions.predicted, model.estimator_.predict(new))
        p = probs[np.arange(len(new)), decisions.predicted]
        np.testing.assert_allclose(decisions.doubts, np.log((1 - p) / p), rtol=1e-9)
        rows = td.Predictions.from_probs(probs, new_y, predicted=decisions.predicted)
        assert np.array_equal(gate.screen(rows).accepted, decisions.accepted)
        with pytest.raises(InputError, match="Choose beta"):
            TrustedClassifier(moved, score="alpha", cv=cv).fit(x, y)


@pytest.mark.parametrize("groups", ["predicted", 0, "callable"])
def test_groups_have_thresholds_of_their_own(groups):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 5))
    x[:, 0] = rng.integers(0, 2, 4000)
    y = (x[:, 1] + (0.3 + 1.2 * x[:, 0]) * rng.normal(size=4000) > 0).astype(int)
    column = (lambda rows: rows[:, 0].astype(int)) if groups == "callable" else groups
    new = x[:1000].copy()
    if groups == 0:
        x = x.astype(object)
        x[:, 0], new = x[:, 0].astype(int), x[:1000]
    model = TrustedClassifier(LogisticRegression(), risk=0.15, groups=column)
    model.fit(x, y)
    assert set(model.gate_.groups) == {0, 1}
    thresholds = {group: t.threshold for group, t in model.gate_.groups.items()}
    assert thresholds[0] != thresholds[1]
    screened = model.predict_trusted(new)
    of_row = screened.predicted if groups == "predicted" else new[:, 0].astype(int)
    for group, threshold in model.gate_.groups.items():
        rows = of_row == group
        expected = screened.doubts[rows] <= threshold.threshold
        if threshold.state == "threshold":
            assert np.array_equal(screened.accepted[rows], expected)
    if groups == "predicted":
        assert "predicted" in model.gate_.grouped_by


def test_the_score_is_chosen_on_rows_of_its_own(rows):
    x, new, y, _ = rows
    model = TrustedClassifier(LogisticRegression(), frr=0.2, score="auto", cv=3)
    gate = model.fit(x, y).gate_
    assert gate.certificate.n == len(x) - len(x) // 3
    assert any(
        "other rows set the threshold" in note for note in gate.certificate.notes
    )
    assert model.predict_trusted(new).accepted.any()


class NeverFitted(LogisticRegression):
    def fit(self, *_):
        pytest.fail("the parameters are wrong, and it was fitted")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"risk": 2}, "risk between 0 and 1"),
        ({"score": "beauty"}, "expected a score out of"),
        ({"shortlist": {"odd": 1}}, "options of a shortlist"),
        ({"target": {"beauty": 0.1}}, "expected a target out of"),
        ({"confidence": 90}, "confidence"),
        ({"groups": "predicted", "shortlist": 0.9}, "without groups"),
    ],
)
def test_bad_parameters_fail_before_anything_is_fitted(rows, options, match):
    x, _, y, _ = rows
    with pytest.raises(InputError, match=match):
        TrustedClassifier(NeverFitted(), **options).fit(x, y)
