"""Files of data sets that were made to mislead: one line, and little memory."""

import gzip
import json
import os
import struct
import tracemalloc

import numpy as np
import polars as pl
import pytest
from blank_images import png

from trustdoctor.errors import FileError
from trustdoctor.reproduce import Options, formats
from trustdoctor.reproduce.datasets import DATASETS, OUT_SETS
from trustdoctor.reproduce.formats import read_images, read_parquet
from trustdoctor.reproduce.sources import find_exhibits


@pytest.fixture
def little():
    """Refuse that a test takes more than 40 MB of Python's memory."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


def idx(shape, content, begin=None):
    start = bytes((0, 0, 8, len(shape))) if begin is None else begin
    return start + struct.pack(f">{len(shape)}I", *shape) + content


ONE = idx((1,), b"\7")


def mnist(folder, images, labels=ONE):
    (folder / "mnist").mkdir(exist_ok=True)
    for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
        (folder / "mnist" / f"t10k-{kind}-ubyte").write_bytes(content)
    return OUT_SETS["mnist"].load(folder, rows=1)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (idx((1, 2, 2), b"abc"), "announces 4 bytes, and there are fewer"),
        (idx((1, 2, 2), b"abcde"), "announces 4 bytes, and there are more"),
        (idx((0, 2, 2), b"abcd"), "announces 0 bytes, and there are more"),
        (idx((2**32 - 1,) * 3, b"abcd"), "bytes, and there are fewer"),
        (idx((1, 2, 2), b"abcd", b"\0\0\x0d\3"), "begin"),
        (b"\0\0\x08\3\0", "unpack"),
        (b"", "unpack"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_idx_headers_say_what_is_there(pack, content, why, tmp_path):
    with pytest.raises(FileError, match="Download it again") as refused:
        mnist(tmp_path, pack(content))
    assert why in str(refused.value)
    with pytest.raises(FileError, match="1 images and 2 labels"):
        mnist(tmp_path, idx((1, 2, 2), b"abcd"), idx((2,), b"ab"))


ZEROS = gzip.compress(bytes(1 << 26))


@pytest.mark.usefixtures("little")
def test_packed_files_are_not_unpacked_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LIMIT", 1 << 20)
    monkeypatch.setattr(formats, "LINE", 1 << 20)
    for shape in ((1, 2, 2), (1 << 26, 1, 1)):  # both parts are packed
        with pytest.raises(FileError, match="and there are"):
            mnist(tmp_path, gzip.compress(idx(shape, b"")) + ZEROS)
    with pytest.raises(FileError, match="line 1 is none"):
        amazon(tmp_path, ZEROS)
    with pytest.raises(FileError, match="line 69,906 is none"):
        amazon(tmp_path, gzip.compress(b'{"overall": 5}\n' * 80_000))


def amazon(folder, content):
    (folder / "Software_5.json.gz").write_bytes(content)
    return DATASETS["amazon-software"].load(folder)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"overall": ' + b"[" * 100_000,
        b"[5]",
        b"5",
        b"null",
        b'{"overall": 4.5}',
        b'{"overall": 6}',
        b'{"overall": true}',
        b'{"overall": NaN}',
        b'{"overall": "5"}',
        b'{"overall": [5]}',
        b'{"stars": 5}',
        b"\xff\xfe",
        b'{"overall": 1' + b"0" * 5000 + b"}",
    ],
    ids=lambda line: line[:20].decode("latin-1"),
)
def test_reviews_have_one_to_five_stars(line, tmp_path):
    with pytest.raises(FileError, match="line 2 is none"):
        amazon(tmp_path, gzip.compress(b'{"overall": 5}\n\n' + line))


@pytest.mark.parametrize("sides", [(50_000, 50_000), (10_000, 10_000), (1, 2**31 - 1)])
def test_large_pictures_are_refused(sides, tmp_path):
    (tmp_path / "a.png").write_bytes(png(32, 32))
    (tmp_path / "b.png").write_bytes(png(*sides))
    with pytest.raises(FileError, match=r"at most 67,108,864 pixels in .*b\.png, got"):
        read_images(tmp_path)
    pl.DataFrame({"image": [png(*sides)]}).write_parquet(tmp_path / "p.parquet")
    with pytest.raises(FileError, match="at most 67,108,864 pixels in picture 0"):
        read_images(tmp_path / "p.parquet")


def test_many_large_pictures_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LIMIT", 1 << 22)
    for i in range(30):
        (tmp_path / f"{i}.png").write_bytes(png(1000, 1000))
    with pytest.raises(FileError, match="got 30 of 1,000 x 1,000"):
        read_images(tmp_path)


def test_pictures_start_no_program(tmp_path):
    """Pillow hands PostScript to another program."""
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"
    )
    with pytest.raises(FileError, match=r"a\.png is not a picture"):
        read_images(tmp_path)


def test_pictures_are_read_from_their_folder(tmp_path):
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n01\n")
    (tmp_path / "secret.png").write_bytes(png(8, 8))
    for name in ("../../../secret.png", str(tmp_path / "secret.png"), "/dev/zero"):
        (folder / "val" / "val_annotations.txt").write_text(f"{name}\tn01\n")
        with pytest.raises(FileError, match="outside its folder"):
            DATASETS["tinyimagenet"].load(tmp_path, rows=1)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"text": ["a"], "label": [0.5]}, "whole numbers"),
        ({"text": ["a"], "label": [None]}, "whole numbers"),
        ({"text": ["a"], "label": [[1]]}, "whole numbers"),
        ({"text": [None], "label": [1]}, "a text in every row"),
        ({"text": [3], "label": [1]}, "a text in every row"),
        ({"image": ["a"], "label": [1]}, "an encoded picture in every row"),
        ({"image": [b"a"], "label": [1]}, "picture 0 is not a picture"),
        ({"image": [{"path": "a"}], "label": [1]}, "bytes"),
        ({"text": ["a"], "split": [1]}, "another file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tables_hold_what_a_data_set_holds(table, why, tmp_path):
    pl.DataFrame(table, strict=False).write_parquet(tmp_path / "imdb.parquet")
    with pytest.raises(FileError, match=why):
        read_parquet(tmp_path / "imdb.parquet", "test")


def test_tables_of_any_size_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "imdb.parquet"
    pl.select(text=pl.repeat("a" * 1000, 200_000)).write_parquet(path)
    assert path.stat().st_size < 10_000  # one text, and how often it comes
    monkeypatch.setattr(formats, "LIMIT", 1 << 24)
    with pytest.raises(FileError, match="'text' has more than 16,777,216 bytes"):
        read_parquet(path, "test")
    monkeypatch.setattr(formats, "ROWS", 1000)
    with pytest.raises(FileError, match="more than 1,000 rows"):
        read_parquet(path, "test")


def test_a_panic_of_the_reader_is_a_damaged_file(tmp_path, monkeypatch):
    def panics(*_arguments, **_options):
        raise pl.exceptions.PanicException

    pl.DataFrame({"text": ["a"]}).write_parquet(tmp_path / "imdb.parquet")
    monkeypatch.setattr(pl, "scan_parquet", panics)
    with pytest.raises(FileError, match="Download it again"):
        read_parquet(tmp_path / "imdb.parquet", "test")


@pytest.mark.parametrize("name", ["cifar10", "svhn", "amazon-software", "imdb"])
def test_pipes_are_not_waited_for(name, tmp_path):
    places = {
        "cifar10": "cifar-10-batches-py/test_batch",
        "svhn": "test_32x32.mat",
        "amazon-software": "Software_5.json",
        "imdb": "imdb.parquet",
    }
    path = tmp_path / places[name]
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(FileError, match="a folder, a pipe or a device"):
        DATASETS[name].load(tmp_path)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("name", ["cifar10", "svhn", "imdb"])
def test_files_beyond_any_data_set_are_not_read(name, tmp_path):
    places = {
        "cifar10": "cifar-10-batches-bin/test_batch.bin",
        "svhn": "test_32x32.mat",
        "imdb": "aclImdb/test/neg/0_1.txt",
    }
    path = tmp_path / places[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileError, match="more than 1,073,741,824 bytes"):
        DATASETS[name].load(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"pbb_alpha_T1": np.array([[None] * 3] * 5)}, "pickled objects"),
        ({"pbb_alpha_T1": np.ones((4, 3))}, "shape of the clean logits"),
        ({"pbb_alpha_T1": np.ones((5, 2))}, "shape of the clean logits"),
        ({"pbb_alpha_T1": np.full((5, 3), np.nan)}, "perturbed logits: .*NaN"),
        ({"pbb_alpha_T1": np.ones((5, 3), "U1")}, "perturbed logits"),
        ({"pbb_alpha_T1": np.eye(5, 3), "pbb_alpha_T1.0": np.eye(5, 3)}, "twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_perturbed_logits_are_as_the_clean_ones(arrays, why, tmp_path):
    path = tmp_path / "m-cifar10-test.npz"
    np.savez(path, logits=2 * np.eye(5, 3), labels=np.arange(5) % 3, **arrays)
    with pytest.raises(FileError, match=why):
        find_exhibits(Options(data=tmp_path))


def test_archives_are_read_once_they_are_checked(tmp_path):
    path = tmp_path / "m-cifar10-test.npz"
    np.savez(path, probs=np.full((4, 2), 0.5), labels=np.arange(4) % 2)
    content = path.read_bytes()
    for damaged in (content[:-30], b"PK", b"", content.replace(b"(4, 2)", b"(9, 2)")):
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"m-cifar10-test\.npz"):
            find_exhibits(Options(data=tmp_path))
    np.save(tmp_path / "a.npy", np.ones((4, 2)))
    (tmp_path / "a.npy").rename(path)
    with pytest.raises(FileError, match=r"m-cifar10-test\.npz"):
        find_exhibits(Options(data=tmp_path))


def test_the_command_line_refuses_in_one_line(tmp_path, run):
    np.savez(tmp_path / "m-svhn-test.npz", logits=2 * np.eye(10))
    (tmp_path / "test_32x32.mat").write_bytes(b"<html>")
    completed = run("reproduce", "table1", "--data", tmp_path)
    assert completed.returncode == 2
    assert completed.stderr.count("\n") == 1
    assert json.dumps(completed.stdout) == '""'
