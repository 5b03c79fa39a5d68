import io
import struct
import zipfile

import numpy as np
import polars as pl
import pytest
from PIL import Image

from trustdoctor.errors import FileError, InputError
from trustdoctor.files import (
    Columns,
    find_source,
    read,
    read_class_names,
    read_perturbed,
    thumbnails,
)
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
    """Four rows, and as many pictures beside them."""
    path = tmp_path / "p.npz"
    np.savez(path, logits=np.arange(8.0).reshape(4, 2), pixels=pictures)
    return path


def test_ids_come_from_tables_and_archives(tmp_path):
    values = {"logit_0": [1.0, 2.0], "logit_1": [3.0, 0.0]}
    pl.DataFrame({"id": ["a", "b"], **values}).write_csv(tmp_path / "p.csv")
    pl.DataFrame({"id": ["a", None], **values}).write_parquet(tmp_path / "p.parquet")
    z = np.eye(2) + 1
    np.savez(tmp_path / "p.npz", id=np.array([3, 4]), logits=z)
    assert read(tmp_path / "p.csv", ids="id").ids.tolist() == ["a", "b"]
    assert read(tmp_path / "p.parquet", ids="id").ids.tolist() == ["a", None]
    assert read(tmp_path / "p.npz", ids="id").ids.tolist() == [3, 4]
    (tmp_path / "q.csv").write_text("id,logit_0,logit_1\n00541,1,2\n7,2,1\n")
    assert read(tmp_path / "q.csv", ids="id").ids.tolist() == ["00541", "7"]
    objects = np.array(["a", None], object)
    np.savez(tmp_path / "o.npz", id=objects, one=np.array(3), logits=z)
    for name, match in (("id", "pickled objects"), ("one", "'one' as 2 entries")):
        with pytest.raises(FileError, match=match):
            read(tmp_path / "o.npz", ids=name)
    for name, expected_ids in (
        ("p.csv", "it has id, logit_0"),
        ("p.npz", "it has id, logits"),
    ):
        with pytest.raises(FileError, match=f"no 'name' .*{expected_ids}"):
            read(tmp_path / name, ids="name")


def test_texts_are_kept_beside_predictions(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("logit_0,logit_1,review\n1,2,fine\n2,1,007\n")
    predictions, table = find_source(path, Columns(texts="review")).load()
    assert table["review"].to_list() == ["fine", "007"]
    assert len(predictions) == 2


def test_class_names_are_lines(tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    assert read_class_names(tmp_path / "names.txt") == ["cat", "dog"]
    (tmp_path / "names.txt").write_bytes(b"\xff\xfe\xfa")
    for name in ("names.txt", "none.txt"):
        with pytest.raises(FileError, match=name):
            read_class_names(tmp_path / name)


def test_perturbed_arrays_are_found_by_name(tmp_path):
    arrays = {"pbb_alpha_T1.0_eps0.00035": np.eye(2), "pbb_odin_T1.3": np.eye(2)}
    arrays["pbb_alpha_T1.2.3_eps0.1"] = np.eye(2)  # not a number, so not a setting
    np.savez(tmp_path / "p.npz", logits=np.eye(2), **arrays)
    perturbed = read_perturbed(tmp_path / "p.npz")
    assert set(perturbed) == {("alpha", 1.0, 0.00035), ("odin", 1.3, 0.0)}
    assert read_perturbed(tmp_path / "p.csv") == {}


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"pbb_alpha_T1": np.array([[None] * 2] * 2)}, "pickled objects"),
        ({"pbb_alpha_T1": np.eye(3)}, "in the shape of the clean logits"),
        ({"pbb_alpha_T1": np.eye(2, 3)}, "in the shape of the clean logits"),
        ({"pbb_alpha_T1": np.ones(2)}, "in the shape of the clean logits"),
        ({"pbb_alpha_T1": np.array(1)}, "in the shape of the clean logits"),
        ({"pbb_alpha_T1": np.eye(2), "pbb_alpha_T01": np.eye(2)}, "twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_perturbed_arrays_of_another_kind_are_refused(arrays, why, tmp_path, run):
    path = tmp_path / "p.npz"
    np.savez(path, logits=2 * np.eye(2), labels=np.array([0, 0]), **arrays)
    with pytest.raises(FileError, match=why):
        read_perturbed(path)
    completed = run("diagnose", path, "--html", tmp_path / "page.html")
    assert completed.returncode == 2
    assert completed.stderr.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def header(shape, descr="<f8"):
    """Return the start of an array that announces that shape."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}"
    text = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        header((2, 2)) + bytes(31),
        header((2, 2)) + bytes(33),
        header((2, 2)),
        header((-2, -2)) + bytes(32),
        header((10**12, 2)) + bytes(32),
        header((2, 2), "|O") + bytes(32),
        b"\x93NUMPY\x09\x00" + bytes(40),
        b"<html>",
        b"",
    ],
)
def test_short_perturbed_arrays_are_refused(content, tmp_path):
    path = tmp_path / "p.npz"
    np.savez(path, logits=2 * np.eye(2))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pbb_alpha_T1.npy", content)
        archive.writestr("pixels.npy", content)
    with pytest.raises(FileError, match=r"p\.npz"):
        read_perturbed(path)
    with pytest.raises(FileError, match=r"p\.npz"):
        make_thumbnails("pixels", path)


def test_damaged_archives_are_named(tmp_path):
    path = tmp_path / "p.npz"
    moved = np.arange(4.0).reshape(2, 2)
    np.savez_compressed(path, logits=np.eye(2), pbb_alpha_T1=moved)
    content = path.read_bytes()
    at = content.index(b"pbb_alpha_T1.npy") + 60
    changed = (
        content[:at] + bytes(b ^ 255 for b in content[at : at + 9]) + content[at + 9 :]
    )
    for damaged in (content[:-30], changed, b"PK", b""):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"p\.npz"):
            read_perturbed(path)


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
