"""A scikit-learn classifier that knows when not to answer."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
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

from trustdoctor.adapters.asking import refuse_multi_label
from trustdoctor.adapters.sklearn.answers import (
    Answers,
    answers,
    calibrate_lists,
    check_folds,
    check_known,
    joined,
    one_label,
    refuse_several,
    replaced,
)
from trustdoctor.gates import (
    Gate,
    Screened,
    calibrate_rows,
    find_target,
    is_order_statistic,
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
        A score's name, out of `SCORES`, or a fitted score. By default alpha, or beta
        where the estimator does not always answer the most probable class, as
        `TunedThresholdClassifierCV` does: alpha has no doubt about such answers, and is
        refused. As an attribute it is `score_name`: `score` is a method of every
        classifier.
    temperature : float
        Divides the logits.
    frr, trr, risk, joint, coverage, cost, threshold : float, optional
        The target, as in `calibrate`: one of them, frr with trr, or risk with coverage,
        frr or trr; by default frr is 0.05.
    target : dict, optional
        The same by name, for targets of your own: ``{"share": 0.5}``.
    confidence : float
        Of the promise.
    shortlist : float or dict, optional
        How often the list of a rejected row's classes holds the true one, or options of
        `trustdoctor.shortlist` by name: ``{"level": 0.95, "max_size": 5}``. The gate's
        rows set it where the target is one of frr, trr, joint, coverage and threshold;
        else a third of them, which then has no part in the gate.
    cv : int, splitter or "prefit"
        Where the gate's rows come from. A number of folds: out-of-fold answers, with
        the estimator fitted on all rows after that; the certificate says what then
        holds. A splitter of one split (`ShuffleSplit(1)`): the estimator is fitted on
        the one part, the gate on the other. "prefit": the estimator is fitted already,
        and `fit` takes rows that it has not seen. The last two carry a promise.
    reject_label : optional
        What `predict` answers where the answer is rejected; by default the estimator's
        own label.
    score_name : optional
        What `score` was called before; where it is given, it counts.

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
            For the estimator. The gate counts rows, whatever their weight.
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
        groups = params.pop("groups", None)
        given = self._routed(X, sample_weight, params)
        if self.cv == "prefit" or isinstance(self.estimator, FrozenEstimator):
            check_is_fitted(self.estimator, msg=NOT_FITTED)
            fitted = self.estimator
            parts = [answers(fitted, X, y, check_known(fitted, y))]
        else:
            classes, parts = np.unique(y), []
            folds = list(self._folds(X, y, groups))
            check_folds(folds)
            for train, test in folds:
                own = _check_method_params(X, given, train)
                fitted = clone(self.estimator).fit(
                    _safe_indexing(X, train), y[train], **own
                )
                parts.append(answers(fitted, _safe_indexing(X, test), y[test], classes))
        gate = self._calibrated(parts)
        if len(parts) > 1:
            fitted = clone(self.estimator).fit(X, y, **given)
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
        return replaced(labels, self.accept(X), self.reject_label)

    def accept(self, X: Any) -> NDArray[np.bool_]:  # noqa: N803
        """Return whether to trust the answer to each row."""
        return self.predict_trusted(X).accepted

    def predict_trusted(self, X: Any) -> Screened:  # noqa: N803
        """Return the estimator's labels as `predicted`, `accepted`, and the doubts.

        Where `shortlist` was asked for, also which of `classes_` a rejected row may be,
        as a mask; all of them mean a full review.
        """
        return self._screened(X)[1]

    def shortlists(self, X: Any) -> list[NDArray[Any]]:  # noqa: N803
        """Return the classes that each row may be, the most probable first.

        None of an accepted row; all of them where a row needs a full review.
        """
        said, done = self._screened(X)
        if done.shortlist is None:
            message = "this model has no lists. Fit it with shortlist=0.95, say."
            raise InputError(message)
        return said.named(done.shortlist, np.asarray(self.classes_))

    def _screened(self, x: Any) -> tuple[Answers, Screened]:
        """Return what the estimator said of rows, and what the gate decided."""
        check_is_fitted(self)
        said = answers(self.estimator_, x, None, self.classes_)
        short, bare = self.gate_.shortlist, replace(self.gate_, shortlist=None)
        decided = bool(bare.decided_by)
        doubts = said.scores(bare.scorer, decided=decided)
        done = bare.decide(doubts, said.predictions(decided=decided))
        lists = None if short is None else said.lists(short, done.accepted)
        return said, done._replace(predicted=said.labels, shortlist=lists)

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
        done = self.predict_trusted(X)
        accepted = done.accepted
        right = np.asarray(done.predicted == np.asarray(y))[accepted]
        return float(right.mean()) if len(right) else float("nan"), accepted.mean()

    @property
    def n_features_in_(self) -> int:
        """How many columns the estimator was fitted on."""
        check_is_fitted(self)
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The columns' names, where the estimator was fitted on named ones."""
        check_is_fitted(self)
        return self.estimator_.feature_names_in_

    def get_metadata_routing(self) -> Any:
        """Say what goes to the estimator's `fit`."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        """Take over what the estimator takes."""
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.input_tags = own.input_tags
        tags.classifier_tags = own.classifier_tags
        return tags

    def _routed(
        self,
        x: Any,
        sample_weight: Any,
        params: dict[str, Any],
    ) -> dict[str, Any]:
        """Return what goes to the estimator's `fit`."""
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

    def _target(self) -> dict[str, float]:
        """Return what is asked for, under the targets' names."""
        named = {name: getattr(self, name) for name in NAMED_TARGETS}
        asked = {name: value for name, value in named.items() if value is not None}
        more = {} if self.target is None else self.target
        if not isinstance(more, Mapping) or set(asked) & set(more):
            message = (
                "expected target as a dict of targets that no other option names, such "
                f"as {{'share': 0.5}}, got {more!r}. Name each target once."
            )
            raise InputError(message)
        for name in more:
            find_target(name)
        return {**asked, **more} or {"frr": DEFAULT_FRR}

    def _calibrated(self, parts: list[Answers]) -> Gate:
        target, said = self._target(), joined(parts)
        decided = said.overruled > 0
        name = self.score_name
        if name is None:
            name = default_score(said.predictions(decided=decided))
        score = find_score(name, temperature=self.temperature)
        doubts = said.scores(score, decided=decided)
        barred = int((said.numbers < 0).sum())

        def make_gate(rows: Any) -> Gate:
            return calibrate_rows(
                doubts[rows],
                said.wrong[rows],
                score=score,
                confidence=self.confidence,
                barred=barred,
                **target,
            )

        if self.shortlist is None:
            gate = make_gate(slice(None))
        else:
            short = uncalibrated_shortlist(
                said.logits.shape[1], **shortlist_options(self.shortlist)
            )
            same = is_order_statistic(target)
            gate = calibrate_lists(said, doubts, short, make_gate, same=same)
        if not decided:
            return gate
        note = OVERRULED.format(said.overruled, len(said.numbers), score.name)
        return replace(gate, decided_by=AS_PREDICTED).with_notes(note)

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
    """Say what holds of a gate whose scores come from several models."""
    own = gate.certificate
    assert own is not None
    notes = [*own.notes, OUT_OF_FOLD if own.mode == "none" else CROSS_FITTED]
    if gate.shortlist is not None:
        notes.append(CROSS_FITTED_LISTS)
    return replace(gate, certificate=replace(own, mode="none", notes=tuple(notes)))


def _with_classes_of(fitted: Any, gate: Gate) -> Gate:
    """Return a gate whose lists have a place for each class of a classifier.

    A class that its own rows lack, which other rows have, is in a full review alone.
    """
    if gate.shortlist is None:
        return gate
    short = replace(gate.shortlist, n_classes=len(fitted.classes_))
    return replace(gate, shortlist=short)


def predictor(estimator: Any) -> Callable[[Any], Predictions]:
    """Return a function of rows to predictions, for `SecondOpinion`."""

    def predict(rows: Any) -> Predictions:
        if isinstance(getattr(estimator, "classes_", None), list):
            refuse_multi_label(f"a {type(estimator).__name__} fitted on several")
        if hasattr(estimator, "predict"):  # probabilities alone do not tell
            one_label(estimator, _safe_indexing(rows, [0]))
        probs = estimator.predict_proba(rows)
        own = getattr(estimator, "classes_", None)
        fits = own is not None and len(own) == np.shape(probs)[-1]
        names = [str(name) for name in np.asarray(own)] if fits else None
        return Predictions.from_probs(probs, class_names=names)

    return predict
