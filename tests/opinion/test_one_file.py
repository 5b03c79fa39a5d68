"""One file is one stage: a model always agrees with itself."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.errors import InputError


@pytest.fixture
def place(tmp_path, run):
    """Two models' rows, and a cascade of both."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(3000, 3))
    label = (z + rng.gumbel(size=z.shape)).argmax(1)
    for name, noise in (("small", 2.0), ("large", 0.1)):
        noisy = z + noise * rng.normal(size=z.shape)
        columns = {f"logit_{j}": noisy[:, j] for j in range(3)}
        table = pl.DataFrame({"id": np.arange(3000), **columns, "label": label})
        table.write_csv(tmp_path / f"{name}.csv")
    words = "cascade small.csv large.csv --costs 0,1,9 --risk 0.4 -o both.json"
    process = run(*words.split(), cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    (tmp_path / "soft.csv").symlink_to("small.csv")
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "small.csv").hardlink_to(tmp_path / "small.csv")
    return tmp_path


@pytest.mark.parametrize(
    "other", ["small.csv", "./small.csv", "soft.csv", "large/small.csv"]
)
@pytest.mark.parametrize(
    "words",
    [
        "screen small.csv OTHER --gate both.json -o out.csv",
        "cascade small.csv OTHER --costs 0,1,9 --risk 0.4 -o new.json",
        "cascade small.csv OTHER --names a,b --costs 0,1,9 --risk 0.4 -o new.json",
    ],
)
@pytest.mark.sampled(3)
def test_one_file_as_two_stages_is_refused(words, other, place, run):
    before = sorted(place.iterdir())
    process = run(*words.replace("OTHER", other).split(), cwd=place)
    assert process.returncode == 2
    assert "expected one FILE per stage" in process.stderr
    assert process.stderr.count("\n") == 1
    assert sorted(place.iterdir()) == before


def test_the_library_refuses_it_as_well(place):
    cascade = td.Cascade.load(place / "both.json")
    small, soft = place / "small.csv", str(place / "soft.csv")
    with pytest.raises(InputError, match="expected one FILE per stage"):
        cascade.screen([small, soft])
    with pytest.raises(InputError, match="expected one FILE per stage"):
        td.Cascade.calibrate([small, soft], costs=[0, 1, 9], risk=0.4)
    assert len(cascade.screen([small, place / "large.csv"]).accepted) == 3000


@pytest.mark.more
def test_a_cascade_is_one_file_whatever_the_order_of_hashes(place):
    words = "cascade small.csv large.csv --costs 0,1,9 --risk 0.4 --shortlist 0.9 -q"
    contents = set()
    for seed in ("0", "1", "2"):
        command = [sys.executable, "-m", "trustdoctor", *words.split(), "-o", "h.json"]
        env = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run(command, env=env, cwd=place, check=True)
        contents.add((place / "h.json").read_bytes())
    assert len(contents) == 1
