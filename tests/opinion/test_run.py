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
FIELDS = ("scores", "accepted", "predicted", "passes", "costs", "goes_to")


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


def middle(said, combine="average", **options):
    """A cascade whose thresholds are doubts of rows, so that some are met exactly."""
    k = len(said)
    open_ = Cascade(names(k), (INF,) * k, costs(k), combine=combine, **options)
    every = [one for _, one in zip(range(k), open_.answers(said, None), strict=True)]
    at = [
        float(np.quantile(open_.scorer(one), 0.4, method="lower").clip(-1e9))
        for one in every
    ]
    return Cascade(names(k), tuple(at), costs(k), combine=combine, **options)


def names(k):
    return ("small", "middle", "large")[:k] if k != 2 else ("small", "large")


def costs(k):
    return (*(0.5, 1.0, 3.0)[:k], 10.0)


def by_hand(cascade, said, row):
    """Walk one row: its doubt, acceptance, label, models asked, cost and next stage."""
    total, spent, passes = 0.0, 0.0, 0
    for k, threshold in enumerate(cascade.thresholds):
        if k not in cascade.asked:
            continue
        one, passes, spent = said[k][[row]], passes + 1, spent + cascade.costs[k]
        if cascade.combine == "average":
            total = total + softened(one)
            mean = Predictions(total / (k + 1), None, from_probabilities=True)
            one = mean if k else one
        doubt = float(cascade.scorer(one)[0])
        if threshold > -INF and doubt <= threshold:
            return doubt, True, one.predicted[0], passes, spent, ""
    spent += cascade.costs[-1]
    return doubt, False, one.predicted[0], passes, spent, PERSON


def softened(one):
    """The log-softmax; what has no probability counts as 40 below the top."""
    z = one.logits.astype(np.float64)
    floor = z.max() - 40
    z = np.where(z == -INF, floor, z)
    z = np.maximum(z, floor) if one.from_probabilities else z
    shifted = z - z.max()
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


class Counting:
    """A model that knows its answers, and keeps which rows it was asked about."""

    def __init__(self, said):
        self.said, self.rows, self.sizes = said, [], []

    def __call__(self, rows):
        at = np.asarray(rows)[:, 0]
        self.rows += at.tolist()
        self.sizes.append(len(at))
        return self.said[at]


def same(one, other):
    for name in FIELDS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert np.array_equal(one.predictions.logits, other.predictions.logits)


@pytest.mark.parametrize("combine", ["average", "own"])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_asked_lazily_or_in_full_it_is_its_rule_row_by_row(kind, stages, combine):
    said, _ = world(kind, stages)
    cascade = middle(said, combine)
    full = cascade.screen(said)
    wanted = [by_hand(cascade, said, row) for row in range(N)]
    for i, name in enumerate(FIELDS[:4]):
        assert getattr(full, name).tolist() == [one[i] for one in wanted], name
    assert full.costs.tolist() == pytest.approx([one[4] for one in wanted])
    assert full.goes_to.tolist() == [one[5] for one in wanted]
    data = np.arange(N)[:, None]
    for batch_size in (1, 7, N):
        models = [Counting(one) for one in said]
        same(cascade.screen(models, data=data, batch_size=batch_size), full)
        for k, model in enumerate(models):
            in_doubt = np.flatnonzero(full.passes > k).tolist()
            assert model.rows == in_doubt  # each once, and no others
            assert all(size <= batch_size for size in model.sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_rows_does_not_matter(kind):
    said, _ = world(kind, 3)
    cascade, order = middle(said), np.random.default_rng(1).permutation(N)
    full, turned = cascade.screen(said), cascade.screen([one[order] for one in said])
    for name in FIELDS:
        assert np.array_equal(getattr(full, name)[order], getattr(turned, name))
    alone = [cascade.screen([one[[row]] for one in said]) for row in range(20)]
    assert [one.scores[0] for one in alone] == full.scores[:20].tolist()


def test_the_same_model_at_views_is_a_cascade_too():
    """The model is asked once per row and view, and only while the row is in doubt."""
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(N, 5)), rng.normal(size=(5, 3))
    asked = []

    def model(rows):
        asked.append(len(rows))
        return (rows[:, :, None] * weights).sum(1)

    views = [lambda r: r, lambda r: r + 0.3 * np.sin(9 * r), lambda r: 0.9 * r]
    stages = [lambda r, v=v: model(v(r)) for v in views]
    said = [Predictions.from_logits(model(view(x))) for view in views]
    cascade = middle(said)
    asked.clear()
    lazy = cascade.screen(stages, data=x, batch_size=16)
    same(lazy, cascade.screen(said))
    assert sum(asked) == lazy.passes.sum() < 3 * N


