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

WANTED = {"sets": ("mapie", "crepes"), "fallback": ("scikit-fallback",)}


def ask(python, what, **arrays):
    """Run this file with another interpreter; return what it found."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, **arrays)
        subprocess.run([python, __file__, what, given, found], check=True)
        with np.load(found) as out:
            return dict(out)


def named(*packages):
    """Return packages with their versions, in words."""
    return ", ".join(f"{name} {version(name)}" for name in packages)


def make_said():
    """Return a scikit-learn classifier whose rows are its own probabilities."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Said(ClassifierMixin, BaseEstimator):
        """What a fitted model said of numbered rows; without any, of the rows."""

        said = None

        def fit(self, _x, y):
            self.classes_ = getattr(self, "classes_", np.asarray(y))
            return self

        def predict_proba(self, x):
            return np.asarray(x) if self.said is None else self.said[x[:, 0]]

        def predict(self, x):
            return self.predict_proba(x).argmax(1)

        def __sklearn_clone__(self):
            return self

    return Said


def by_mapie(probs, labels, rows, new, level):
    """Yield the name and the sets of each way that MAPIE has."""
    from mapie.classification import SplitConformalClassifier
    from mapie.conformity_scores import (
        APSConformityScore,
        LACConformityScore,
        RAPSConformityScore,
    )

    model = make_said()().fit(None, range(probs.shape[1]))
    ways = LACConformityScore, APSConformityScore, RAPSConformityScore
    for way in ways:
        split = SplitConformalClassifier(
            model,
            confidence_level=level,
            conformity_score=way(),
            prefit=True,
            random_state=0,
        )
        split.conformalize(probs[rows], labels[rows])
        name = way.__name__.removesuffix("ConformityScore")
        yield f"MAPIE {name}, all rows", split.predict_set(probs[new])[1][:, :, 0]


def by_crepes(probs, labels, rows, new, level):
    """Return the sets of crepes, by the gate's decision: new rows are rejected."""
    from crepes import ConformalClassifier
    from crepes.extras import hinge

    (rows, rejected), classes = rows, np.arange(probs.shape[1])
    strange = hinge(probs[rows], classes, labels[rows])
    split = ConformalClassifier().fit(strange, bins=rejected.astype(int))
    return split.predict_set(
        hinge(probs[new]),
        bins=np.ones(len(new), int),
        confidence=level,
        smoothing=False,
    )


def sets(given):
    """Return coverage and size of each package's sets, one line per split."""
    probs, labels, level = given["probs"], given["labels"], float(given["level"])
    found = {}
    for rows, out, new in zip(
        given["rows"], given["rejected"], given["new"], strict=True
    ):
        own = new[new >= 0]
        lists = dict(by_mapie(probs, labels, rows, own, level))
        name = "crepes, Mondrian by the decision"
        lists[name] = by_crepes(probs, labels, (rows, out), own, level)
        for name, mask in lists.items():
            held = np.asarray(mask, bool)
            hit = held[np.arange(len(own)), labels[own]].mean()
            found.setdefault(name, []).append((hit, held.sum(1).mean()))
    return found


def accepted_right(labels, predicted, **_):
    """Return the accuracy where the last stage, a person, was not needed."""
    person = predicted.ensemble_mask.toarray()[:, -1]
    right = np.asarray(predicted) == np.asarray(labels)
    return right[~person].mean() if not person.all() else 1.0


def fallback(given):
    """Return the thresholds that cross-validation picks, one line per split.

    A person is a third model, which is always right; costs are those of all models
    asked. Where no thresholds will do, a line has nan.
    """
    from skfb.ensemble import ThresholdCascadeClassifierCV
    from sklearn.metrics import make_scorer

    labels, said = given["labels"], make_said()
    person = np.eye(given["small"].shape[1])[labels]
    models = []
    for probs in (given["small"], given["large"], person):
        models.append(said().fit(None, range(probs.shape[1])))
        models[-1].said = probs
    found = {"default": [], "by ranks": []}
    for rows, (way, lines) in ((r, w) for r in given["rows"] for w in found.items()):
        sure = np.r_[given["small"][rows].max(1), given["large"][rows].max(1)]
        ranks = np.unique(np.quantile(sure, np.linspace(0, 0.98, 15)))
        cascade = ThresholdCascadeClassifierCV(
            models,
            costs=given["costs"],
            cv_thresholds=None if way == "default" else ranks,
            min_score=1 - float(given["risk"]),
            strategy="max_cost",
            scoring=make_scorer(accepted_right),
        )
        start = time.perf_counter()
        with warnings.catch_warnings(action="ignore"):  # where no thresholds will do
            cascade.fit(rows[:, None], labels[rows])
        took = time.perf_counter() - start
        enough = (cascade.mean_cv_scores_ >= cascade.min_score).any()
        picked = cascade.best_thresholds_ if enough else (np.nan, np.nan)
        lines.append((*picked, took))
    return found


def main():
    warnings.simplefilter("ignore")
    what, given, out = sys.argv[1:]
    with np.load(given) as arrays:
        found = {"sets": sets, "fallback": fallback}[what](dict(arrays))
    lines = {name: np.array(own) for name, own in found.items()}
    np.savez(out, versions=named(*WANTED[what]), **lines)


if __name__ == "__main__":
    main()
