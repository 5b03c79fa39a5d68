"""Further arrays of a file: perturbed logits, and arrays chosen by name."""

import struct
import zipfile

import numpy as np
import pytest

from trustdoctor.errors import FileError
from trustdoctor.files import find_source, read_perturbed
from trustdoctor.files.extra_arrays import read_array


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
        read_array(find_source(path), "pixels")


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
