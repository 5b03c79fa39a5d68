"""Two nodes on this machine, a worker killed in the middle, and the same results."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.engines import Means, find_engine, screen
from trustdoctor.errors import FileError, InputError
from trustdoctor.files import find_source

pytest.importorskip("ray")


@pytest.mark.soak
def test_a_cluster_gives_what_one_machine_gives(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    completed = subprocess.run(
        [sys.executable, Path(__file__).with_name("cluster.py"), tmp_path],
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    checks = ("screen", "diagnose, calibrate", "lists", "folders", "groups")
    checks += ("whole file", "model")
    for name in checks:
        assert re.search(rf"^{name}\b.*: ", completed.stdout, re.MULTILINE)


def test_mistakes_are_named_before_a_cluster_is_asked(tmp_path):
    gate = td.Gate(-0.5, score="alpha")
    nowhere = Means(find_engine("ray=127.0.0.1:1"), 10**9)
    table = pl.DataFrame({f"logit_{j}": np.arange(10.0) * j for j in range(2)})
    table.write_csv(tmp_path / "a.csv")
    table.write_parquet(tmp_path / "a.parquet")
    text, source = (find_source(tmp_path / f"a.{kind}") for kind in ("csv", "parquet"))
    for files, out in ((text, None), (source, tmp_path / "b.csv")):
        with pytest.raises(FileError, match=r"reads and writes \.parquet, got \.csv"):
            screen(files, gate, out, means=nowhere)
    with pytest.raises(InputError, match="--resume"):
        screen(source, gate, tmp_path / "b.parquet", resume=True, means=nowhere)
