"""Batches as data sets give them, labels as people keep them, and plain functions."""

import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import trustdoctor as td
from trustdoctor.adapters.torch import Doctor, WhiteBox, radius, sweep
from trustdoctor.adapters.torch.batches import BatchLayout, CallSignature
from trustdoctor.errors import InputError

LABELS = torch.arange(20) % 4
HOT = nn.functional.one_hot(LABELS, 4)
INDEX = torch.arange(100, 120)


@pytest.fixture
def plain(small, images):
    """What the model says of the images, asked by hand."""
    with torch.no_grad():
        return small.eval()(images.clone()).numpy()


def check(examination, plain, labels=LABELS):
    np.testing.assert_allclose(
        examination.predictions.logits, plain, rtol=1e-5, atol=1e-6
    )
    examined_labels = examination.predictions.labels
    assert (examined_labels is None) == (labels is None)
    if labels is not None:
        assert examined_labels.tolist() == labels.tolist()


class Dicts(Dataset):
    """Rows as dicts, with the path of each."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return 20

    def __getitem__(self, i):
        return {name: column[i] for name, column in self.columns.items()}


def loader(*columns):
    return DataLoader(TensorDataset(*columns), batch_size=6)


LABELLED = {
    "a pair": lambda x: loader(x, LABELS),
    "with an index": lambda x: loader(x, LABELS, INDEX),
    "with an index and weights": lambda x: loader(x, LABELS, INDEX, torch.rand(20)),
    "one-hot": lambda x: loader(x, HOT),
    "one-hot of floats": lambda x: loader(x, HOT.float(), INDEX),
    "a column of labels": lambda x: loader(x, LABELS[:, None]),
    "labels as floats": lambda x: loader(x, LABELS.double()),
    "arrays of numpy": lambda x: [(x.numpy(), LABELS.numpy())],
    "labels in a list": lambda x: [[x, LABELS.tolist()]],
    "a tuple alone": lambda x: (x, LABELS),
    "a data set": lambda x: TensorDataset(x, LABELS),
    "a dict of its own names": lambda x: {"x": x, "labels": LABELS},
    "image and label": lambda x: DataLoader(Dicts(image=x, label=LABELS), batch_size=6),
    "image, target, path, index": lambda x: DataLoader(
        Dicts(path=["a.png"] * 20, image=x, target=HOT, index=INDEX), batch_size=6
    ),
    "an unusual key alone": lambda x: [{"scan": x, "y": LABELS}],
    "a nested pair": lambda x: [((x,), LABELS)],
    "a dict in a pair": lambda x: [({"x": x}, LABELS)],
}
BARE = {
    "a tensor": lambda x: x,
    "an array": lambda x: x.numpy(),
    "tensors": lambda x: DataLoader(x, batch_size=7),
    "tuples of one": loader,
    "a generator": lambda x: (batch for batch in x.split(3)),
    "dicts": lambda x: [{"image": x}],
}


@pytest.mark.parametrize("form", LABELLED)
def test_batches_with_labels(form, small, images, plain):
    check(Doctor(small, batch_size=9)(LABELLED[form](images)), plain)
    moved = Doctor(small, epsilon=0.1)(LABELLED[form](images))
    examination = Doctor(small, epsilon=0.1)(images)
    np.testing.assert_allclose(moved.scores, examination.scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", BARE)
def test_batches_without_labels(form, small, images, plain):
    check(Doctor(small, batch_size=9)(BARE[form](images)), plain, None)


def test_parts_can_be_named(small, images, plain):
    for data, options in (
        (loader(INDEX, images, LABELS), {"inputs": 1}),
        (loader(LABELS, images), {"inputs": 1, "labels": 0}),
        (loader(LABELS, images), {"labels": 0}),
        (loader(images, INDEX, LABELS), {"inputs": 0, "labels": -1}),
        (loader(images, INDEX, LABELS), {"inputs": (0,), "labels": 2}),
        (
            [{"left": images, "right": images + 1, "truth": HOT, "y": INDEX}],
            {"inputs": "left", "labels": "truth"},
        ),
    ):
        check(Doctor(small, **options)(data), plain)
    check(Doctor(small, inputs=0)([(images, ["a.png"] * 20)]), plain, None)
    check(Doctor(small, inputs=0)([(images, LABELS, INDEX)]), plain)


class Tokens(nn.Module):
    """Two inputs by name, as language models take them."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 4)

    def forward(self, input_ids, attention_mask=None, labels=None):
        assert labels is None
        z = self.embed(input_ids)
        if attention_mask is not None:
            z = z * attention_mask[..., None]
        return z.sum(1)


