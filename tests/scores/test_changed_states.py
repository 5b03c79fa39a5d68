"""Files of fitted scores with other numbers: refused, or scores that give numbers."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import trustdoctor as td
from trustdoctor.errors import FileError, InputError

FITTED = {
    "rel_u": td.RelU.fit,
    "knn": lambda p: td.KNN.fit(p, k=3),
    "mahalanobis": td.Mahalanobis.fit,
    "sirc": td.SIRC.fit,
    "trust_score": td.TrustScore.fit,
    "vim": td.ViM.fit,
    "fusion": td.Fusion.fit,
}


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 3))
    labels = np.where(rng.random(n) < 0.7, z.argmax(1), rng.integers(0, 3, n))
    x = rng.normal(size=(n, 4)) + labels[:, None]
    return td.Predictions.from_logits(z, labels, features=x)


def saved(name, path):
    FITTED[name](rows()).save(path)
    with safe_open(path, "np") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return arrays, dict(file.metadata())


def with_last(value):
    def change(array):
        out = array.copy()
        out.flat[-1] = value
        return out

    return change


FLOATS = {
    "nan": with_last(np.nan),
    "inf": with_last(np.inf),
    "-inf": with_last(-np.inf),
    "largest": lambda array: np.where(array > 0, 1e308, -1e308),
}
WAYS = {
    **FLOATS,
    "zero": np.zeros_like,
    "negative": np.negative,
    "turned": lambda array: array[::-1].copy(),
    "short": lambda array: array[:-1].copy(),
    "empty": lambda array: array[:0].copy(),
    "flat": lambda array: array.ravel().copy(),
}


@pytest.mark.parametrize("change", WAYS)
@pytest.mark.parametrize("name", FITTED)
def test_changed_numbers_are_refused_or_score(name, change, tmp_path):
    path = tmp_path / "a.safetensors"
    arrays, metadata = saved(name, path)
    p = rows(50, seed=1)
    for key, array in arrays.items():
        if array.dtype.kind != "f" and change in FLOATS:
            continue
        save_file(arrays | {key: WAYS[change](array)}, path, metadata=metadata)
        try:
            with np.errstate(all="ignore"):
                gate = td.Gate(np.inf, score=td.load_score(path))
                screened = gate.screen(p)
        except (FileError, InputError):
            continue
        assert screened.doubts.shape == (50,)
        assert not np.isnan(screened.doubts).any(), key


@pytest.mark.parametrize(
    ("name", "key", "change", "match"),
    [
        ("mahalanobis", "factor", lambda a: a * 0, "a regular factor"),
        ("mahalanobis", "factor", lambda a: a * np.eye(len(a)) * 0, "regular factor"),
        (
            "mahalanobis",
            "factor",
            lambda a: a * (np.arange(len(a)) != 1),
            "regular factor",
        ),
        ("mahalanobis", "means", lambda a: a[:0], "class means"),
        ("fusion", "bounds", lambda a: a * np.nan, "expected bounds"),
        ("fusion", "bounds", lambda a: a[::-1].copy(), "expected bounds"),
        ("fusion", "bounds", lambda a: a * np.inf, "expected bounds"),
        ("fusion", "deviations", lambda a: a * 0, "expected bounds"),
        ("fusion", "deviations", lambda a: -a, "expected bounds"),
        ("rel_u", "matrix", lambda a: a * np.nan, "square matrix"),
        ("rel_u", "matrix", lambda a: -a, "square matrix"),
    ],
)
def test_numbers_that_cannot_be_are_refused(name, key, change, match, tmp_path):
    path = tmp_path / "a.safetensors"
    arrays, metadata = saved(name, path)
    with np.errstate(all="ignore"):
        save_file(arrays | {key: change(arrays[key])}, path, metadata=metadata)
    with pytest.raises((FileError, InputError), match=match):
        td.load_score(path)


def test_the_command_line_refuses_them_in_one_line(run, tmp_path):
    path = tmp_path / "a.safetensors"
    arrays, metadata = saved("fusion", path)
    save_file(
        arrays | {"deviations": 0 * arrays["deviations"]}, path, metadata=metadata
    )
    z = rows().logits
    np.savez(tmp_path / "p.npz", logits=z, labels=rows().labels)
    completed = run("diagnose", tmp_path / "p.npz", "--score", path)
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0, -1, "1", None, [1]])
def test_fields_that_cannot_be_are_refused(value, tmp_path):
    path = tmp_path / "a.safetensors"
    arrays, metadata = saved("rel_u", path)
    header = json.loads(metadata["json"])
    header["plain"]["temperature"] = value
    save_file(arrays, path, metadata={"json": json.dumps(header)})
    with pytest.raises((FileError, InputError)):
        td.load_score(path)
