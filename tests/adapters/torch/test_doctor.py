import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trustdoctor as td
from trustdoctor.adapters.torch import Doctor
from trustdoctor.errors import InputError
from trustdoctor.scores import SCORES, LogitScore, find_logit_score

FORMULAS = [name for name, entry in SCORES.items() if isinstance(entry, LogitScore)]


def numpy(tensor):
    return tensor.detach().numpy()


def by_hand(model, x, score, t, eps):
    """The paper's formula for one score, typed out."""
    model.eval()
    leaf = x.clone().requires_grad_()
    s = find_logit_score(score).function(model(leaf.clone()), temperature=t)
    (gradient,) = torch.autograd.grad(s.sum(), leaf)
    sign = -1 if score == "odin" else 1
    moved = model(x + sign * eps * gradient.sign())
    options = {"temperature": t}
    if find_logit_score(score).about_class:
        options["predicted"] = model(x.clone()).argmax(1)
    return numpy(moved), numpy(find_logit_score(score).function(moved, **options))


@pytest.mark.parametrize("score", FORMULAS)
def test_every_score_perturbs_as_written(score, small, images):
    logits, scores = by_hand(small, images, score, 1.3, 0.05)
    examination = Doctor(small, score=score, temperature=1.3, epsilon=0.05)(images)
    assert np.allclose(examination.scores, scores)
    assert np.allclose(examination.perturbed.logits, logits)
    exact = find_logit_score(score).function(
        examination.perturbed.logits, temperature=1.3
    )
    same = examination.perturbed.predicted == examination.predictions.predicted
    assert np.array_equal(examination.scores[same], exact[same])
    assert np.allclose(
        examination.predictions.logits, numpy(small.eval()(images.clone()))
    )


def test_no_magnitude_is_the_black_box_case_and_needs_no_gradient(small, images):
    class Opaque(nn.Module):
        def forward(self, x):
            return torch.tensor(numpy(small.eval()(x.clone())))

    examination = Doctor(Opaque())(images)
    assert examination.perturbed is None
    assert np.array_equal(examination.scores, td.alpha(examination.predictions.logits))


def test_first_order_is_the_limit_of_small_magnitudes(small, images):
    small.double()
    options = {"score": "beta", "epsilon": 1e-6, "scale": [1.0, 2.0, 0.5]}
    plain = Doctor(small, score="beta")(images.double()).scores
    first = Doctor(small, order=1, **options)(images.double())
    second = Doctor(small, order=2, **options)(images.double())
    assert first.perturbed is None
    assert first.scores - plain == pytest.approx(second.scores - plain, rel=1e-4)
    odin = Doctor(small, score="odin", order=1, epsilon=1e-6)(images.double()).scores
    assert (odin < Doctor(small, score="odin")(images.double()).scores).all()


@pytest.mark.parametrize("score", ["beta", "msp", "margin"])
def test_the_doubt_is_about_the_clean_prediction_when_another_wins(score):
    """One step over the border: doubt goes on rising, it does not fall again."""
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        model.bias.zero_()
    examination = Doctor(model, score=score, epsilon=1.0)(torch.tensor([[0.25]]))
    assert examination.predictions.predicted.tolist() == [0]
    assert examination.perturbed.predicted.tolist() == [1]
    p = 1 / (1 + np.exp(1.5))  # of class 0 at -0.75
    true = {"beta": np.log((1 - p) / p), "msp": np.log(1 - p), "margin": 1.5}[score]
    assert examination.scores[0] == pytest.approx(true, rel=1e-6)


def test_scale_is_one_number_a_channel(small, images):
    examination = Doctor(small, epsilon=0.1, scale=torch.tensor([1.0, 0.0, 2.0]))
    leaf = images.clone().requires_grad_()
    small.eval()
    (g,) = torch.autograd.grad(td.alpha(small(leaf.clone())).sum(), leaf)
    size = torch.tensor([0.1, 0.0, 0.2]).view(1, 3, 1, 1)
    moved = small(images + size * g.sign())
    assert np.allclose(examination(images).perturbed.logits, numpy(moved))
    assert np.allclose(
        Doctor(small, epsilon=0.1, scale=2)(images).scores,
        Doctor(small, epsilon=0.2)(images).scores,
    )


def state(model):
    return (
        [m.training for m in model.modules()],
        [(p.requires_grad, p.grad, p.detach().clone()) for p in model.parameters()],
        [b.clone() for b in model.buffers()],
        [id(b) for b in model.buffers()],
    )


def same(before, after):
    assert before[0] == after[0]
    for (flag, grad, value), now in zip(before[1], after[1], strict=True):
        assert flag == now[0]
        assert grad is now[1]
        assert torch.equal(value, now[2])
    assert all(map(torch.equal, before[2], after[2]))
    assert before[3] == after[3]


