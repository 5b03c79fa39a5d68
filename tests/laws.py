"""The laws of the contracts, written once: run over the registries and over toys."""

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor import engines, files
from trustdoctor.engines import Means
from trustdoctor.errors import InputError
from trustdoctor.evaluation import Tally
from trustdoctor.gates import CalibrationSketch, rate_fractions
from trustdoctor.metrics import Confusion
from trustdoctor.metrics.score_counts import last_of_each
from trustdoctor.progress import Pace
from trustdoctor.scores import ROUNDING, FittedScore, find_score, same_ranking

MEMORY = 2_000_000_000


def rows(n=600, classes=4, *, seed=0, features=5, groups=False):
    """Labelled predictions whose errors softmax and features foretell."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    right = rng.random(n) < 1 / (1 + np.exp(td.beta(z)))
    labels = np.where(right, z.argmax(1), rng.integers(0, classes, n))
    wrong = labels != z.argmax(1)
    p_features = rng.normal(size=(n, features)) + 2 * wrong[:, None] + 3
    row_groups = np.where(np.arange(n) % 2, "odd", "even") if groups else None
    return td.Predictions.from_logits(z, labels, features=p_features, groups=row_groups)


def close(a, b, tolerance=1e-9):
    a, b = np.asarray(a, float), np.asarray(b, float)
    same = (a == b) | (np.abs(a - b) <= tolerance * np.maximum(1, np.abs(b)))
    assert same.all()


def tied(doubts, rounding=ROUNDING):
    """Doubts, with those that differ only by rounding made equal."""
    ordered = np.sort(np.asarray(doubts))
    ends = ordered[last_of_each(ordered, rounding)]
    return ends[np.searchsorted(ends, doubts)]


def with_logits(p, logits, labels=None):
    return td.Predictions.from_logits(logits, labels, features=p.features)


# --- scores -------------------------------------------------------------------------


def as_answers(p, kind):
    """The same rows as a system answers that gives one number with each."""
    doubts = td.msp(p.logits)
    make = {
        "doubt": lambda: td.Predictions.from_doubt(doubts, ~p.errors),
        "confidence": lambda: td.Predictions.from_confidence(-doubts, ~p.errors),
    }
    return make[kind]()


def rows_for(entry, *size, **options):
    """Rows of the kind that a score is for."""
    kind = entry.needs & {"confidence", "doubt"}
    return as_answers(rows(*size, **options), *kind) if kind else rows(*size, **options)


def score_gives_one_doubt_per_row(entry, tmp_path):
    p = rows_for(entry)
    doubts = entry.fit(p)(p)
    assert doubts.shape == (len(p),)
    assert not np.isnan(doubts).any()


def score_does_not_depend_on_other_rows(entry, tmp_path):
    """To the bit, also where a library would sum in another order for fewer rows."""
    p = rows_for(entry, 500, 50, features=64)
    score = entry.fit(p)
    doubts = score(p)
    slices = [slice(0, k) for k in (1, 2, 7, 100, 333)]
    for some_rows in (*slices, slice(7, 40), slice(131, 498), [5, 3, 4]):
        assert np.array_equal(score(p[some_rows]), doubts[some_rows])


def score_obeys_the_laws_that_it_declares(entry, tmp_path):
    p, rng = rows_for(entry), np.random.default_rng(1)
    score, z = entry.fit(p), p.logits
    doubts = score(p)
    if "shift" in score.laws:
        close(score(with_logits(p, z + 3.0)), doubts)
    if "permutation" in score.laws:
        order = rng.permutation(z.shape[1])
        close(score(with_logits(p, z[:, order])), doubts)
    if "direction" in score.laws:
        raised = z.copy()
        raised[np.arange(len(z)), p.predicted] += rng.exponential(size=len(z))
        assert (score(with_logits(p, raised)) <= doubts + 1e-9).all()


def score_ranks_as_it_says(entry, tmp_path):
    """Where it names another score, no two rows stand the other way round."""
    if isinstance(entry, type) or not getattr(entry, "ranks_as", ""):
        return
    p = rows_for(entry, 3000, 5)
    doubts, other_doubts = entry(p), td.SCORES[entry.ranks_as](p)
    assert len(np.unique(doubts)) > 2900
    in_order = np.argsort(doubts)
    assert (np.diff(other_doubts[in_order]) > 0).all()
    assert same_ranking(entry, td.SCORES[entry.ranks_as])


def score_refuses_predictions_that_lack_what_it_needs(entry, tmp_path):
    p = rows_for(entry)
    score = entry.fit(p)
    if isinstance(p, td.Answers):
        return
    bare = td.Predictions.from_logits(p.logits)
    probs = td.Predictions.from_probs(np.full((3, 4), 0.25), features=np.ones((3, 5)))
    for need, lacking in (("features", bare), ("logits", probs)):
        if need in score.needs:
            with pytest.raises(InputError, match=f"needs (true )?{need}"):
                score(lacking)
    if "features" in score.needs:
        narrow = td.Predictions.from_logits(p.logits, features=p.features[:, :1])
        with pytest.raises(InputError, match=r"expected( rows of)? 5 features"):
            score(narrow)
    for call in (score, entry.fit):
        with pytest.raises(InputError, match="expected Predictions"):
            call(p.logits)
    if isinstance(score, FittedScore) and "features" in entry.needs:
        with pytest.raises(InputError, match="needs features"):
            entry.fit(bare)


def score_refuses_rows_of_another_kind(entry, tmp_path):
    """Answers with a confidence, with a doubt, and predictions of classes."""
    p = rows_for(entry)
    score = entry.fit(p)
    for other in (
        rows(),
        as_answers(rows(), "confidence"),
        as_answers(rows(), "doubt"),
    ):
        if other.row_kind != p.row_kind and score.needs - {"features"}:
            with pytest.raises(InputError, match=r"the score \w+ needs"):
                score(other)


def score_is_saved_without_pickle(entry, tmp_path):
    p = rows_for(entry)
    score = entry.fit(p)
    if not isinstance(score, FittedScore):
        return
    path = tmp_path / "score.safetensors"
    score.save(path)
    loaded = td.load_score(path)
    assert type(loaded) is type(score)
    assert loaded.digest == score.digest
    assert np.array_equal(loaded(p), score(p))
    other = entry.fit(rows(seed=5))
    assert other.digest != score.digest


def score_works_in_a_gate(entry, tmp_path):
    """Calibrated, saved, loaded, screened, watched: the same decisions."""
    p, new = rows_for(entry, 1200), rows_for(entry, 300, seed=3)
    score = entry.fit(rows_for(entry, 900, seed=8))
    gate = td.calibrate(p, score=score, frr=0.1)
    assert gate.score_name == score.name
    doubts = score(new)
    assert np.array_equal(gate.screen(new).accepted, doubts <= gate.threshold)
    gate.save(tmp_path / "gate.json")
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert np.array_equal(loaded.screen(new).doubts, doubts)
    assert np.array_equal(loaded.screen(new).accepted, gate.screen(new).accepted)
    watch = loaded.watch().update(new)
    assert watch.tests["accepted"].n == len(new)
    evaluation = td.evaluate(p, scores=[score])
    right = td.auroc(tied(score(p), score.rounding), p.errors)
    assert evaluation.scores[score.name]["auroc"].value == right


SCORE_LAWS = (
    score_gives_one_doubt_per_row,
    score_does_not_depend_on_other_rows,
    score_obeys_the_laws_that_it_declares,
    score_ranks_as_it_says,
    score_refuses_predictions_that_lack_what_it_needs,
    score_refuses_rows_of_another_kind,
    score_is_saved_without_pickle,
    score_works_in_a_gate,
)


# --- targets ------------------------------------------------------------------------


def target_refuses_what_is_beyond_its_limits(target, value):
    assert target.check(value) == float(value)
    for invalid in (target.low - 1, target.high + 1, float("nan"), "much", None):
        with pytest.raises(
            InputError, match=f"as {target.name}|expected {target.name}"
        ):
            target.check(invalid)


def target_says_what_it_promises(target, value):
    shown = value if target.fraction is None else 100 * value
    assert f"{shown:g}" in target.promise(value)
    assert target.help.endswith(".")


def target_makes_a_gate(target, value):
    """The gate's certificate names the target; a gate that is trivial says why."""
    p = rows(3000)
    gate = td.calibrate(p, target={target.name: value})
    assert gate.certificate.target == {target.name: value}
    assert gate.certificate.guarantee == target.promised
    assert (gate.state == "threshold") or gate.certificate.trivial
    decisions = gate.screen(p)
    if target.fraction is not None:
        wrong, passed = p.errors, decisions.accepted
        counts = Confusion(
            rejected_correct=int((~passed & ~wrong).sum()),
            rejected_errors=int((~passed & wrong).sum()),
            accepted_errors=int((passed & wrong).sum()),
            accepted_correct=int((passed & ~wrong).sum()),
        )
        numerator, denominator = target.fraction(counts)
        assert gate.certificate.observed[target.name].value == numerator / denominator
        assert rate_fractions(counts)[target.name] == (numerator, denominator)
        if gate.state == "threshold" and target.promised:
            kept_it = (
                numerator / denominator >= value
                if target.at_least
                else numerator / denominator <= value
            )
            assert kept_it  # on its own rows, with room to spare


