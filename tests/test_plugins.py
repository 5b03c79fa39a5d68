"""A score, a fitted score, a target, a metric, a format and an engine from outside.

Each is defined in a few lines and registered; then diagnose, calibrate, screen and
compare take it, and it passes the laws that the built-in ones pass. Nothing in src
knows of them.
"""

from dataclasses import dataclass

import laws
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import trustdoctor as td
from trustdoctor import engines, files, gates, metrics
from trustdoctor.arrays import as_features
from trustdoctor.cli import make_app
from trustdoctor.gates import NO_OUTCOME, Cut, Rule, Target
from trustdoctor.metrics import Area, Influences


def spread(logits, *, temperature=1.0):
    """Minus the standard deviation of the logits."""
    return -np.asarray(logits, float).std(-1) / temperature


SPREAD = td.LogitScore(
    "toy_spread", spread, frozenset({"probs"}), frozenset({"shift", "permutation"})
)


@dataclass(frozen=True, eq=False)
class Centre(td.FittedScore):
    """The distance to the mean feature of correct rows."""

    mean: np.ndarray

    name = "toy_centre"
    needs = frozenset({"features"})
    laws = frozenset({"shift", "permutation", "direction"})
    reference = "a toy"
    learns_from_errors = True

    def __post_init__(self):
        if self.mean.ndim != 1 or not np.isfinite(self.mean).all():
            raise td.errors.InputError("expected a mean of finite numbers.")

    @classmethod
    def fit(cls, predictions):
        cls.check_fit(predictions, labels=True)
        return cls(predictions.features[~predictions.errors].mean(0))

    def __call__(self, predictions):
        self.check(predictions)
        x = as_features(predictions.features, width=len(self.mean))
        return np.linalg.norm(x - self.mean, axis=1)


def keep_half(rows, value, terms):
    """Accept the least doubtful share of the rows, without a promise."""
    k = max(1, int(value * len(rows)))
    return Cut(score=rows.of_kind("all").kth(k)[1])


SHARE = Target(
    "toy_share",
    "the least doubtful {}% accepted",
    "Accept this share of the rows.",
    Rule("The threshold is a quantile of the scores.", keep_half),
    fraction=lambda c: (c.n_accepted, c.n),
    at_least=True,
    needs_labels=False,
    promised=False,
)


def sink_lines(rows, path, source):
    rows.sink_ndjson(path)


LINES = files.Format(
    "JSON lines",
    (".toylines",),
    lambda source: pl.concat([pl.scan_ndjson(file) for file in source.files]),
    sink_lines,
)


class Slow(engines.Engine):
    """One batch of 50 rows after another."""

    name = "toy_slow"

    def batches(self, source):
        table = source.scan().collect()
        return [table[at : at + 50] for at in range(0, len(table), 50)]

    def fold(self, source, state, *, memory, pace):
        for batch in self.batches(source):
            partial = state.fresh()
            partial.update(source.predictions(batch))
            state.merge(partial)
        return state

    def map(self, source, function, output, *, alone=False, only=None, memory, pace):
        outcome, decided_batches = NO_OUTCOME, []
        for batch in self.batches(source):
            try:
                added, counted = function(source.predictions(batch))
            except td.errors.InputError:
                source.locate()
                raise
            decided_batches.append(
                batch.with_columns(**{k: pl.Series(v) for k, v in added.items()})
            )
            outcome += counted
        if output is not None:
            decided = pl.concat(decided_batches)
            if only is not None:
                decided = decided.filter(pl.col("accepted") == (only == "accepted"))
            decided.write_parquet(output)
        return outcome


@pytest.fixture(autouse=True)
def registered():
    td.register(SPREAD)
    td.register(Centre)
    td.register_target(SHARE)
    files.register_format(LINES)
    engines.register_engine("toy_slow", lambda _address: Slow())
    yield
    del td.SCORES["toy_spread"], td.SCORES["toy_centre"], gates.TARGETS["toy_share"]
    del files.FORMATS[".toylines"], engines.ENGINES["toy_slow"]