def test_inputs_go_where_the_model_takes_them():
    torch.manual_seed(0)
    model, ids = Tokens(), torch.randint(0, 11, (20, 5))
    mask = (torch.rand(20, 5) < 0.7).long()
    mask[:, :2] = 1  # not one-hot
    with torch.no_grad():
        plain, masked = model(ids).numpy(), model(ids, mask).numpy()
    three = loader(ids, mask, LABELS)
    with pytest.raises(InputError, match=r"3 parts .*\(6, 5\).* inputs=\(0, 1\), lab"):
        Doctor(model)(three)
    check(Doctor(model, inputs=(0, 1), labels=2)(three), masked)
    check(Doctor(model, inputs=(0, 1))(three), masked)
    check(Doctor(model, labels=2)(three), masked)
    check(Doctor(model, labelled=True)(three), masked)
    check(Doctor(model, inputs=0, labels=2)(three), plain)
    check(Doctor(model)([(ids, mask)]), masked, None)
    columns = {"input_ids": ids, "attention_mask": mask, "label": LABELS}
    check(Doctor(model)(columns), masked)
    check(Doctor(model)([columns | {"idx": INDEX}]), masked)
    check(Doctor(model, inputs="input_ids")(columns), plain)
    renamed = {"ids": ids, "mask": mask, "label": LABELS}
    with pytest.raises(InputError, match=r"got ids, mask for .* attention_mask, in"):
        Doctor(model)(renamed)
    check(Doctor(model, inputs=("ids", "mask"))(renamed), masked)
    check(Doctor(model, inputs=["ids"])(renamed), plain)
    picked = Doctor(model, forward=lambda m, ids, mask: m(ids, mask))
    check(picked(renamed), masked)
    examination = Doctor(model, forward=lambda m, ids: m(ids))
    check(examination(three.dataset.tensors[::2]), plain)


def test_labels_or_inputs_in_doubt_are_refused(small, images):
    doctor = Doctor(small)
    for batch, match in (
        ({"a": images, "b": images, "y": LABELS}, "got a, b for .*inputs='a'"),
        ({"image": images, "x": images}, "got image, x"),
        ({"image": images, "mask": images}, "got image, mask"),
        ({"x": images, "label": LABELS, "labels": LABELS}, "got label, labels"),
        ({"labels": LABELS}, "labels alone"),
    ):
        with pytest.raises(InputError, match=match):
            doctor([batch])
    with pytest.raises(InputError, match="a key 'img', got the keys image, y"):
        Doctor(small, inputs="img")([{"image": images, "y": LABELS}])
    with pytest.raises(InputError, match="a key 'truth'"):
        Doctor(small, labels="truth")([{"image": images, "y": LABELS}])
    for wrong in (3, -4, "x"):
        with pytest.raises(InputError, match="positions from 0 to 1"):
            Doctor(small, labels=wrong)([(images, LABELS)])
    with pytest.raises(InputError, match=r"parts that inputs= .*\(20, 3, 6, 6\)"):
        Doctor(small, labels=1)(images)
    for options in ({"labels": 1.5}, {"inputs": True}, {"inputs": (0, None)}):
        with pytest.raises(InputError, match="positions in a tuple or keys"):
            Doctor(small, **options)
    with pytest.raises(InputError, match="same part"):
        Doctor(small, inputs=(0, 1), labels=1)
    with pytest.raises(InputError, match="labelled="):
        Doctor(small, labels=1, labelled=True)