def target_survives_its_file(target, value, tmp_path):
    gate = td.calibrate(rows(3000), target={target.name: value})
    gate.save(tmp_path / "gate.json")
    loaded = td.Gate.load(tmp_path / "gate.json")
    assert loaded.to_json() == gate.to_json()
    assert loaded.certificate.promise() == gate.certificate.promise()


def target_is_watched(target, value):
    gate = td.calibrate(rows(3000), target={target.name: value})
    watch = gate.watch().update(rows(500, seed=9))
    watched = target.promised and target.fraction is not None
    assert (target.name in watch.tests) == watched


# --- formats ------------------------------------------------------------------------


def table_of(p):
    z, d = p.logits, p.features
    columns = {f"logit_{j}": z[:, j] for j in range(z.shape[1])}
    columns |= {f"f_{j}": d[:, j] for j in range(d.shape[1])}
    columns |= {"label": p.labels, "id": [f"row {i}" for i in range(len(p))]}
    return pl.DataFrame(columns)


COLUMNS = files.Columns(features="f_", ids="id")


def format_reads_a_file_a_folder_and_a_pattern(write, suffix, tmp_path):
    """`write(table, path)` makes a file; every way in gives the same rows."""
    p = rows(90)
    for i in range(3):
        (tmp_path / "parts").mkdir(exist_ok=True)
        write(table_of(p[30 * i : 30 * i + 30]), tmp_path / "parts" / f"{i}{suffix}")
    write(table_of(p), tmp_path / f"whole{suffix}")
    for path in ("parts", f"parts/*{suffix}", f"whole{suffix}"):
        source = files.find_source(tmp_path / path, COLUMNS)
        predictions = source.read()
        assert source.rows == len(predictions) == 90
        assert np.array_equal(predictions.logits, p.logits)
        assert np.array_equal(predictions.features, p.features)
        assert np.array_equal(predictions.labels, p.labels)
        assert predictions.ids.tolist() == [
            f"row {i % 30 if path != f'whole{suffix}' else i}" for i in range(90)
        ]


