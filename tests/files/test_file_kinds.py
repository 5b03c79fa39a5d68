"""The files that people have, each against the plain file of the same rows."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from file_kinds import (
    ANSWERS,
    IN_MEMORY,
    KINDS,
    NAMES,
    ROWS,
    STREAMED,
    Kind,
    by_name,
    held_out,
    percentages,
    rounded,
    unlabelled,
)

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.files import Columns, find_source

HOW = {"in memory": IN_MEMORY, "streamed": STREAMED}

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Write the plain file of the same rows, once each: a kind to a path."""
    folder, paths = tmp_path_factory.mktemp("plain"), {}

    def write(kind):
        content = kind.plain().write_csv()
        if content not in paths:
            paths[content] = folder / f"{len(paths)}.csv"
            paths[content].write_text(content)
        return paths[content]

    return write


@pytest.fixture(scope="module")
def results(plain):
    """What the verbs find in plain files, once for each."""
    results_by_path = {}

    def find(kind):
        key = plain(kind)
        if key not in results_by_path:
            results_by_path[key] = verbs(find_source(key))[:3]
        return results_by_path[key]

    return find


def verbs(source, folder=None):
    """Run the verbs that read in batches; return what they give, and the gate."""
    evaluation = engines.diagnose(source, scores=["alpha"], means=STREAMED)
    gate = engines.calibrate_files(source, score="alpha", frr=0.1, means=STREAMED)
    target = None if folder is None else folder / "decided.parquet"
    outcome = engines.screen(source, gate, target, means=STREAMED)
    unnamed = replace(gate, classes=None)
    return evaluation.to_json(), unnamed.to_json(), outcome, gate


def place(kind, form, folder):
    if form == "alone":
        return kind.alone(folder)
    half_files = kind.halves(folder / "parts")
    return half_files if form == "folder" else f"{folder}/parts/*{kind.suffix}"


def same(predictions, expected):
    assert predictions.from_probabilities == expected.from_probabilities
    assert predictions.logits.tobytes() == expected.logits.tobytes()
    assert predictions.labels.tolist() == expected.labels.tolist()
    assert predictions.errors.tolist() == expected.errors.tolist()


def test_the_models_predictions_are_worth_a_look():
    for classes in (2, 4):
        rows = held_out(classes)
        wrong = (rows.probs.argmax(1) != rows.labels).mean()
        assert 0.05 < wrong < 0.3
        assert set(rows.labels) == set(range(classes))


@pytest.mark.parametrize("form", ["alone", "folder", "pattern"])
@every_kind
@pytest.mark.sampled(3)
def test_every_kind_is_read_as_the_plain_file(kind, form, plain, tmp_path):
    predictions = td.read(place(kind, form, tmp_path), **kind.options)
    expected = td.read(plain(kind))
    same(predictions, expected)
    assert predictions.class_names == kind.names
    assert td.alpha(predictions).tobytes() == td.alpha(expected).tobytes()


@pytest.mark.sampled(3)
@every_kind
def test_every_kind_is_diagnosed_calibrated_and_screened_in_batches(
    kind, results, tmp_path
):
    source = kind.source(kind.halves(tmp_path / "in"))
    *streamed, gate = verbs(source, tmp_path)
    assert tuple(streamed) == results(kind)
    p = source.read()
    assert gate.classes == (kind.names or p.n_classes)
    decisions = gate.screen(p)
    table = pl.read_parquet(tmp_path / "decided.parquet")
    assert table["score"].to_numpy().tobytes() == decisions.doubts.tobytes()
    assert table["accepted"].to_list() == decisions.accepted.tolist()
    assert table["predicted"].to_list() == decisions.predicted.tolist()


def test_streaming_meets_several_batches(tmp_path, monkeypatch):
    met = []
    update = td.Tally.update
    monkeypatch.setattr(
        td.Tally, "update", lambda self, p: (met.append(len(p)), update(self, p))
    )
    kind = KINDS["columns by name"]
    engines.diagnose(kind.source(kind.halves(tmp_path)), means=STREAMED)
    assert len(met) > 1
    assert sum(met) == ROWS


def log(probs):
    with np.errstate(divide="ignore"):
        return np.log(probs)


