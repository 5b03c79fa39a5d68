import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from trustdoctor.errors import FileError, InputError, LabelsMissingError, OutputError
from trustdoctor.reproduce import (
    EXPERIMENTS,
    Options,
    Report,
    bounds,
    gaussian,
    grid,
    reproduce,
    timings,
    whitebox,
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
    exact_by_method = {row[0]: row[1:] for row in exact.rows}
    assert exact_by_method["alpha"] == pytest.approx((94.16, 17.94), abs=0.01)
    assert (
        exact_by_method["beta"]
        == exact_by_method["sr"]
        == pytest.approx((94.13, 17.94), abs=0.01)
    )


@pytest.mark.parametrize("method", ["alpha", "beta", "sr"])
def test_the_grid_is_the_loop_over_thresholds(method, rng, monkeypatch):
    probs = rng.dirichlet([0.3] * 4, 300)
    errors = rng.random(300) < 0.3
    values = published_values(probs, method)
    assert values_published(probs, method) == pytest.approx(values.tolist())
    thresholds = np.linspace(values.min(), values.max(), 50)
    below = method == "sr"
    counted = count_published(values.tolist(), errors.tolist(), thresholds, below=below)
    monkeypatch.setattr(grid, "CHUNK", 7)  # chunks make no difference
    grid_result = evaluate_grid(values, errors, below=below, size=50)
    assert (grid_result.auroc, grid_result.frr) == pytest.approx(
        area_published(*counted)
    )
    assert grid_result.reach == (max(counted[0]), max(counted[1]))
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


def test_real_predictions_without_labels_can_be_checked(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(bounds, "ROWS", 800)
    logits = rng.normal(size=(30, 4))
    np.savez(tmp_path / "net-svhn-test.npz", logits=logits)
    _, table = reproduce("bounds", Options(data=tmp_path)).tables
    assert table.rows == (("SVHN, net", 4, 30, 0, 0),)
    with pytest.raises(LabelsMissingError):
        reproduce("intervals", Options(data=tmp_path))
    (tmp_path / "net-svhn-test.npz").unlink()
    report = reproduce("bounds", Options(data=tmp_path))
    assert len(report.tables) == 1
    assert report.notes == (f"There are no predictions in {tmp_path}.",)


@pytest.fixture
def folder(tmp_path, rng):
    """Predictions of two models on two data sets, and one whose rows are all right."""
    for name, classes in (("a-cifar10", 10), ("b-imdb", 2), ("sure-svhn", 10)):
        logits = 4 * rng.normal(size=(120, classes))
        labels = logits.argmax(1)
        if "sure" not in name:
            labels[::5] = rng.integers(0, classes, 24)
        np.savez(tmp_path / f"{name}-test.npz", logits=logits, labels=labels)
    return tmp_path


def test_intervals_of_all_predictions_in_a_folder(folder):
    report = reproduce("intervals", Options(data=folder))
    assert [table.title.split(";")[0].split(":")[0] for table in report.tables] == [
        *["CIFAR-10, a"] * 2,
        *["IMDb, b"] * 2,
    ]
    assert report.notes == (
        "SVHN, sure: left out, since its rows are all right or all wrong.",
    )
    for first_table, name in ((0, "a-cifar10"), (2, "b-imdb")):
        path = folder / f"{name}-test.npz"
        alone = reproduce("intervals", Options(predictions=path))
        assert [table.rows for table in alone.tables] == [
            table.rows for table in report.tables[first_table : first_table + 2]
        ]
    ours, foreign = report.tables[0].rows[0], report.tables[2].rows[0]
    assert ours[2] == paper("intervals")["10"]["alpha"][0]
    assert foreign[2] is None  # the paper's are of CIFAR-10
    assert "(CIFAR-10, a)" in report.words
    paths = report.write(folder / "out")
    assert {p.name for p in paths} >= {
        "intervals-cifar10-a.svg",
        "intervals-imdb-b.svg",
    }


def test_curves_of_all_predictions_in_a_folder(folder):
    report = reproduce("roc", Options(data=folder))
    assert [p.name for p in report.pictures] == ["cifar10-a", "imdb-b"]
    assert "SVHN, sure: left out" in report.notes[0]


def test_timings_of_all_predictions_in_a_folder(folder, monkeypatch):
    monkeypatch.setattr(timings, "SIZE", 20)
    report = reproduce("timings", Options(data=folder, rows=100))
    assert [table.title for table in report.tables] == [
        "Seconds, CIFAR-10, a: 100 rows of 10 classes",
        "Seconds, IMDb, b: 100 rows of 2 classes",
    ]
    assert "SVHN, sure: left out" in report.notes[0]
    assert len(report.pictures[0].panels) == 2


def test_bounds_of_all_predictions_in_a_folder(folder, monkeypatch):
    monkeypatch.setattr(bounds, "ROWS", 800)
    _, table = reproduce("bounds", Options(data=folder)).tables
    assert [row[:3] for row in table.rows] == [
        ("CIFAR-10, a", 10, 120),
        ("SVHN, sure", 10, 120),
        ("IMDb, b", 2, 120),
    ]


def test_a_model_is_run_where_predictions_are_wanted(world, monkeypatch):
    monkeypatch.setattr(bounds, "ROWS", 800)
    monkeypatch.setattr(timings, "SIZE", 20)
    (path,) = world.data.glob("*-test.npz")
    expected = reproduce("intervals", Options(predictions=path))
    for name in ("intervals", "bounds", "timings"):
        report = reproduce(name, world)
        assert "CIFAR-10, tiny" in report.tables[-1].title + str(report.tables[-1].rows)
        assert report.notes == ()
    intervals = reproduce("intervals", world)
    for ours, theirs in zip(intervals.tables, expected.tables, strict=True):
        assert ours.rows == theirs.rows


GIVEN = {
    "seed": 3,
    "protocol": "grid",
    "predictions": Path("p.npz"),
    "data": Path("data"),
    "dataset": "svhn",
    "model": "net.py:Net",
    "weights": Path("w.safetensors"),
    "ood": ("noise",),
    "layers": ("stages.1",),
    "rows": 50,
    "draws": 3,
    "fine": True,
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_takes_every_option(name, monkeypatch):
    assert GIVEN.keys() | {"steps", "tell"} == {f.name for f in fields(Options)}
    calls = []

    def run(options):
        calls.append(options)
        return Report(name, "", (), "", notes=("its own",))

    entry = EXPERIMENTS[name]
    monkeypatch.setitem(EXPERIMENTS, name, replace(entry, run=run))
    report = reproduce(name, Options(**GIVEN))
    idle = [option for option in GIVEN if option not in entry.uses]
    for option, value in GIVEN.items():
        expected = getattr(Options(), option) if option in idle else value
        if option == "seed" and "rows" in entry.uses:
            expected = value  # rows are drawn by it
            idle = [option for option in idle if option != "seed"]
        assert getattr(calls[0], option) == expected, option
    assert report.notes[0] == "its own"
    notes = [note for note in report.notes if f"nothing for {name}" in note]
    assert len(notes) == bool(idle)
    if idle:
        named = notes[0].split(" change")[0].replace("--", "").split(", ")
        assert sorted(named) == sorted(idle)


def test_an_option_documented_as_without_effect_has_none(world, folder, monkeypatch):
    monkeypatch.setattr(bounds, "ROWS", 800)
    monkeypatch.setattr(gaussian, "POINTS", 500)
    monkeypatch.setattr(gaussian, "TRAIN", 670)
    monkeypatch.setattr(gaussian, "GRID", 61)
    monkeypatch.setattr(timings, "_seconds", lambda _work, _repeat: 1.0)
    monkeypatch.setattr(whitebox, "TRAIN", 120)
    other = folder / "b-imdb-test.npz"
    given_options = Options(predictions=folder / "a-cifar10-test.npz")
    for name, options, idle in (
        ("gaussian", Options(), set(GIVEN) - {"seed", "protocol"}),
        ("bounds", Options(), {"protocol", "rows", "draws", "dataset"}),
        ("intervals", Options(data=folder), {"protocol", "seed", "draws", "ood"}),
        ("timings", Options(data=folder), {"protocol", "seed", "draws"}),
        ("roc", given_options, {"seed", "draws", "ood"}),
        ("whitebox", world, {"predictions", "ood", "draws"}),
    ):
        changed = {option: GIVEN[option] for option in idle}
        if name == "whitebox":
            changed["predictions"] = other
        plain, more = (reproduce(name, replace(options, **x)) for x in ({}, changed))
        assert more.tables == plain.tables, name
        *other_notes, note = more.notes
        assert tuple(other_notes) == plain.notes
        assert set(note.split(" change")[0].replace("--", "").split(", ")) == idle, name


def test_importing_the_experiments_imports_no_framework():
    code = (
        "import sys, trustdoctor.reproduce; print([m for m in "
        "('torch', 'sklearn', 'matplotlib', 'PIL') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_a_protocol_without_effect_is_reported(authors):
    report = reproduce("intervals", Options(predictions=authors, protocol="grid"))
    assert report.notes[-1] == "--protocol changes nothing for intervals here."


def test_rows_of_one_kind_are_refused(tmp_path):
    np.savez(tmp_path / "p.npz", logits=np.eye(3)[[0, 1] * 10] * 5, labels=[0, 1] * 10)
    with pytest.raises(InputError, match="both kinds"):
        reproduce("timings", Options(predictions=tmp_path / "p.npz"))


def test_real_predictions_are_checked_for_what_needs_no_truth(authors, monkeypatch):
    monkeypatch.setattr(bounds, "ROWS", 800)
    _, table = reproduce("bounds", Options(predictions=authors)).tables
    assert table.rows == (("CIFAR-10, densenet", 10, 10_000, 0, 0),)


@pytest.mark.parametrize("protocol", ["exact", "grid"])
def test_histograms_and_curves_of_the_authors_rows(protocol, authors):
    options = Options(predictions=authors, protocol=protocol)
    drawn = reproduce("histograms", options)
    assert drawn.pictures[0].panels[0].title == "alpha, TBB"
    curves = reproduce("roc", options)
    frr_by_method = {row[:2]: row[2:] for row in curves.tables[0].rows}
    expected = 17.94 if protocol == "exact" else 17.9
    assert frr_by_method["alpha", "TBB"][3] == pytest.approx(expected, abs=0.1)
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
    with pytest.raises(InputError, match="--draws of 2"):  # nonsense, heeded or not
        reproduce("gaussian", Options(draws=1))
    with pytest.raises(InputError, match="--rows of 10"):
        reproduce("gaussian", Options(rows=1))
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


@pytest.mark.soak
def test_the_command_lists_and_runs(authors, tmp_path):
    listed = run("--list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(EXPERIMENTS)
    completed = run("intervals", "--predictions", authors, "--out", tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "94.13" in completed.stdout
    assert (tmp_path / "intervals.md").exists()
    lines = [x for x in completed.stdout.splitlines() if not x.startswith("Wrote")]
    assert max(map(len, lines)) <= 80
    assert run("magic").returncode == 2
    roc = run("roc", "--predictions", authors, "--out", tmp_path, "--protocol", "grid")
    assert roc.returncode == 0, roc.stderr
    files = {path.name for path in tmp_path.iterdir()}
    assert {"roc.md", "roc.json", "roc-cifar10-densenet.svg"} <= files
    refused = run("intervals", "--data", tmp_path, "--rows", "3")
    assert refused.returncode == 2
    assert "--rows of 10" in refused.stderr


def test_the_command_takes_a_folder_for_every_experiment(folder):
    completed = run("intervals", "--data", folder, "--draws", "5", "--seed", "1")
    assert completed.returncode == 0, completed.stderr
    words = " ".join(completed.stdout.split())
    assert "CIFAR-10, a: 120 rows" in words
    assert "IMDb, b: 120 rows" in words
    assert "--seed, --draws change nothing for intervals here." in words


def test_every_number_of_the_paper_names_its_table():
    without_numbers = {
        "bounds",
        "histograms",
        "roc",
        "sweep",
        "models",
        "instead",
        "all",
    }
    for name in EXPERIMENTS.keys() - without_numbers:
        assert paper(name)["source"]
