"""The command that watches a gate: check."""

import json
import re

import numpy as np
import polars as pl
import pytest

import trustdoctor as td

N = 400


def table(n=N, *, seed=1, name="row", labels=True):
    """Return rows of a model whose probabilities are right."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 3))
    probs = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    truth = (z + rng.gumbel(size=z.shape)).argmax(1)
    columns = {"id": [f"{name}-{i}" for i in range(n)]}
    columns |= {f"prob_{j}": probs[:, j] for j in range(3)}
    return pl.DataFrame(columns | ({"label": truth} if labels else {}))


@pytest.fixture
def place(tmp_path):
    """A folder with a gate, labelled rows, and the same rows without labels."""
    rows = table(2000, seed=0)
    p = td.Predictions.from_probs(
        rows.select("prob_0", "prob_1", "prob_2").to_numpy(), rows["label"].to_numpy()
    )
    td.calibrate(p, frr=0.1).save(tmp_path / "gate.json")
    rows.write_csv(tmp_path / "calibration.csv")
    table().write_csv(tmp_path / "rows.csv")
    table(labels=False).write_csv(tmp_path / "bare.csv")
    return tmp_path


@pytest.fixture
def check(place, run):
    """The command on a file of the folder, with its gate and a state."""

    def check(name, *more, state="state.json"):
        arguments = ("--gate", place / "gate.json", "--state", place / state)
        return run("check", place / name, *arguments, *more)

    return check


def load(place, state="state.json"):
    return td.Watch.load(place / state, td.Gate.load(place / "gate.json"))


def snapshot(place):
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize("state", ["state.json", "state.db"])
def test_rows_add_up_in_the_state(state, check, place):
    for n in (N, 2 * N):
        completed = check("rows.csv", state=state)
        assert completed.returncode == 0, completed.stderr
        assert "nothing to report" in completed.stdout
        assert load(place, state).tests["accepted"].n == n
    assert completed.stderr == ""


def test_check_accepts_late_and_incomplete_labels(check, place):
    rows = pl.read_csv(place / "rows.csv")
    half = pl.when(pl.int_range(N) % 2 == 0).then("label").alias("label")
    rows.with_columns(half).write_csv(place / "half.csv")
    assert check("half.csv").returncode == 0
    first_n = load(place).tests["frr"].n
    assert 0 < first_n < N
    assert check("rows.csv", "--late").returncode == 0
    assert load(place).tests["accepted"].n == N
    assert load(place).tests["frr"].n > first_n
    rows.with_columns(pl.lit("cat").alias("label")).write_csv(place / "bad.csv")
    completed = check("bad.csv")
    assert completed.returncode == 2
    assert re.search(r"bad\.csv: .*'cat' at row 0", completed.stderr)
    assert check("bare.csv").returncode == 0
    completed = check("bare.csv", "--late")
    assert completed.returncode == 2
    assert "--late needs labels" in completed.stderr
    completed = check("rows.csv", "--level", 0.5)
    assert completed.returncode == 2
    assert "started with level 0.1" in completed.stderr


def test_groups_of_classes_are_watched(place, run, check):
    command = ("calibrate", place / "calibration.csv", "--frr", 0.1, "--per-class")
    assert run(*command, "-o", place / "gate.json").returncode == 0
    completed = check("rows.csv")
    assert completed.returncode == 0, completed.stderr
    assert "worst of 3 groups" in completed.stdout


@pytest.mark.parametrize("quiet", [(), ("--quiet",)], ids=str)
def test_an_alarm_is_exit_code_1_and_the_state_is_kept(quiet, check, place):
    flat = [pl.col(f"prob_{i}") / 10 + 0.3 for i in range(3)]
    pl.read_csv(place / "rows.csv").with_columns(flat).write_csv(place / "worse.csv")
    completed = check("worse.csv", *quiet)
    assert completed.returncode == 1
    assert completed.stderr == ""
    assert ("the promise no longer holds" in completed.stdout) == (not quiet)
    assert bool(completed.stdout) == (not quiet)
    assert load(place).alarm
    assert check("rows.csv", *quiet).returncode == 1  # an alarm stays one


def test_json_on_standard_output_is_all_there_is(check, place):
    completed = check("rows.csv", "--json", "-")
    content = json.loads(completed.stdout, parse_constant=pytest.fail)
    assert completed.stderr == ""
    assert (content["trustdoctor"], content["schema"]) == ("check", 2)
    assert content["alarm"] is False
    assert content["tests"]["frr"]["verdict"] == "holds"
    assert content["rows"] == content["last"]["rows"] == N
    document = load(place).to_dict()
    assert {name: content[name] for name in document} == document
    completed = check("rows.csv", "--json", place / "out.json", "--quiet")
    assert completed.stdout == ""
    assert json.loads((place / "out.json").read_text())["rows"] == 2 * N


def test_the_history_is_written_as_a_page(check, place):
    for _ in range(2):
        completed = check("rows.csv", "--html", place / "watch.html")
        assert completed.returncode == 0, completed.stderr
    assert "watch.html" in completed.stdout
    assert "<html" in (place / "watch.html").read_text()


def test_folders_and_patterns_are_one_update(check, place):
    folder = place / "parts"
    folder.mkdir()
    rows = pl.read_csv(place / "rows.csv")
    for at in range(3):
        rows[at::3].write_csv(folder / f"{at}.csv")
    assert check("parts").returncode == 0
    assert check("parts/*.csv", state="other.json").returncode == 0
    for state in ("state.json", "other.json"):
        watch = load(place, state)
        assert watch.totals.rows == N
        assert len(watch.history) == 1


def test_with_ids_each_row_counts_once(check, place):
    ids = ("--ids", "id")
    for name in ("bare.csv", "bare.csv", "rows.csv", "rows.csv"):
        completed = check(name, *ids, state="state.db")
        assert completed.returncode == 0, completed.stderr
    watch = load(place, "state.db")
    assert watch.totals.rows == watch.totals.labels == N
    assert "400 rows were counted before, and not again" in completed.stdout


def test_with_a_batch_a_second_delivery_is_not_counted(check, place):
    for name in ("monday", "monday", "tuesday"):
        assert check("rows.csv", "--batch", name).returncode == 0
    watch = load(place)
    assert watch.totals.rows == 2 * N
    assert watch.history["batch"].to_list() == ["monday", "monday", "tuesday"]


def test_labels_may_come_in_a_separate_table(check, place):
    rows = pl.read_csv(place / "rows.csv")
    rows.select("id", "label").write_csv(place / "truth.csv")
    ids = ("--ids", "id")
    assert check("bare.csv", *ids).returncode == 0
    assert load(place).totals.labels == 0
    completed = check("bare.csv", *ids, "--truth", place / "truth.csv")
    assert completed.returncode == 0, completed.stderr
    assert load(place).totals.rows == load(place).totals.labels == N


@pytest.mark.parametrize("state", ["state.json", "state.db"])
def test_rows_are_drawn_reviewed_and_counted(state, check, place):
    """Draw; people fill the column; the same file with their labels counts them."""
    ids, drawn = ("--ids", "id"), place / "review.csv"
    rates = ("--review-rejected", 1, "--review-accepted", "20%")
    completed = check("bare.csv", *ids, *rates, "--draw", drawn, state=state)
    assert completed.returncode == 0, completed.stderr
    assert "review.csv" in completed.stdout
    drawn_rows = pl.read_csv(drawn)
    assert drawn_rows["label"].is_null().all()
    gate = td.Gate.load(place / "gate.json")
    accepted = gate.screen(td.read(place / "bare.csv")).accepted
    assert (~drawn_rows["accepted"]).sum() == (~accepted).sum()
    assert 0.1 < drawn_rows["accepted"].sum() / accepted.sum() < 0.3
    watch = load(place, state)
    assert len(watch.queue) == len(drawn_rows)
    truth = pl.read_csv(place / "rows.csv").select("id", "label")
    drawn_rows.drop("label").join(truth, on="id").write_csv(drawn)
    completed = check("bare.csv", *ids, "--truth", drawn, state=state)
    assert completed.returncode == 0, completed.stderr
    watch = load(place, state)
    assert len(watch.queue) == 0
    assert watch.totals.rows == N
    assert watch.totals.labels == len(drawn_rows)
    assert watch.verdict("frr") == "holds"
    at_once = gate.watch(review={"rejected": 1.0, "accepted": 0.2})
    p = td.read(place / "rows.csv")
    mask = np.isin(pl.read_csv(place / "rows.csv")["id"], drawn_rows["id"])
    at_once.update(p, reviewed=mask)
    expected = at_once.tests["frr"]
    assert watch.tests["frr"].evidence == pytest.approx(expected.evidence)
    assert watch.tests["frr"].estimate() == pytest.approx(expected.estimate())


def test_the_file_that_people_filled_is_enough(check, place):
    """A label, a question mark where nobody can say, and one that is still to come."""
    drawn = place / "review.csv"
    rates = ("--ids", "id", "--review-accepted", 0.2, "--draw", drawn)
    assert check("bare.csv", *rates).returncode == 0
    drawn_rows = pl.read_csv(drawn)
    truth = pl.read_csv(place / "rows.csv").select("id", pl.col("label").cast(str))
    filled = drawn_rows.drop("label").join(truth, on="id", maintain_order="left")
    label = pl.Series("label", ["?", None, *filled["label"][2:]])
    filled.with_columns(label).write_csv(drawn)
    for _ in range(2):  # a retry changes nothing
        completed = check("review.csv", "--late")
        assert completed.returncode == 0, completed.stderr
        watch = load(place)
        assert len(watch.queue) == 1
        assert watch.totals.labels == len(drawn_rows) - 2
        assert watch.totals.unresolved == 1
    filled.with_columns(pl.lit("cat").alias("label")).write_csv(drawn)
    before = snapshot(place)
    completed = check("review.csv", "--late")
    assert completed.returncode == 2
    assert "'cat' at row 0" in completed.stderr
    assert snapshot(place) == before
    filled.write_csv(drawn)
    assert check("review.csv", "--late").returncode == 0
    assert len(load(place).queue) == 0


def test_a_retry_draws_the_same_rows_and_keeps_the_labels_filled_in(check, place):
    arguments = (
        "--ids",
        "id",
        "--review-accepted",
        0.2,
        "--draw",
        place / "review.csv",
    )
    assert check("bare.csv", *arguments).returncode == 0
    filled = pl.read_csv(place / "review.csv").with_columns(label=pl.lit(1))
    filled.write_csv(place / "review.csv")
    completed = check("bare.csv", *arguments)
    assert completed.returncode == 0, completed.stderr
    assert pl.read_csv(place / "review.csv")["label"].to_list() == [1] * len(filled)
    table(name="other", labels=False).write_csv(place / "other.csv")
    before = snapshot(place)
    completed = check("other.csv", *arguments)
    assert completed.returncode == 2
    assert "has other rows to review" in completed.stderr
    assert snapshot(place) == before


def test_a_column_may_say_which_rows_were_reviewed(check, place):
    rng = np.random.default_rng(0)
    rows = pl.read_csv(place / "rows.csv")
    accepted = (
        td.Gate.load(place / "gate.json").screen(td.read(place / "rows.csv")).accepted
    )
    mask = pl.Series(rng.random(N) < np.where(accepted, 0.2, 1.0))
    arguments = ("--ids", "id", "--review-accepted", 0.2, "--reviewed", "asked")
    for at, column in enumerate(
        (
            mask,
            mask.cast(int),
            mask.cast(float),
            mask.replace_strict({True: "Yes", False: "no"}),
        )
    ):
        rows.with_columns(asked=column).write_csv(place / "asked.csv")
        completed = check("asked.csv", *arguments, state=f"{at}.json")
        assert completed.returncode == 0, completed.stderr
        watch = load(place, f"{at}.json")
        assert watch.totals.labels == mask.sum()
        assert watch.totals.ignored_labels == N - mask.sum()
        assert watch.verdict("frr") == "holds"


def test_rejected_rows_alone_are_inconclusive(check, place):
    accepted = (
        td.Gate.load(place / "gate.json").screen(td.read(place / "rows.csv")).accepted
    )
    rows = pl.read_csv(place / "rows.csv")
    label = pl.when(pl.Series(~accepted)).then("label").alias("label")
    rows.with_columns(label).write_csv(place / "some.csv")
    for more in ((), ("--review-rejected", 1), ("--review-accepted", 0)):
        completed = check("some.csv", *more, state=f"{len(more)}{more[:1]}.json")
        assert completed.returncode == 0
        assert "frr: cannot tell" in completed.stdout
        assert "--review-accepted 0.02" in completed.stdout


def test_a_reference_adds_what_the_model_expects(check, place):
    completed = check(
        "bare.csv", "--reference", place / "calibration.csv", "--json", "-"
    )
    content = json.loads(completed.stdout)
    expected = td.expected(
        td.read(place / "bare.csv"), reference=td.read(place / "calibration.csv")
    )
    assert content["expected"]["accuracy"]["value"] == expected.accuracy.value
    assert content["expected"]["guarantee"] is False
    completed = check("bare.csv", "--reference", place / "calibration.csv")
    assert "no guarantee" in completed.stdout


def test_labels_may_be_wrong(check, place):
    completed = check("rows.csv", "--label-noise", "2%", "--json", place / "said.json")
    assert completed.returncode == 0
    assert "Up to 2% of the labels may be wrong" in completed.stdout
    assert json.loads((place / "said.json").read_text())["label_noise"] == 0.02
    assert check("rows.csv").returncode == 0
    assert load(place).label_noise == 0.02


MISTAKES = {
    "--level": ("0", "expected --level"),
    "--level ": ("x", "expected --level"),
    "--review-accepted": ("2", "Did you mean 0.02 or 2%"),
    "--review-rejected": ("-0.5", "expected --review-rejected"),
    "--review-accepted ": ("x", "expected --review-accepted"),
    "--label-noise": ("50%", "expected label_noise from 0 to below 0.5"),
    "--label-noise ": ("2", "Did you mean 0.02 or 2%"),
    "--label-noise  ": ("2%", "started with label_noise 0, got 0.02"),
    "--deadline": ("0", "deadline"),
    "--deadline ": ("nan", "deadline"),
    "--deadline  ": ("1e300", "deadline"),
    "--deadline   ": ("soon", "deadline"),
    "--reviewed": ("nobody", "has no 'nobody'"),
    "--reviewed ": ("prob_0", "expected yes or no"),
    "--ids": ("nobody", "nobody"),
    "--batch": ("", "the name of a batch"),
    "--draw": ("review.csv", "--ids NAME"),
    "--reference": ("bare.csv", "labels"),
    "--truth": ("rows.csv", "--ids NAME"),
    "--html": ("no/where.html", "there is no folder"),
    "--json": ("no/where.json", "there is no folder"),
    "--html ": ("rows.csv", "is the input itself"),
    "--json ": ("gate.json", "is the input itself"),
    "--html  ": ("state.json", "two outputs go to one file"),
}


@pytest.mark.parametrize("option", MISTAKES, ids=repr)
@pytest.mark.sampled(3)
def test_a_mistake_is_exit_code_2_and_changes_nothing(
    option, check, place, monkeypatch
):
    monkeypatch.chdir(place)
    assert check("rows.csv").returncode == 0
    before = snapshot(place)
    value, match = MISTAKES[option]
    completed = check("rows.csv", option.strip(), value)
    assert completed.returncode == 2
    assert match in " ".join(completed.stderr.replace("│", " ").split())
    assert completed.stdout == ""
    assert snapshot(place) == before


@pytest.mark.parametrize("more", ["--late", "--reviewed"])
def test_drawing_says_itself_which_rows_are_reviewed(more, check, place):
    value = ("prob_0",) if more == "--reviewed" else ()
    arguments = ("--ids", "id", "--draw", place / "review.csv", more, *value)
    completed = check("rows.csv", *arguments)
    assert completed.returncode == 2
    assert "Leave --reviewed and --late out" in completed.stderr


def test_drawing_needs_rates_and_a_place(check, place):
    completed = check("bare.csv", "--ids", "id", "--draw", place / "review.csv")
    assert completed.returncode == 2
    assert "review rates" in completed.stderr
    rates = ("--ids", "id", "--review-accepted", 0.2)
    for path, match in (
        (place / "no" / "review.csv", "there is no folder"),
        (place / "state.json", "two outputs go to one file"),
        (place / "bare.csv", "is the input itself"),
        (place / "gate.json", "is the input itself"),
    ):
        before = snapshot(place)
        completed = check("bare.csv", *rates, "--draw", path)
        assert completed.returncode == 2
        assert match in completed.stderr
        assert snapshot(place) == before


@pytest.mark.parametrize("state", ["state.json", "state.db"])
def test_the_state_of_another_gate_is_refused(state, check, place, run):
    assert check("rows.csv", state=state).returncode == 0
    command = ("calibrate", place / "calibration.csv", "--trr", "50%")
    assert run(*command, "-o", place / "gate.json").returncode == 0
    before = (place / state).read_bytes()
    completed = check("rows.csv", state=state)
    assert completed.returncode == 2
    assert "belongs to another gate" in completed.stderr
    assert (place / state).read_bytes() == before


@pytest.mark.parametrize("text", ["", "{}", "x", "SQLite format 3\0"])
@pytest.mark.parametrize("state", ["state.json", "state.db"])
def test_an_invalid_state_is_refused_and_a_missing_one_is_begun(
    text, state, check, place
):
    (place / state).write_text(text)
    completed = check("rows.csv", state=state)
    begun = not text and state == "state.db"
    assert completed.returncode == (0 if begun else 2)
    assert completed.stderr.count("\n") == (not begun)


def test_a_full_disk_leaves_the_state_as_it_was(check, place, request):
    before = snapshot(place)
    request.getfixturevalue("full_disk")  # after the files were written
    for state in ("state.json", "state.db"):
        ids = ("--ids", "id")
        completed = check("rows.csv", *ids, state=state)
        assert completed.returncode == 2
        assert "cannot write" in completed.stderr
        assert completed.stderr.count("\n") == 1
    after = snapshot(place)
    assert {name: after[name] for name in before} == before
    assert not after.get("state.json")
    assert not after.get("state.db", b"").strip(b"\0")


def test_a_gate_that_decides_nothing_has_nothing_to_watch(check, place, run):
    command = ("calibrate", place / "calibration.csv", "--risk", "0.1%")
    completed = run(*command, "--allow-trivial", "-o", place / "gate.json")
    assert completed.returncode == 0, completed.stderr
    assert td.Gate.load(place / "gate.json").state == "reject-all"
    completed = check("rows.csv")
    assert completed.returncode == 0
    assert "nothing to watch" in completed.stdout
    content = json.loads(check("rows.csv", "--json", "-").stdout)
    assert content["tests"] == {}
    assert content["alarm"] is False


def test_no_option_speaks_of_code(check, place):
    """Refusals of the command line name its options, not arguments of the library."""
    assert (
        check("rows.csv", "--review-accepted", 0.2, state="rates.json").returncode == 0
    )
    for completed in (
        check("rows.csv", "--deadline", 0),
        check("bare.csv", "--ids", "id", "--draw", place / "review.csv"),
        check("rows.csv", "--late", state="rates.json"),
    ):
        assert completed.returncode == 2
        assert "--" in completed.stderr
        assert not re.search(r"timedelta|watch\(", completed.stderr)


def test_the_words_are_for_people(check):
    """Nothing of evidence or logarithms; every line is whole."""
    completed = check("rows.csv", "--ids", "id")
    for word in ("evidence", "nan", "None", "log", "null", "e-process"):
        assert word not in completed.stdout
    assert all(len(line) < 300 for line in completed.stdout.splitlines())