def test_stages_that_cannot_settle_a_row_are_not_asked():
    said, _ = world("double", 3)
    for combine, thresholds, asked in (
        ("average", (-INF, -1.0, -INF), [0, 1]),
        ("own", (-INF, -1.0, -INF), [1]),
        ("own", (-1.0, -INF, 0.0), [0, 2]),
        ("average", (-1.0, -INF, 0.0), [0, 1, 2]),
    ):
        cascade = Cascade(names(3), thresholds, costs(3), combine=combine)
        assert cascade.asked == asked
        models = [Counting(one) for one in said]
        done = cascade.screen(models, data=np.arange(N)[:, None])
        assert [bool(model.rows) for model in models] == [k in asked for k in range(3)]
        wanted = [by_hand(cascade, said, row) for row in range(N)]
        assert done.accepted.tolist() == [one[1] for one in wanted]
        assert done.passes.tolist() == [one[3] for one in wanted]
        assert done.costs.tolist() == pytest.approx([one[4] for one in wanted])
    with pytest.raises(InputError, match="a stage that can settle a row, got small"):
        Cascade(names(2), (-INF, 0.0), costs(2), combine="own").screen(said[:1])


def test_at_minus_infinity_none_stops_and_at_infinity_all_do():
    certain, _ = world("certain")
    assert np.isneginf(Cascade(("a",), (0.0,), (0, 1)).screen(certain[:1]).scores).all()
    shut = Cascade(names(2), (-INF, 0.0), costs(2)).screen(certain)
    assert set(shut.passes.tolist()) == {2}
    open_ = Cascade(names(2), (INF, 0.0), costs(2)).screen(certain)
    assert open_.accepted.all()
    assert set(open_.costs.tolist()) == {0.5}


def test_the_first_stages_alone_say_where_rows_go_next():
    said, _ = world("double", 3)
    cascade = middle(said)
    full = cascade.screen(said)
    for k in (1, 2):
        some = cascade.screen(said[:k])
        on = full.passes > k
        assert np.array_equal(some.accepted, full.accepted & ~on)
        assert set(some.goes_to[on].tolist()) == {names(3)[k]}
        assert (some.goes_to[full.accepted & ~on] == "").all()
        spent = np.cumsum(costs(3)[:k])[full.passes.clip(max=k) - 1]
        assert some.costs.tolist() == pytest.approx(spent.tolist())
    jump = Cascade(names(3), (0.0, -INF, 0.0), costs(3), combine="own")
    assert set(jump.screen(said[:1]).goes_to.tolist()) <= {"", "large"}
    with pytest.raises(InputError, match=r"at most 3 stages .* got 4"):
        cascade.screen([*said, said[0]])


def test_a_later_stage_needs_only_the_rows_in_doubt():
    said, _ = world("double")
    ids = np.array([f"row {i}" for i in range(N)])
    cascade = middle(said)
    full = cascade.screen(said, ids=ids)
    assert full.ids.tolist() == ids.tolist() == full.predictions.ids.tolist()
    rest = np.flatnonzero(full.passes > 1)[::-1]

    def with_ids(one, rows):
        return Predictions.from_logits(one.logits[rows], ids=ids[rows])

    first = with_ids(said[0], np.arange(N))
    same(cascade.screen([first, with_ids(said[1], rest)]), full)
    with pytest.raises(InputError, match=f"1 row in doubt is not .*'row {rest[-1]}'"):
        cascade.screen([first, with_ids(said[1], rest[:-1])])


def test_what_it_says_are_predictions_with_names_ids_and_labels():
    said, labels = world("double")
    called = ("ant", "bee", "cat", "dog")
    given = [Predictions.from_logits(one.logits, class_names=called) for one in said]
    given[1] = Predictions.from_logits(said[1].logits, labels, class_names=called)
    done = middle(said, classes=called).screen(given, ids=np.arange(N))
    p = done.predictions
    assert isinstance(done, Cascaded)
    assert p.class_names == called
    assert p.labels.tolist() == labels.tolist()
    assert np.array_equal(p.predicted, done.predicted)
    first = done.passes == 1
    assert np.array_equal(p.logits[first], said[0].logits[first])
    assert p.from_probabilities  # a mean of log-probabilities has no logits
    only = Cascade(("small",), (0.0,), (0, 1)).screen(said[:1]).predictions
    assert not only.from_probabilities


