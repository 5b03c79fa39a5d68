"""Rows on their way: a cascade's rule, lazily and in full, on anything it takes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import special

from trustdoctor.errors import InputError
from trustdoctor.opinion import PERSON, Cascade, Cascaded
from trustdoctor.predictions import Predictions

INF = np.inf
N = 240
FIELDS = ("doubts", "accepted", "predicted", "passes", "costs", "goes_to")


def world(kind, stages=2, classes=4, seed=0, n=N):
    """What models of growing strength say of rows."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    noise = (2.0, 1.3, 0.9)[:stages]
    logits = [
        2.5 * np.eye(classes)[labels] + s * rng.normal(size=(n, classes)) for s in noise
    ]
    make = {
        "double": Predictions.from_logits,
        "single": lambda z: Predictions.from_logits(z.astype(np.float32)),
        "half": lambda z: Predictions.from_logits(z.astype(np.float16)),
        "masked": lambda z: Predictions.from_logits(_masked(z)),
        "probabilities": lambda z: Predictions.from_probs(_rounded(z)),
        "certain": lambda z: Predictions.from_probs(np.eye(classes)[z.argmax(1)]),
        "tied": lambda z: Predictions.from_logits(z.round()),
    }[kind]
    return [make(z) for z in logits], labels


def _masked(z):
    out = z.copy()
    out[np.arange(len(z)), z.argmin(1)] = -INF
    return out


def _rounded(z):
    p = special.softmax(z, 1)
    p[p < 0.01] = 0
    return p / p.sum(1, keepdims=True)


KINDS = ("double", "single", "half", "masked", "probabilities", "certain", "tied")


def middle(predictions, combine="average", **options):
    """A cascade whose thresholds are doubts of rows, so that some are met exactly."""
    k = len(predictions)
    all_stop = Cascade(names(k), (INF,) * k, costs(k), combine=combine, **options)
    answers = [
        answer
        for _, answer in zip(range(k), all_stop.answers(predictions, None), strict=True)
    ]
    thresholds = [
        float(np.quantile(all_stop.scorer(answer), 0.4, method="lower").clip(-1e9))
        for answer in answers
    ]
    return Cascade(names(k), tuple(thresholds), costs(k), combine=combine, **options)


def names(k):
    return ("small", "middle", "large")[:k] if k != 2 else ("small", "large")


def costs(k):
    return (*(0.5, 1.0, 3.0)[:k], 10.0)


def by_hand(cascade, predictions, row):
    """Walk one row: its doubt, acceptance, label, models asked, cost and next stage."""
    total, cost, passes = 0.0, 0.0, 0
    for k, threshold in enumerate(cascade.thresholds):
        if k not in cascade.asked:
            continue
        answer, passes, cost = (
            predictions[k][[row]],
            passes + 1,
            cost + cascade.costs[k],
        )
        if cascade.combine == "average":
            total = total + softened(answer)
            mean = Predictions(total / (k + 1), None, from_probabilities=True)
            answer = mean if k else answer
        doubt = float(cascade.scorer(answer)[0])
        if threshold > -INF and doubt <= threshold:
            return doubt, True, answer.predicted[0], passes, cost, ""
    cost += cascade.costs[-1]
    return doubt, False, answer.predicted[0], passes, cost, PERSON


def softened(answer):
    """The log-softmax; what has no probability counts as 40 below the top."""
    z = answer.logits.astype(np.float64)
    floor = z.max() - 40
    z = np.where(z == -INF, floor, z)
    z = np.maximum(z, floor) if answer.from_probabilities else z
    shifted = z - z.max()
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


class Counting:
    """A model that knows its answers, and keeps which rows it was asked about."""

    def __init__(self, predictions):
        self.predictions, self.rows, self.sizes = predictions, [], []

    def __call__(self, rows):
        indices = np.asarray(rows)[:, 0]
        self.rows += indices.tolist()
        self.sizes.append(len(indices))
        return self.predictions[indices]


def same(decisions, expected):
    for name in FIELDS:
        assert np.array_equal(getattr(decisions, name), getattr(expected, name)), name
    assert np.array_equal(decisions.predictions.logits, expected.predictions.logits)


