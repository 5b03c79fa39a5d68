"""Stages brought together: the same rows, the same classes, the same labels."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

import trustdoctor as td
from trustdoctor.errors import FileError, InputError, TrustDoctorError
from trustdoctor.opinion.stages import align_stages, name_stages, read_stage
from trustdoctor.predictions import Predictions

N = 60
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, N)
SMALL = 3 * np.eye(3)[LABELS] + 2 * RNG.normal(size=(N, 3))
LARGE = 3 * np.eye(3)[LABELS] + RNG.normal(size=(N, 3))
IDS = np.arange(N)
ORDER = RNG.permutation(N)
NAMES, OTHER = ("x", "y", "z"), ("z", "x", "y")
TURNED = [2, 0, 1]  # columns of x, y, z in the other order
ALL = np.arange(N)

from_logits = Predictions.from_logits


def logits_of(stages, k=1, rows=ALL):
    return stages.ask(k, rows).logits


def small(**beside):
    return from_logits(SMALL, LABELS, ids=IDS, **beside)


def turned(z=LARGE, **beside):
    return from_logits(z[:, TURNED], class_names=OTHER, **beside)


def test_classes_in_another_order_are_brought_into_one():
    by_name = [NAMES[k] for k in LABELS]
    stages = align_stages([small(class_names=NAMES), turned(labels=by_name, ids=IDS)])
    assert np.array_equal(logits_of(stages), LARGE)
    assert stages.class_names == NAMES
    assert stages.labels.tolist() == LABELS.tolist()
    without_ids = align_stages(
        [from_logits(SMALL, class_names=NAMES), turned(labels=by_name)]
    )
    assert without_ids.labels.tolist() == LABELS.tolist()
    labels_with_holes = [None if i % 2 else name for i, name in enumerate(by_name)]
    with_holes = align_stages(
        [from_logits(SMALL, class_names=NAMES), turned(labels=labels_with_holes)]
    )
    assert with_holes.labels.tolist() == np.where(ALL % 2, -1, LABELS).tolist()


def test_models_also_provide_class_names():
    def small_model(rows):
        return from_logits(SMALL[rows[:, 0]], class_names=NAMES)

    def large_model(rows):
        return turned(LARGE[rows[:, 0]])

    stages = align_stages([small_model, large_model], data=ALL[:, None], batch_size=7)
    assert np.array_equal(logits_of(stages, 0), SMALL)
    assert np.array_equal(logits_of(stages, 1), LARGE)
    beside = align_stages(
        [from_logits(SMALL, class_names=NAMES), large_model], data=ALL[:, None]
    )
    assert np.array_equal(logits_of(beside, 1), LARGE)

    def fickle(rows):
        return replace(turned(LARGE[rows[:, 0]]), class_names=NAMES[: len(rows)])

    stages_of_fickle = align_stages([fickle], data=ALL[:, None], batch_size=59)
    with pytest.raises(InputError, match="different names of classes from batch"):
        stages_of_fickle.ask(0, ALL)


def test_scikit_learn_models_are_aligned_by_their_classes():
    words = np.array(NAMES)[LABELS]
    small_model = LogisticRegression().fit(SMALL, words)
    large_model = LogisticRegression().fit(LARGE, words)
    large_model.classes_, large_model.coef_ = (
        large_model.classes_[TURNED],
        large_model.coef_[TURNED],
    )
    large_model.intercept_ = large_model.intercept_[TURNED]
    assert large_model.classes_.tolist() == list(OTHER)
    stages = align_stages([small_model, large_model], words, data=LARGE)
    proper = LogisticRegression().fit(LARGE, words)
    expected = np.log(proper.predict_proba(LARGE))
    np.testing.assert_allclose(logits_of(stages), expected, rtol=1e-12)
    assert stages.labels.tolist() == LABELS.tolist()
    other_classes = LogisticRegression().fit(LARGE, np.array(["w", "x", "y"])[LABELS])
    with pytest.raises(InputError, match="stage 2 answers with w, x, y"):
        align_stages([small_model, other_classes], words, data=LARGE).ask(1, ALL)


def test_classes_are_compared_without_outer_blanks():
    words = np.array([" <=50K", " >50K", "x "])[LABELS]
    small_model, large_model = (
        LogisticRegression().fit(x, words) for x in (SMALL, LARGE)
    )
    stages = align_stages([small_model, large_model], words, data=LARGE)
    assert stages.ask(0, ALL).class_names == ("<=50K", ">50K", "x")
    assert stages.ask(1, ALL).class_names == ("<=50K", ">50K", "x")
    assert stages.labels.tolist() == LABELS.tolist()


def test_choices_of_a_network_are_not_its_classes():
    class Network:
        choices = ("conv", "pool")

        def __call__(self, rows):
            return rows

    stages = align_stages([Network()], LABELS, data=SMALL)
    assert stages.class_names is None
    assert stages.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize("form", [int, float, str, object])
def test_labels_are_as_the_models_classes_are_written(form):
    """Also where some are missing, which makes numbers floats, or objects."""
    truth = np.array([1, 2, 5])[LABELS]
    small_model, large_model = (
        LogisticRegression().fit(x, truth) for x in (SMALL, LARGE)
    )
    labels, labelled = truth.astype(form), np.ones(N, bool)
    if form in (float, object):
        labelled[::2] = False
        labels[::2] = np.nan if form is float else None
    stages = align_stages([small_model, large_model], labels, data=LARGE)
    assert stages.labels.tolist() == np.where(labelled, LABELS, -1).tolist()


WIDER = np.c_[LARGE, LARGE[:, 0]]


@pytest.mark.parametrize(
    ("names", "other", "match"),
    [
        (
            NAMES,
            from_logits(LARGE, class_names=("x", "y", "w")),
            "'w' is not in all of them",
        ),
        (
            NAMES,
            from_logits(WIDER, class_names=("x", "y", "z", "w")),
            "'w' is not in all",
        ),
        (NAMES, WIDER, "expected 3 classes from every stage, got 4 from stage 2"),
        (
            None,
            from_logits(WIDER, class_names=tuple("xyzw")),
            "3 classes from every stage",
        ),
        (None, LARGE[:, :2], "expected 3 classes from every stage, got 2 from stage 2"),
    ],
)
def test_other_classes_are_refused(names, other, match):
    def ask_all():
        stages = align_stages([from_logits(SMALL, class_names=names), other])
        return [stages.ask(k, ALL) for k in (0, 1)]

    with pytest.raises(InputError, match=match):
        ask_all()


def test_labels_that_differ_are_refused():
    wrong = np.where(IDS == 7, (LABELS + 1) % 3, LABELS)
    match = f"id '7' is {wrong[7]} in stage 2 and {LABELS[7]} before; 1 rows? differ"
    with pytest.raises(InputError, match=match):
        align_stages([small(), from_logits(LARGE[ORDER], wrong[ORDER], ids=IDS[ORDER])])
    with pytest.raises(InputError, match="row 7 is"):
        align_stages([from_logits(SMALL, LABELS), LARGE], wrong)
    odd_labels = np.where(IDS % 2, LABELS, np.nan)
    even_labels = np.where(IDS % 2, np.nan, LABELS)
    stages = align_stages(
        [from_logits(SMALL, odd_labels), from_logits(LARGE, even_labels)]
    )
    assert stages.labels.tolist() == LABELS.tolist()
    assert align_stages([SMALL, LARGE]).labels is None
    assert align_stages([SMALL, LARGE], np.full(N, np.nan)).labels is None


# --- what a stage may be ------------------------------------------------------------


def write(folder, name, z, *, ids="id", order=ALL, labels=True):
    columns = {f"logit_{j}": z[order, j] for j in range(3)}
    columns |= {ids: order} if ids else {}
    columns |= {"label": LABELS[order]} if labels else {}
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    table = pl.DataFrame(columns)
    (table.write_csv if name.endswith("csv") else table.write_parquet)(path)
    return path


def test_files_are_matched_by_their_column_of_ids(tmp_path):
    small_file = write(tmp_path, "one.parquet", SMALL)
    large_file = write(tmp_path, "two.csv", LARGE, order=ORDER, labels=False)
    stages = align_stages([small_file, str(large_file)])
    assert stages.names == ("one", "two")
    assert np.array_equal(logits_of(stages), LARGE)
    assert stages.labels.tolist() == LABELS.tolist()
    small_file, large_file = (
        write(tmp_path, f"{n}.csv", z, ids="key", order=o)
        for n, z, o in (("three", SMALL, ALL), ("four", LARGE, ORDER))
    )
    assert np.array_equal(
        logits_of(align_stages([small_file, large_file], ids="key")), LARGE
    )
    with pytest.raises(InputError, match=r"three has none.*ids='NAME'"):
        align_stages([small_file, large_file])
    with pytest.raises(FileError, match="'nothing'"):
        align_stages([small_file, large_file], ids="nothing")
    assert read_stage(small_file).ids is None


def test_folders_and_patterns_are_files_too(tmp_path):
    write(tmp_path, "parts/a.parquet", SMALL, order=ALL[:20])
    write(tmp_path, "parts/b.parquet", SMALL, order=ALL[20:])
    large_file = write(tmp_path, "two.parquet", LARGE, order=ORDER)
    for small_files in (tmp_path / "parts", str(tmp_path / "parts" / "*.parquet")):
        stages = align_stages([small_files, large_file])
        assert np.array_equal(logits_of(stages, 0), SMALL)
        assert np.array_equal(logits_of(stages, 1), LARGE)


def test_a_single_file_needs_no_ids(tmp_path):
    path = write(tmp_path, "one.csv", SMALL, ids=None)
    assert np.array_equal(logits_of(align_stages([path]), 0), SMALL)
    other = write(tmp_path, "two.csv", LARGE, ids=None)
    with pytest.raises(InputError, match="one has none, so rows cannot be matched"):
        align_stages([path, other])
    stages = align_stages([path, other], by_position=True)
    assert np.array_equal(logits_of(stages), LARGE)


@pytest.mark.parametrize(
    ("stage", "match"),
    [
        (td.Predictions.from_topk(np.full((N, 2), 0.4), np.tile([0, 1], (N, 1))),
         "logits or probabilities of every class from stage 2, got Answers"),
        (td.Predictions.from_confidence(np.full(N, 0.5)), "from stage 2, got Answers"),
        (None, "expected a model .* got NoneType"),
        (3, "expected a model .* got int"),
        (LogisticRegression, "expected a model .* got"),
        (LARGE[:, 0], r"shape \(n, C\)"),
        (np.full((N, 3), 1 / 3), "Use Predictions.from_probs"),
        (np.full((N, 3), np.nan), "NaN"),
        ("nothing.csv", "no file nothing.csv"),
        (np.asarray, "stage 2 is a model, so it needs rows"),
    ],
    ids=lambda value: str(type(value).__name__),
)  # fmt: skip
def test_invalid_stages_are_refused_in_one_line(stage, match):
    with pytest.raises(TrustDoctorError, match=match) as refusal:
        align_stages([SMALL, stage])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda x: x[:3], "3 answers to 60 rows"),
        (lambda _: None, r"shape \(n, C\)"),
        (lambda x: x @ np.zeros((7, 2)), "of which it says"),
        (lambda x: Predictions.from_confidence(x[:, 0]), "at least 2 classes|Answers"),
        (LogisticRegression(), "fit"),
    ],
)
def test_a_models_mistakes_are_reported_in_one_line(model, match):
    with pytest.raises(InputError, match=match) as refusal:
        align_stages([model], data=SMALL).ask(0, ALL)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("stages", [None, 3, SMALL, {}, [], (), np.asarray, "ab"])
def test_stages_come_as_a_list(stages):
    with pytest.raises(InputError, match=r"stages as a list, .*\[small, large\], got"):
        align_stages(stages)


def test_stages_are_named_by_option_file_or_number():
    mixed = name_stages([SMALL, "a/b.csv", np.asarray], None)
    assert mixed == ("stage 1", "b", "stage 3")
    assert name_stages(["s/p.csv", "l/p.csv"], None) == ("s", "l")
    assert name_stages(["s/*.csv", "l/*.csv"], None) == ("s", "l")
    dots = name_stages(["p/x1.0.csv.gz", "p/x1.4.parquet"], None)
    assert dots == ("x1.0", "x1.4")
    assert name_stages([SMALL, LARGE], ["s", "l"]) == ("s", "l")
    for names in (["s"], ["s", "s"], ["s", ""], "sl"):
        with pytest.raises(InputError, match="expected 2 names, each once, got"):
            name_stages([SMALL, LARGE], names)
    with pytest.raises(InputError, match=r"each once, got p, p\. Name the stages"):
        name_stages(["a/p.csv", "a/p.parquet"], None)


# --- rows that models are asked about -----------------------------------------------


def as_tensor():
    import torch

    return torch.tensor(SMALL)


def as_pandas():
    import pandas as pd

    return pd.DataFrame(SMALL, index=ORDER)


def from_text(rows):
    return np.array([[float(x) for x in row.split(",")] for row in rows])


FORMS = {
    "array": (lambda: SMALL, np.asarray),
    "list": (SMALL.tolist, np.asarray),
    "tuple": (lambda: tuple(map(tuple, SMALL)), np.asarray),
    "tensor": (as_tensor, lambda x: x.numpy()),
    "pandas": (as_pandas, lambda x: x.to_numpy()),
    "polars": (lambda: pl.DataFrame(SMALL), lambda x: x.to_numpy()),
    "sparse": (lambda: sp.csr_matrix(SMALL), lambda x: x.toarray()),
    "text": (lambda: [",".join(map(repr, r)) for r in SMALL.tolist()], from_text),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch_size", [1, 7, 256])
def test_rows_may_have_any_form_that_can_be_indexed(form, batch_size):
    make, model = FORMS[form]
    data, sizes = make(), []

    def ask(rows):
        sizes.append(rows.shape[0] if hasattr(rows, "shape") else len(rows))
        return model(rows)

    stages = align_stages([ask], data=data, batch_size=batch_size)
    for rows in (ALL, ORDER[:9], np.array([3])):
        sizes.clear()
        assert np.array_equal(logits_of(stages, 0, rows), SMALL[rows])
        assert sum(sizes) == len(rows)
        assert max(sizes) <= batch_size


@pytest.mark.parametrize(
    "data",
    [{"a": SMALL}, "text", b"bytes", 3, iter(SMALL), np.array(3.0),
     pl.DataFrame(SMALL).to_arrow()],
    ids=lambda data: type(data).__name__,
)  # fmt: skip
def test_rows_that_cannot_be_picked_are_refused(data):
    with pytest.raises(InputError, match=r"counted and picked .* got"):
        align_stages([np.asarray], data=data)


def test_data_are_for_models_and_there_are_some():
    with pytest.raises(InputError, match="at least one row"):
        align_stages([np.asarray], data=SMALL[:0])
    with pytest.raises(InputError, match="expected data only beside models"):
        align_stages([SMALL], data=SMALL)
    for size in (0, -1, 1.5, True, None):
        with pytest.raises(InputError, match="batch size of 1 or more"):
            align_stages([np.asarray], data=SMALL, batch_size=size)


def test_progress_is_reported():
    reports = []
    stages = align_stages(
        [np.asarray, np.asarray], data=SMALL, batch_size=20, names=["a", "b"],
        progress=lambda share, task: reports.append((share, task)),
    )  # fmt: skip
    stages.ask(0, ALL)
    stages.ask(1, ALL[:30])
    expected = [(0, "a"), (1 / 3, "a"), (2 / 3, "a"), (0, "b"), (2 / 3, "b")]
    assert [(share, task.split()[-1]) for share, task in reports] == expected
