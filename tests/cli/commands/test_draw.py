"""From a pool without labels to a file to label, to a gate: on the command line."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td


@pytest.fixture(scope="module")
def pool():
    """Logits with ids, and the truth that people will find."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(3000, 4))
    truth = (logits + 1.5 * rng.normal(size=logits.shape)).argmax(1)
    columns = {"id": [f"row {i}" for i in range(3000)]}
    columns |= {f"logit_{k}": logits[:, k] for k in range(4)}
    return pl.DataFrame(columns), pl.DataFrame({"id": columns["id"], "truth": truth})


def fill(path, truth, *, blanks=()):
    """Label a file as a person does."""
    rows = pl.read_csv(path, infer_schema_length=0)
    known = rows.join(truth.cast(pl.String), on="id", maintain_order="left", how="left")
    labels = known["truth"].to_list()
    for row in blanks:
        labels[row] = None
    rows.with_columns(pl.Series("label", labels, dtype=pl.String)).write_csv(path)


DRAW = ("--for", "risk=10%", "--labels", 200, "--accuracy", "70%")


@pytest.fixture
def drawn(pool, tmp_path, run):
    table, truth = pool
    table.write_csv(tmp_path / "pool.csv")
    completed = run("draw", "pool.csv", *DRAW, "-o", "to_label.csv", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "among the least doubtful" in completed.stdout
    assert "fill in the column label" in completed.stdout
    return tmp_path, truth


def test_a_filled_file_becomes_a_gate_that_keeps_within_the_share(drawn, run):
    folder, truth = drawn
    rows = pl.read_csv(folder / "to_label.csv")
    assert rows.columns[-2:] == ["label", "draw"]
    assert rows["label"].null_count() == len(rows) == 200
    fill(folder / "to_label.csv", truth, blanks=(3, 40))
    gate = ("calibrate", "to_label.csv", "--risk", "10%", "-o", "gate.json")
    completed = run(*gate, cwd=folder)
    assert completed.returncode == 0, completed.stderr
    words = " ".join(completed.stdout.split())
    assert "Labels were drawn at random among the least doubtful" in words
    assert "More labels, estimated from these: with 396 labels" in words
    made = td.Gate.load(folder / "gate.json")
    # Python reads how the rows were drawn, too, and keeps no other promise on them.
    rows = td.read(folder / "to_label.csv")
    assert td.calibrate(rows, risk=0.1) == made
    with pytest.raises(td.errors.InputError, match="frr is about all rows"):
        td.calibrate(rows, frr=0.1)
    with pytest.raises(td.errors.InputError, match="expected the 200 rows"):
        td.calibrate(rows[:150], risk=0.1)
    assert "drawn to be labelled" in " ".join(td.evaluate(rows).warnings)
    pool = td.read(folder / "pool.csv")
    limit = td.draw(pool, labels=200, risk=0.1, accuracy=0.7).limit
    assert made.threshold <= limit
    assert made.certificate.n == 198
    assert made.certificate.drawn_share < 1


def test_python_and_the_command_line_draw_the_same_rows(drawn, run):
    folder, _ = drawn
    for options in ({}, {"ids": "id"}):
        pool = td.read(folder / "pool.csv", **options)
        rows = td.draw(pool, labels=200, risk=0.1, accuracy=0.7).rows
        ids = [part for name in options for part in (f"--{name}", options[name])]
        run("draw", "pool.csv", *DRAW, *ids, "-o", "again.csv", cwd=folder)
        written = pl.read_csv(folder / "again.csv")["id"].to_list()
        assert written == [f"row {row}" for row in rows]


def test_more_labels_later_keep_the_first(drawn, run):
    folder, truth = drawn
    fill(folder / "to_label.csv", truth)
    first = pl.read_csv(folder / "to_label.csv")
    more = ("--for", "risk=10%", "--labels", 350, "--after", "to_label.csv")
    completed = run("draw", "pool.csv", *more, "-o", "more.csv", cwd=folder)
    assert completed.returncode == 0, completed.stderr
    rows = pl.read_csv(folder / "more.csv")
    assert len(rows) == 350
    assert rows["label"].null_count() == 150
    kept = rows.drop_nulls("label").join(first, on="id", suffix=" first")
    assert (kept["label"] == kept["label first"]).all()
    fill(folder / "more.csv", truth)
    gate = ("calibrate", "more.csv", "--risk", "10%", "-o", "gate.json")
    assert run(*gate, cwd=folder).returncode == 0


def test_a_file_that_was_not_drawn_so_is_refused_or_a_plain_sample(drawn, run):
    folder, truth = drawn
    fill(folder / "to_label.csv", truth)
    rows = pl.read_csv(folder / "to_label.csv", infer_schema_length=0)
    cases = {
        "fewer.csv": (rows[:150], "expected the 200 rows that were drawn"),
        "mixed.csv": (
            rows.with_columns(
                pl.when(pl.int_range(200) < 9)
                .then(pl.col("draw").str.replace('"seed":0', '"seed":5'))
                .otherwise("draw")
                .alias("draw")
            ),
            "rows of one draw",
        ),
        "torn.csv": (
            rows.with_columns(pl.col("draw").str.slice(0, 60)),
            "what trustdoctor draw wrote",
        ),
    }
    for name, (table, match) in cases.items():
        table.write_csv(folder / name)
        completed = run("calibrate", name, "--risk", "10%", "-o", "g.json", cwd=folder)
        assert completed.returncode == 2, completed.stdout
        assert match in completed.stderr
        assert completed.stderr.count("\n") == 1
        assert not (folder / "g.json").exists()
    plain = rows.with_columns(pl.lit("home win").alias("draw"))
    plain.write_csv(folder / "plain.csv")
    made = run("calibrate", "plain.csv", "--risk", "3%", "-o", "g.json", cwd=folder)
    assert made.returncode == 0, made.stderr
    assert td.Gate.load(folder / "g.json").certificate.drawn_share == 1


def test_rows_for_a_shortlist(drawn, run):
    folder, _ = drawn
    gate = td.Gate(-1.0, "alpha", classes=4)
    gate.save(folder / "gate.json")
    options = ("--gate", "gate.json", "--labels", 120, "-o", "rejected.csv")
    completed = run("draw", "pool.csv", *options, cwd=folder)
    assert completed.returncode == 0, completed.stderr
    rejected = td.read(folder / "rejected.csv")
    assert gate.screen(rejected).review.all()
    assert "draw" not in pl.read_csv(folder / "rejected.csv").columns


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--labels", 10), "--for TARGET=RATE, such as risk=5%, or --gate"),
        (("--for", "risk", "--labels", 10), "--for as TARGET=RATE"),
        (("--for", "beauty=5%", "--labels", 10), "--for as TARGET=RATE"),
        (("--for", "risk=5", "--labels", 10), "--for"),
        (("--for", "risk=5%", "--labels", 99999), "expected at most"),
        (("--for", "risk=5%", "--labels", 10, "--after", "pool.csv"), "not written by"),
        (("--for", "risk=5%", "--labels", 10, "--accuracy", "2"), "accuracy"),
    ],
)
def test_mistakes_end_in_one_line(drawn, run, options, match):
    folder, _ = drawn
    completed = run("draw", "pool.csv", *options, "-o", "out.csv", cwd=folder)
    assert completed.returncode == 2
    assert match in completed.stderr
    assert completed.stderr.count("\n") == 1
    assert not (folder / "out.csv").exists()
