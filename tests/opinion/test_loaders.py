"""A second opinion on batches: DataLoaders, data sets, dicts, and generators."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.opinion import SecondOpinion, View, image_views

torch.manual_seed(0)
IMAGES = torch.randn(300, 3, 6, 6)
LABELS = torch.randint(0, 4, (300,))
HOT = nn.functional.one_hot(LABELS, 4)
NET = nn.Sequential(nn.Flatten(), nn.Linear(108, 4), nn.Dropout(0.5)).eval()


def loader(*columns, **options):
    return DataLoader(TensorDataset(*columns), batch_size=32, **options)


FORMS = {
    "pairs": (lambda: loader(IMAGES, LABELS), {}),
    "triples": (lambda: loader(IMAGES, LABELS, torch.arange(300)), {}),
    "one-hot": (lambda: loader(IMAGES, HOT.float()), {}),
    "named": (lambda: loader(LABELS, IMAGES), {"inputs": 1, "labels": 0}),
    "a data set": (lambda: TensorDataset(IMAGES, LABELS), {}),
    "a dict": (lambda: {"image": IMAGES, "label": LABELS}, {}),
    "keys": (
        lambda: iter([{"scan": IMAGES, "other": IMAGES, "truth": HOT}]),
        {"inputs": "scan", "labels": "truth"},
    ),
    "a pair": (lambda: (IMAGES, HOT), {}),
    "a generator": (
        lambda: zip(IMAGES.split(50), LABELS.split(50), strict=True),
        {},
    ),
}


@pytest.fixture(scope="module")
def opinions_on_rows():
    return SecondOpinion(NET, image_views(5))(IMAGES, LABELS)


@pytest.mark.parametrize("form", FORMS)
def test_batches_report_what_all_rows_report(form, opinions_on_rows):
    data, options = FORMS[form]
    opinions = SecondOpinion(NET, image_views(5), batch_size=64, **options)(data())
    np.testing.assert_allclose(
        opinions.doubts, opinions_on_rows.doubts, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        opinions.confidence, opinions_on_rows.confidence, rtol=1e-4
    )
    assert np.array_equal(opinions.answers, opinions_on_rows.answers)
    assert np.array_equal(opinions.predictions.labels, LABELS)


def test_gates_are_made_and_used_on_batches(opinions_on_rows):
    ask = SecondOpinion(NET, image_views(5))
    gate = ask.calibrate(loader(IMAGES, LABELS), frr=0.3)
    assert gate.threshold == pytest.approx(
        ask.calibrate(IMAGES, LABELS, frr=0.3).threshold, rel=1e-5
    )
    screened_rows, screened_batches = (
        ask.screen(IMAGES, gate),
        ask.screen(loader(IMAGES, LABELS), gate),
    )
    np.testing.assert_allclose(
        screened_batches.doubts, screened_rows.doubts, rtol=1e-4, atol=1e-5
    )
    assert np.array_equal(screened_batches.accepted, screened_rows.accepted)
    assert np.array_equal(screened_batches.passes, screened_rows.passes)
    assert np.array_equal(screened_batches.predicted, screened_rows.predicted)
    assert np.array_equal(
        screened_batches.predictions.errors, opinions_on_rows.predictions.errors
    )
    assert screened_rows.predictions.labels is None
    assert len(ask.screen(loader(IMAGES), gate).doubts) == 300
    checks = ask.check(loader(IMAGES, LABELS))
    for batched, at_once in zip(checks, ask.check(IMAGES, LABELS), strict=True):
        assert (batched.name, batched.keep) == (at_once.name, at_once.keep)
        assert batched.agreement == at_once.agreement
        assert batched.auroc == pytest.approx(at_once.auroc, abs=1e-6)


def test_shuffled_rows_keep_their_labels(opinions_on_rows):
    shuffled = loader(IMAGES, LABELS, shuffle=True)
    opinions = SecondOpinion(NET, image_views(5))(shuffled)
    assert (
        opinions.predictions.errors.sum() == opinions_on_rows.predictions.errors.sum()
    )
    np.testing.assert_allclose(
        np.sort(opinions.scores[opinions.predictions.errors]),
        np.sort(opinions_on_rows.scores[opinions_on_rows.predictions.errors]),
        rtol=1e-4,
        atol=1e-5,
    )


def test_texts_in_batches():
    texts = [f"{'good' if i % 2 else 'bad'} film {i}" for i in range(30)]

    def model(rows):
        assert all(isinstance(row, str) for row in rows)
        return np.array([[len(row) / 9.0, row.count("good")] for row in rows])

    views = [View("short", lambda rows: [row[:6] for row in rows])]
    ask = SecondOpinion(model, views)
    labels = torch.arange(30) % 2
    rows = list(zip(texts, labels, strict=True))
    plain = ask(texts, labels)
    for data in (
        DataLoader(rows, batch_size=7),
        DataLoader([{"text": t, "label": y} for t, y in rows], batch_size=7),
        (texts, labels),
    ):
        opinions = ask(data)
        assert np.array_equal(opinions.doubts, plain.doubts)
        assert opinions.predictions.labels.tolist() == labels.tolist()


def test_one_hot_labels_of_rows(opinions_on_rows):
    opinions = SecondOpinion(NET, image_views(5))(IMAGES, HOT.numpy())
    assert np.array_equal(
        opinions.predictions.labels, opinions_on_rows.predictions.labels
    )
    with pytest.raises(InputError, match="each of 4 classes, got 5 columns"):
        SecondOpinion(NET, image_views(1))(IMAGES, nn.functional.one_hot(LABELS, 5))


def answer_of(x):
    return NET(x)


@pytest.mark.parametrize("model", [answer_of, NET])
def test_networks_inside_functions_are_asked_in_eval_mode(model, opinions_on_rows):
    NET.train()
    try:
        opinions = SecondOpinion(model, image_views(5))(loader(IMAGES, LABELS))
        assert NET.training
    finally:
        NET.eval()
    np.testing.assert_allclose(
        opinions.doubts, opinions_on_rows.doubts, rtol=1e-4, atol=1e-5
    )


def test_functions_get_their_inputs_as_they_come():
    kinds = []

    def answer(pictures):
        kinds.append(type(pictures))
        flat = torch.from_numpy(pictures) if kinds[-1] is np.ndarray else pictures
        return NET(flat).detach().numpy()

    views = image_views(1)
    rows = SecondOpinion(answer, views)(IMAGES.numpy())
    batches = SecondOpinion(answer, views)(images for images in IMAGES.numpy()[None])
    assert set(kinds) == {np.ndarray}
    assert np.array_equal(rows.doubts, batches.doubts)


def test_progress_counts_batches():
    shares = []
    ask = SecondOpinion(NET, image_views(1))
    ask(loader(IMAGES, LABELS), progress=lambda share, _task: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) == 20  # two passes over ten batches


@pytest.mark.parametrize(
    ("data", "options", "match"),
    [
        (lambda: iter([{"a": IMAGES, "b": IMAGES}]), {}, "got a, b .*inputs='a'"),
        (lambda: loader(IMAGES, HOT * 0.5 + 0.125), {}, "soft labels"),
        (lambda: iter([(IMAGES, LABELS[:7])]), {}, "7 labels for 300 rows"),
        (lambda: loader(IMAGES, IMAGES), {}, "one class per row"),
        (lambda: loader(IMAGES, IMAGES), {"inputs": (0, 1)}, "one input per batch"),
        (lambda: iter([]), {}, "at least one row"),
        (lambda: iter([IMAGES, (IMAGES, LABELS)]), {}, "in all batches"),
        (lambda: IMAGES[:, :2], {}, r"float32 of shape \(256, 2, 6, 6\).*72 and 108"),
        (lambda: loader(IMAGES[:, :2]), {}, r"shape \(32, 2, 6, 6\).*72 and 108"),
        (lambda: [["a"], ["b"]], {}, "a list of 2, of which it says"),
    ],
)
def test_mistakes_are_named_in_one_line(data, options, match):
    same = [View("same", lambda x: x)]
    with pytest.raises(InputError, match=match) as refusal:
        SecondOpinion(NET, same, **options)(data())
    assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="Leave the labels out"):
        SecondOpinion(NET, same)(loader(IMAGES, LABELS), LABELS)


def test_a_functions_complaint_is_ours():
    weights = np.zeros((4, 3))
    ask = SecondOpinion(lambda x: x @ weights, [View("same", lambda x: x)])
    with pytest.raises(
        InputError, match=r"float64 of shape \(5, 7\), of which it says"
    ):
        ask(np.zeros((5, 7)))
    with pytest.raises(InputError, match=r"\(n, C\)"):
        SecondOpinion(lambda x: x[:, 0], [View("same", lambda x: x)])(np.zeros((5, 7)))
    with pytest.raises(InputError, match="expected a model"):
        SecondOpinion(nn.Linear, [View("same", lambda x: x)])
    assert td.SecondOpinion is SecondOpinion
