"""For someone with a language model's answers: which of them to trust.

The model was asked whether reviews are positive or negative, with log-probabilities
(`logprobs` and `top_logprobs`). Its responses are in one file, one per line, as an
OpenAI-compatible server gives them; what would have been right is in another. No model
is called here, the responses are simulated: the simulated model knows how likely a
review is positive, up to noise, and overstates it. On the command line::

    trustdoctor diagnose answers.jsonl --choices negative,positive --truth truth.csv

It prints::

    Answers(6,000 rows, confidence, accuracy 85.27%)
    Rejecting the 10% most doubtful predictions by confidence leaves 11.6% errors [10.4%, 13.0%] instead of 14.6%.
    Gate(reject iff confidence < 0.952474; at most 5% errors among the accepted, with confidence 0.9)
    later answers accepted: 60.1%
    of these wrong: 4.9%
    of all wrong: 14.8%
"""  # noqa: E501

import json
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import trustdoctor as td

CHOICES = ["negative", "positive"]


def respond(name: str, p: float, odd: float) -> str:
    """Return a response whose first token says positive with probability p."""
    mass = {"positive": (1 - odd) * p, "negative": (1 - odd) * (1 - p), "The": odd}
    best = sorted(mass, key=mass.__getitem__, reverse=True)
    tokens = [{"token": t, "logprob": float(np.log(mass[t]))} for t in best]
    content = [{**tokens[0], "top_logprobs": tokens}]
    return json.dumps({"id": name, "choices": [{"logprobs": {"content": content}}]})


def simulate(folder: Path, rows: int, rng: np.random.Generator) -> None:
    """Write responses, and the truth by their ids."""
    log_odds = rng.normal(0, 4, rows)  # the log-odds of positive
    truth = rng.random(rows) < 1 / (1 + np.exp(-log_odds))
    stated = 1 / (1 + np.exp(-1.5 * (log_odds + rng.normal(0, 1, rows))))
    ids = [f"review-{i}" for i in range(rows)]
    lines = map(respond, ids, stated, rng.uniform(0, 0.02, rows))
    (folder / "answers.jsonl").write_text("\n".join(lines) + "\n")
    labels = np.where(truth, "positive", "negative")
    pl.DataFrame({"id": ids, "label": labels}).write_csv(folder / "truth.csv")


def main() -> None:
    """Judge and calibrate on one half of the answers; decide on the other."""
    folder = Path(tempfile.mkdtemp())
    simulate(folder, 6000, np.random.default_rng(0))
    truth = folder / "truth.csv"
    p = td.read(folder / "answers.jsonl", choices=CHOICES, truth=truth)
    print(p)
    first, later = p[:3000], p[3000:]
    print(td.evaluate(first).verdict())
    gate = td.calibrate(first, risk=0.05)
    print(gate)
    accepted = gate.screen(later).accepted
    print(f"later answers accepted: {accepted.mean():.1%}")
    print(f"of these wrong: {later.errors[accepted].mean():.1%}")
    print(f"of all wrong: {later.errors.mean():.1%}")


if __name__ == "__main__":
    main()
