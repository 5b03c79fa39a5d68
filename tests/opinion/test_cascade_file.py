"""Any cascade file is either refused in one line or loads as that cascade."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import tampered_documents

import trustdoctor as td
from trustdoctor import envelope
from trustdoctor.errors import FileError, InputError
from trustdoctor.gates import Certificate
from trustdoctor.opinion import Cascade
from trustdoctor.opinion.cascade_file import to_json
from trustdoctor.predictions import Predictions

INF = np.inf
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 900)
TRUTH = 3 * np.eye(3)[LABELS]
SMALL, LARGE = (TRUTH + s * RNG.normal(size=TRUTH.shape) for s in (2.5, 1.2))
COSTS = {"costs": [0, 1, 10]}


def named():
    return [Predictions.from_logits(z, class_names="xyz") for z in (SMALL, LARGE)]


MAKE = {
    "by hand": lambda: Cascade(("a", "b"), (-INF, 1.0), (0, 1, 10), "beta"),
    "open": lambda: Cascade(("a",), (INF,), (0.1, 0.1), combine="own", classes=3),
    "risk": lambda: Cascade.calibrate([SMALL, LARGE], LABELS, risk=0.1, **COSTS),
    "trr": lambda: Cascade.calibrate(
        named(), LABELS, trr=0.8, combine="own", names=["s", "l"], **COSTS
    ),
    "joint": lambda: Cascade.calibrate([LARGE], LABELS, joint=0.1, costs=[1, 10]),
    "lists": lambda: Cascade.calibrate(
        named(), LABELS, risk=0.2, **COSTS,
        shortlist={"method": "raps", "level": 0.8, "max_size": 2},
    ),
}  # fmt: skip


@cache
def calibrated(kind):
    return MAKE[kind]()


@pytest.mark.parametrize("kind", MAKE)
def test_written_cascades_are_read_again(kind, tmp_path):
    cascade, path = calibrated(kind), tmp_path / "cascade.json"
    cascade.save(path)
    loaded = td.Cascade.load(path)
    assert loaded == cascade
    assert hash(loaded) == hash(cascade)
    assert repr(loaded) == repr(cascade)
    assert to_json(loaded) == path.read_text()
    stages = [SMALL, LARGE][: len(cascade.stages)]
    decisions, decisions_again = cascade.screen(stages), loaded.screen(stages)
    for name in ("doubts", "accepted", "predicted", "passes", "costs", "goes_to"):
        assert np.array_equal(getattr(decisions, name), getattr(decisions_again, name))
    if cascade.shortlist is not None:
        assert np.array_equal(decisions.shortlist, decisions_again.shortlist)
    if cascade.measured is not None:
        assert loaded.measured == cascade.measured
        assert loaded.measured.policies.shape == cascade.measured.policies.shape
        assert loaded.measured.tested.shape == cascade.measured.tested.shape


def thinned(cascade):
    """The same with fewer points, so that many changes are tried in little time."""
    measured = cascade.measured
    if measured is None:
        return cascade
    curves = {name: curve[:4] for name, curve in measured.curves.items()}
    return replace(
        cascade,
        measured=replace(measured, policies=measured.policies[:4], curves=curves),
    )


def use(cascade):
    """Use a cascade in every way; only library errors may be raised."""
    assert isinstance(repr(cascade), str)
    assert cascade == cascade
    assert hash(cascade) == hash(cascade)
    try:
        stages = [SMALL[:30], LARGE[:30]][: len(cascade.stages)]
        assert len(cascade.screen(stages).accepted) == 30
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017


def without_defaults(text):
    """Return a cascade's document, its certificate without fields at their default."""
    content = json.loads(text)
    certificate = content.get("certificate")
    if certificate is not None:
        content["certificate"] = tampered_documents.without_defaults(
            certificate, Certificate
        )
    return content