@pytest.mark.parametrize("mode", ["eval", "as-is"])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_nothing_is_left_changed(mode, epsilon, small, images):
    small.train()
    small.drop.eval()
    small.conv.weight.requires_grad_(requires_grad=False)
    small.head.weight.grad = torch.ones_like(small.head.weight)
    before, content = state(small), images.clone()
    Doctor(small, epsilon=epsilon, mode=mode)(images)
    same(before, state(small))
    assert torch.equal(images, content)
    assert not images.requires_grad
    assert images.grad is None


def test_nothing_is_left_changed_when_an_exception_flies(small, images):
    small.train()
    before = state(small)

    def explode(model, x):
        model(x)
        model.norm.running_mean = torch.full((8,), 7.0)
        raise ZeroDivisionError

    for epsilon in (0.0, 0.1):
        with pytest.raises(ZeroDivisionError):
            Doctor(small, epsilon=epsilon, mode="as-is", forward=explode)(images)
        same(before, state(small))
    assert torch.is_grad_enabled()


def test_it_works_inside_no_grad_and_inference_mode(small, images):
    expected = Doctor(small, epsilon=0.1)(images).scores
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            inside = images * 1
            assert np.allclose(Doctor(small, epsilon=0.1)(inside).scores, expected)


def test_tensors_batches_and_loaders_give_the_same(small, images):
    labels = torch.arange(20) % 4
    doctor = Doctor(small, epsilon=0.1, batch_size=7)
    examination = doctor(images)
    loader = DataLoader(TensorDataset(images, labels), batch_size=6)
    for data in (
        [images],
        iter(images.split(3)),
        loader,
        [(images, labels)],
        [{"x": images, "labels": labels}],
        {"x": images, "label": labels},
        (images, labels),
    ):
        other_examination = doctor(data)
        assert np.allclose(other_examination.scores, examination.scores, atol=1e-6)
        examined_labels = other_examination.predictions.labels
        assert examined_labels is None or examined_labels.tolist() == labels.tolist()
    assert doctor(loader).perturbed.labels.tolist() == labels.tolist()


class Wrapped(nn.Module):
    """A model that returns its logits in some container."""

    def __init__(self, model, wrap):
        super().__init__()
        self.model, self.wrap = model, wrap

    def forward(self, x):
        return self.wrap(self.model(x))


class Output:
    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize(
    "wrap", [lambda z: (z, 3), lambda z: {"logits": z}, Output, lambda z: [z]]
)
def test_logits_are_found_in_what_models_return(wrap, small, images):
    expected = Doctor(small, epsilon=0.1)(images).scores
    examination = Doctor(Wrapped(small, wrap), epsilon=0.1)(images).scores
    assert np.allclose(examination, expected)


def test_forward_picks_the_logits(small, images):
    model = Wrapped(small, lambda z: {"answer": {"deep": z}})
    doctor = Doctor(model, epsilon=0.1, forward=lambda m, x: m(x)["answer"]["deep"])
    assert np.allclose(doctor(images).scores, Doctor(small, epsilon=0.1)(images).scores)


class Two(nn.Module):
    """Two inputs, and token ids with their embeddings."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 5)
        self.head = nn.Linear(5, 3)

    def get_input_embeddings(self):
        return self.embed

    def forward(self, input_ids=None, inputs_embeds=None, weight=None):
        x = self.embed(input_ids) if inputs_embeds is None else inputs_embeds
        x = x if weight is None else x * weight[:, :, None]
        return self.head(x.mean(1))


def test_token_ids_are_perturbed_through_their_embeddings():
    torch.manual_seed(0)
    model, ids = Two(), torch.randint(0, 11, (6, 4))
    examination = Doctor(model, score="beta", epsilon=0.01)({"input_ids": ids})
    leaf = model.embed(ids).detach().requires_grad_()
    (g,) = torch.autograd.grad(td.beta(model(inputs_embeds=leaf)).sum(), leaf)
    moved = model(inputs_embeds=leaf + 0.01 * g.sign())
    assert np.allclose(examination.perturbed.logits, numpy(moved))
    assert np.allclose(examination.predictions.logits, numpy(model(ids)))


def test_one_of_several_inputs_is_perturbed():
    torch.manual_seed(0)
    model = Two()
    batch = {"inputs_embeds": torch.randn(6, 4, 5), "weight": torch.rand(6, 4)}
    with pytest.raises(InputError, match="several inputs"):
        Doctor(model, epsilon=0.1)(batch)
    examination = Doctor(model, epsilon=0.1, perturb="weight")(batch)
    assert (examination.scores > Doctor(model)(batch).scores - 1e-6).all()
    with pytest.raises(InputError, match="no input 'colour'"):
        Doctor(model, epsilon=0.1, perturb="colour")(batch)


def test_positional_inputs_and_labels_are_distinguished():
    class Sum(nn.Module):
        def forward(self, a, b):
            return torch.stack([a.sum(1) + b, -b * 1.0], 1)

    a, b = torch.randn(5, 3), torch.arange(5)
    examination = Doctor(Sum(), labelled=False, epsilon=0.1)([(a, b)])
    assert examination.predictions.labels is None
    three = Doctor(Sum(), labelled=True)([(a, b, torch.zeros(5, dtype=torch.int64))])
    assert three.predictions.labels.tolist() == [0] * 5
    assert np.array_equal(three.predictions.logits, examination.predictions.logits)


def test_bfloat16_autocast_is_scored_in_float32(small, images):
    exact = Doctor(small, epsilon=0.05)(images).scores
    with torch.autocast("cpu", dtype=torch.bfloat16):
        examination = Doctor(small, epsilon=0.05)(images)
    assert examination.scores.dtype == np.float32
    assert np.abs(examination.scores - exact).max() < 0.1


@pytest.mark.parametrize("score", ["alpha", "beta", "odin"])
def test_saturated_rows_get_a_true_gradient(score):
    """Gaps of 20, 100, 1000: the direction is that of the linear model's weights."""
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]]))
        model.bias.zero_()
    x = torch.tensor([[20.0, 0, 0], [100.0, 0, 0], [1000.0, 0, 0]])
    examination = Doctor(model, score=score, epsilon=0.25)(x)
    change = examination.perturbed.logits[:, 0] - examination.predictions.logits[:, 0]
    towards_doubt = -0.25 * 3.5
    assert change == pytest.approx(
        -towards_doubt if score == "odin" else towards_doubt, rel=1e-3
    )


