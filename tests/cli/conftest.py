import numpy as np
import polars as pl
import pytest


@pytest.fixture
def probs(tmp_path, rng):
    """A CSV file of 400 labelled rows."""
    p = rng.dirichlet([1, 1, 1], 400)
    label = np.where(rng.random(400) < 0.7, p.argmax(1), 0)
    path = tmp_path / "preds.csv"
    table = {"id": np.arange(400), **{f"prob_{i}": p[:, i] for i in range(3)}}
    pl.DataFrame({**table, "label": label}).write_csv(path)
    return path
