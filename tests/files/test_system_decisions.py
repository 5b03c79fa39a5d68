"""Files in which the system decides otherwise, or has no answer, in every verb."""

import json

import numpy as np
import polars as pl
import pytest
from file_kinds import (
    CHOICES,
    IN_MEMORY,
    STREAMED,
    responses,
    write_responses,
    write_truth,
)
from scipy.special import expit

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.errors import FileError, InputError
from trustdoctor.files import Columns, find_source, warn_of_answers

BINARY = {"probs": "p", "positive": "yes"}
STATED = {"confidence": "sure", "predicted": "answer", "labels": "label"}


def flat(completed):
    """What was printed, in one line."""
    assert completed.returncode == 0, completed.stderr
    return " ".join(completed.stdout.split())


@pytest.fixture
def binary(tmp_path):
    """A model that answers yes from 0.2 on, but for 30 rows without an answer."""
    rng = np.random.default_rng(0)
    p = expit(rng.normal(-1.5, 2, 3000))
    decisions = np.where(p >= 0.2, "yes", "no").astype(object)
    decisions[::100] = None
    table = pl.DataFrame(
        {
            "p": p,
            "decision": decisions.tolist(),
            "sex": rng.integers(0, 2, 3000),
            "label": np.where(rng.random(3000) < p, "yes", "no"),
        }
    )
    path = tmp_path / "binary.csv"
    table.write_csv(path)
    return path, table


@pytest.fixture
def answers(tmp_path):
    """Answers, of which 60 are missing, 40 with their confidence; and 5 bare ones."""
    rng = np.random.default_rng(0)
    sure = rng.random(2000).round(3).astype(object)
    predicted = np.where(rng.random(2000) < sure.astype(float), "a", "b").astype(object)
    predicted[:60], sure[:40], sure[60:65] = None, None, None
    labels = np.where(rng.random(2000) < 0.9, "a", "b")
    path = tmp_path / "answers.csv"
    columns = {"answer": predicted.tolist(), "sure": sure.tolist(), "label": labels}
    pl.DataFrame(columns).write_csv(path)
    return path


def test_a_cutoff_and_a_column_are_read(binary):
    path, table = binary
    cut = td.read(path, **BINARY, cutoff=0.2)
    yes = table["p"].to_numpy() >= 0.2
    assert np.array_equal(cut.predicted, yes.astype(int))
    named = td.read(path, **BINARY, predicted="decision")
    silent = table["decision"].is_null().to_numpy()
    assert np.array_equal(named.abstained, silent)
    assert np.array_equal(named.predicted[~silent], cut.predicted[~silent])
    beta = td.SCORES["beta"]
    assert np.array_equal(beta(named)[~silent], beta(cut)[~silent])
    frame = td.Predictions.from_frame(table, **BINARY, predicted="decision")
    assert np.array_equal(frame.predicted, named.predicted)