def test_percentages_are_divided_as_numpy_does(tmp_path):
    kind = KINDS["percentages"]
    predictions = td.read(kind.alone(tmp_path), **kind.options)
    expected = log(percentages(held_out().probs) / 100)
    assert predictions.logits.tobytes() == expected.tobytes()


def normalised_alpha(probs):
    """DOCTOR's log odds, of rows that are divided by their sum."""
    q = probs / probs.sum(1, keepdims=True)
    g = (q**2).sum(1)
    return log((1 - g) / g)


@pytest.mark.parametrize("means_name", HOW)
@pytest.mark.parametrize("digits", [2, 3])
def test_rounded_rows_are_divided_by_their_sum_with_a_note(
    digits, means_name, tmp_path
):
    probs = np.round(held_out().probs, digits)
    kind = rounded(digits)
    path = kind.alone(tmp_path)
    p = td.read(path)
    assert p.logits.tobytes() == log(probs).tobytes()
    expected = normalised_alpha(probs)
    certain = probs.max(1) == probs.sum(1)
    assert np.allclose(td.alpha(p)[~certain], expected[~certain], rtol=1e-9)
    miss = np.abs(probs.sum(1) - 1).max()
    evaluation = engines.diagnose(
        find_source(path), scores=["alpha"], means=HOW[means_name]
    )
    said_so = [line for line in evaluation.warnings if "rounded" in line]
    assert bool(said_so) == (miss > 1e-3)
    if said_so:
        assert f"{miss:.2g}" in said_so[0]


def test_rounding_excuses_no_more_than_it_can_explain():
    ten = np.full((1, 20), 0.05)
    ten[0, 0] = 0.09  # sums to 1.04: twenty numbers of 2 decimals may miss by 0.1
    assert td.Predictions.from_probs(ten).sum_error == pytest.approx(0.04)
    far = ten.copy()
    far[0, 1] = 0.07
    with pytest.raises(td.errors.InputError, match="more decimals"):
        td.Predictions.from_probs(far)
    exact = ten + np.linspace(-1e-4, 1e-4, 20)  # many decimals explain nothing
    with pytest.raises(td.errors.InputError, match=r"sums to 1\.04"):
        td.Predictions.from_probs(exact)


def test_four_decimals_of_a_thousand_classes_may_miss_more():
    """Half a unit of the fourth decimal for each class is 0.05."""
    probs = np.full((1, 1000), 0.00004)
    probs[0, 1] = 0.1234
    probs[0, 0] += 1 - probs.sum()
    rounded_probs = np.round(probs, 4)
    assert rounded_probs.sum() == pytest.approx(0.96, abs=1e-3)
    assert td.Predictions.from_probs(rounded_probs).sum_error == pytest.approx(
        0.04, abs=1e-3
    )


# Labels that are missing on some rows.


def drawn(share=0.4, seed=1):
    return np.random.default_rng(seed).random(ROWS) < share


def missing_kind(rows, blank=None, **changed):
    def table():
        table_with_gaps = unlabelled(by_name("prob_"), rows)
        return (
            table_with_gaps
            if blank is None
            else table_with_gaps.with_columns(pl.col("label").fill_null(blank))
        )

    return Kind(table, **changed)


@pytest.mark.parametrize("blank", [None, "", "NA", "nan", "None"])
def test_labels_may_be_missing_on_some_rows(blank, tmp_path):
    rows = drawn()
    p = td.read(missing_kind(rows, blank).alone(tmp_path))
    assert p.has_label.tolist() == (~rows).tolist()
    assert p.labels.tolist() == np.where(rows, -1, held_out().labels).tolist()
    with_labels = p.labelled("accuracy")
    assert with_labels.labels.tolist() == held_out().labels[~rows].tolist()
    with pytest.raises(td.errors.LabelsMissingError, match="have none"):
        _ = p.errors


