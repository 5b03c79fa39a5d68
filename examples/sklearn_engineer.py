"""For a scikit-learn engineer: a Pipeline with a gate.

`TrustedClassifier` is an estimator itself. It is fitted on rows that the Pipeline has
not seen, so its promise holds. It prints::

    at most 2% errors among the accepted, with confidence 0.9
    new digits accepted: 89.1%
    right on the accepted: 99.7%
    right on all: 95.7%
"""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trustdoctor.adapters.sklearn import TrustedClassifier


def main() -> None:
    """Train on few digits, so that there are errors; guard the answers to others."""
    x, y = load_digits(return_X_y=True)
    x, unseen, y, unseen_y = train_test_split(x, y, train_size=300, random_state=0)
    gate_x, new, gate_y, new_y = train_test_split(unseen, unseen_y, random_state=0)

    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    model = TrustedClassifier(pipeline, risk=0.02, cv="prefit").fit(gate_x, gate_y)
    print(model.gate_.certificate.promise())

    accuracy, coverage = model.trusted_score(new, new_y)
    print(f"new digits accepted: {coverage:.1%}")
    print(f"right on the accepted: {accuracy:.1%}")
    print(f"right on all: {model.score(new, new_y):.1%}")


if __name__ == "__main__":
    main()