@pytest.mark.parametrize("combine", ["average", "own"])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_lazily_or_in_full_it_follows_its_rule_row_by_row(kind, stages, combine):
    predictions, _ = world(kind, stages)
    cascade = middle(predictions, combine)
    full = cascade.screen(predictions)
    expected = [by_hand(cascade, predictions, row) for row in range(N)]
    for i, name in enumerate(FIELDS[:4]):
        assert getattr(full, name).tolist() == [row[i] for row in expected], name
    assert full.costs.tolist() == pytest.approx([row[4] for row in expected])
    assert full.goes_to.tolist() == [row[5] for row in expected]
    data = np.arange(N)[:, None]
    for batch_size in (1, 7, N):
        models = [Counting(stage) for stage in predictions]
        same(cascade.screen(models, data=data, batch_size=batch_size), full)
        for k, model in enumerate(models):
            in_doubt = np.flatnonzero(full.passes > k).tolist()
            assert model.rows == in_doubt  # each once, and no others
            assert all(size <= batch_size for size in model.sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_rows_does_not_matter(kind):
    predictions, _ = world(kind, 3)
    cascade, order = middle(predictions), np.random.default_rng(1).permutation(N)
    full, permuted = (
        cascade.screen(predictions),
        cascade.screen([stage[order] for stage in predictions]),
    )
    for name in FIELDS:
        assert np.array_equal(getattr(full, name)[order], getattr(permuted, name))
    single_rows = [
        cascade.screen([stage[[row]] for stage in predictions]) for row in range(20)
    ]
    assert [decisions.doubts[0] for decisions in single_rows] == full.doubts[
        :20
    ].tolist()


def test_the_same_model_at_views_is_a_cascade_too():
    """The model is asked once per row and view, and only while the row is in doubt."""
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(N, 5)), rng.normal(size=(5, 3))
    batch_sizes = []

    def model(rows):
        batch_sizes.append(len(rows))
        return (rows[:, :, None] * weights).sum(1)

    views = [lambda r: r, lambda r: r + 0.3 * np.sin(9 * r), lambda r: 0.9 * r]
    stages = [lambda r, v=v: model(v(r)) for v in views]
    predictions = [Predictions.from_logits(model(view(x))) for view in views]
    cascade = middle(predictions)
    batch_sizes.clear()
    lazy = cascade.screen(stages, data=x, batch_size=16)
    same(lazy, cascade.screen(predictions))
    assert sum(batch_sizes) == lazy.passes.sum() < 3 * N


def test_stages_that_cannot_settle_a_row_are_not_asked():
    predictions, _ = world("double", 3)
    for combine, thresholds, stages_asked in (
        ("average", (-INF, -1.0, -INF), [0, 1]),
        ("own", (-INF, -1.0, -INF), [1]),
        ("own", (-1.0, -INF, 0.0), [0, 2]),
        ("average", (-1.0, -INF, 0.0), [0, 1, 2]),
    ):
        cascade = Cascade(names(3), thresholds, costs(3), combine=combine)
        assert cascade.asked == stages_asked
        models = [Counting(stage) for stage in predictions]
        decisions = cascade.screen(models, data=np.arange(N)[:, None])
        assert [bool(model.rows) for model in models] == [
            k in stages_asked for k in range(3)
        ]
        expected = [by_hand(cascade, predictions, row) for row in range(N)]
        assert decisions.accepted.tolist() == [row[1] for row in expected]
        assert decisions.passes.tolist() == [row[3] for row in expected]
        assert decisions.costs.tolist() == pytest.approx([row[4] for row in expected])
    with pytest.raises(InputError, match="a stage that can settle a row, got small"):
        Cascade(names(2), (-INF, 0.0), costs(2), combine="own").screen(predictions[:1])


def test_at_minus_infinity_none_stops_and_at_infinity_all_do():
    certain, _ = world("certain")
    assert np.isneginf(Cascade(("a",), (0.0,), (0, 1)).screen(certain[:1]).doubts).all()
    none_stop = Cascade(names(2), (-INF, 0.0), costs(2)).screen(certain)
    assert set(none_stop.passes.tolist()) == {2}
    all_stop = Cascade(names(2), (INF, 0.0), costs(2)).screen(certain)
    assert all_stop.accepted.all()
    assert set(all_stop.costs.tolist()) == {0.5}


def test_the_first_stages_alone_say_where_rows_go_next():
    predictions, _ = world("double", 3)
    cascade = middle(predictions)
    full = cascade.screen(predictions)
    for k in (1, 2):
        partial = cascade.screen(predictions[:k])
        in_doubt = full.passes > k
        assert np.array_equal(partial.accepted, full.accepted & ~in_doubt)
        assert set(partial.goes_to[in_doubt].tolist()) == {names(3)[k]}
        assert (partial.goes_to[full.accepted & ~in_doubt] == "").all()
        expected = np.cumsum(costs(3)[:k])[full.passes.clip(max=k) - 1]
        assert partial.costs.tolist() == pytest.approx(expected.tolist())
    jump = Cascade(names(3), (0.0, -INF, 0.0), costs(3), combine="own")
    assert set(jump.screen(predictions[:1]).goes_to.tolist()) <= {"", "large"}
    with pytest.raises(InputError, match=r"at most 3 stages .* got 4"):
        cascade.screen([*predictions, predictions[0]])


