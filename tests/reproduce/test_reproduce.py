import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trustdoctor.errors import FileError, InputError, OutputError
from trustdoctor.reproduce import (
    EXPERIMENTS,
    Options,
    bounds,
    grid,
    reproduce,
    timings,
)
from trustdoctor.reproduce.experiment import paper
from trustdoctor.reproduce.grid import evaluate_grid, published_values
from trustdoctor.reproduce.timings import (
    area_published,
    count_published,
    thresholds_published,
    values_published,
)


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


@pytest.mark.parametrize("method", ["alpha", "beta", "sr"])
def test_the_grid_is_the_loop_over_thresholds(method, rng, monkeypatch):
    probs = rng.dirichlet([0.3] * 4, 300)
    errors = rng.random(300) < 0.3
    values = published_values(probs, method)
    assert values_published(probs, method) == pytest.approx(values.tolist())
    thresholds = np.linspace(values.min(), values.max(), 50)
    below = method == "sr"
    counted = count_published(values.tolist(), errors.tolist(), thresholds, below=below)
    monkeypatch.setattr(grid, "AT_ONCE", 7)  # parts make no difference
    found = evaluate_grid(values, errors, below=below, size=50)
    assert (found.auroc, found.frr) == pytest.approx(area_published(*counted))
    assert found.reach == (max(counted[0]), max(counted[1]))
    assert (
        len(thresholds_published(values.tolist()))
        == evaluate_grid(values, errors, below=below).thresholds
    )


def test_no_bound_is_violated(monkeypatch):
    monkeypatch.setattr(bounds, "ROWS", 40_000)
    (table,) = reproduce("bounds").tables
    assert [row[0] for row in table.rows] == list(bounds.CLASSES)
    for row in table.rows:
        counts = row[2:5] + row[6:9]
        assert counts == (0,) * 6
        assert (row[5] == 0) == (row[0] == 2)  # the lower half of (3)


def test_a_violation_would_be_counted(rng):
    true, _ = bounds.draw(rng, 2000, 5)
    broken, _ = bounds.check(true[:, ::-1], true)  # a model that contradicts the truth
    assert (np.delete(broken, 3) == 0).all()
    broken, _ = bounds.check(true, np.full_like(true, 0.4))  # no posterior at all
    assert broken[4] == 2000


def test_the_markov_bound_can_fail():
    true = np.full((1000, 4), 0.25)
    model = true.copy()
    model[500:] = [1 - 3e-9, 1e-9, 1e-9, 1e-9]  # the half that the bound knows not
    delta = np.append(np.zeros(500), np.full(500, 50.0))
    assert bounds._markov(true, model, delta) == 1
    assert bounds._markov(true, true, np.zeros(1000)) == 0


def test_a_protocol_that_changes_nothing_is_said(authors):
    report = reproduce("intervals", Options(predictions=authors, protocol="grid"))
    assert "--protocol changes nothing for intervals" in report.notes[-1]


def test_rows_of_one_kind_are_refused(tmp_path):
    np.savez(tmp_path / "p.npz", logits=np.eye(3)[[0, 1] * 10] * 5, labels=[0, 1] * 10)
    with pytest.raises(InputError, match="both kinds"):
        reproduce("timings", Options(predictions=tmp_path / "p.npz"))


def test_real_predictions_are_checked_for_what_needs_no_truth(authors, monkeypatch):
    monkeypatch.setattr(bounds, "ROWS", 800)
    (table,) = reproduce("bounds", Options(predictions=authors)).tables
    assert table.rows[-1][1:] == (10_000, *[None] * 4, 0, None, 0, None)


@pytest.mark.parametrize("protocol", ["exact", "grid"])
def test_histograms_and_curves_of_the_authors_rows(protocol, authors):
    options = Options(predictions=authors, protocol=protocol)
    drawn = reproduce("histograms", options)
    assert drawn.pictures[0].panels[0].title == "alpha, TBB"
    curves = reproduce("roc", options)
    found = {row[:2]: row[2:] for row in curves.tables[0].rows}
    wanted = 17.94 if protocol == "exact" else 17.9
    assert found["alpha", "TBB"][3] == pytest.approx(wanted, abs=0.1)
    assert curves.pictures[0].panels[0].level == 0.95