@pytest.mark.parametrize(
    "kind",
    ["by hand", *(pytest.param(k, marks=pytest.mark.soak) for k in ("trr", "lists"))],
)
def test_a_tampered_cascade_is_refused_or_whole(kind, monkeypatch):
    content, accepted_count = json.loads(to_json(thinned(calibrated(kind)))), 0
    for change, text in tampered_documents.mutants(content):
        if (
            kind != "trr"
            and change[0] in ("certificate", "measured")
            and len(change) > 3
        ):
            continue  # these are tried once
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, text=text: text)
        try:
            cascade = Cascade.load("cascade.json")
        except FileError as error:
            assert "\n" not in str(error), change  # noqa: PT017
            assert len(str(error)) < 600, change  # noqa: PT017
            continue
        assert change[-1] != "twice", change
        use(cascade)
        rewritten = to_json(cascade)
        same = tampered_documents.same(
            without_defaults(rewritten), without_defaults(text)
        )
        assert same, change
        monkeypatch.setattr(envelope, "read_bounded", lambda *_, again=rewritten: again)
        assert Cascade.load("cascade.json") == cascade, change
        accepted_count += 1
    assert accepted_count


def changed(cascade, path, *at, value):
    content = json.loads(to_json(cascade))
    inner = content
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("stages",), ["s"]),
        (("stages",), ["s", "s"]),
        (("stages",), ["l", "s"]),
        (("stages", 1), "a person"),
        (("thresholds",), ["-inf", "-inf"]),
        (("thresholds", 0), "nan"),
        (("thresholds", 0), None),
        (("costs", 0), 100),
        (("costs", 0), -1),
        (("costs", 2), "inf"),
        (("score",), "nothing"),
        (("combine",), "mean"),
        (("classes",), ["x", "y"]),
        (("shortlist", "n_classes"), 4),
        (("shortlist", "groups"), [{"group": 1, "threshold": 0.0, "rows": 3}]),
        (("certificate", "target"), {"frr": 0.1}),
        (("measured", "target"), "frr"),
        (("measured", "limit"), "inf"),
        (("measured", "rows"), -1),
        (("measured", "passed"), 0),
        (("measured", "passed"), 100_000),
        (("measured", "asked"), [1.0]),
        (("measured", "asked", 0), 1.5),
        (("measured", "whole", "rate"), 2.0),
        (("measured", "whole", "person"), -0.5),
        (("measured", "whole", "cost"), [1.0, 2.0, 3.0]),
        (("measured", "alone"), []),
        (("measured", "curves"), {}),
        (("measured", "policies"), [[0.1, 0.2, 0.3]]),
        (("measured", "tested", 0), [0.1, "inf"]),
    ],
    ids=str,
)
def test_invalid_values_are_refused(at, value, tmp_path):
    path = changed(calibrated("lists"), tmp_path / "cascade.json", *at, value=value)
    with pytest.raises(FileError, match=r"the cascade in .* is not valid") as refusal:
        Cascade.load(path)
    assert "\n" not in str(refusal.value)


def test_a_file_cut_short_is_refused(tmp_path):
    text, path = to_json(calibrated("trr")), tmp_path / "cascade.json"
    for end in range(0, len(text) - 2, max(1, len(text) // 150)):
        path.write_text(text[:end])
        with pytest.raises(FileError, match="expected a cascade as JSON"):
            Cascade.load(path)


def test_files_of_another_kind_are_refused(tmp_path):
    gate, cascade = tmp_path / "gate.json", tmp_path / "cascade.json"
    td.Gate(0.5).save(gate)
    calibrated("by hand").save(cascade)
    with pytest.raises(FileError, match="a cascade of trustdoctor"):
        Cascade.load(gate)
    with pytest.raises(FileError, match="a gate of trustdoctor"):
        td.Gate.load(cascade)
    with pytest.raises(FileError, match="cannot read the cascade"):
        Cascade.load(tmp_path / "nothing.json")
    text = cascade.read_text()
    for schema, advice in ((99, "Use the version"), (1, "Calibrate it again")):
        cascade.write_text(text.replace('"schema": 2', f'"schema": {schema}'))
        with pytest.raises(FileError, match=f"a cascade of schema 2 .*{advice}"):
            Cascade.load(cascade)


@pytest.mark.usefixtures("full_disk")
def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "cascade.json"
    path.write_text("kept")
    with pytest.raises(td.errors.OutputError):
        calibrated("risk").save(path)
    assert path.read_text() == "kept"
    assert [file.name for file in tmp_path.iterdir()] == ["cascade.json"]
