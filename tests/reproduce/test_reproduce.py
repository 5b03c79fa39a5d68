import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.reproduce import EXPERIMENTS, Options, bounds, reproduce
from trustdoctor.reproduce.experiment import paper, read_softmax
from trustdoctor.reproduce.grid import evaluate_grid, published_values


@pytest.fixture
def authors(shared):
    return shared / "reference" / "cifar10-densenet-tbb.npz"


def test_the_grid_meets_the_papers_interval_table(authors):
    report = reproduce("intervals", Options(predictions=authors))
    grid, exact = report.tables
    assert len(grid.rows) == 12
    for _, _, auroc, our_auroc, frr, our_frr, _ in grid.rows:
        assert our_auroc == pytest.approx(auroc, abs=0.1)
        assert our_frr == pytest.approx(frr, abs=0.1)
    found = {row[0]: row[1:] for row in exact.rows}
    assert found["alpha"] == pytest.approx((94.16, 17.94), abs=0.01)
    assert found["beta"] == found["sr"] == pytest.approx((94.13, 17.94), abs=0.01)


@pytest.mark.parametrize(
    ("file", "method", "auroc", "frr"),
    [
        ("tbb", "alpha", 94.1, 17.9),
        ("tbb", "beta", 68.8, 18.2),
        ("tbb", "sr", 93.9, 18.2),
        ("pbb-alpha-T1-eps0.00035", "alpha", 95.2, 13.9),
        ("odin-T1.3", "sr", 94.2, 18.4),
    ],
)
def test_the_grid_meets_what_the_published_code_prints(
    file, method, auroc, frr, shared
):
    path = shared / "reference" / f"cifar10-densenet-{file}.npz"
    probs, labels = read_softmax(path)
    found = evaluate_grid(probs, probs.argmax(1) != labels, method)
    assert 100 * found.auroc == pytest.approx(auroc, abs=0.1)
    assert 100 * found.frr == pytest.approx(frr, abs=0.1)


@pytest.mark.parametrize("method", ["alpha", "beta", "sr"])
def test_the_grid_is_the_loop_over_thresholds(method, rng):
    probs = rng.dirichlet([0.3] * 4, 300)
    errors = rng.random(300) < 0.3
    values = published_values(probs, method)
    thresholds = np.linspace(values.min(), values.max(), 50)
    rejected = [values <= t if method == "sr" else values > t for t in thresholds]
    frr = np.sort([r[~errors].mean() for r in rejected])
    trr = np.sort([r[errors].mean() for r in rejected])
    found = evaluate_grid(probs, errors, method, size=50)
    assert found.auroc == pytest.approx(np.trapezoid(trr, frr))
    assert found.frr == pytest.approx(np.interp(0.95, trr, frr))
    assert found.reach == (frr[-1], trr[-1])


def test_no_bound_is_violated(monkeypatch):
    monkeypatch.setattr(bounds, "ROWS", 40_000)
    (table,) = reproduce("bounds").tables
    assert [row[0] for row in table.rows] == list(bounds.CLASSES)
    assert all(row[2:7] == (0, 0, 0, 0, 0) for row in table.rows)


def test_a_violation_would_be_counted(rng):
    true, _ = bounds.draw(rng, 2000, 5)
    broken, _ = bounds.check(true[:, ::-1], true)  # a model that contradicts the truth
    assert (broken == 0).all()
    broken, _ = bounds.check(true, np.full_like(true, 0.4))  # no posterior at all
    assert broken[2] == 2000


def test_reports_are_written_whole(authors, tmp_path):
    report = reproduce("intervals", Options(predictions=authors))
    paths = report.write(tmp_path / "new" / "folder")
    assert [p.suffix for p in paths] == [".md", ".json"]
    assert paths[0].read_text().startswith("# Table of interval sizes")
    content = json.loads(paths[1].read_text())
    assert content["tables"][0]["rows"][0][2] == paper("intervals")["10"]["alpha"][0]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        report.write(tmp_path / "file" / "x")


def test_mistakes_are_refused(tmp_path):
    with pytest.raises(InputError, match="magic"):
        reproduce("magic")
    with pytest.raises(InputError, match="--predictions"):
        reproduce("intervals")
    with pytest.raises(InputError, match="method"):
        published_values([[0.5, 0.5]], "energy")
    with pytest.raises(FileError, match="NPZ"):
        read_softmax(tmp_path / "p.csv")
    with pytest.raises(FileError, match="no file"):
        read_softmax(tmp_path / "p.npz")


def run(*arguments):
    program = Path(sys.executable).with_name("trustdoctor")
    return subprocess.run(
        [program, "reproduce", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_lists_and_runs(authors, tmp_path):
    listed = run("--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(EXPERIMENTS)
    done = run("intervals", "--predictions", authors, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "94.13" in done.stdout
    assert (tmp_path / "intervals.md").exists()
    assert max(map(len, done.stdout.splitlines()[:-2])) <= 80
    assert run("magic").returncode == 2