def test_a_gate_decides_on_the_perturbed_score(small, images):
    doctor = Doctor(small, epsilon=0.1)
    scores = doctor(images).scores
    screened = doctor.screen(images, td.Gate(float(np.median(scores))))
    assert np.array_equal(screened.doubts, scores)
    assert np.array_equal(screened.accepted, scores <= np.median(scores))
    clean = numpy(small.eval()(images.clone()))
    assert np.allclose(screened.predictions.logits, clean)
    assert np.array_equal(screened.predicted, clean.argmax(1))
    plain = td.Gate(0.0, score="alpha")
    with pytest.raises(InputError, match="clean logits"):
        doctor.screen(images, plain)
    accepted = Doctor(small).screen(images, plain).accepted
    assert np.array_equal(accepted, td.alpha(clean) <= 0)
    for other in ({"score": "beta"}, {"temperature": 2.0}):
        with pytest.raises(InputError, match="clean logits"):
            Doctor(small, **other).screen(images, plain)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epsilon": -0.1}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": -2.0}, "temperature"),
        ({"score": "magic"}, "magic"),
        ({"order": 3}, "order"),
        ({"mode": "train"}, "mode"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.7}, "batch_size"),
        ({"score": None}, "score"),
        ({"epsilon": 1e300}, "epsilon"),
    ],
)
def test_wrong_options_are_refused(options, match, small):
    with pytest.raises(InputError, match=match):
        Doctor(small, **options)


@pytest.mark.parametrize(
    ("forward", "match"),
    [
        (lambda *_: "hello", "got str"),
        (lambda m, x: m(x)[:, :, None], r"shape \(20, 4, 1\)"),
        (lambda m, x: m(x).argmax(1), "int64"),
        (lambda m, x: m(x)[:3], "each of 20 rows"),
        (lambda m, x: m(x).detach(), "differentiated"),
        (lambda m, x: m(torch.zeros_like(x)), "do not depend"),
    ],
)
def test_wrong_models_are_refused(forward, match, small, images):
    with pytest.raises(InputError, match=match):
        Doctor(small, epsilon=0.1, forward=forward)(images)


def test_numpy_numbers_are_taken(small, images):
    examination = Doctor(small, temperature=np.float32(2), epsilon=np.float64(0.1))(
        images
    )
    assert np.allclose(
        examination.scores, Doctor(small, temperature=2, epsilon=0.1)(images).scores
    )


def test_inputs_that_are_not_rows_are_passed_on():
    class Masked(nn.Module):
        def forward(self, x, mask=None, power=1):
            assert mask is None
            return torch.stack([x.sum(1) ** power, -x.sum(1)], 1)

    examination = Doctor(Masked(), batch_size=2)(
        {"x": torch.rand(5, 3), "mask": None, "power": 2}
    )
    assert examination.scores.shape == (5,)