@pytest.mark.parametrize("means_name", HOW)
@pytest.mark.parametrize("order", ["mixed", "a part without any"])
def test_rows_without_labels_have_no_part_in_rates_and_promises(
    means_name, order, tmp_path
):
    rows = drawn() if order == "mixed" else np.arange(ROWS) >= ROWS // 2
    source = find_source(missing_kind(rows).halves(tmp_path / "in"))
    (tmp_path / "known").mkdir()
    labelled_path = tmp_path / "known" / "p.csv"
    by_name("prob_").filter(pl.Series(~rows)).write_csv(labelled_path)
    only = find_source(labelled_path)
    means = HOW[means_name]
    evaluation = engines.diagnose(source, scores=["alpha"], means=means)
    alone = engines.diagnose(only, scores=["alpha"], means=means)
    assert evaluation.n == (~rows).sum()
    assert evaluation.scores == alone.scores
    assert evaluation.calibration == alone.calibration
    count = int(rows.sum())
    assert any(
        f"{count} of {ROWS} rows have no label" in w for w in evaluation.warnings
    )
    gate = engines.calibrate_files(source, trr=0.9, means=means)
    same_gate = engines.calibrate_files(only, trr=0.9, means=means)
    assert gate.threshold == same_gate.threshold
    assert gate.certificate.n == same_gate.certificate.n == (~rows).sum()
    assert gate.certificate.observed == same_gate.certificate.observed
    notes = " ".join(gate.certificate.notes)
    assert "for rows like the labelled ones" in notes
    outcome = engines.screen(source, gate, tmp_path / "out.csv", means=means)
    assert outcome.rows == ROWS
    assert outcome.counts.n == (~rows).sum()
    decided = pl.read_csv(tmp_path / "out.csv")
    assert len(decided) == ROWS
    assert decided["accepted"].null_count() == 0


@pytest.mark.parametrize("means_name", HOW)
def test_labels_that_were_not_drawn_at_random_are_reported(means_name, tmp_path):
    """Whoever labels only what looks easy gets a promise for easy rows."""
    from scipy.stats import ks_2samp

    doubts = td.alpha(td.Predictions.from_probs(held_out().probs))
    for name, rows in (("chance", drawn()), ("easy", doubts > np.median(doubts))):
        source = find_source(missing_kind(rows).alone(tmp_path / name))
        gate = engines.calibrate_files(source, frr=0.1, means=HOW[means_name])
        careful = [n for n in gate.certificate.notes if n.startswith("Careful")]
        differ = ks_2samp(doubts[rows], doubts[~rows]).pvalue < 1e-3
        assert bool(careful) == differ == (name == "easy")


def test_a_promise_without_labels_takes_every_row(tmp_path):
    rows = drawn()
    source = find_source(missing_kind(rows).alone(tmp_path), Columns(need_labels=False))
    for means in HOW.values():
        gate = engines.calibrate_files(source, coverage=0.8, means=means)
        assert gate.certificate.n == ROWS


def test_checks_and_comparisons_leave_rows_without_labels_out(tmp_path):
    rows = drawn(0.2)
    p = td.read(missing_kind(rows).alone(tmp_path))
    gate = td.calibrate(p, frr=0.1)
    watch = gate.watch().update(p)
    accepted = gate.screen(p).accepted
    assert watch.tests["accepted"].n == ROWS
    right = ~p.labelled("x").errors
    assert watch.tests["frr"].n == right.sum()
    assert watch.tests["frr"].counted == (~accepted[~rows] & right).sum()
    comparison = td.compare(p)
    assert comparison.to_json() == td.compare(p.labelled("x")).to_json()


# Labels from a separate table.


def truth_kind(ids=range(ROWS)):
    table = by_name("prob_").drop("label")
    return Kind(lambda: table.with_columns(id=pl.Series([f"r{i}" for i in ids])))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_come_by_id(suffix, tmp_path):
    order = np.random.default_rng(3).permutation(ROWS)[: ROWS - 10]
    truth = pl.DataFrame(
        {
            "id": [f"r{i}" for i in order],
            "label": [NAMES[held_out().labels[i]] for i in order],
        }
    )
    path = tmp_path / f"truth{suffix}"
    truth.write_csv(path) if suffix == ".csv" else truth.write_parquet(path)
    rows = truth_kind().halves(tmp_path / "in")
    p = td.read(rows, ids="id", truth=path)
    has_label = np.isin(np.arange(ROWS), order)
    assert p.labels.tolist() == np.where(has_label, held_out().labels, -1).tolist()
    source = find_source(rows, Columns(ids="id", truth=path))
    at_once, streamed = (
        engines.calibrate_files(source, threshold=-1.0, means=means)
        for means in HOW.values()
    )
    assert at_once.certificate.observed == streamed.certificate.observed