def test_timings_time_the_published_loops(authors, monkeypatch):
    monkeypatch.setattr(timings, "SIZE", 20)
    (table,) = reproduce("timings", Options(predictions=authors, rows=300)).tables
    assert [row[:3] for row in table.rows] == [
        ("alpha", 12.5, 13),
        ("beta", 13.6, 25.7),
        ("sr", 15.9, 14.7),
        ("mhlnb", 15.9, 32.22),
    ]
    assert all(min(row[3], float(row[4]), float(row[5])) > 0 for row in table.rows)


def test_reports_are_written_whole(authors, tmp_path):
    report = reproduce("intervals", Options(predictions=authors))
    paths = report.write(tmp_path / "new" / "folder")
    assert [p.suffix for p in paths] == [".md", ".json", ".svg", ".png"]
    assert paths[0].read_text().startswith("# Table of interval sizes")
    content = json.loads(paths[1].read_text())
    assert content["tables"][0]["rows"][0][2] == paper("intervals")["10"]["alpha"][0]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        report.write(tmp_path / "file" / "x")


def test_pictures_are_written_where_matplotlib_is(monkeypatch, tmp_path):
    monkeypatch.setattr(bounds, "ROWS", 800)
    report = reproduce("bounds")
    paths = report.write(tmp_path / "with")
    assert [p.name for p in paths] == [
        "bounds.md",
        "bounds.json",
        "bounds-bounds.svg",
        "bounds-bounds.png",
    ]
    assert "](bounds-bounds.svg)" in paths[0].read_text()
    monkeypatch.setattr("trustdoctor.reproduce.report.can_draw", lambda: False)
    paths = report.write(tmp_path / "without")
    assert [p.suffix for p in paths] == [".md", ".json"]
    assert "svg" not in paths[0].read_text()


def test_mistakes_are_refused(tmp_path):
    with pytest.raises(InputError, match="magic"):
        reproduce("magic")
    for name in ("intervals", "timings"):
        with pytest.raises(InputError, match="--predictions"):
            reproduce(name)
    with pytest.raises(InputError, match="method"):
        published_values([[0.5, 0.5]], "energy")
    with pytest.raises(FileError, match="no file"):
        reproduce("intervals", Options(predictions=tmp_path / "p.npz"))
    with pytest.raises(InputError, match="gaussian takes no --data"):
        reproduce("gaussian", Options(data=tmp_path))
    with pytest.raises(InputError, match="--protocol out of exact, grid"):
        reproduce("gaussian", Options(protocol="best"))
    with pytest.raises(InputError, match="--rows of 10"):
        reproduce("table1", Options(data=tmp_path, rows=1))
    with pytest.raises(InputError, match="--dataset out of cifar10"):
        reproduce("table1", Options(data=tmp_path, dataset="mnist"))
    with pytest.raises(InputError, match="goes with --model"):
        reproduce("table1", Options(data=tmp_path, weights=tmp_path))
    with pytest.raises(InputError, match="--seed of 0"):
        reproduce("gaussian", Options(seed=-1))
    with pytest.raises(InputError, match="both kinds"):
        evaluate_grid(np.arange(3.0), np.zeros(3, bool))


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
    lines = [x for x in done.stdout.splitlines() if not x.startswith("Wrote")]
    assert max(map(len, lines)) <= 80
    assert run("magic").returncode == 2
    roc = run("roc", "--predictions", authors, "--out", tmp_path, "--protocol", "grid")
    assert roc.returncode == 0, roc.stderr
    left = {path.name for path in tmp_path.iterdir()}
    assert {"roc.md", "roc.json", "roc-cifar10-densenet.svg"} <= left
    assert not any(name.endswith(".parts") for name in left)
    refused = run("gaussian", "--rows", "50")
    assert refused.returncode == 2
    assert "gaussian takes no --rows" in refused.stderr


def test_every_number_of_the_paper_names_its_table():
    for name in EXPERIMENTS.keys() - {"bounds", "histograms", "roc", "sweep"}:
        assert paper(name)["source"]
