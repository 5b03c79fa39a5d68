"""Views keep rows apart, and do what their names say."""

import numpy as np
import pytest
import torch

from trustdoctor.errors import InputError
from trustdoctor.opinion import View, image_views, table_views, text_views
from trustdoctor.opinion.views import as_views

WAYS = {"": (0, 0), "right": (0, 1), "left": (0, -1), "down": (1, 0), "up": (-1, 0)}
IMAGES = np.arange(2 * 3 * 8 * 8, dtype=np.float32).reshape(2, 3, 8, 8)


def test_images_are_flipped_and_shifted_with_reflected_edges():
    """Against numpy's own padding; a flip with a way is the shifted image, flipped."""
    views = {view.name: view for view in image_views(9)}
    assert next(iter(views)) == "flip"
    flips = ["flip", *(f"flip {way}" for way in WAYS if way)]
    assert sorted(views) == sorted([*flips, *(way for way in WAYS if way)])
    padded = np.pad(IMAGES, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
    for name, view in views.items():
        down, right = WAYS[name.removeprefix("flip").strip()]
        moved = padded[:, :, 1 - down : 9 - down, 1 - right : 9 - right]
        expected = moved[..., ::-1] if name in flips else moved
        assert np.array_equal(view(IMAGES), expected), name
    right = views["right"](IMAGES)
    assert (right[..., 1:] == IMAGES[..., :-1]).all()
    assert (right[..., 0] == IMAGES[..., 1]).all()  # reflected, not repeated
    assert len({view(IMAGES).tobytes() for view in views.values()}) == 9


@pytest.mark.parametrize("count", [1, 5, 9])
def test_layouts_and_libraries_agree(count):
    for view, other in zip(
        image_views(count), image_views(count, layout="NHWC"), strict=True
    ):
        ours = view(IMAGES)
        assert (other(IMAGES.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) == ours).all()
        assert (view(torch.from_numpy(IMAGES)).numpy() == ours).all()
        assert (view(IMAGES[1:]) == ours[1:]).all()
    wide = np.zeros((1, 1, 64, 32))
    wide[0, 0, 0, 0] = 1
    moved = {v.name: v(wide) for v in image_views(9)}
    assert moved["down"][0, 0, 4, 0] == 1  # a sixteenth of each side
    assert moved["right"][0, 0, 0, 2] == 1


def test_texts_are_rephrased():
    views = {v.name: v for v in text_views(window=2, paraphrase=lambda t: t[::-1])}
    (text,) = views["first words"](["One two  THREE!"])
    assert text == "One two"
    assert views["last words"](["One two  THREE!"]) == ["two THREE!"]
    assert views["lower case"](["Aa!"]) == ["aa!"]
    assert views["no punctuation"](["a, b."]) == ["a b"]
    assert views["single spaces"](["a \n b "]) == ["a b"]
    assert views["paraphrase"](["ab"]) == ["ba"]


def test_noise_is_scaled_to_the_columns_and_the_same_in_any_batch():
    rng = np.random.default_rng(0)
    train = rng.normal(size=(500, 3)) * [1, 100, 0.01]
    train = np.column_stack([train, rng.integers(0, 2, 500)])
    first, second = table_views(train, count=2, noise=0.1)
    moved = first(train) - train
    assert np.allclose(moved, moved[0])
    assert moved[0, 3] == 0
    assert 0 < abs(moved[0, 1]) < 50
    assert np.allclose(first(train[7:9]), first(train)[7:9])
    assert not np.allclose(second(train), first(train))
    holes = np.array([[0.0, 1.0], [1.0, 5.0], [np.nan, 9.0], [1.0, np.inf]])
    moved = table_views(holes, count=1)[0](np.zeros((1, 2)))
    assert moved[0, 0] == 0
    assert np.isfinite(moved).all()


def test_mistakes_are_named():
    for n in (0, -1, 2.5, "3"):
        with pytest.raises(InputError, match="1 view or more"):
            image_views(n)
    with pytest.raises(InputError, match="layout out of"):
        image_views(3, layout="CHW")
    for images in (np.zeros((2, 3)), [np.zeros((3, 4, 4))]):
        with pytest.raises(InputError, match="expected images NCHW"):
            image_views(1)[0](images)
    for shift in (0, -1, 1.5, "a"):
        with pytest.raises(InputError, match="1 pixel"):
            image_views(5, shift=shift)
    with pytest.raises(InputError, match="below the side"):
        image_views(5, shift=9)[1](IMAGES)
    with pytest.raises(InputError, match="at least one view"):
        as_views([])
    with pytest.raises(InputError, match="two views are called"):
        as_views([View("a", len), View("a", len)])
    with pytest.raises(InputError, match="made 1 rows of 2"):
        View("bad", lambda x: x[:1])(np.zeros(2))
    with pytest.raises(InputError, match="window"):
        text_views(window=0)
    for options in ({"count": 2.5}, {"noise": np.inf}, {"noise": "a"}):
        with pytest.raises(InputError, match="training rows"):
            table_views(np.zeros((3, 2)), **options)
    with pytest.raises(InputError, match="training rows"):
        table_views(np.zeros(3))
    with pytest.raises(InputError, match="expected numbers"):
        table_views(np.array([["a"], ["b"]]))
    with pytest.raises(InputError, match="rows of 2 columns"):
        table_views(np.eye(2))[0](np.eye(3))


def test_any_number_of_views_is_a_prefix_of_more():
    names = [view.name for view in image_views(20)]
    assert len(set(names)) == 20
    for n in (1, 3, 5, 9, 17):
        assert [view.name for view in image_views(n)] == names[:n]
    assert names[9:11] == ["flip right 2 times", "down 2 times"]
    twice = {view.name: view for view in image_views(17, shift=1)}
    shifted = image_views(9, shift=2)[2](IMAGES)
    assert np.array_equal(twice["down 2 times by 1"](IMAGES), shifted)