def test_the_truths_column_may_be_named(tmp_path):
    path = tmp_path / "truth.csv"
    labels = [NAMES[i] for i in held_out().labels]
    pl.DataFrame(
        {"id": [f"r{i}" for i in range(ROWS)], "y": labels, "who": "me"}
    ).write_csv(path)
    rows = truth_kind().alone(tmp_path)
    p = td.read(rows, ids="id", truth=path, labels="y")
    assert p.labels.tolist() == held_out().labels.tolist()


# The same through the command line, which reads at once what fits.


def commands(path, folder, options, score):
    """Return the arguments of every command; what they write goes into the folder."""
    gate = ["--gate", folder / "gate.json"]
    arguments = {
        "diagnose": ["--score", score, "--json", folder / "diagnose.json"],
        "calibrate": ["--score", score, "--frr", "0.1", "-o", gate[1]],
        "screen": [*gate, "-o", folder / "r.parquet", "--json", folder / "screen.json"],
        "check": [*gate, "--state", folder / "check.json"],
        "compare": ["--json", folder / "compare.json"],
    }
    return {
        verb: [verb, path, *options, "--quiet", *verb_options]
        for verb, verb_options in arguments.items()
    }


def run_all(run, path, folder, options, *, score="alpha", but=()):
    """Run every command, and return all that they wrote, but for classes' names."""
    folder.mkdir()
    for verb, arguments in commands(path, folder, options, score).items():
        if verb not in but:
            completed = run(*arguments)
            assert (completed.returncode, completed.stdout, completed.stderr) == (
                0,
                "",
                "",
            ), verb
    out = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    out["gate"].pop("classes", None)
    for errors in out["diagnose"]["least_doubtful_errors"].values():
        for error in errors:  # ids and classes have names, or none
            del error["id"], error["label"], error["predicted"]
    if "check" in out:  # when it was
        del out["check"]["history"][0]["time"]
    return out


@pytest.fixture(scope="module")
def plainly():
    """What commands found in plain files."""
    return {}


@pytest.mark.sampled(4)
@every_kind
def test_every_kind_through_every_command(kind, run, plain, plainly, tmp_path):
    key, path = plain(kind), kind.halves(tmp_path / "in")
    if key not in plainly:
        plainly[key] = run_all(run, key, tmp_path / "plain", [])
    but = () if kind.options else ("check", "compare")  # which read alike
    documents = run_all(run, path, tmp_path / "own", kind.arguments(tmp_path), but=but)
    assert len(documents) == 5 - len(but)
    assert documents == {verb: plainly[key][verb] for verb in documents}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ANSWERS.values(), ids=ANSWERS)
def test_every_kind_of_answers_through_every_command(kind, run, plainly, tmp_path):
    score = "doubt" if "doubt" in kind.options else "confidence"
    if score not in plainly:
        first = ANSWERS[f"{score} and correct"]
        path, options = first.alone(tmp_path / "first"), first.arguments(tmp_path)
        plainly[score] = run_all(run, path, tmp_path / "plain", options, score=score)
    path, options = kind.halves(tmp_path / "in"), kind.arguments(tmp_path)
    documents = run_all(run, path, tmp_path / "own", options, score=score)
    expected = plainly[score]
    assert set(documents) == set(expected)
    if kind.options.get("percent"):  # 100 p / 100 is not p to the last bit
        assert documents["diagnose"]["n_errors"] == expected["diagnose"]["n_errors"]
        assert documents["check"]["tests"] == expected["check"]["tests"]
    else:
        assert documents == expected


def test_missing_labels_are_counted_in_a_line_of_output(run, tmp_path):
    rows = drawn()
    path = missing_kind(rows).alone(tmp_path)
    line = f"{int(rows.sum())} of {ROWS} rows have no label"
    completed = run("diagnose", path, "--score", "alpha")
    assert completed.returncode == 0
    assert line in completed.stdout
    gate = tmp_path / "gate.json"
    completed = run("calibrate", path, "--frr", "0.1", "-o", gate)
    assert "for rows like the labelled ones" in completed.stdout
    completed = run("screen", path, "--gate", gate, "-o", tmp_path / "out.csv")
    assert completed.returncode == 0
    assert line in completed.stdout
    assert len(pl.read_csv(tmp_path / "out.csv")) == ROWS