def test_a_later_stage_needs_only_the_rows_in_doubt():
    predictions, _ = world("double")
    ids = np.array([f"row {i}" for i in range(N)])
    cascade = middle(predictions)
    full = cascade.screen(predictions, ids=ids)
    assert full.ids.tolist() == ids.tolist() == full.predictions.ids.tolist()
    in_doubt = np.flatnonzero(full.passes > 1)[::-1]

    def with_ids(stage, rows):
        return Predictions.from_logits(stage.logits[rows], ids=ids[rows])

    first = with_ids(predictions[0], np.arange(N))
    same(cascade.screen([first, with_ids(predictions[1], in_doubt)]), full)
    with pytest.raises(
        InputError, match=f"1 row in doubt is not .*'row {in_doubt[-1]}'"
    ):
        cascade.screen([first, with_ids(predictions[1], in_doubt[:-1])])


def test_what_it_says_are_predictions_with_names_ids_and_labels():
    predictions, labels = world("double")
    names = ("ant", "bee", "cat", "dog")
    named = [
        Predictions.from_logits(stage.logits, class_names=names)
        for stage in predictions
    ]
    named[1] = Predictions.from_logits(predictions[1].logits, labels, class_names=names)
    decisions = middle(predictions, classes=names).screen(named, ids=np.arange(N))
    p = decisions.predictions
    assert isinstance(decisions, Cascaded)
    assert p.class_names == names
    assert p.labels.tolist() == labels.tolist()
    assert np.array_equal(p.predicted_names, decisions.predicted)
    first = decisions.passes == 1
    assert np.array_equal(p.logits[first], predictions[0].logits[first])
    assert p.from_probabilities  # a mean of log-probabilities has no logits
    single = Cascade(("small",), (0.0,), (0, 1)).screen(predictions[:1]).predictions
    assert not single.from_probabilities


def test_classes_in_another_order_are_matched_by_name():
    predictions, _ = world("double", classes=3)
    order = [2, 0, 1]
    cascade = middle(predictions, classes=("x", "y", "z"))
    plain = cascade.screen(predictions)
    other = cascade.screen(
        [
            Predictions.from_logits(predictions[0].logits[:, order], class_names="zxy"),
            Predictions.from_logits(predictions[1].logits, class_names="xyz"),
        ]
    )
    numbers = [("x", "y", "z").index(name) for name in other.predicted]
    assert np.array_equal(numbers, plain.predicted)
    assert np.array_equal(other.accepted, plain.accepted)
    with pytest.raises(InputError, match=r"classes of the cascade's .* got 'w'"):
        cascade.screen(
            [Predictions.from_logits(predictions[0].logits, class_names="xyw")]
        )
    with pytest.raises(InputError, match=r"expected 3 classes, as in .* got 2"):
        cascade.screen([stage.logits[:, :2] for stage in predictions])


def test_lists_are_for_rows_that_go_to_a_person():
    predictions, labels = world("double", n=3000)
    cascade = Cascade.calibrate(
        predictions, labels, risk=0.1, costs=[0, 1, 10], shortlist=0.9
    )
    decisions = cascade.screen(predictions)
    rejected = ~decisions.accepted
    assert not decisions.shortlist[decisions.accepted].any()
    assert decisions.shortlist[rejected, decisions.predicted[rejected]].all()
    assert (decisions.shortlist[rejected].sum(1) >= 1).all()
    assert not cascade.screen(
        predictions[:1]
    ).shortlist.any()  # they go to a model next
    p = special.softmax(decisions.predictions.logits, 1)
    smallest_listed = p[rejected].min(1, where=decisions.shortlist[rejected], initial=1)
    largest_unlisted = p[rejected].max(
        1, where=~decisions.shortlist[rejected], initial=0
    )
    assert (
        smallest_listed.min() >= largest_unlisted[largest_unlisted < 1].max() - 1e-12
    )  # one threshold for all


# --- models of every kind -----------------------------------------------------------


def fixed(rows):
    """A function whose answer to a row does not depend on other rows."""
    weights = np.random.default_rng(1).normal(size=(6, 3))
    return (np.asarray(rows)[:, :, None] * weights).sum(1)


ROWS = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)