def test_what_is_not_an_input_is_left_out(small, images, plain):
    check(Doctor(small)([{"index": INDEX, "x": images, "y": LABELS}]), plain)


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (HOT * 0.9 + 0.025, r"soft labels \(float32 of shape \(20, 4\)\).*argmax"),
        (HOT + HOT.roll(1, 1), "not one-hot"),
        (HOT * 2, "not one-hot"),
        (nn.functional.one_hot(LABELS, 7), "each of 4 classes, got 7 columns"),
        (LABELS[:5], "5 labels for 20 rows"),
        (LABELS + 1, "labels from 0 to 3 for 4 classes, got 4 at row 3"),
        (LABELS + 0.5, "not a whole number"),
        (torch.zeros(20, 4, 2), r"got float32 of shape \(20, 4, 2\)"),
        (["cat"] * 20, "one class per row"),
        (torch.tensor(3), "one class per row"),
    ],
)
def test_wrong_labels_are_refused_in_our_words(labels, match, small, images):
    for data in ([(images, labels)], [{"x": images, "label": labels}]):
        with pytest.raises(InputError, match=match) as refusal:
            Doctor(small)(data)
        assert "\n" not in str(refusal.value)


def test_one_hot_labels_of_many_batches_agree_with_the_classes(small, images):
    right = nn.functional.one_hot(small.eval()(images.clone()).argmax(1), 4)
    examination = Doctor(small)(loader(images, right))
    assert examination.predictions.errors.sum() == 0


class Wide(nn.Module):
    def forward(self, x):
        torch._assert(x.shape[1] == 224, f"Expected 224 but got {x.shape[1]}!")
        return x


@pytest.mark.parametrize(
    ("model", "data", "match"),
    [
        (nn.Linear(7, 3), torch.zeros(5, 4), r"float32 of shape \(5, 4\).*\(5x4 and 7"),
        (nn.Linear(7, 3), np.zeros((5, 7)), r"float64 of shape \(5, 7\).*same dtype"),
        (nn.Conv2d(3, 4, 1), torch.zeros(5, 1, 6, 6), r"\(5, 1, 6, 6\).*3 channels"),
        (nn.Embedding(9, 3), torch.full((5,), 9), r"int64 of shape \(5,\).*out of ran"),
        (Wide(), torch.zeros(5, 4), "Expected 224 but got 4"),
        (lambda **named: named["x"], {"y": torch.zeros(5, 7)}, "labels alone"),
        (lambda **named: named["x"], {"image": torch.zeros(5, 7)}, "KeyError: 'x'"),
        (lambda a, b: a + b, torch.zeros(5, 4), "missing 1 required positional"),
        (lambda x: x.astype(float), torch.zeros(5, 4), "no attribute 'astype'"),
        (nn.Linear(7, 1), torch.zeros(5, 7), r"shape \(5, 1\).*functional.pad"),
        (nn.Flatten(0), torch.zeros(5, 1), r"shape \(5,\).*functional.pad"),
        (nn.Flatten(0), torch.zeros(5, 2), r"shape \(10,\)\. Pass forward="),
    ],
)
def test_wrong_shapes_get_our_error_in_one_line(model, data, match):
    for epsilon in (0.0, 0.1):
        if epsilon and isinstance(model, nn.Embedding):
            continue
        with pytest.raises(InputError, match=match) as refusal:
            Doctor(model, epsilon=epsilon)(data)
        assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match=match):
        sweep(model, data, temperatures=[1.0], epsilons=[0.0], quiet=True)


def test_one_output_works_as_the_message_says(images):
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 1))
    examination = Doctor(
        model,
        forward=lambda m, x: torch.nn.functional.pad(m(x).reshape(-1, 1), (1, 0)),
    )(images)
    with torch.no_grad():
        odds = model(images)[:, 0].numpy()
    np.testing.assert_allclose(examination.predictions.logits[:, 1], odds, rtol=1e-6)
    assert (examination.predictions.predicted == (odds > 0)).all()


