"""Thumbnails of rows, from folders, tables and arrays."""

import io

import numpy as np
import polars as pl
import pytest
from PIL import Image

from trustdoctor.errors import FileError, InputError
from trustdoctor.files import find_source, thumbnails
from trustdoctor.files.images import SIDE, shrink


@pytest.fixture
def pictures(rng):
    return rng.integers(0, 256, (4, 100, 50, 3), dtype=np.uint8)


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def make_thumbnails(pictures_in, path, ids=None):
    source = find_source(path)
    return thumbnails(str(pictures_in), source, source.load()[1], ids)


@pytest.fixture
def archive(tmp_path, pictures):
    """Four rows with a picture each."""
    path = tmp_path / "p.npz"
    np.savez(path, logits=np.arange(8.0).reshape(4, 2), pixels=pictures)
    return path


def test_pictures_of_several_files_are_of_one_shape(tmp_path):
    for i in (1, 2):
        pixels = np.zeros((2, i, 8), np.uint8)
        np.savez(tmp_path / f"{i}.npz", logits=2 * np.eye(2), pixels=pixels)
    with pytest.raises(FileError, match=r"2\.npz in rows of the shape \(1, 8\)"):
        make_thumbnails("pixels", tmp_path)


def test_thumbnails_are_small_whatever_they_come_from(tmp_path, pictures, archive):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, picture in enumerate(pictures):
        (folder / f"row{i}.png").write_bytes(png(picture))
    raw = [png(p) for p in pictures]
    pl.DataFrame({"image": raw}).write_parquet(tmp_path / "i.parquet")
    pl.DataFrame({"img": [{"bytes": r} for r in raw]}).write_parquet(
        tmp_path / "j.parquet"
    )
    places = [
        (folder, None),
        (folder, ["row0", "row1.png", "row2", "row3"]),
        (tmp_path / "i.parquet", None),
        (tmp_path / "j.parquet", None),
        ("pixels", None),
    ]
    for pictures_in, ids in places:
        make = make_thumbnails(pictures_in, archive, ids)
        for row in range(4):
            small = Image.open(io.BytesIO(make(row)))
            assert small.format == "JPEG"
            assert max(small.size) == SIDE


def brightness(jpeg):
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("L")).mean()


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
def test_pictures_of_rows_come_in_their_order(tmp_path, kind):
    shades = np.arange(0, 250, 40, dtype=np.uint8)  # one per row
    pixels = np.broadcast_to(shades[:, None, None], (len(shades), 8, 8)).copy()
    z = np.random.default_rng(0).normal(size=(len(shades), 2))
    folder = tmp_path / "in"
    folder.mkdir()
    if kind == "npy":
        np.save(folder / "logits.npy", z)
        np.save(folder / "pixels.npy", pixels)
    for i, file_rows in enumerate(
        [slice(0, 3), slice(3, None)] if kind != "npy" else ()
    ):
        path = folder / f"{i}.{kind}"
        if kind == "npz":
            np.savez(path, logits=z[file_rows], pixels=pixels[file_rows])
        else:
            images = [png(pixel) for pixel in pixels[file_rows]]
            rows = {"logits": z[file_rows], "pixels": images}
            pl.DataFrame(rows).write_parquet(path)
    source = find_source(folder)
    more = ["pixels"] if kind == "parquet" else []
    make = thumbnails("pixels", source, source.load(*more)[1])
    shown_shades = [brightness(make(row)) for row in range(len(shades))]
    assert shown_shades == pytest.approx(shades, abs=2)


def test_what_is_not_a_picture_is_left_out(tmp_path):
    assert shrink(b"<html>") is None
    assert shrink(None) is None
    folder = tmp_path / "p"
    folder.mkdir()
    np.savez(tmp_path / "x.npz", logits=np.eye(2) + 1)
    with pytest.raises(InputError, match="called as any"):
        make_thumbnails(folder, tmp_path / "x.npz", ["a", "c"])
    (folder / "b.png").write_bytes(png(np.zeros((4, 4, 3), np.uint8)))
    make = make_thumbnails(folder, tmp_path / "x.npz", ["a", "b"])
    assert make(0) is None
    assert make(1) is not None


def test_pixels_of_any_usual_kind(pictures):
    thumbnail = Image.open(io.BytesIO(shrink(pictures[0])))
    for other in (pictures[0] / 255.0, pictures[0].transpose(2, 0, 1)):
        same = Image.open(io.BytesIO(shrink(other)))
        gap = np.abs(np.asarray(thumbnail, int) - np.asarray(same, int))
        assert gap.mean() < 3


def test_as_many_pictures_as_rows(tmp_path, pictures, archive):
    np.savez(tmp_path / "q.npz", logits=np.ones((5, 2)), pixels=pictures)
    with pytest.raises(InputError, match=r"expected 5 pictures.* got 4"):
        make_thumbnails("pixels", tmp_path / "q.npz")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="--ids"):
        make_thumbnails(tmp_path / "none", archive)
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(FileError, match="no column"):
        make_thumbnails(tmp_path / "x.parquet", archive)


@pytest.mark.parametrize("name", ["p.npz", "logits.npy", "p.csv", "p.parquet"])
def test_pictures_that_are_not_there_are_named(tmp_path, name, archive):
    np.save(tmp_path / "logits.npy", np.eye(2))
    table = pl.DataFrame({"logit_0": [1.0, 2.0], "logit_1": [3.0, 0.0]})
    table.write_csv(tmp_path / "p.csv")
    table.write_parquet(tmp_path / "p.parquet")
    with pytest.raises(FileError, match=rf"{name} has no 'absent'; it has .*logit"):
        make_thumbnails("absent", tmp_path / name)
    z = np.eye(2) + 1
    np.savez(archive, logits=z, odd=np.array([b"x", None]), one=np.array(3))
    for array, match in (("odd", "holds pickled objects"), ("one", "got one value")):
        with pytest.raises(FileError, match=match):
            make_thumbnails(array, archive)