def test_percentages_are_cut_as_shares(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("p,label\n30,yes\n29.9,no\n")
    p = td.read(path, **BINARY, percent=True, cutoff=0.3)
    assert p.predicted_names.tolist() == ["yes", "no"]


@pytest.mark.parametrize("options", [{"cutoff": 0.2}, {"predicted": "decision"}])
def test_every_verb_judges_these_decisions(options, binary, tmp_path):
    """In memory and in batches."""
    path, _ = binary
    source = find_source(path, Columns(**BINARY, **options))
    p = source.read()
    assert source.scores == ["beta", "msp", "margin", "normalised_margin"]
    wrong, gates = int(p.errors.sum()), []
    for means in (IN_MEMORY, STREAMED):
        evaluation = engines.diagnose(source, means=means)
        assert (evaluation.n_errors, list(evaluation.scores)) == (
            wrong,
            ["beta", "msp"],
        )
        gates.append(engines.calibrate_files(source, risk=0.1, means=means))
        out = tmp_path / "out.csv"
        outcome = engines.screen(source, gates[0], out, means=means)
        assert outcome.counts.n_errors == wrong
        decided = pl.read_csv(out, infer_schema_length=None)
        assert np.array_equal(decided["predicted"].fill_null(""), p.predicted_names)
        assert np.array_equal(decided["accepted"], gates[0].screen(p).accepted)
        assert outcome.intake.unanswered == int(p.abstained.sum())
    assert {gate.score_name for gate in gates} == {"beta"}
    assert {gate.decided_by for gate in gates} == {p.decided_by}
    assert gates[0].threshold == pytest.approx(gates[1].threshold, abs=0.01)
    evaluation = td.compare(p)
    assert not {"alpha", "entropy", "gen"} & set(evaluation.scores)


def test_the_command_line_says_whose_decisions_are_judged(binary, run, tmp_path):
    path, _ = binary
    base, gate = (path, "--probs", "p", "--positive", "yes"), tmp_path / "gate.json"
    calibrated = run("calibrate", *base, "--cutoff", "20%", "--risk", "10%", "-o", gate)
    assert "reject where beta >" in calibrated.stdout
    assert "system's own (cutoff 0.2)" in flat(calibrated)
    screened = run("screen", *base, "--cutoff", "0.2", "--gate", gate)
    assert "system's own (cutoff 0.2)" in flat(screened)
    other = run("screen", *base, "--gate", gate)
    assert other.returncode == 2
    assert "Read the rows with --cutoff 0.2" in other.stderr
    alone = run("diagnose", *base, "--cutoff", "0.2", "--score", "alpha")
    assert (alone.returncode, "Choose beta, msp, margin" in alone.stderr) == (2, True)
    every = run("diagnose", *base, "--cutoff", "0.2", "--score", "all", "--html",
                tmp_path / "page.html")  # fmt: skip
    assert every.returncode == 0, every.stderr
    assert "--cutoff 0.2" in (tmp_path / "page.html").read_text()


def test_a_column_that_looks_like_the_systems_answer_is_named(binary, run):
    path, table = binary
    base = (path, "--probs", "p", "--positive", "yes")
    likeliest = np.where(table["p"] >= 0.5, "yes", "no")
    other = (table["decision"] != likeliest).sum()
    line = (
        f"The column 'decision' holds classes that differ from the most probable one "
        f"in {other} of 2,970 rows. If it is what the system answers, judge that: "
        "--predicted decision (or --cutoff 0.2)."
    )
    runs = [run("diagnose", *base, columns=500)]
    runs += [run("compare", *base, columns=500)]
    for completed in runs:
        assert line in flat(completed)
        assert "'sex'" not in completed.stdout
    for options in ({"cutoff": 0.2}, {"predicted": "decision"}):
        assert not warn_of_answers(find_source(path, Columns(**BINARY, **options)))


def test_columns_that_are_not_answers_are_not_named(tmp_path):
    """Those that agree, second labels, noise, and what an earlier run decided."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(4, 0.3), 2000)
    labels = np.array([rng.choice(4, p=row) for row in probs])
    annotator = np.where(rng.random(2000) < 0.95, labels, 0)
    moved = np.where(rng.random(2000) < 0.95, probs.argmax(1), 0)
    table = pl.DataFrame({f"prob_{k}": probs[:, k] for k in range(4)})
    table = table.with_columns(
        pl.Series("label", labels),
        pl.Series("same", probs.argmax(1)),
        pl.Series("annotator", annotator),
        pl.Series("fold", rng.integers(0, 4, 2000)),
        pl.Series("correct", labels == probs.argmax(1)),
        pl.Series("answered", moved),
        pl.Series("y_pred", rng.integers(0, 4, 2000)),
    )
    table.write_csv(tmp_path / "rows.csv")
    warnings = warn_of_answers(find_source(tmp_path / "rows.csv"))
    assert [line.split("'")[1] for line in warnings] == ["answered", "y_pred"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"cutoff": 0.2, "predicted": "decision"}, "does not go with --predicted"),
        ({"cutoff": 2}, "between 0 and 1"),
        ({"cutoff": 0.2, "confidence": "p"}, "--confidence or --doubt"),
        ({"one_vs_rest": True, "logits": "p"}, "goes with --probs"),
        ({"predicted": "decision", "choices": "a,b"}, "finds the answers itself"),
        ({"correct": "decision"}, "--correct goes with --confidence"),
    ],
)
def test_columns_that_say_two_things_are_refused(options, match):
    with pytest.raises(InputError, match=match):
        Columns(**options)


def test_a_decision_that_is_not_a_class_is_refused(binary):
    path, _ = binary
    with pytest.raises(FileError, match="predictions out of the classes") as refused:
        td.read(path, **BINARY, predicted="p")
    assert "label" not in str(refused.value).split("csv: ")[1]


def test_the_layout_of_doctor_names_the_way_out(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("0,1,label,true_label\n0.7,0.3,1,1\n0.9,0.1,0,0\n")
    with pytest.raises(FileError, match="--probs 0,1 --predicted label --labels true"):
        td.read(path)
    p = td.read(path, probs="0,1", predicted="label", labels="true_label")
    assert p.predicted.tolist() == [1, 0]
    assert not p.errors.any()


# Rows without an answer.


@pytest.mark.parametrize("means", [IN_MEMORY, STREAMED], ids=["whole", "batches"])
def test_rows_without_an_answer_stay_in_every_count(means, answers, tmp_path):
    source = find_source(answers, Columns(**STATED))
    p = source.read()
    assert (p.abstained.sum(), p.always_rejected.sum()) == (60, 65)
    assert p.errors[:60].all()
    assert not p.errors[60:65].all()  # an answer without a confidence may be right
    evaluation = engines.diagnose(source, means=means)
    assert evaluation.n == 2000
    assert evaluation.warnings[0].startswith("60 of 2,000 rows have no answer")
    assert evaluation.warnings[1].startswith("5 of 2,000 answers have no confidence")
    gate = engines.calibrate_files(source, risk=0.2, means=means)
    assert gate.certificate.n == 2000
    outcome = engines.screen(source, gate, tmp_path / "out.csv", means=means)
    assert (outcome.rows, outcome.counts.n) == (2000, 2000)
    assert (outcome.intake.unanswered, outcome.intake.without_confidence) == (60, 5)
    decided = pl.read_csv(tmp_path / "out.csv", infer_schema_length=None)
    assert not decided["accepted"][:65].any()
    assert decided["predicted"][:60].fill_null("").to_list() == [""] * 60


def test_every_command_takes_rows_without_an_answer(answers, run, tmp_path):
    base = (*("--confidence", "sure", "--predicted", "answer"), "--labels", "label")
    gate, page = tmp_path / "gate.json", tmp_path / "page.html"
    for arguments in (
        ("diagnose", answers, *base, "--html", page),
        ("compare", answers, *base),
        ("calibrate", answers, *base, "--risk", "20%", "-o", gate),
        ("calibrate", answers, *base, "--frr", "20%", "--per-class", "-o",
         tmp_path / "each.json"),
        ("screen", answers, *base, "--gate", gate),
        ("check", answers, *base, "--gate", gate, "--state", tmp_path / "state.json"),
    ):  # fmt: skip
        completed = run(*arguments)
        text = flat(completed)
        if arguments[0] != "check":
            assert "60 of 2,000 rows have no answer" in text, arguments[0]
    assert "60 of 2,000 rows have no answer" in page.read_text()


def test_an_interrupted_run_resumes_with_rows_without_an_answer(answers, tmp_path):
    source = find_source(answers, Columns(**STATED))
    gate = td.calibrate(source.read(), risk=0.2)
    first = engines.screen(source, gate, tmp_path / "out")
    resumed = engines.screen(source, gate, tmp_path / "out", resume=True)
    assert resumed.intake == first.intake


def test_real_answers_of_a_language_model(shared):
    """MMLU-Pro: 405 replies of 12,032 could not be read, one confidence neither."""
    path = shared / "answers" / "mmlu-pro-gpt-4.1-nano.csv"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    options = {"confidence": "verbal", "predicted": "answer", "labels": "truth"}
    p = td.read(path, **options)
    table = pl.read_csv(path, infer_schema_length=None)
    silent = table["answer"].is_null()
    assert np.array_equal(p.abstained, silent)
    assert int(p.always_rejected.sum()) == 406
    wrong = ~table["answer"].eq_missing(table["truth"]).to_numpy()
    assert np.array_equal(p.errors, wrong)
    gate = td.calibrate(p, trr=0.8)
    accepted = gate.screen(p).accepted
    stated = table["verbal"].fill_null(-1).to_numpy()
    by_hand = (stated >= -gate.threshold) & ~silent.to_numpy()
    assert np.array_equal(accepted, by_hand)
    assert gate.certificate.observed["coverage"].value == pytest.approx(by_hand.mean())


def test_a_request_that_failed_has_no_answer(tmp_path):
    lines = responses(batch=True)[:40]
    all_answered = td.read(
        write_responses(tmp_path, lines), choices=CHOICES, truth=write_truth(tmp_path)
    )
    failed = [json.loads(json.dumps(line)) for line in lines]
    failed[2]["response"] = {"status_code": 500, "body": {}}
    failed[5] |= {"response": None, "error": {"code": "expired"}}
    path = write_responses(tmp_path, failed, "failed.jsonl")
    p = td.read(path, choices=CHOICES, truth=write_truth(tmp_path))
    assert np.flatnonzero(p.abstained).tolist() == [2, 5]
    assert p.errors[[2, 5]].all()
    assert np.isposinf(p.doubts[[2, 5]]).all()
    answered_rows = np.delete(np.arange(40), [2, 5])
    assert np.array_equal(p.doubts[answered_rows], all_answered.doubts[answered_rows])
    assert p.ids.tolist() == all_answered.ids.tolist()


# One class against the rest.


def test_one_against_the_rest_is_read(run, tmp_path):
    rng = np.random.default_rng(0)
    shares = rng.random((400, 4)).round(4)
    labels = [rng.choice(4, p=row / row.sum()) for row in shares]
    path = tmp_path / "each.csv"
    columns = {f"prob_{k}": shares[:, k] for k in range(4)}
    pl.DataFrame({**columns, "label": labels}).write_csv(path)
    plain = run("diagnose", path)
    assert plain.returncode == 2
    assert "--one-vs-rest" in plain.stderr
    assert "--logits" not in plain.stderr
    completed = run("diagnose", path, "--one-vs-rest")
    assert "each row was divided by its sum" in flat(completed)
    p = td.read(path, one_vs_rest=True)
    divided = shares / shares.sum(1, keepdims=True)
    same = td.Predictions.from_probs(divided, labels)
    np.testing.assert_allclose(td.alpha(p), td.alpha(same), rtol=1e-12)


@pytest.mark.parametrize("n_above", [False, True])
def test_one_number_above_1_makes_no_percentages(n_above, tmp_path):
    p = np.linspace(0.1, 0.9, 100) * (100 if n_above else 1)
    p[17] = 120 if n_above else 1.2
    if n_above:
        p = np.minimum(p, 99)
    path = tmp_path / "p.csv"
    pl.DataFrame({"p": p, "label": ["yes", "no"] * 50}).write_csv(path)
    words = (
        "as percentages are. Give --percent" if n_above else "1.2 at row 17; 1 of 100"
    )
    with pytest.raises(FileError, match=words):
        td.read(path, probs="p", positive="yes")
