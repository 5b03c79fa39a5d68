"""A classifier with a gate, as an estimator of scikit-learn."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from trustdoctor.errors import InputError, missing_package

try:
    from sklearn import get_config
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        MetaEstimatorMixin,
        clone,
    )
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import KFold, StratifiedKFold, check_cv
    from sklearn.utils import _safe_indexing, get_tags, indexable
    from sklearn.utils.metadata_routing import (
        MetadataRouter,
        MethodMapping,
        process_routing,
    )
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        _check_method_params,
        _check_sample_weight,
        check_is_fitted,
        column_or_1d,
        has_fit_parameter,
    )
except ImportError as error:
    what = "the scikit-learn adapter"
    raise missing_package(what=what, package="scikit-learn", extra="sklearn") from error

from trustdoctor.adapters.errors import refuse_multi_label
from trustdoctor.adapters.sklearn.answers import (
    ClassifierAnswers,
    ask_classifier,
    calibrate_lists,
    check_folds,
    classes_of,
    join_answers,
    one_label,
    refuse_several,
    with_reject_label,
)
from trustdoctor.gates import (
    AUTO,
    GIVEN,
    PREDICTED,
    Gate,
    Request,
    Screened,
    calibrate_rows,
    choose_score,
    is_order_statistic,
    make_requests,
    requested_targets,
    shortlist_options,
    uncalibrated_shortlist,
)
from trustdoctor.predictions import AS_PREDICTED, Predictions
from trustdoctor.scores import Score, default_score, find_score

DEFAULT_FRR = 0.05
NAMED_TARGETS = ("frr", "trr", "risk", "joint", "coverage", "cost", "threshold")
OUT_OF_FOLD = (
    "Cross-fitted: the scores are those of models that had not seen the rows, each "
    "trained on the other folds."
)
CROSS_FITTED = OUT_OF_FOLD + (
    " The target was met on them with the confidence named, "
    "as if one model had made them; for the final model, trained on all rows, this is "
    "an approximation, not a promise. Held-out rows with cv='prefit', or a splitter of "
    "one split, give a promise."
)
CROSS_FITTED_LISTS = (
    "The lists, too, were set on answers of models that had not seen the rows: for the "
    "final model what is said of them is an approximation, not a promise."
)
OVERRULED = (
    "The estimator's answer is not the most probable class in {:,} of {:,} rows: the "
    "doubt, by {}, is about its answer."
)
NOT_FITTED = (
    "expected a fitted estimator, got a %(name)s that is not fitted. Fit it first, or "
    "leave cv='prefit' out; in a search, which clones, freeze the fitted one: "
    "FrozenEstimator(fitted)."
)


def _estimator_has(name: str) -> Any:
    def check(self: "TrustedClassifier") -> bool:
        return hasattr(getattr(self, "estimator_", self.estimator), name)

    return available_if(check)


class TrustedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Puts a gate behind a classifier.

    Parameters
    ----------
    estimator : classifier
        With `predict_proba`, or with `decision_function`, whose values then count as
        logits. A `FrozenEstimator` is not fitted again: all rows set the gate.
    score : str or Score, optional
        A score's name, out of `SCORES`, a fitted score, or "auto": a third of the
        gate's rows, 2,000 at most, then chooses it and has no part in the promise. By
        default alpha, or beta if the estimator does not always answer with the most
        probable class, as `TunedThresholdClassifierCV` does: alpha has no doubt about
        such answers, and is refused. As an attribute it is `score_name`: `score` is a
        method of every classifier.
    temperature : float
        Divides the logits.
    frr, trr, risk, joint, coverage, cost, threshold : float, optional
        The target, as in `calibrate`: one of them, frr with trr, or risk with coverage,
        frr or trr; by default frr is 0.05.
    target : dict, optional
        The same by name, for targets of your own: ``{"share": 0.5}``.
    confidence : float
        The confidence of the promise.
    groups : "predicted", str, int or callable, optional
        A threshold and a promise for each group with enough rows: for each predicted
        class, for each value of this column of X, or of what the callable returns of X.
    shortlist : float or dict, optional
        How often the list of a rejected row's classes holds the true one, or options of
        `trustdoctor.shortlist` by name: ``{"level": 0.95, "max_size": 5}``. The gate's
        rows set it if the target is one of frr, trr, joint, coverage and threshold;
        else a third of them, which then has no part in the gate.
    cv : int, splitter or "prefit"
        Where the gate's rows come from. A number of folds: out-of-fold answers, with
        the estimator fitted on all rows after that; the certificate says what then
        holds. A splitter of one split (`ShuffleSplit(1)`): the estimator is fitted on
        the one part, the gate on the other. "prefit": the estimator is fitted already,
        and `fit` takes rows that it has not seen. The last two carry a promise.
    reject_label : optional
        The answer of `predict` to rejected rows; by default the estimator's own label.
    score_name : optional
        The former name of `score`; if both are given, it counts.

    Attributes
    ----------
    estimator_ : classifier
    gate_ : Gate
        With its certificate.
    classes_ : array (C,)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> x, y = load_iris(return_X_y=True)
    >>> model = TrustedClassifier(LogisticRegression(max_iter=500), frr=0.1).fit(x, y)
    >>> model.predict_trusted(x[:2]).predicted
    array([0, 0])
    """

    def __init__(  # noqa: PLR0913 - options, by keyword only
        self,
        estimator: Any,
        *,
        score: str | Score | None = None,
        temperature: float = 1.0,
        frr: float | None = None,
        trr: float | None = None,
        risk: float | None = None,
        joint: float | None = None,
        coverage: float | None = None,
        cost: float | None = None,
        threshold: float | None = None,
        target: Mapping[str, float] | None = None,
        confidence: float = 0.9,
        groups: str | int | Callable[[Any], Any] | None = None,
        shortlist: float | Mapping[str, Any] | None = None,
        cv: Any = 5,
        reject_label: Any = None,
        score_name: str | Score | None = None,
    ) -> None:
        self.estimator = estimator
        self.score_name = score if score_name is None else score_name
        self.temperature = temperature
        self.frr = frr
        self.trr = trr
        self.risk = risk
        self.joint = joint
        self.coverage = coverage
        self.cost = cost
        self.threshold = threshold
        self.target = target
        self.confidence = confidence
        self.groups = groups
        self.shortlist = shortlist
        self.cv = cv
        self.reject_label = reject_label

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """Return the parameters, as scikit-learn asks for them.

        The attribute `score` is the method, so the parameter is kept as `score_name`.
        """
        params = super().get_params(deep)
        params["score"] = params.pop("score_name")
        return params

    def set_params(self, **params: Any) -> "TrustedClassifier":
        """Set parameters, as scikit-learn does; `score` without hiding the method."""
        for name in ("score_name", "score"):
            if name in params:
                self.score_name = params.pop(name)
        super().set_params(**params)
        return self

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Any:  # noqa: N803
        """Fit the estimator, unless it is, and calibrate the gate.

        Parameters
        ----------
        X, y
            Rows and their classes.
        sample_weight : array (n,), optional
            For the estimator. The gate counts each row once, whatever its weight.
        params
            For the estimator's `fit`; `groups` for the splitter.
        """
        if y is None:
            name = type(self).__name__
            message = f"{name} requires y to be passed, but the target y is None."
            raise InputError(message)
        refuse_several("labels of several columns", y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        X, y = indexable(X, y)  # noqa: N806
        requests = self._checked_requests()
        groups = params.pop("groups", None)
        fit_params = self._routed_params(X, sample_weight, params)
        if self.cv == "prefit" or isinstance(self.estimator, FrozenEstimator):
            check_is_fitted(self.estimator, msg=NOT_FITTED)
            fitted, classes = self.estimator, classes_of(self.estimator, y)
            fold_answers = [ask_classifier(fitted, X, y, classes)]
            fold_groups = [self._row_groups(fold_answers[0], X, classes)]
        else:
            classes, fold_answers, fold_groups = np.unique(y), [], []
            folds = list(self._folds(X, y, groups))
            check_folds(folds)
            for train, test in folds:
                fitted = clone(self.estimator).fit(
                    _safe_indexing(X, train),
                    y[train],
                    **_check_method_params(X, fit_params, train),
                )
                rows = _safe_indexing(X, test)
                fold_answers.append(ask_classifier(fitted, rows, y[test], classes))
                fold_groups.append(self._row_groups(fold_answers[-1], rows, classes))
        row_groups = None if self.groups is None else np.concatenate(fold_groups)
        answers = join_answers(fold_answers)
        gate = self._calibrated_gate(answers, requests, row_groups)
        if len(fold_answers) > 1:
            fitted = clone(self.estimator).fit(X, y, **fit_params)
            gate = _cross_fitted(gate)
        if self.reject_label is not None and self.reject_label in fitted.classes_:
            message = f"reject_label {self.reject_label!r} is a class. Choose another."
            raise InputError(message)
        self.estimator_, self.gate_ = fitted, _with_classes_of(fitted, gate)
        self.classes_ = fitted.classes_
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the estimator's labels; `reject_label`, if any, where rejected."""
        check_is_fitted(self)
        labels = one_label(self.estimator_, X)
        if self.reject_label is None:
            return labels
        return with_reject_label(labels, self.accept(X), self.reject_label)

    def accept(self, X: Any) -> NDArray[np.bool_]:  # noqa: N803
        """Return whether to trust the answer to each row."""
        return self.predict_trusted(X).accepted

    def predict_trusted(self, X: Any) -> Screened:  # noqa: N803
        """Return the estimator's labels as `predicted`, `accepted`, and the doubts.

        With `shortlist`, also a mask of the `classes_` that a rejected row may be; all
        of them mean a full review.
        """
        return self._screened(X)[1]

    def shortlists(self, X: Any) -> list[NDArray[Any]]:  # noqa: N803
        """Return the classes that each row may be, the most probable first.

        An accepted row has none; all of them mean a full review.
        """
        answers, decisions = self._screened(X)
        if decisions.shortlist is None:
            message = "this model has no lists. Fit it with shortlist=0.95, say."
            raise InputError(message)
        return answers.named_lists(decisions.shortlist, np.asarray(self.classes_))

    def _screened(self, x: Any) -> tuple[ClassifierAnswers, Screened]:
        """Return the estimator's answers to rows, and the gate's decisions."""
        check_is_fitted(self)
        answers = ask_classifier(self.estimator_, x, None, self.classes_)
        # The gate's own lists would be of the most probable class, not of the label.
        shortlist = self.gate_.shortlist
        gate = replace(self.gate_, shortlist=None)
        decided = bool(gate.decided_by)
        doubts = answers.scores(gate.require_score(), decided=decided)
        groups = self._row_groups(answers, x, self.classes_) if gate.groups else None
        p = answers.predictions(decided=decided)
        decisions = gate.decide(doubts, p, groups=groups)
        lists = None
        if shortlist is not None:
            lists = answers.lists(shortlist, decisions.accepted)
        return answers, replace(decisions, predicted=answers.labels, shortlist=lists)

    @_estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the estimator's own probabilities."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @_estimator_has("decision_function")
    def decision_function(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the estimator's own decision values."""
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the plain accuracy of the estimator on all rows.

        Rejections do not count: a search that rewarded them would reject everything.
        """
        from sklearn.metrics import accuracy_score

        check_is_fitted(self)
        labels = self.estimator_.predict(X)
        return float(accuracy_score(y, labels, sample_weight=sample_weight))

    def trusted_score(self, X: Any, y: Any) -> tuple[float, float]:  # noqa: N803
        """Return the accuracy on the accepted rows (NaN without any), and coverage."""
        decisions = self.predict_trusted(X)
        accepted = decisions.accepted
        correct = np.asarray(decisions.predicted == np.asarray(y))[accepted]
        accuracy = float(correct.mean()) if len(correct) else float("nan")
        return accuracy, accepted.mean()

    @property
    def n_features_in_(self) -> int:
        """The number of columns that the estimator was fitted on."""
        check_is_fitted(self)
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the columns that the estimator was fitted on, if any."""
        check_is_fitted(self)
        return self.estimator_.feature_names_in_

    def get_metadata_routing(self) -> Any:
        """Return the routing of metadata to the estimator's `fit`."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        """Return tags with the inputs and classes that the estimator takes."""
        tags = super().__sklearn_tags__()
        estimator_tags = get_tags(self.estimator)
        tags.input_tags = estimator_tags.input_tags
        tags.classifier_tags = estimator_tags.classifier_tags
        return tags

    def _routed_params(
        self,
        x: Any,
        sample_weight: Any,
        params: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the parameters of the estimator's `fit`."""
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, x)
            params = {**params, "sample_weight": weights}
        if not params:
            return {}
        if get_config()["enable_metadata_routing"]:
            return dict(process_routing(self, "fit", **params).estimator.fit)
        for name in params:
            if "__" in name:  # a step's parameter, which a Pipeline hands on
                continue
            frozen = isinstance(self.estimator, FrozenEstimator)  # ignores what it gets
            if not (frozen or has_fit_parameter(self.estimator, name)):
                kind = type(self.estimator).__name__
                message = f"{kind}.fit takes no {name}. Leave it out."
                raise InputError(message)
        return params

    def _target(self) -> dict[str, Any]:
        """Return the requested targets by name."""
        named = {name: getattr(self, name) for name in NAMED_TARGETS}
        return requested_targets(self.target, **named) or {"frr": DEFAULT_FRR}

    def _checked_requests(self) -> list[Request]:
        """Return what is requested; refuse bad parameters before anything is fitted."""
        if self.score_name not in (None, AUTO):
            find_score(self.score_name, temperature=self.temperature)
        if self.shortlist is not None:
            shortlist_options(self.shortlist)
            if self.groups is not None or self.score_name == AUTO:
                message = (
                    "a shortlist goes with a named score and without groups. Leave one "
                    "of them out."
                )
                raise InputError(message)
        return make_requests(confidence=self.confidence, **self._target())

    def _row_groups(
        self, answers: ClassifierAnswers, x: Any, classes: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the group of each row: by predicted class, column or callable."""
        if self.groups is None:
            return np.zeros(len(answers.labels), np.int64)
        if callable(self.groups):
            return np.asarray(self.groups(x))
        if self.groups != PREDICTED:
            return np.asarray(_safe_indexing(x, self.groups, axis=1))
        names = np.asarray(classes)
        if names.dtype.kind not in "iu":
            names = names.astype(str)
        return names[answers.numbers]

    def _calibrated_gate(
        self,
        answers: ClassifierAnswers,
        requests: list[Request],
        groups: NDArray[Any] | None,
    ) -> Gate:
        if self.score_name == AUTO:
            return self._gate_of_chosen_score(answers, requests, groups)
        decided = answers.overruled > 0
        name = self.score_name
        if name is None:
            name = default_score(answers.predictions(decided=decided))
        score = find_score(name, temperature=self.temperature)
        doubts = answers.scores(score, decided=decided)
        n_always_rejected = int((answers.numbers < 0).sum())

        def make_gate(rows: Any) -> Gate:
            return calibrate_rows(
                doubts[rows],
                answers.wrong[rows],
                requests=requests,
                score=score,
                groups=None if groups is None else groups[rows],
                grouped_by=self._grouped_by(),
                n_always_rejected=n_always_rejected,
            )

        if self.shortlist is None:
            gate = make_gate(slice(None))
        else:
            shortlist = uncalibrated_shortlist(
                answers.logits.shape[1], **shortlist_options(self.shortlist)
            )
            same_rows = len(requests) == 1 and is_order_statistic(requests[0].target)
            gate = calibrate_lists(
                answers, doubts, shortlist, make_gate, same_rows=same_rows
            )
        if not decided:
            return gate
        note = OVERRULED.format(answers.overruled, len(answers.numbers), score.name)
        return replace(gate, decided_by=AS_PREDICTED).with_notes(note)

    def _gate_of_chosen_score(
        self,
        answers: ClassifierAnswers,
        requests: list[Request],
        groups: NDArray[Any] | None,
    ) -> Gate:
        """Let some rows choose the score, and return a gate that the others set."""
        decided = answers.overruled > 0
        p = replace(answers.predictions(decided=decided), labels=answers.truth)
        choice = choose_score(p, requests[0], temperature=self.temperature)
        rows = choice.calibrating_rows
        gate = calibrate_rows(
            np.asarray(choice.score(p))[rows],
            answers.wrong[rows],
            requests=requests,
            score=choice.score,
            groups=None if groups is None else groups[rows],
            grouped_by=self._grouped_by(),
        )
        return gate.with_notes(*choice.notes(gate, p[rows]))

    def _grouped_by(self) -> str:
        """Return what the groups are, for the certificate."""
        if callable(self.groups):
            return getattr(self.groups, "__name__", GIVEN)
        return GIVEN if self.groups is None else str(self.groups)

    def _folds(self, x: Any, y: NDArray[Any], groups: Any) -> Iterator[tuple[Any, Any]]:
        cv = self.cv
        if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
            if cv < 2:
                message = f"expected cv of 2 folds or more, got {cv}."
                raise InputError(message)
            smallest = int(np.unique(y, return_counts=True)[1].min())
            folds = min(int(cv), smallest)
            if folds >= 2:
                cv = StratifiedKFold(folds, shuffle=True, random_state=0)
            else:  # a class of one row cannot be in every fold
                cv = KFold(max(2, min(int(cv), len(y))), shuffle=True, random_state=0)
        elif isinstance(cv, (str, bool)) or cv is None:
            message = (
                f"expected cv as a number of folds, a splitter or 'prefit', got {cv!r}."
            )
            raise InputError(message)
        return iter(check_cv(cv, y, classifier=True).split(x, y, groups))


def _cross_fitted(gate: Gate) -> Gate:
    """Return a gate whose certificate says that its scores come from several models."""
    certificate = gate.certificate
    assert certificate is not None
    note = OUT_OF_FOLD if certificate.mode == "none" else CROSS_FITTED
    notes = [*certificate.notes, note]
    if gate.shortlist is not None:
        notes.append(CROSS_FITTED_LISTS)
    certificate = structs.replace(certificate, mode="none", notes=tuple(notes))
    return replace(gate, certificate=certificate)


def _with_classes_of(fitted: Any, gate: Gate) -> Gate:
    """Return a gate whose lists have a place for each class of a classifier.

    A class without calibration rows is only in the lists of a full review.
    """
    if gate.shortlist is None:
        return gate
    shortlist = replace(gate.shortlist, n_classes=len(fitted.classes_))
    return replace(gate, shortlist=shortlist)


def predictor(estimator: Any) -> Callable[[Any], Predictions]:
    """Return a function of rows to predictions, for `SecondOpinion`."""

    def predict(rows: Any) -> Predictions:
        if isinstance(getattr(estimator, "classes_", None), list):
            refuse_multi_label(f"a {type(estimator).__name__} fitted on several")
        if hasattr(estimator, "predict"):  # probabilities alone do not tell
            one_label(estimator, _safe_indexing(rows, [0]))
        probs = estimator.predict_proba(rows)
        classes = getattr(estimator, "classes_", None)
        fits = classes is not None and len(classes) == np.shape(probs)[-1]
        names = [str(name) for name in np.asarray(classes)] if fits else None
        return Predictions.from_probs(probs, class_names=names)

    return predict
