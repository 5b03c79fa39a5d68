"""Pictures are decoded with suspicion: what they announce, and what they are."""

import io
import os
import struct
import warnings
import zlib

import numpy as np
import polars as pl
import pytest
from blank_images import png
from PIL import Image

from trustdoctor.errors import FileError
from trustdoctor.files import find_source, thumbnails
from trustdoctor.files.images import PIXELS, decode, shrink


@pytest.fixture
def archive(tmp_path):
    np.savez(tmp_path / "p.npz", logits=2 * np.eye(2), labels=[0, 1], ids=[7, 8])
    return tmp_path / "p.npz"


@pytest.mark.parametrize("sides", [(50_000, 50_000), (10_000, 10_000), (8193, 8192)])
@pytest.mark.filterwarnings("error")
def test_large_pictures_are_refused(sides):
    with pytest.raises(FileError, match="at most 67,108,864 pixels in a, got"):
        decode(png(*sides), "a")
    with pytest.raises(FileError, match="at most 67,108,864 pixels in b, got"):
        shrink(png(*sides), "b")


def test_the_largest_picture_is_decoded():
    assert PIXELS == 8192 * 8192
    assert decode(png(8192, 8192), "a").size == (8192, 8192)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_usual_formats_are_decoded(kind):
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), (250, 0, 0)).save(buffer, kind)
    pixels = np.asarray(decode(buffer.getvalue(), "a"))
    assert pixels.shape == (3, 4, 3)
    assert abs(int(pixels[0, 0, 0]) - 250) < 10


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        png(8, 8)[:-20],
        png(8, 8).replace(b"IDAT", b"IDAX"),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n",
        None,
        "text",
        3,
    ],
)
def test_files_that_are_not_pictures_are_reported(content):
    with pytest.raises(FileError, match="row 3 is not a picture"):
        decode(content, "row 3")


def test_warnings_of_the_decoder_stay_inside(recwarn):
    content = png(8, 8)
    note = b"acTL" + struct.pack(">II", 0, 0)  # an animation without pictures
    chunk = struct.pack(">I", 8) + note + struct.pack(">I", zlib.crc32(note))
    odd = content[:33] + chunk + content[33:]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Image.open(io.BytesIO(odd))
    assert caught  # it warns by itself
    decode(odd, "a")
    assert not recwarn.list


def test_pages_refuse_large_pictures_in_one_line(tmp_path, run, archive):
    page = tmp_path / "page.html"
    table = {"logit_0": [2.0, 0.0], "logit_1": [0.0, 2.0], "label": [0, 1]}
    pictures = [png(8, 8), png(50_000, 50_000)]
    pl.DataFrame({**table, "image": pictures}).write_parquet(tmp_path / "p.parquet")
    (tmp_path / "folder").mkdir()
    for name, content in zip("ab", pictures, strict=True):
        (tmp_path / "folder" / f"{name}.png").write_bytes(content)
    for file, pictures_in in (
        (tmp_path / "p.parquet", "image"),
        (archive, tmp_path / "p.parquet"),
        (archive, tmp_path / "folder"),
    ):
        completed = run("diagnose", file, "--html", page, "--thumbnails", pictures_in)
        assert completed.returncode == 2
        assert completed.stderr.count("\n") == 1
        assert "67,108,864 pixels" in completed.stderr
        assert not page.exists()


def test_damaged_tables_of_pictures_are_named(tmp_path, archive, monkeypatch):
    (tmp_path / "i.parquet").write_bytes(b"PAR1<html>PAR1")
    source = find_source(archive)
    table = source.load()[1]
    with pytest.raises(FileError, match=r"i\.parquet: it is damaged"):
        thumbnails(str(tmp_path / "i.parquet"), source, table)

    def panics(*_arguments, **_options):
        raise pl.exceptions.PanicException

    pl.DataFrame({"image": [b"a", b"b"]}).write_parquet(tmp_path / "i.parquet")
    monkeypatch.setattr(pl, "scan_parquet", panics)
    with pytest.raises(FileError, match=r"i\.parquet: it is damaged"):
        thumbnails(str(tmp_path / "i.parquet"), source, table)


def test_pipes_are_not_waited_for(tmp_path, archive):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "7.png").write_bytes(png(8, 8))
    os.mkfifo(folder / "8.png")
    source = find_source(archive)
    table = source.load()[1]
    for ids in (None, [7, 8]):
        make = thumbnails(str(folder), source, table, ids)
        assert make(0) is not None
        with pytest.raises(FileError, match=r"8\.png: it is not a regular file"):
            make(1)
