import io

import numpy as np
import polars as pl
import pytest
from PIL import Image

from trustdoctor.adapters.rows import (
    SIDE,
    read_class_names,
    read_column,
    read_perturbed,
    shrink,
    thumbnails,
)
from trustdoctor.errors import FileError, InputError


@pytest.fixture
def pictures(rng):
    return rng.integers(0, 256, (4, 100, 50, 3), dtype=np.uint8)


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_columns_come_from_tables_and_archives(tmp_path):
    pl.DataFrame({"id": ["a", "b"]}).write_csv(tmp_path / "p.csv")
    np.savez(tmp_path / "p.npz", id=np.array([3, 4]))
    assert list(read_column(tmp_path / "p.csv", "id")) == ["a", "b"]
    assert list(read_column(tmp_path / "p.npz", "id")) == [3, 4]
    (tmp_path / "q.csv").write_text("id,x\n00541,1\n7,2\n")
    assert list(read_column(tmp_path / "q.csv", "id")) == ["00541", "7"]
    np.savez(tmp_path / "o.npz", id=np.array(["a", None], object), one=np.array(3))
    for name in ("id", "one"):
        with pytest.raises(FileError, match=name):
            read_column(tmp_path / "o.npz", name)
    for name in ("p.csv", "p.npz"):
        with pytest.raises(FileError, match="it has id"):
            read_column(tmp_path / name, "name")


def test_class_names_are_lines(tmp_path):
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    assert read_class_names(tmp_path / "names.txt") == ["cat", "dog"]
    (tmp_path / "names.txt").write_bytes(b"\xff\xfe\xfa")
    for name in ("names.txt", "none.txt"):
        with pytest.raises(FileError, match=name):
            read_class_names(tmp_path / name)


def test_perturbed_arrays_are_found_by_name(tmp_path):
    arrays = {"pbb_alpha_T1.0_eps0.00035": np.eye(2), "pbb_odin_T1.3": np.eye(3)}
    arrays["pbb_alpha_T1.2.3_eps0.1"] = np.eye(2)  # no number, so no setting
    np.savez(tmp_path / "p.npz", logits=np.eye(2), **arrays)
    found = read_perturbed(tmp_path / "p.npz")
    assert set(found) == {("alpha", 1.0, 0.00035), ("odin", 1.3, 0.0)}
    assert read_perturbed(tmp_path / "p.csv") == {}


def test_thumbnails_are_small_whatever_they_come_from(tmp_path, pictures):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, picture in enumerate(pictures):
        (folder / f"row{i}.png").write_bytes(png(picture))
    raw = [png(p) for p in pictures]
    pl.DataFrame({"image": raw}).write_parquet(tmp_path / "i.parquet")
    pl.DataFrame({"img": [{"bytes": r} for r in raw]}).write_parquet(
        tmp_path / "j.parquet"
    )
    np.savez(tmp_path / "p.npz", pixels=pictures)
    sources = [
        (str(folder), None),
        (str(folder), ["row0", "row1.png", "row2", "row3"]),
        (str(tmp_path / "i.parquet"), None),
        (str(tmp_path / "j.parquet"), None),
        ("pixels", None),
    ]
    for source, ids in sources:
        make = thumbnails(source, tmp_path / "p.npz", 4, ids)
        for row in range(4):
            small = Image.open(io.BytesIO(make(row)))
            assert small.format == "JPEG"
            assert max(small.size) == SIDE


def test_what_is_no_picture_is_left_out(tmp_path):
    assert shrink(b"<html>") is None
    assert shrink(None) is None
    (tmp_path / "p").mkdir()
    with pytest.raises(InputError, match="called as any"):
        thumbnails(str(tmp_path / "p"), tmp_path / "x.npz", 1, ["a"])
    (tmp_path / "p" / "b.png").write_bytes(png(np.zeros((4, 4, 3), np.uint8)))
    make = thumbnails(str(tmp_path / "p"), tmp_path / "x.npz", 2, ["a", "b"])
    assert make(0) is None
    assert make(1) is not None


def test_pixels_of_any_usual_kind(pictures):
    whole = Image.open(io.BytesIO(shrink(pictures[0])))
    for other in (pictures[0] / 255.0, pictures[0].transpose(2, 0, 1)):
        same = Image.open(io.BytesIO(shrink(other)))
        gap = np.abs(np.asarray(whole, int) - np.asarray(same, int))
        assert gap.mean() < 3


def test_as_many_pictures_as_rows(tmp_path, pictures):
    np.savez(tmp_path / "p.npz", pixels=pictures)
    with pytest.raises(InputError, match="5 pictures"):
        thumbnails("pixels", tmp_path / "p.npz", 5, None)
    with pytest.raises(InputError, match="--ids"):
        thumbnails(str(tmp_path), tmp_path / "p.npz", 5, None)
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(FileError, match="no column"):
        thumbnails(str(tmp_path / "x.parquet"), tmp_path / "p.npz", 1, None)