def test_errors_that_are_not_the_inputs_fault_propagate(images):
    def broken(_x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Doctor(broken)(images)

    def full(_x):
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        Doctor(full)(images)


class Holder:
    """A callable object that holds its network."""

    def __init__(self, net):
        self.net = net

    def __call__(self, x):
        return self.net(x)

    def ask(self, x):
        return self.net(x)


def hidden(net):
    @torch.no_grad()
    def ask(x):
        return net(x)

    return ask


def named(net):
    def ask(x):
        return net(x)

    return ask


FUNCTIONS = {
    "a function": named,
    "decorated": hidden,
    "partial": lambda net: functools.partial(lambda net, x: net(x), net),
    "the network's own method": lambda net: net.forward,
    "another's method": lambda net: Holder(net).ask,
    "an object": Holder,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions_are_models(kind, small, images, plain, state):
    """Dropout is off and batch statistics are kept, as for the network itself."""
    small.train()
    before, ask = state(small), FUNCTIONS[kind](small)
    check(Doctor(ask)(loader(images, LABELS, INDEX)), plain)
    assert state(small) == before
    if kind == "decorated":
        with pytest.raises(InputError, match="differentiated"):
            Doctor(ask, epsilon=0.1)(images)
        return
    moved = Doctor(ask, epsilon=0.1)(images)
    examination = Doctor(small, epsilon=0.1)(images)
    assert np.array_equal(moved.scores, examination.scores)
    assert np.array_equal(radius(ask, images).scores, radius(small, images).scores)
    assert state(small) == before


def test_functions_without_a_network(images):
    def channels(x):
        return x.mean((2, 3))

    examination = Doctor(channels, epsilon=0.1)(loader(images, LABELS % 3))
    np.testing.assert_allclose(
        examination.predictions.logits, images.mean((2, 3)), rtol=1e-5, atol=1e-6
    )


def test_sweeps_of_functions_tell_their_checkpoints_apart(tmp_path, small, images):
    grid = {"temperatures": [1.0], "epsilons": [0.0], "checkpoint": tmp_path}
    first = sweep(named(small), images, quiet=True, **grid)
    repeated = sweep(named(small), images, quiet=True, **grid)
    assert np.array_equal(first.scores, repeated.scores)
    with pytest.raises(td.errors.FileError, match="other data, settings or weights"):
        sweep(lambda x: 2 * small(x), images, quiet=True, **grid)
    with torch.no_grad():
        small.head.bias += 1
    with pytest.raises(td.errors.FileError, match="other data, settings or weights"):
        sweep(named(small), images, quiet=True, **grid)


def test_every_way_in_takes_the_same_batches(small, images, plain):
    batch = [{"scan": images, "path": images, "truth": HOT}]
    names = {"inputs": "scan", "labels": "truth"}
    check(radius(small, batch, quiet=True, **names), plain)
    swept = sweep(small, batch, temperatures=[1.0], epsilons=[0.1], quiet=True, **names)
    check(swept, plain)
    right = [{"scan": images, "truth": torch.as_tensor(plain.argmax(1))}]
    box = WhiteBox.fit(small, batch, right, layers=["conv"], quiet=True, **names)
    check(box(small, batch, quiet=True, **names), plain)
    missing = LABELS.float()
    missing[3] = torch.nan
    with pytest.raises(td.errors.LabelsMissingError, match="NaN"):
        WhiteBox.fit(small, [(images, missing)], right, layers=["conv"], quiet=True)


def test_a_missing_label_stays_missing(small, images):
    labels = LABELS.float()
    labels[3] = torch.nan
    examined_labels = Doctor(small)(loader(images, labels)).predictions.labels
    assert examined_labels[3] == -1
    assert (
        np.delete(examined_labels, 3).tolist() == np.delete(LABELS.numpy(), 3).tolist()
    )


def test_one_dict_is_cut_into_batches(small, images):
    sizes = []

    def forward(model, image):
        sizes.append(len(image))
        return model(image)

    Doctor(small, batch_size=8, forward=forward)({"image": images, "label": LABELS})
    assert sizes == [8, 8, 4]
    sizes.clear()
    Doctor(small, batch_size=8, forward=forward)((images, LABELS))
    assert sizes == [8, 8, 4]


def test_a_model_that_takes_any_name_gets_names():
    layout = BatchLayout(takes=CallSignature(any_name=True))
    x = torch.zeros(3, 2)
    assert list(layout.batch({"image": x, "mask": x}).inputs) == ["image", "mask"]
    named = BatchLayout(inputs="image", takes=CallSignature(any_name=True))
    assert list(named.batch({"image": x, "mask": x}).inputs) == [0]
    several = BatchLayout(inputs=("mask", "image"), takes=CallSignature(any_name=True))
    assert list(several.batch({"image": x, "mask": x}).inputs) == ["mask", "image"]