def test_a_scikit_learn_model_with_a_function():
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=3).fit(ROWS * 0.7, fixed(ROWS).argmax(1))
    predictions = [  # the names that the tree declares
        Predictions.from_probs(tree.predict_proba(ROWS), class_names=["0", "1", "2"]),
        Predictions.from_logits(fixed(ROWS)),
    ]
    cascade = middle(predictions)
    full = cascade.screen(predictions)
    for batch_size in (1, 32):
        options = {"data": ROWS, "batch_size": batch_size}
        same(cascade.screen([tree, fixed], **options), full)
        same(cascade.screen([predictions[0], fixed], **options), full)
        same(cascade.screen([tree, predictions[1]], **options), full)


def test_classes_that_a_scikit_learn_model_numbers_stay_numbers():
    """It declares 0, 1, 2, which are the labels that people count with."""
    from sklearn.tree import DecisionTreeClassifier

    classes = fixed(ROWS).argmax(1)
    shallow, deep = (
        DecisionTreeClassifier(max_depth=depth, random_state=0).fit(ROWS, classes)
        for depth in (2, 6)
    )
    assert shallow.classes_.tolist() == [0, 1, 2]
    predictions = [
        Predictions.from_probs(t.predict_proba(ROWS)) for t in (shallow, deep)
    ]
    cascade = middle(predictions, combine="own")
    decisions = cascade.screen([shallow, deep], data=ROWS)
    assert decisions.predicted.dtype.kind == "i"
    assert np.array_equal(decisions.predicted, cascade.screen(predictions).predicted)
    stopped_first = decisions.passes == 1
    assert np.array_equal(
        decisions.predicted,
        np.where(stopped_first, shallow.predict(ROWS), deep.predict(ROWS)),
    )
    assert (decisions.predicted == classes).mean() > 0.5
    names = np.array(["x", "y", "z"], object)[classes]
    named = [
        DecisionTreeClassifier(max_depth=depth, random_state=0).fit(ROWS, names)
        for depth in (2, 6)
    ]
    assert set(cascade.screen(named, data=ROWS).predicted) <= {"x", "y", "z"}


@pytest.mark.filterwarnings("ignore")
def test_networks_are_asked_in_eval_mode_and_left_as_they_were(tmp_path):
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.5)).eval()
    path = tmp_path / "net.onnx"
    torch.onnx.export(
        net, (torch.from_numpy(ROWS),), path, dynamo=False,
        input_names=["x"], output_names=["logits"], dynamic_axes={"x": {0: "n"}},
    )  # fmt: skip
    with torch.no_grad():
        logits = net(torch.from_numpy(ROWS)).numpy()
    predictions = [Predictions.from_logits(z) for z in (logits, fixed(ROWS), logits)]
    cascade, net = middle(predictions), net.train()
    full = cascade.screen(predictions)
    lazy = cascade.screen([net, fixed, path], data=ROWS, batch_size=32)
    assert net.training
    np.testing.assert_allclose(lazy.doubts, full.doubts, rtol=1e-4, atol=1e-5)
    assert (lazy.accepted == full.accepted).mean() > 0.98


@pytest.mark.parametrize("form", ["list", "tensor", "pandas", "polars", "text"])
def test_rows_of_every_kind(form):
    import pandas as pd
    import polars as pl
    import torch

    predictions, _ = world("double")
    number = np.arange(N)
    data = {
        "list": [[i] for i in number],
        "tensor": torch.from_numpy(number)[:, None],
        "pandas": pd.DataFrame({"i": number}, index=number[::-1]),
        "polars": pl.DataFrame({"i": number}),
        "text": [[str(i)] for i in number],
    }[form]
    cascade = middle(predictions)

    def model(stage):
        return lambda rows: stage[np.asarray(rows)[:, 0].astype(int)]

    decisions = cascade.screen(list(map(model, predictions)), data=data, batch_size=50)
    same(decisions, cascade.screen(predictions))


def test_threads_may_share_a_cascade():
    predictions, _ = world("double", 3, n=2000)
    cascade = middle(predictions)
    full = cascade.screen(predictions)
    batches = np.array_split(np.random.default_rng(0).permutation(2000), 16)

    def screen(rows):
        models = [Counting(stage) for stage in predictions]
        return cascade.screen(models, data=rows[:, None], batch_size=13)

    with ThreadPoolExecutor(4) as pool:
        decisions = list(pool.map(screen, batches))
    for rows, batch in zip(batches, decisions, strict=True):
        for name in FIELDS:
            assert np.array_equal(getattr(batch, name), getattr(full, name)[rows]), name
