"""Whether rows are logits is decided on the whole file, and not on a batch of it."""

import numpy as np
import polars as pl
import pytest
from file_kinds import IN_MEMORY, STREAMED

import trustdoctor as td
from trustdoctor import engines
from trustdoctor.errors import FileError, InputError
from trustdoctor.files import find_source

ROWS = 1000
STRETCHES = {
    "inside": slice(400, 500),
    "the first": slice(0, 200),
    "the last": slice(700, ROWS),
    "all but the last": slice(0, ROWS - 1),
    "all but the first": slice(1, ROWS),
}
GATE = td.Gate(-0.5, score="alpha")


def rows(stretch):
    """Logits, of which a stretch are probability vectors as well."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(ROWS, 3))
    z[stretch] = rng.dirichlet([1, 1, 1], ROWS)[stretch]
    labels = np.where(rng.random(ROWS) < 0.7, z.argmax(1), 0)
    named = {f"logit_{j}": z[:, j] for j in range(3)}
    return pl.DataFrame(named | {"label": labels})


def small_groups(table, folder):
    table.write_parquet(folder / "a.parquet", row_group_size=20)
    return folder / "a.parquet"


def small_batches(table, folder):
    table.write_ipc(folder / "a.arrow", record_batch_size=20)
    return folder / "a.arrow"


def small_files(suffix):
    def write(table, folder):
        (folder / "in").mkdir()
        for first in range(0, ROWS, 100):
            group, path = (
                table[first : first + 100],
                folder / "in" / f"{first:04}{suffix}",
            )
            if suffix == ".npz":
                z = group.drop("label").to_numpy()
                np.savez(path, logits=z, labels=group["label"].to_numpy())
            else:
                group.write_csv(path)
        return folder / "in"

    return write


WRITERS = {
    "Parquet": small_groups,
    "Arrow": small_batches,
    "CSV": small_files(".csv"),
    "NPZ": small_files(".npz"),
}


@pytest.fixture
def batches(monkeypatch):
    """The batches that were decided on."""
    screened, gate_screen = [], td.Gate.screen

    def noted(self, predictions, **options):
        screened.append(predictions)
        return gate_screen(self, predictions, **options)

    monkeypatch.setattr(td.Gate, "screen", noted)
    return screened


def likely(p):
    """Tell whether all of some rows are probability vectors."""
    return len(p) >= 10 and p.logits.min() >= 0 and np.allclose(p.logits.sum(1), 1)


@pytest.mark.parametrize(
    ("stretch", "kind"),
    [
        *((stretch, "Parquet") for stretch in STRETCHES),
        *(("the first", kind) for kind in ("Arrow", "CSV", "NPZ")),
    ],
)
@pytest.mark.sampled(2)
def test_a_stretch_of_likely_rows_is_taken(stretch, kind, batches, run, tmp_path):
    table = rows(STRETCHES[stretch])
    z, labels = table.drop("label").to_numpy(), table["label"].to_numpy()
    path = WRITERS[kind](table, tmp_path)
    source = find_source(path)
    p = source.read()
    assert np.array_equal(p.logits, z)
    for means in (IN_MEMORY, STREAMED):
        evaluation = engines.diagnose(source, scores=["alpha"], means=means)
        assert evaluation.accuracy.value == pytest.approx(
            (z.argmax(1) == labels).mean()
        )
    gates = [
        engines.calibrate_files(source, frr=0.1, means=means)
        for means in (IN_MEMORY, STREAMED)
    ]
    assert gates[0].threshold == pytest.approx(gates[1].threshold, abs=1e-3)
    batches.clear()
    out = tmp_path / "out.parquet"
    engines.screen(source, GATE, out, means=STREAMED)
    assert any(map(likely, batches)), "no batch was the like of probabilities"
    evaluation = pl.read_parquet(out)
    assert evaluation["score"].to_numpy().tobytes() == td.alpha(p).tobytes()
    assert evaluation["accepted"].to_list() == (td.alpha(p) <= -0.5).tolist()
    out.unlink()
    assert run("screen", path, "--gamma", 1, "-o", out).returncode == 0


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.sampled(2)
def test_likely_rows_alone_are_refused_by_all_alike(kind, run, tmp_path):
    path = WRITERS[kind](rows(slice(None)), tmp_path)
    source, messages = find_source(path), set()
    gate = tmp_path / "gate.json"
    p = td.Predictions.from_probs(
        rows(slice(None)).drop("label").to_numpy(), [0] * ROWS
    )
    td.calibrate(p, coverage=0.5).save(gate)
    for means in (IN_MEMORY, STREAMED):
        for work in (
            lambda means: engines.diagnose(source, means=means),
            lambda means: engines.calibrate_files(source, frr=0.1, means=means),
            lambda means: engines.screen(source, GATE, None, means=means),
            lambda means: engines.screen(source, GATE, tmp_path / "d", means=means),
        ):
            with pytest.raises(
                FileError, match="all rows are probabilities"
            ) as refused:
                work(means)
            messages.add(str(refused.value))
    assert len(messages) == 1
    for command in (
        ("diagnose", path),
        ("calibrate", path, "--frr", 0.1, "-o", tmp_path / "g.json"),
        ("screen", path, "--gate", gate, "-o", tmp_path / "out.parquet"),
        ("check", path, "--gate", gate, "--state", tmp_path / "state.json"),
        ("compare", path),
    ):
        completed = run(*command)
        assert (completed.returncode, completed.stderr) == (
            2,
            f"trustdoctor: {messages.copy().pop()}\n",
        )
    names = {file.name for file in tmp_path.iterdir()}
    assert names <= {"gate.json", "in", "a.parquet", "a.arrow"}


def test_few_likely_rows_are_taken(tmp_path):
    table = rows(slice(None))[:9]
    path = tmp_path / "a.csv"
    table.write_csv(path)
    for means in (IN_MEMORY, STREAMED):
        assert engines.screen(find_source(path), GATE, None, means=means).rows == 9
    assert len(find_source(path).read()) == 9


def test_a_bad_row_among_plausible_ones_is_reported(tmp_path):
    table = rows(slice(None)).with_columns(
        logit_1=pl.when(pl.int_range(pl.len()) == 777)
        .then(float("nan"))
        .otherwise("logit_1")
    )
    path = small_groups(table, tmp_path)
    for means in (IN_MEMORY, STREAMED):
        with pytest.raises(FileError, match="row 777"):
            engines.screen(find_source(path), GATE, None, means=means)


def test_a_part_of_predictions_is_scored():
    z = rows(STRETCHES["the first"]).drop("label").to_numpy()
    p = td.Predictions.from_logits(z)
    for name in ("alpha", "beta", "msp", "entropy", "energy", "margin", "max_logit"):
        doubts = td.SCORES[name](p)
        for rows_slice in (slice(0, 20), slice(0, 200), slice(50, 60)):
            assert np.array_equal(td.SCORES[name](p[rows_slice]), doubts[rows_slice])
    assert np.array_equal(td.alpha(p[:20]), td.alpha(p)[:20])
    assert len(td.evaluate(td.Predictions.from_logits(z, z.argmin(1))[:20]).scores)
    assert (
        GATE.screen(p[:20]).accepted.tolist() == GATE.screen(p).accepted[:20].tolist()
    )
    with pytest.raises(InputError, match="all rows are probabilities"):
        td.Predictions.from_logits(z[:20])
    with pytest.raises(InputError, match="all rows are probabilities"):
        td.alpha(z[:20])
