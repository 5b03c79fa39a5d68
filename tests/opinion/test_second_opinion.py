"""A second opinion: its score, its margins, and its promise as a whole."""

import io

import numpy as np
import pytest
import torch

import trustdoctor as td
from trustdoctor.errors import InputError
from trustdoctor.gates import Gate, Margins
from trustdoctor.opinion import SecondOpinion, View, image_views, table_views
from trustdoctor.opinion.second_opinion import calibrate_opinions, learn_margins
from trustdoctor.opinion.views import check_views
from trustdoctor.predictions import Opinions


def world(n, seed=0, classes=5, views=3):
    """Return opinions of a model whose answers to views are as noisy as its first."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    truth = 2.2 * np.eye(classes)[labels] + rng.normal(size=(n, classes))
    logits = [truth + 1.2 * rng.normal(size=truth.shape) for _ in range(1 + views)]
    total = np.cumsum(logits, 0)
    clean = logits[0]
    means = [total[k] / (k + 1) for k in range(1 + views)]
    p = td.Predictions.from_logits(clean, labels)
    doubts = np.stack([td.beta(m, predicted=p.predicted) for m in means], 1)
    confidence = [1 / (1 + np.exp(td.beta(z))) for z in logits]
    answers = np.stack([z.argmax(1) for z in logits], 1)
    return Opinions(p, doubts, answers, np.stack(confidence, 1))


NAMES = ("a", "b", "c")


def test_the_doubt_is_the_clean_labels_odds_under_the_mean_log_softmax():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(300, 4)), rng.normal(size=(4, 3))
    noise = rng.normal(size=4)
    ask = SecondOpinion(lambda rows: rows @ w, [View("moved", lambda r: r + noise)])
    opinions = ask(x)

    def log_softmax(z):
        return z - np.log(np.exp(z).sum(1, keepdims=True))

    mean = (log_softmax(x @ w) + log_softmax((x + noise) @ w)) / 2
    p = np.exp(mean) / np.exp(mean).sum(1, keepdims=True)
    p_predicted = p[np.arange(300), (x @ w).argmax(1)]
    np.testing.assert_allclose(
        opinions.scores, np.log((1 - p_predicted) / p_predicted), rtol=1e-10
    )
    np.testing.assert_allclose(opinions.doubts[:, 0], td.beta(x @ w), rtol=1e-10)


@pytest.mark.parametrize("level", [0.0, 0.002, 0.05])
def test_lazy_and_full_evaluation_decide_alike_on_every_row(level):
    calls = []

    def model(rows):
        calls.append(len(rows))
        return rows[:, :5]

    rng = np.random.default_rng(1)
    labels = rng.integers(0, 5, 3000)
    x = 2 * np.eye(5)[labels] + rng.normal(size=(3000, 5))
    views = [
        View(name, lambda r, i=i: np.roll(r, 0, 1) + 0.8 * np.sin(9 * r + i))
        for i, name in enumerate(NAMES)
    ]
    ask = SecondOpinion(model, views, batch_size=500)
    gate = ask.calibrate(x[:1500], labels[:1500], trr=0.9, level=level)
    full = ask(x[1500:])
    calls.clear()
    decided = ask.screen(x[1500:], gate)
    score = gate.margins.sequential(full.doubts)
    assert (decided.accepted == gate.accept(score)).all()
    assert sum(calls) == decided.passes.sum()
    assert decided.passes.mean() < 4
    settled = decided.passes < 4
    assert (gate.accept(decided.doubts) == decided.accepted).all()
    assert settled.any()
    assert np.array_equal(decided.predictions.logits, x[1500:])
    assert np.array_equal(decided.predicted, x[1500:].argmax(1))
    assert gate.certificate.mode == "confidence"


def test_the_sequential_score_is_its_own_definition():
    rng = np.random.default_rng(2)
    for _ in range(200):
        s = rng.normal(size=(50, 4))
        accept, reject = rng.uniform(-0.2, 1, 3), rng.uniform(0.2, 1, 3)
        margins = Margins(NAMES, tuple(accept), tuple(reject))
        t = float(rng.normal())
        score = margins.sequential(s)
        for row, r in zip(s, score, strict=True):
            rejected = row[-1] > t
            for k in range(3):
                if row[k] <= t - accept[k]:
                    rejected = False
                    break
                if row[k] > t + reject[k]:
                    rejected = True
                    break
            assert rejected == (r > t)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("target", "broken"),
    [
        ({"trr": 0.9}, lambda a, e: (~a)[e].mean() < 0.9),
        pytest.param(
            {"frr": 0.1}, lambda a, e: (~a)[~e].mean() > 0.1, marks=pytest.mark.soak
        ),
        pytest.param(
            {"risk": 0.1},
            lambda a, e: e[a].mean() > 0.1 if a.any() else False,
            marks=pytest.mark.soak,
        ),
    ],
)
def test_the_promise_holds_for_the_procedure_as_a_whole(target, broken):
    judge = world(200_000, seed=99)
    pool = world(300_000, seed=1)
    count = 0
    for i in range(200):
        rows = slice(1500 * i, 1500 * (i + 1))
        sample = Opinions(
            pool.predictions[rows],
            pool.doubts[rows],
            pool.answers[rows],
            pool.confidence[rows],
        )
        gate = calibrate_opinions(sample, NAMES, target, seed=i)
        accepted = gate.accept(gate.margins.sequential(judge.doubts))
        count += bool(broken(accepted, judge.predictions.errors))
    assert count <= 20 + 3 * np.sqrt(200 * 0.1 * 0.9)


def test_gates_carry_their_margins(tmp_path):
    opinions = world(3000)
    gate = calibrate_opinions(opinions, NAMES, {"trr": 0.9})
    gate.save(tmp_path / "gate.json")
    assert Gate.load(tmp_path / "gate.json") == gate
    with pytest.raises(InputError, match="second opinion"):
        gate.screen(opinions.predictions)
    trivial = calibrate_opinions(world(30), NAMES, {"trr": 0.999})
    trivial.save(tmp_path / "gate.json")
    assert Gate.load(tmp_path / "gate.json").margins.accept[0] == np.inf


def test_views_that_harm_are_found():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 4000)
    x = 2.5 * np.eye(4)[labels] + rng.normal(size=(4000, 4))
    views = [
        View("good", lambda r: r + 0.3 * np.sin(40 * r)),
        View("bad", lambda r: 0.5 * r + 1.5 * np.sin(40 * r)),
    ]
    ask = SecondOpinion(lambda r: r, views)
    for known_labels in (labels, None):
        good, bad = ask.check(x, known_labels)
        assert good.keep
        assert not bad.keep
        assert good.agreement > bad.agreement
    assert good.accuracy is None
    labelled = ask.check(x, labels)
    assert labelled[0].auroc is not None
    assert check_views(ask(x, labels), ["good", "bad"]) == labelled


@pytest.mark.filterwarnings("ignore")
def test_models_of_every_kind(tmp_path):
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    x, y = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=500).fit(x[:900], y[:900])
    views = table_views(x[:900], count=3)
    ask = SecondOpinion(model, views)
    opinions = ask(x[900:], y[900:])
    assert (opinions.predictions.predicted == model.predict(x[900:])).all()
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Dropout(), torch.nn.Linear(48, 3)
    )
    images = torch.randn(20, 3, 4, 4)
    net.train()
    opinion = SecondOpinion(net, image_views(5), batch_size=7)(images)
    assert net.training
    assert opinion.doubts.shape == (20, 6)
    repeated = SecondOpinion(net, image_views(5))(images.numpy())
    np.testing.assert_allclose(repeated.doubts, opinion.doubts, rtol=1e-4, atol=1e-5)
    torch.onnx.export(
        net.eval(), (images,), tmp_path / "net.onnx", dynamo=False,
        input_names=["x"], output_names=["logits"], dynamic_axes={"x": {0: "n"}},
    )  # fmt: skip
    through = SecondOpinion(tmp_path / "net.onnx", image_views(5))(images.numpy())
    np.testing.assert_allclose(through.doubts, opinion.doubts, rtol=1e-3, atol=1e-4)


def test_tables_keep_their_kind():
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    table["kind"] = ["x", "y"] * 30
    scaled = ColumnTransformer([("s", StandardScaler(), ["a", "b"])])
    model = make_pipeline(scaled, LogisticRegression())
    model.fit(table, rng.integers(0, 2, 60))
    opinions = SecondOpinion(model, table_views(table))(table)
    assert opinions.doubts.shape == (60, 5)
    tensor = torch.randn(30, 4)
    net = torch.nn.Linear(4, 3)
    ours = SecondOpinion(net, table_views(tensor))(tensor)
    repeated = SecondOpinion(net, table_views(tensor))(
        tensor.numpy().astype(np.float64)
    )
    np.testing.assert_allclose(ours.doubts, repeated.doubts, rtol=1e-4, atol=1e-5)


def test_a_view_that_turns_every_answer_does_not_change_nothing():
    ask = SecondOpinion(lambda a: np.c_[a[:, 0], -a[:, 0]], [View("neg", lambda a: -a)])
    (check,) = ask.check(np.random.default_rng(0).normal(size=(50, 1)))
    assert check.agreement == 0
    assert check.reason != "it changes nothing"


def test_probabilities_of_zero_do_no_harm():
    ask = SecondOpinion(
        lambda r: np.log(np.eye(3)[r[:, 0].astype(int)] + 0.0 * r[:, :1]),
        [View("other", lambda r: (r + 1) % 3)],
    )
    with np.errstate(divide="ignore"):
        opinions = ask(np.zeros((4, 1)))
    assert np.isfinite(opinions.scores).all()

    class Sure:
        def predict_proba(self, rows):
            tiny = rows[:, 0]
            return np.column_stack([1 - tiny, tiny])

    opinions = SecondOpinion(Sure(), [View("same", lambda r: r)])(
        np.array([[0.0], [1e-12], [1e-8], [0.4]])
    )
    assert (np.diff(opinions.scores) > 0).all()
    assert opinions.predictions.from_probabilities
    assert opinions.predictions.logits[0, 1] == -np.inf


def test_mistakes_are_named():
    opinions = world(500)
    ask = SecondOpinion(lambda r: r, [View("a", lambda r: r)])
    with pytest.raises(InputError, match="expected a model"):
        SecondOpinion(3, [View("a", len)])
    with pytest.raises(InputError, match="at least one row"):
        ask(np.zeros((0, 3)))
    with pytest.raises(InputError, match=r"a batch as a tensor, .* got int"):
        ask(iter([1]))
    with pytest.raises(InputError, match="got one for none"):
        ask.screen(np.eye(3), Gate(0.0))
    with pytest.raises(InputError, match="share"):
        calibrate_opinions(opinions, NAMES, {"trr": 0.9}, share=2.0)
    with pytest.raises(InputError, match="margin"):
        Margins(("a",), (1.0,), (-2.0,))
    with pytest.raises(InputError, match="answers to"):
        SecondOpinion(lambda r: r[:1], [View("a", lambda r: r)])(np.eye(3))
    for views in (None, View("a", len), len):
        with pytest.raises(InputError, match="a list of views"):
            SecondOpinion(lambda r: r, views)
    for data in ("text", 3):
        with pytest.raises(InputError, match="counted and picked"):
            ask(data)
    with pytest.raises(InputError, match="one tensor of rows"):
        ask({"a": 1})
    with pytest.raises(InputError, match="expected a Gate"):
        ask.screen(np.eye(3), 3)
    with pytest.raises(InputError, match="returned NoneType"):
        SecondOpinion(lambda r: r, [View("a", lambda _: None)])(np.eye(3))
    with pytest.raises(InputError, match="classes for every view"):
        SecondOpinion(lambda r: r, [View("a", lambda r: r[:, :2])])(np.eye(3))
    small = SecondOpinion(lambda r: r, [View("a", lambda r: r)], batch_size=3)
    with pytest.raises(InputError, match=r"Use Predictions\.from_probs"):
        small(np.full((12, 2), 0.5))
    with pytest.raises(InputError, match="without NaN"):
        Margins(("a",), (1.0,), (1.0,)).sequential([[np.nan, 1.0]])
    with pytest.raises(InputError, match="batch size"):
        SecondOpinion(lambda r: r, [View("a", len)], batch_size=0)


def test_margins_stop_a_share_of_the_rows():
    opinions = world(20_000)
    gate = td.calibrate_scores(opinions.scores, opinions.predictions.errors, trr=0.9)
    margins = learn_margins(opinions.doubts, gate, NAMES, level=0.01)
    rejected = ~gate.accept(opinions.scores)
    early = opinions.doubts[rejected][:, 0] < gate.threshold - margins.accept[0]
    assert early.mean() == pytest.approx(0.01, abs=0.002)


def test_resnet_20_is_judged_better(shared, monkeypatch):
    """The flip alone, on a tenth of the images; the leaderboard has them all."""
    import polars as pl
    from PIL import Image
    from safetensors.torch import load_file

    monkeypatch.syspath_prepend(shared / "models")
    import nets

    rows = np.random.default_rng(0).permutation(10_000)[:1000]
    table = pl.read_parquet(shared / "data" / "cifar10-test.parquet")[rows]
    pixels = [np.asarray(Image.open(io.BytesIO(b))) for b in table["image"]]
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (nets.MEAN, nets.STD))
    x = (np.stack(pixels).transpose(0, 3, 1, 2) / 255 - mean) / std
    model = nets.ResNet20()
    model.load_state_dict(load_file(shared / "models" / "resnet-20.safetensors"))
    ask = SecondOpinion(model, image_views(1))
    opinions = ask(torch.from_numpy(x.astype(np.float32)), table["label"].to_numpy())
    ours = 100 * td.auroc(opinions.scores, opinions.predictions.errors)
    alone = 100 * td.auroc(opinions.doubts[:, 0], opinions.predictions.errors)
    assert ours > alone + 1
    assert ours == pytest.approx(92.8, abs=3)


@pytest.mark.parametrize("p", [2, 3])
def test_views_may_be_averaged_without_their_lengths(p, rng):
    """By hand: centred, divided by norm and temperature, averaged, then beta."""
    weights = rng.normal(size=(6, 4))
    x = rng.normal(size=(300, 6))
    views = [
        td.View("half", lambda x: x / 2),
        td.View("roll", lambda x: np.roll(x, 1, 1)),
    ]
    ask = td.SecondOpinion(lambda x: x @ weights, views, p=p, t=0.4)
    total = 0
    for inputs in (x, x / 2, np.roll(x, 1, 1)):
        z = inputs @ weights
        z = z - z.mean(1, keepdims=True)
        total = total + z / np.linalg.norm(z, ord=p, axis=1, keepdims=True) / 0.4
    predicted = (x @ weights).argmax(1)
    expected = td.beta(total / 3, predicted=predicted)
    assert np.allclose(ask(x).doubts[:, -1], expected)
    labels = np.where(rng.random(300) < 0.8, predicted, 0)
    gate = ask.calibrate(x, labels, frr=0.2)
    assert gate.margins.views == (f"half (p={p}, t=0.4)", f"roll (p={p}, t=0.4)")
    assert len(ask.screen(x, gate).accepted) == 300
    plain = td.SecondOpinion(lambda x: x @ weights, views)
    with pytest.raises(InputError, match="expected a gate for the views half, roll"):
        plain.screen(x, gate)
    with pytest.raises(InputError, match="expected p from 1 to 100"):
        td.SecondOpinion(lambda x: x, views, p=0)
