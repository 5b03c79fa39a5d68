"""The same rows give the same gate, at once and in batches."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.engines import Means, calibrate_files, find_engine
from trustdoctor.files import find_source
from trustdoctor.gates import CalibrationSketch
from trustdoctor.gates.sample import Fingerprint, Rows
from trustdoctor.scores import find_score


def named(names, rows):
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(rows, len(names)))
    labels = np.where(rng.random(rows) < 0.8, z.argmax(1), 0)
    return td.Predictions.from_logits(z, labels, class_names=list(names))


@pytest.mark.parametrize("options", [{"frr": 0.2}, {"coverage": 0.8}], ids=str)
@pytest.mark.parametrize("missing", [0, 50])
def test_the_same_rows_give_the_same_gate_in_batches(options, missing):
    """In any order and any parts: fingerprint, classes and all."""
    p = named("abcd", rows=1000)
    labels = p.labels.copy()
    labels[:missing] = -1
    p = td.Predictions.from_logits(
        p.logits, np.where(labels < 0, None, labels), class_names=list("abcd")
    )
    at_once = td.calibrate(p, **options)
    for size in (1000, 301, 40):
        batches = [p[i : i + size] for i in range(0, 1000, size)]
        needs = "frr" in options
        counted = [
            CalibrationSketch(find_score("alpha"), needs_labels=needs) for _ in "xyz"
        ]
        for k, batch in enumerate(reversed(batches)):
            counted[k % 3].update(batch)
        for other in counted[1:]:
            counted[0].merge(other)
        assert counted[0].calibrate(**options) == at_once


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_give_the_same_gate_in_memory_and_streamed(suffix, tmp_path):
    p, path = named("abc", rows=2000), tmp_path / f"rows.{suffix}"
    table = {f"logit_{name}": p.logits[:, k] for k, name in enumerate("abc")}
    frame = pl.DataFrame(table | {"label": [p.class_names[k] for k in p.labels]})
    getattr(frame, f"write_{suffix}")(path)
    streaming = Means(find_engine("local"), 10**9)
    streaming.engine.in_memory = False
    gates = [
        calibrate_files(find_source(path), frr=0.1, groups="predicted", means=means)
        for means in (None, streaming)
    ]
    assert gates[0].classes == ("a", "b", "c")
    assert gates[0].certificate == gates[1].certificate
    assert gates[0] == gates[1]


def test_a_fingerprint_depends_on_every_bit_but_not_on_the_order(rng):
    scores, errors = rng.normal(size=70_000), rng.random(70_000) < 0.1
    order = rng.permutation(70_000)
    fingerprint = Rows(scores, errors).fingerprint
    assert Rows(scores[order], errors[order]).fingerprint == fingerprint
    fingerprints = {
        fingerprint,
        Rows(scores).fingerprint,
        Rows(scores[1:], errors[1:]).fingerprint,
    }
    for at in (0, 1, 69_999):
        other = scores.copy()
        other[at] = np.nextafter(other[at], 9)
        flipped = errors.copy()
        flipped[at] ^= True
        fingerprints |= {
            Rows(other, errors).fingerprint,
            Rows(scores, flipped).fingerprint,
        }
    twice = np.append(scores, scores[:1])
    fingerprints.add(Rows(twice, np.append(errors, errors[:1])).fingerprint)
    swapped = errors.copy()
    error, correct = np.flatnonzero(errors)[0], np.flatnonzero(~errors)[0]
    swapped[[error, correct]] = [False, True]
    fingerprints.add(Rows(scores, swapped).fingerprint)
    assert len(fingerprints) == 11
    zeros = [Fingerprint.of(np.array([z]), np.array([True])) for z in (0.0, -0.0)]
    assert zeros[0] == zeros[1]
    single = scores.astype(np.float32)
    assert Rows(single, errors).fingerprint == (
        Rows(single.astype(np.float64), errors).fingerprint
    )
