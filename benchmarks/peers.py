"""Other packages on the same rows, in an environment of their own.

    PYTHON benchmarks/peers.py sets|fallback IN.npz OUT.npz

``sets`` needs MAPIE and crepes, ``fallback`` needs scikit-fallback. The scripts of this
folder call it with the interpreter that they get by ``--peers``; trustdoctor is not
imported here.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np

PACKAGES = {"sets": ("mapie", "crepes"), "fallback": ("scikit-fallback",)}


def ask(python, task, **arrays):
    """Run this file with another interpreter; return what it found."""
    with tempfile.TemporaryDirectory() as folder:
        input_file, output_file = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(input_file, **arrays)
        subprocess.run([python, __file__, task, input_file, output_file], check=True)
        with np.load(output_file) as arrays_out:
            return dict(arrays_out)


def named(*packages):
    """Return packages with their versions, in words."""
    return ", ".join(f"{name} {version(name)}" for name in packages)


def recorded_classifier():
    """Return a scikit-learn classifier whose rows are its own probabilities."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class RecordedClassifier(ClassifierMixin, BaseEstimator):
        """A fitted model's probabilities of numbered rows; without any, the rows."""

        probs = None

        def fit(self, _x, y):
            self.classes_ = getattr(self, "classes_", np.asarray(y))
            return self

        def predict_proba(self, x):
            return np.asarray(x) if self.probs is None else self.probs[x[:, 0]]

        def predict(self, x):
            return self.predict_proba(x).argmax(1)

        def __sklearn_clone__(self):
            return self

    return RecordedClassifier


def by_mapie(probs, labels, rows, new, level):
    """Yield the name and the sets of each way that MAPIE has."""
    from mapie.classification import SplitConformalClassifier
    from mapie.conformity_scores import (
        APSConformityScore,
        LACConformityScore,
        RAPSConformityScore,
    )

    model = recorded_classifier()().fit(None, range(probs.shape[1]))
    scores = LACConformityScore, APSConformityScore, RAPSConformityScore
    for score in scores:
        split = SplitConformalClassifier(
            model,
            confidence_level=level,
            conformity_score=score(),
            prefit=True,
            random_state=0,
        )
        split.conformalize(probs[rows], labels[rows])
        name = score.__name__.removesuffix("ConformityScore")
        yield f"MAPIE {name}, all rows", split.predict_set(probs[new])[1][:, :, 0]


def by_crepes(probs, labels, rows, new, level):
    """Return the sets of crepes, by the gate's decision: new rows are rejected."""
    from crepes import ConformalClassifier
    from crepes.extras import hinge

    (rows, rejected), classes = rows, np.arange(probs.shape[1])
    nonconformity = hinge(probs[rows], classes, labels[rows])
    split = ConformalClassifier().fit(nonconformity, bins=rejected.astype(int))
    return split.predict_set(
        hinge(probs[new]),
        bins=np.ones(len(new), int),
        confidence=level,
        smoothing=False,
    )


def sets(arrays):
    """Return coverage and size of each package's sets, one line per split."""
    probs, labels, level = arrays["probs"], arrays["labels"], float(arrays["level"])
    results = {}
    for rows, rejected, new in zip(
        arrays["rows"], arrays["rejected"], arrays["new"], strict=True
    ):
        new_rows = new[new >= 0]
        lists = dict(by_mapie(probs, labels, rows, new_rows, level))
        name = "crepes, Mondrian by the decision"
        lists[name] = by_crepes(probs, labels, (rows, rejected), new_rows, level)
        for name, mask in lists.items():
            sets_mask = np.asarray(mask, bool)
            coverage = sets_mask[np.arange(len(new_rows)), labels[new_rows]].mean()
            results.setdefault(name, []).append((coverage, sets_mask.sum(1).mean()))
    return results


def accepted_accuracy(labels, predicted, **_):
    """Return the accuracy where the last stage, a person, was not needed."""
    person = predicted.ensemble_mask.toarray()[:, -1]
    correct = np.asarray(predicted) == np.asarray(labels)
    return correct[~person].mean() if not person.all() else 1.0


def fallback(arrays):
    """Return the thresholds that cross-validation picks, one line per split.

    A person is a third model, which is always right; costs are those of all models
    asked. Where no thresholds will do, a line has nan.
    """
    from skfb.ensemble import ThresholdCascadeClassifierCV
    from sklearn.metrics import make_scorer

    labels, classifier = arrays["labels"], recorded_classifier()
    person = np.eye(arrays["small"].shape[1])[labels]
    models = []
    for probs in (arrays["small"], arrays["large"], person):
        models.append(classifier().fit(None, range(probs.shape[1])))
        models[-1].probs = probs
    picked = {"default": [], "by ranks": []}
    for rows, (way, lines) in ((r, w) for r in arrays["rows"] for w in picked.items()):
        confidence = np.r_[arrays["small"][rows].max(1), arrays["large"][rows].max(1)]
        ranks = np.unique(np.quantile(confidence, np.linspace(0, 0.98, 15)))
        cascade = ThresholdCascadeClassifierCV(
            models,
            costs=arrays["costs"],
            cv_thresholds=None if way == "default" else ranks,
            min_score=1 - float(arrays["risk"]),
            strategy="max_cost",
            scoring=make_scorer(accepted_accuracy),
        )
        start = time.perf_counter()
        with warnings.catch_warnings(action="ignore"):  # where no thresholds will do
            cascade.fit(rows[:, None], labels[rows])
        seconds = time.perf_counter() - start
        reached = (cascade.mean_cv_scores_ >= cascade.min_score).any()
        thresholds = cascade.best_thresholds_ if reached else (np.nan, np.nan)
        lines.append((*thresholds, seconds))
    return picked


def main():
    warnings.simplefilter("ignore")
    task, input_file, output_file = sys.argv[1:]
    with np.load(input_file) as arrays:
        results = {"sets": sets, "fallback": fallback}[task](dict(arrays))
    arrays = {name: np.array(lines) for name, lines in results.items()}
    np.savez(output_file, versions=named(*PACKAGES[task]), **arrays)


if __name__ == "__main__":
    main()
