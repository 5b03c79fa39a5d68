"""Two nodes on this machine, a worker killed in the middle, and the same results."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.adapters.scan import find_source
from trustdoctor.errors import FileError, InputError

pytest.importorskip("ray")


def test_a_cluster_gives_what_one_machine_gives(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    found = subprocess.run(
        [sys.executable, Path(__file__).with_name("cluster.py"), tmp_path],
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    for what in ("screen", "diagnose, calibrate", "folders", "model"):
        assert f"\n{what}: " in found.stdout


def test_mistakes_are_named_before_a_cluster_is_asked(tmp_path):
    from trustdoctor.engines import ray as engine

    gate = td.Gate(-0.5, score="alpha")
    table = pl.DataFrame({f"logit_{j}": np.arange(10.0) * j for j in range(2)})
    table.write_csv(tmp_path / "a.csv")
    with pytest.raises(FileError, match=r"reads and writes \.parquet"):
        engine.screen(find_source(tmp_path / "a.csv"), gate, None)
    table.write_parquet(tmp_path / "a.parquet")
    source = find_source(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="--resume"):
        engine.screen(source, gate, tmp_path / "b.parquet", resume=True)