def format_takes_decisions(write, suffix, tmp_path):
    """Screened into a file of the same format, rows keep their columns and order."""
    p = rows(90)
    write(table_of(p), tmp_path / f"in{suffix}")
    source = files.find_source(tmp_path / f"in{suffix}", COLUMNS)
    gate = td.Gate(-1.0, score="alpha")
    output = tmp_path / f"out{suffix}"
    means = Means(engines.find_engine("local"), MEMORY)
    engines.screen(source, gate, output, means=means)
    repeated = files.find_source(output, COLUMNS)
    _, table = repeated.load("score", "accepted")
    close(table["score"].cast(pl.Float64), td.alpha(p))
    are_same = table["accepted"].cast(pl.String).to_list() == [
        str(is_accepted).lower() for is_accepted in gate.screen(p).accepted
    ]
    assert are_same
    assert np.array_equal(repeated.read().logits, p.logits)


# --- engines ------------------------------------------------------------------------


def engine_folds_to_the_same_counts(engine, source):
    p = source.read()
    counted = engine.fold(
        source,
        CalibrationSketch(find_score("alpha")),
        memory=MEMORY,
        pace=Pace(None, "", 1),
    )
    alone = CalibrationSketch(find_score("alpha"))
    alone.update(p)
    assert counted.pooled.to_bytes() == alone.pooled.to_bytes()
    tally = engine.fold(source, Tally(["alpha"]), memory=MEMORY, pace=Pace(None, "", 1))
    expected_tally = Tally(["alpha"])
    expected_tally.update(p)
    assert tally.evaluate().to_json() == expected_tally.evaluate().to_json()


def engine_maps_to_the_same_decisions(engine, source, tmp_path):
    gate = td.Gate(-1.0, score="alpha")
    means = Means(engine, MEMORY)
    output = tmp_path / "decided.parquet"
    outcome = engines.screen(source, gate, output, means=means)
    p = source.read()
    decisions = gate.screen(p)
    table = pl.read_parquet(output)
    assert np.array_equal(table["score"].to_numpy(), decisions.doubts)
    assert np.array_equal(table["accepted"].to_numpy(), decisions.accepted)
    assert np.array_equal(table["predicted"].to_numpy(), decisions.predicted)
    added = ("predicted", "score", "accepted")
    assert table.drop(added).equals(source.scan().collect())
    assert outcome == td.Outcome.of_predictions(p, decisions.accepted)
    assert engines.screen(source, gate, None, means=means) == outcome


def engine_refuses_bad_rows_with_their_place(engine, tmp_path):
    table = table_of(rows(40)).with_columns(
        logit_1=pl.when(pl.arange(40) == 17).then(float("nan")).otherwise(0.5)
    )
    table.write_parquet(tmp_path / "bad.parquet")
    source = files.find_source(tmp_path / "bad.parquet")
    with pytest.raises(td.errors.FileError, match="row 17"):
        engines.screen(
            source, td.Gate(0.0, score="alpha"), None, means=Means(engine, MEMORY)
        )


def is_fitted(entry):
    return isinstance(entry, type) and issubclass(entry, FittedScore)
