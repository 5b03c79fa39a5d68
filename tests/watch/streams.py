"""Gates to watch, rows for them, and what a watch is made of."""

import numpy as np

import trustdoctor as td
from trustdoctor.gates import Screened
from trustdoctor.watch import state

ALL = {"rejected": 1.0, "accepted": 1.0}
AUDIT = {"rejected": 1.0, "accepted": 0.2}
TARGETS = ({"frr": 0.1}, {"trr": 0.8}, {"risk": 0.05}, {"joint": 0.04})


def rows(rng, n, rate=0.1, shift=0.0):
    """Return doubts and errors: errors are two standard deviations more doubtful."""
    errors = rng.random(n) < rate
    return rng.normal(size=n) + 2 * errors + shift, errors


def calibrated(n=3000, *, groups=None, **target):
    return td.calibrate_scores(
        *rows(np.random.default_rng(7), n), groups=groups, **(target or {"frr": 0.1})
    )


def decided(accepted):
    """Return decisions with these accepted rows; the doubts do not matter."""
    accepted = np.asarray(accepted, bool)
    return Screened(np.zeros(len(accepted)), accepted, np.zeros(len(accepted), int))


def busy(gate, **options):
    """Return a watch with all that a state can have."""
    watch, rng = gate.watch(review=AUDIT, **options), np.random.default_rng(0)
    doubts, errors = rows(rng, 60)
    watch.update(doubts[:20], errors[:20], ids=range(20), at=1000)
    mask = rng.random(20) < 0.5
    watch.update(doubts[20:40], ids=range(20, 40), reviewed=mask, at=2000)
    first = 20 + int(np.flatnonzero(mask)[1])
    watch.label(errors=[errors[first]], ids=[first], at=2500)
    watch.update(doubts[40:], batch="last", reviewed=np.ones(20, bool), at=3000)
    return watch


def snapshot(watch):
    """Return all of a watch but its times, to compare two."""
    content = state.write_state(watch)
    history = [entry.to_dict() | {"time": 0} for entry in watch.records()]
    for test in content["tests"].values():
        test["alarm"] = test["alarm"] and test["alarm"]["reason"]
    queue = [batch | {"time": 0} for batch in content["queue"]]
    return content | {
        "queue": queue,
        "history": history,
        "ids": dict(sorted(watch.ledger.items())),
        "alarm": watch.alarm,
        "evidence": evidence(watch),
        "estimates": {name: test.estimate() for name, test in watch.tests.items()},
        "verdicts": {name: watch.verdict(name) for name in watch.tests},
    }


def evidence(watch):
    return {name: test.evidence for name, test in watch.tests.items()}


def counts(watch):
    return {name: (test.n, test.counted) for name, test in watch.tests.items()}