def test_classes_in_another_order_are_told_by_their_names():
    said, _ = world("double", classes=3)
    turned = [2, 0, 1]
    cascade = middle(said, classes=("x", "y", "z"))
    plain = cascade.screen(said)
    other = cascade.screen(
        [
            Predictions.from_logits(said[0].logits[:, turned], class_names="zxy"),
            Predictions.from_logits(said[1].logits, class_names="xyz"),
        ]
    )
    assert np.array_equal(np.array(turned)[other.predicted], plain.predicted)
    assert np.array_equal(other.accepted, plain.accepted)
    with pytest.raises(InputError, match=r"classes of the cascade's .* got 'w'"):
        cascade.screen([Predictions.from_logits(said[0].logits, class_names="xyw")])
    with pytest.raises(InputError, match=r"expected 3 classes, as in .* got 2"):
        cascade.screen([one.logits[:, :2] for one in said])


def test_lists_are_for_rows_that_go_to_a_person():
    said, labels = world("double", n=3000)
    cascade = Cascade.calibrate(said, labels, risk=0.1, costs=[0, 1, 10], shortlist=0.9)
    done = cascade.screen(said)
    going = ~done.accepted
    assert not done.shortlist[done.accepted].any()
    assert done.shortlist[going, done.predicted[going]].all()
    assert (done.shortlist[going].sum(1) >= 1).all()
    assert not cascade.screen(said[:1]).shortlist.any()  # they go to a model next
    p = special.softmax(done.predictions.logits, 1)
    least = p[going].min(1, where=done.shortlist[going], initial=1)
    most = p[going].max(1, where=~done.shortlist[going], initial=0)
    assert least.min() >= most[most < 1].max() - 1e-12  # one threshold for all


# --- models of every kind -----------------------------------------------------------


def fixed(rows):
    """A function whose answer to a row does not depend on the rows beside it."""
    weights = np.random.default_rng(1).normal(size=(6, 3))
    return (np.asarray(rows)[:, :, None] * weights).sum(1)


ROWS = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)


def test_a_scikit_learn_model_beside_a_function():
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=3).fit(ROWS * 0.7, fixed(ROWS).argmax(1))
    said = [
        Predictions.from_probs(tree.predict_proba(ROWS)),
        Predictions.from_logits(fixed(ROWS)),
    ]
    cascade = middle(said)
    full = cascade.screen(said)
    for batch_size in (1, 32):
        options = {"data": ROWS, "batch_size": batch_size}
        same(cascade.screen([tree, fixed], **options), full)
        same(cascade.screen([said[0], fixed], **options), full)
        same(cascade.screen([tree, said[1]], **options), full)


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
    said = [Predictions.from_logits(z) for z in (logits, fixed(ROWS), logits)]
    cascade, net = middle(said), net.train()
    full = cascade.screen(said)
    lazy = cascade.screen([net, fixed, path], data=ROWS, batch_size=32)
    assert net.training
    np.testing.assert_allclose(lazy.scores, full.scores, rtol=1e-4, atol=1e-5)
    assert (lazy.accepted == full.accepted).mean() > 0.98


@pytest.mark.parametrize("form", ["list", "tensor", "pandas", "polars", "text"])
def test_rows_of_every_kind(form):
    import pandas as pd
    import polars as pl
    import torch

    said, _ = world("double")
    number = np.arange(N)
    data = {
        "list": [[i] for i in number],
        "tensor": torch.from_numpy(number)[:, None],
        "pandas": pd.DataFrame({"i": number}, index=number[::-1]),
        "polars": pl.DataFrame({"i": number}),
        "text": [[str(i)] for i in number],
    }[form]
    cascade = middle(said)

    def model(one):
        return lambda rows: one[np.asarray(rows)[:, 0].astype(int)]

    done = cascade.screen(list(map(model, said)), data=data, batch_size=50)
    same(done, cascade.screen(said))


def test_threads_may_share_a_cascade():
    said, _ = world("double", 3, n=2000)
    cascade = middle(said)
    full = cascade.screen(said)
    parts = np.array_split(np.random.default_rng(0).permutation(2000), 16)

    def screen(rows):
        models = [Counting(one) for one in said]
        return cascade.screen(models, data=rows[:, None], batch_size=13)

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(screen, parts))
    for rows, one in zip(parts, done, strict=True):
        for name in FIELDS:
            assert np.array_equal(getattr(one, name), getattr(full, name)[rows]), name