@pytest.mark.parametrize("law", laws.SCORE_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("entry", [SPREAD, Centre], ids=lambda entry: entry.name)
def test_toy_scores_obey_the_laws_of_scores(entry, law, tmp_path):
    law(entry, tmp_path)


def test_a_toy_fitted_score_is_compared_like_the_others():
    comparison = td.compare(laws.rows(3000))
    assert {"toy_centre", "toy_spread"} <= {c.name for c in comparison.candidates}
    assert comparison.scores["toy_centre"].mean.shape == (5,)


def test_the_toy_target_obeys_the_laws_of_targets(tmp_path):
    laws.target_refuses_what_is_beyond_its_limits(SHARE, 0.5)
    laws.target_says_what_it_promises(SHARE, 0.5)
    laws.target_makes_a_gate(SHARE, 0.5)
    laws.target_survives_its_file(SHARE, 0.5, tmp_path)
    laws.target_is_watched(SHARE, 0.5)


def test_the_toy_format_obeys_the_laws_of_formats(tmp_path):
    laws.format_reads_a_file_a_folder_and_a_pattern(
        pl.DataFrame.write_ndjson, ".toylines", tmp_path
    )
    laws.format_takes_decisions(pl.DataFrame.write_ndjson, ".toylines", tmp_path)


def test_the_toy_engine_obeys_the_laws_of_engines(tmp_path):
    laws.table_of(laws.rows(180)).write_parquet(tmp_path / "rows.parquet")
    source = files.find_source(tmp_path / "rows.parquet", laws.COLUMNS)
    laws.engine_folds_to_the_same_counts(Slow(), source)
    laws.engine_maps_to_the_same_decisions(Slow(), source, tmp_path)
    laws.engine_refuses_bad_rows_with_their_place(Slow(), tmp_path)


def run(*words):
    invocation = CliRunner().invoke(make_app(), [str(word) for word in words])
    assert invocation.exit_code == 0, (invocation.output, invocation.exception)
    return invocation.output


def test_every_command_takes_all_of_them(tmp_path):
    p, new = laws.rows(1200), laws.rows(300, seed=4)
    rows, new_rows = tmp_path / "rows.toylines", tmp_path / "new.toylines"
    laws.table_of(p).write_ndjson(rows)
    laws.table_of(new).write_ndjson(new_rows)
    fitted = Centre.fit(laws.rows(600, seed=6))
    fitted.save(tmp_path / "centre.safetensors")
    for score, entry in (
        ("toy_spread", SPREAD),
        (tmp_path / "centre.safetensors", fitted),
    ):
        for engine in ("local", "toy_slow"):
            printed = run(
                "diagnose", rows, "--score", score, "--features", "f_",
                "--engine", engine,
            )  # fmt: skip
            assert entry.name in printed
            gate, out = tmp_path / "gate.json", tmp_path / "out.parquet"
            printed = run(
                "calibrate", rows, "--toy-share", 0.5, "--score", score,
                "--features", "f_", "--engine", engine, "-o", gate,
            )  # fmt: skip
            assert "the least doubtful 50% accepted" in printed
            run(
                "screen", new_rows, "--gate", gate, "--features", "f_",
                "--engine", engine, "-o", out,
            )  # fmt: skip
            threshold = td.calibrate(
                p, score=entry, target={"toy_share": 0.5}
            ).threshold
            decided = pl.read_parquet(out)
            assert np.array_equal(decided["score"], entry(new))
            assert np.array_equal(decided["accepted"], entry(new) <= threshold)


def test_gates_made_with_plugins_loaded_load_without_them(tmp_path):
    """Observed rates are computed again, for the targets registered here."""
    gate = td.calibrate(laws.rows(900), frr=0.1)
    assert "toy_share" in gate.certificate.observed
    gate.save(tmp_path / "gate.json")
    td.calibrate(laws.rows(900), target={"toy_share": 0.5}).save(tmp_path / "toy.json")
    del gates.TARGETS["toy_share"]
    try:
        loaded = td.Gate.load(tmp_path / "gate.json")
        assert loaded.threshold == gate.threshold
        assert "toy_share" not in loaded.certificate.observed
        assert loaded.to_json() == gate.to_json()
        with pytest.raises(td.errors.FileError, match="'toy_share', which is not"):
            td.Gate.load(tmp_path / "toy.json")
    finally:
        gates.TARGETS["toy_share"] = SHARE


@pytest.mark.parametrize("reverse", [False, True], ids=["helpful", "harmful"])
def test_a_metric_of_somebody_else_is_evaluated_with_its_interval(reverse, monkeypatch):
    """Area under accuracy against coverage: one less the area under risk."""
    aurc = metrics.AREAS["aurc"]

    def influences(counts):
        area = aurc.influences(counts)
        return Influences(1 - area.value, -area.of_errors, -area.of_correct)

    area = Area(influences, correct_matters=False)
    monkeypatch.setitem(metrics.AREAS, "toy_area", area)
    formula = lambda counts, points: 1 - td.aurc(counts)  # noqa: E731
    monkeypatch.setitem(metrics.RANK_METRICS, "toy_area", formula)
    rows = laws.rows(900)
    score = td.LogitScore(
        "reversed", lambda z, **o: -td.alpha(z, **o), frozenset({"probs"}), frozenset()
    )
    name = "reversed" if reverse else "alpha"
    evaluation = td.evaluate(rows, scores=[score if reverse else name])
    estimates = evaluation.scores[name]
    toy, risk = estimates["toy_area"], estimates["aurc"]
    assert toy.value == pytest.approx(1 - risk.value)
    assert (toy.low, toy.high) == pytest.approx((1 - risk.high, 1 - risk.low), abs=2e-3)