def test_wrong_data_are_refused(small, images):
    with pytest.raises(InputError, match=r"Module or a function .* got int"):
        Doctor(3)
    with pytest.raises(InputError, match="got the class Linear"):
        Doctor(nn.Linear)
    with pytest.raises(InputError, match="got int"):
        Doctor(small)(3)
    with pytest.raises(InputError, match="got str"):
        Doctor(small)(["a"])
    with pytest.raises(InputError, match="at least one batch"):
        Doctor(small)([])
    with pytest.raises(InputError, match="in all batches"):
        Doctor(small)([images, (images, torch.zeros(20, dtype=torch.int64))])
    with pytest.raises(InputError, match="integers alone"):
        Doctor(nn.Embedding(9, 3), epsilon=0.1)(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(InputError, match="get_input_embeddings"):
        Doctor(small, epsilon=0.1)({"input_ids": torch.zeros(4, 2, dtype=torch.int64)})
    ids = {"x": torch.zeros(4, dtype=torch.int64), "w": torch.zeros(4)}
    with pytest.raises(InputError, match="no gradient"):
        Doctor(small, epsilon=0.1, perturb="x", inputs="x")(ids)
    for scale in ([1.0, 2.0], "a", -1.0, float("nan")):
        with pytest.raises(InputError, match="scale"):
            Doctor(small, epsilon=0.1, scale=scale)(images)
    with pytest.raises(InputError, match="torch device"):
        Doctor(small, device="foo")(images)
    with pytest.raises(InputError, match=r"model\.to"):
        Doctor(small, device="meta")(images)


def test_nonfinite_logits_are_refused(small, images):
    images[3] = torch.nan
    with pytest.raises(InputError, match="NaN"):
        Doctor(small)(images)


STORED = {
    "pbb_alpha_T1.0_eps0.00035": ("alpha", 1.0),
    "pbb_beta_T1.5_eps0.00035": ("beta", 1.5),
    "pbb_odin_T1.3_eps0.00035": ("odin", 1.3),
    "pbb_odin_T1000.0_eps0.00035": ("odin", 1000.0),
}
FIRST, *OTHERS = STORED


@pytest.mark.parametrize(
    "name",
    [FIRST, *(pytest.param(n, marks=pytest.mark.soak) for n in OTHERS)],
)
def test_resnet20_meets_the_stored_perturbed_logits(name, cifar):
    """On 500 of the 10,000 rows; benchmarks/perturbation.py takes them all."""
    model, x, stored, scale = cifar
    score, t = STORED[name]
    examination = Doctor(
        model, score=score, temperature=t, epsilon=0.00035, scale=scale
    )(x)
    assert np.abs(examination.predictions.logits - stored["logits"]).max() < 1e-3
    far = np.abs(examination.perturbed.logits - stored[name]).max(1)
    assert (far < 1e-3).mean() >= 0.995


@pytest.mark.parametrize(
    ("score", "bound"),
    [
        pytest.param("alpha", 0.99, marks=pytest.mark.soak),
        pytest.param("beta", 0.99, marks=pytest.mark.soak),
        ("odin", 0),
    ],
)
def test_the_step_raises_doubt_and_first_order_foresees_by_how_much(
    score, bound, cifar
):
    """On 500 rows; benchmarks/perturbation.py takes them all."""
    model, x, _, scale = cifar
    options = {"score": score, "epsilon": 0.0001, "scale": scale}
    before = Doctor(model, score=score)(x).scores
    after = Doctor(model, **options)(x).scores
    if score == "odin":
        assert (after <= before).mean() >= 0.99
        return
    assert (after > before).mean() >= 0.99
    foreseen = Doctor(model, order=1, **options)(x).scores
    assert np.corrcoef(after - before, foreseen - before)[0, 1] > bound


def test_deployed_auroc_from_all_stored_logits(shared):
    path = shared / "predictions" / "resnet-20-cifar10-test.npz"
    with np.load(path) as file:
        clean = td.Predictions.from_logits(file["logits"], file["labels"])
        moved = file["pbb_alpha_T1.0_eps0.00035"]
    plain = td.auroc(td.alpha(clean.logits), clean.errors)
    assert 100 * plain == pytest.approx(90.41, abs=0.03)
    assert 100 * td.auroc(td.alpha(moved), clean.errors) == pytest.approx(
        90.34, abs=0.03
    )


@pytest.mark.parametrize("score", ["alpha", "odin"])
def test_an_infinite_slope_gives_a_nan_score(score):
    """ODIN steps towards less doubt: to first order all the way to -inf."""

    def model(x):
        return torch.cat([x.sqrt(), 0 * x - 1], 1)

    x = torch.tensor([[1.0], [0.0]])
    doctor = Doctor(model, score=score, epsilon=0.01, order=1)
    examination = doctor(x, quiet=True)
    assert np.isnan(examination.scores).tolist() == [False, True]
    for state in ("threshold", "accept-all"):
        with pytest.raises(InputError, match="NaN at row 1"):
            doctor.decide(examination, td.Gate(0.0, state=state))
