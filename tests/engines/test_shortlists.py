"""Shortlists over files: the same as in memory, in every format, batch and order."""

import json

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.engines import Means, calibrate_files, find_engine, list_files, screen
from trustdoctor.errors import FileError, InputError, LabelsMissingError
from trustdoctor.files import Columns, find_source
from trustdoctor.files.formats import arrays as array_format
from trustdoctor.files.journal import JOURNAL
from trustdoctor.gates import describe_lists
from trustdoctor.gates.outcome import ListCounts

NAMES = ["cat", "a|b", "horse", "ox"]
BY_RANK = ({"frr": 0.1}, {"trr": 0.8}, {"joint": 0.1}, {"coverage": 0.8})


def table(n=1500, seed=0, *, digits=None):
    """Rows whose labels are drawn by their probabilities."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 4))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    z = z if digits is None else np.round(z, digits)
    named = {f"logit_{name}": z[:, k] for k, name in enumerate(NAMES)}
    columns = {"label": [NAMES[k] for k in labels], "region": np.arange(n) % 3}
    return pl.DataFrame(named | columns)


def predictions(rows):
    z = rows.select(pl.col("^logit_.*$")).to_numpy()
    labels = [None if name is None else NAMES.index(name) for name in rows["label"]]
    return td.Predictions.from_logits(z, labels, class_names=NAMES)


@pytest.fixture(scope="module")
def gate():
    return td.calibrate(predictions(table(seed=9)), frr=0.2, shortlist=0.9)


@pytest.fixture
def streaming():
    """This machine, where no row is kept."""
    engine = find_engine("local")
    engine.in_memory = False
    return Means(engine, 10**9)


def written(rows, path):
    if path.suffix == ".npz":
        p = predictions(rows)
        np.savez(path, logits=p.logits, labels=p.labels)
    else:
        name = path.suffix[1:]
        kinds = {"jsonl": "ndjson", "arrow": "ipc"}
        getattr(rows, f"write_{kinds.get(name, name)}")(path)
    return path


def content(path):
    """Return what was written, as a table."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return pl.DataFrame({name: arrays[name] for name in arrays})
    kinds = {".jsonl": pl.read_ndjson, ".arrow": pl.read_ipc, ".tsv": None}
    if path.suffix in (".csv", ".tsv", ".gz"):
        sign = "\t" if path.suffix == ".tsv" else ","
        return pl.read_csv(path, separator=sign).fill_null("")
    return kinds.get(path.suffix, pl.read_parquet)(path)


@pytest.mark.parametrize(
    "suffix", [".csv", ".tsv", ".csv.gz", ".jsonl", ".parquet", ".arrow", ".npz"]
)
def test_every_format_gets_a_column_of_lists(suffix, gate, tmp_path):
    rows = table()
    path = written(rows, tmp_path / "rows.parquet")
    out = tmp_path / f"out{suffix}"
    outcome = screen(find_source(path), gate, out)
    p = predictions(rows)
    expected = gate.screen(p)
    texts = describe_lists(expected.shortlist, p)
    decisions = content(out)
    assert decisions.columns[-1] == "shortlist"
    assert decisions["shortlist"].to_list() == texts.tolist()
    assert set(texts[expected.accepted]) == {""}
    assert {" | " in text for text in texts[~expected.accepted]} == {True, False}
    assert any(r"a\|b" in text for text in texts)
    assert outcome == td.Outcome.of_predictions(
        p, expected.accepted, expected.shortlist
    )
    assert outcome.lists == ListCounts.of(p, expected.shortlist)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".arrow", ".npz"])
def test_every_format_is_read(suffix, tmp_path):
    path = written(table(), tmp_path / f"rows{suffix}")
    bare = td.calibrate(td.read(path), frr=0.2, shortlist=0.9)
    outcome = screen(find_source(path), bare, tmp_path / "out.parquet")
    p = td.read(path)
    expected = bare.screen(p)
    decisions = pl.read_parquet(tmp_path / "out.parquet")
    texts = describe_lists(expected.shortlist, p).tolist()
    assert decisions["shortlist"].to_list() == texts
    assert outcome.lists == ListCounts.of(p, expected.shortlist)
    npz_path = tmp_path / "part.parquet"
    if suffix != ".npz":
        assert screen(find_source(path), bare, npz_path, only="rejected") == outcome
        assert pl.read_parquet(npz_path).equals(decisions.filter(~pl.col("accepted")))


def test_lists_add_up_by_hand():
    mask = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]], bool)
    p = td.Predictions.from_logits(np.eye(4, 3), [2, 0, None, 2])
    assert ListCounts.of(p, mask) == ListCounts(
        rows=3, classes=6, full_reviews=1, labelled=2, with_true_class=1
    )
    twice = ListCounts.of(p, mask) + ListCounts.of(p, mask)
    assert twice == ListCounts(6, 12, 2, 4, 2)
    assert twice.rate().value == 0.5
    bare = td.Predictions.from_logits(np.eye(4, 3))
    assert ListCounts.of(bare, mask) == ListCounts(3, 6, 1)
    assert ListCounts.of(bare, mask).rate() is None
    assert ListCounts().words() == "No row was rejected, so there are no lists"
    outcome = td.Outcome(4, 1, lists=ListCounts(3, 6, 1))
    assert (
        (td.Outcome(2, 2) + outcome).lists
        == (outcome + td.Outcome(2, 2)).lists
        == outcome.lists
    )
    assert (outcome + outcome).lists == ListCounts(6, 12, 2)


def test_a_folder_resumes_with_its_counts(gate, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for seed, name in enumerate("abc"):
        written(table(200, seed), folder / f"{name}.csv")
    written(table(200).head(0), folder / "none.csv")
    source = find_source(folder)
    first = screen(source, gate, tmp_path / "out")
    uninterrupted = screen(source, gate, tmp_path / "out.parquet")
    assert first == uninterrupted
    assert first.lists.rows == first.rows - first.accepted
    before = {f.name: f.read_bytes() for f in (tmp_path / "out").glob("*.csv")}
    assert before["none.csv"].decode().strip().endswith("score,accepted,shortlist")
    (tmp_path / "out" / "b.csv").write_text("")
    assert screen(source, gate, tmp_path / "out", resume=True) == first
    after = {f.name: f.read_bytes() for f in (tmp_path / "out").glob("*.csv")}
    assert after == before


def test_rows_of_no_file_have_types(gate, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, rows in (("a", table(50)), ("b", table(50).head(0))):
        written(rows, folder / f"{name}.parquet")
    screen(find_source(folder), gate, tmp_path / "out")
    with_rows, without_rows = (
        pl.read_parquet(tmp_path / "out" / f"{n}.parquet") for n in "ab"
    )
    assert with_rows.schema == without_rows.schema
    assert without_rows.schema["shortlist"] == pl.String


@pytest.mark.parametrize(
    "lists",
    [
        [30, 90, 0, 30],
        [29, 90, 0, 29, 29],
        [30, 29, 0, 30, 30],
        [30, 90, 31, 30, 30],
        [30, 90, 0, 31, 30],
        [30, 90, 0, 5, 6],
        [30, 90, -1, 30, 30],
        [30, 90.0, 0, 30, 30],
        [30, 90, True, 30, 30],
        [30, 90, 0, 30, 30, 30],
        [],
        {},
        "x",
        None,
    ],
    ids=str,
)
@pytest.mark.sampled(3)
def test_counts_of_lists_that_cannot_be_are_refused(lists, gate, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    written(table(100), folder / "a.csv")
    source = find_source(folder)
    outcome = screen(source, gate, tmp_path / "out")
    assert outcome.rows - outcome.accepted == 30
    path = tmp_path / "out" / JOURNAL
    noted = json.loads(path.read_text())
    (stamp,) = noted["done"]
    noted["done"][stamp][-1] = lists
    path.write_text(json.dumps(noted))
    with pytest.raises(FileError, match="cannot read the journal"):
        screen(source, gate, tmp_path / "out", resume=True)


def test_a_journal_of_earlier_versions_is_read(tmp_path):
    """Without shortlists nothing is reported about them."""
    folder, gate = tmp_path / "in", td.Gate(-0.5, score="alpha")
    folder.mkdir()
    written(table(20), folder / "a.csv")
    source = find_source(folder)
    outcome = screen(source, gate, tmp_path / "out")
    path = tmp_path / "out" / JOURNAL
    noted = json.loads(path.read_text())
    ((stamp, entry),) = noted["done"].items()
    assert len(entry) == 13
    assert outcome.lists is None
    noted["done"][stamp] = entry[:7]  # before there were groups
    path.write_text(json.dumps(noted))
    assert screen(source, gate, tmp_path / "out", resume=True) == outcome


def test_a_column_of_that_name_is_refused_where_lists_are_written(gate, tmp_path):
    path = written(table(20).with_columns(shortlist=1), tmp_path / "rows.csv")
    source, bare = find_source(path), td.Gate(-0.5, score="alpha")
    with pytest.raises(FileError, match="already has a column 'shortlist'"):
        screen(source, gate, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    screen(source, gate, None)
    screen(source, bare, tmp_path / "out.csv")
    assert set(pl.read_csv(tmp_path / "out.csv")["shortlist"]) == {1}


def test_answers_without_classes_are_refused_in_a_line(gate, tmp_path):
    path = tmp_path / "stated.csv"
    path.write_text("confidence\n0.9\n0.4\n")
    short = gate.shortlist
    answers_gate = td.Gate(-0.5, score="confidence", shortlist=short)
    source = find_source(path, Columns(confidence="confidence"))
    with pytest.raises(FileError, match="a shortlist needs the logits") as refusal:
        screen(source, answers_gate, None)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("options", BY_RANK, ids=str)
@pytest.mark.parametrize("digits", [None, 0], ids=["", "ties"])
def test_a_gate_and_lists_by_the_same_rows_streamed(
    options, digits, streaming, tmp_path
):
    path = written(table(3000, digits=digits), tmp_path / "rows.parquet")
    expected = {"level": 0.9, "method": "aps", "max_size": 3}
    gates = [
        calibrate_files(find_source(path), shortlist=expected, means=means, **options)
        for means in (None, streaming)
    ]
    assert gates[0] == gates[1]
    assert gates[0].shortlist.same_rows
    assert gates[0] == td.calibrate(td.read(path), shortlist=expected, **options)


@pytest.mark.soak
def test_many_streamed_rows_are_as_conservative_as_in_memory(streaming, tmp_path):
    """More scores than a sketch has cells, so that they are counted in ranges."""
    path = written(table(320_000), tmp_path / "rows.parquet")
    source = find_source(path)
    gate = calibrate_files(source, frr=0.1, means=streaming)
    ours = calibrate_files(source, frr=0.1, shortlist=0.95, means=streaming)
    at_once = td.shortlist(td.calibrate(source.read(), frr=0.1), source.read())
    alone = td.Gate(gate.threshold, score="alpha")  # as if it were of other rows
    least = td.shortlist(alone, source.read()).shortlist.rule
    assert ours.threshold == gate.threshold >= at_once.threshold
    rule = ours.shortlist.rule
    assert least.threshold <= rule.threshold
    assert rule.threshold == pytest.approx(at_once.shortlist.rule.threshold, abs=0.01)
    assert rule.rows == pytest.approx(at_once.shortlist.rule.rows, rel=0.001)
    repeated = list_files(source, gate, 0.95, means=streaming)
    assert repeated == ours
    assert td.shortlist(gate, source.read()).shortlist.rule.threshold >= least.threshold


@pytest.mark.parametrize("grouped", [False, True])
def test_other_rows_give_a_gate_its_lists(grouped, streaming, tmp_path):
    columns = Columns(groups="region") if grouped else Columns()
    from_file, two = (
        find_source(written(table(2000, seed), tmp_path / f"{seed}.csv"), columns)
        for seed in (1, 2)
    )
    groups = "given" if grouped else None
    gate = calibrate_files(from_file, risk=0.3, groups=groups)
    expected = td.shortlist(gate, two.read(), level=0.8)
    assert bool(expected.shortlist.groups) is grouped
    remarks = []
    assert list_files(two, gate, 0.8, remark=remarks.append) == expected
    assert list_files(two, gate, 0.8, means=streaming) == expected
    assert remarks[0].startswith("Lists for ")
    for means in (None, streaming):
        with pytest.raises(InputError, match="these rows set the threshold for risk"):
            list_files(from_file, gate, 0.8, means=means)
        with pytest.raises(InputError, match="this gate has a shortlist"):
            list_files(two, expected, 0.8, means=means)


def test_what_needs_all_rows_is_refused_where_they_do_not_fit(streaming, tmp_path):
    path = written(table(), tmp_path / "rows.parquet")
    source = find_source(path, Columns(groups="region"))
    for options, task in (
        ({"risk": 0.3}, "--shortlist for risk"),
        ({"cost": 3.0}, "--shortlist for cost"),
        ({"frr": 0.3, "trr": 0.3}, "--shortlist for frr and trr"),
        ({"frr": 0.3, "groups": "given"}, "--shortlist for groups"),
    ):
        with pytest.raises(InputError, match=f"^{task} needs all rows") as refusal:
            calibrate_files(source, shortlist=0.9, means=streaming, **options)
        assert "calibrate OTHER --gate GATE --shortlist RATE" in str(refusal.value)
        assert not calibrate_files(source, shortlist=0.9, **options).shortlist.same_rows
    small = Means(find_engine("local"), 100)
    with pytest.raises(InputError, match=r"Raise --memory, .* --gate GATE"):
        calibrate_files(source, risk=0.3, shortlist=0.9, means=small)


def test_lists_need_labels_and_sound_options(streaming, tmp_path):
    bare = find_source(written(table().drop("label"), tmp_path / "bare.csv"))
    gate = td.Gate(-0.5, score="alpha")
    for means in (None, streaming):
        with pytest.raises(LabelsMissingError, match="a shortlist needs"):
            calibrate_files(bare, coverage=0.8, shortlist=0.9, means=means)
        with pytest.raises(LabelsMissingError, match="a shortlist needs"):
            list_files(bare, gate, 0.9, means=means)
    label = pl.when(pl.int_range(1500) % 2 == 0).then("label").alias("label")
    half_labelled = find_source(
        written(table().with_columns(label), tmp_path / "part.csv")
    )
    at_once = calibrate_files(half_labelled, coverage=0.8, shortlist=0.9)
    assert not at_once.shortlist.same_rows
    with pytest.raises(InputError, match="some rows have no label, so they cannot"):
        calibrate_files(half_labelled, coverage=0.8, shortlist=0.9, means=streaming)
    frr = [
        calibrate_files(half_labelled, frr=0.2, shortlist=0.9, means=m)
        for m in (None, streaming)
    ]
    assert frr[0] == frr[1]
    for expected in (0.3, {"level": 0.9, "method": "x"}, {"levels": 0.9}):
        with pytest.raises(InputError):
            list_files(half_labelled, gate, expected, means=streaming)


def test_remarks_are_those_without_lists_and_how_long_they_are(tmp_path):
    rows = table(4000).with_columns(pl.col("^logit_.*$") * 3 + pl.col("region"))
    source = find_source(written(rows, tmp_path / "rows.csv"))
    plain, listed = [], []
    calibrate_files(source, frr=0.1, remark=plain.append)
    gate = calibrate_files(source, frr=0.1, shortlist=0.9, remark=listed.append)
    p = source.read()
    counts = ListCounts.of(p, gate.screen(p).shortlist)
    assert listed == [*plain, f"{counts.words(scope=' of this file')}."]
    remarks = []
    small_source = find_source(written(table(8), tmp_path / "few.csv"))
    calibrate_files(small_source, frr=0.05, shortlist=0.9, remark=remarks.append)
    assert remarks[0].startswith("Tried on these rows")
    assert remarks[-1] == "No row was rejected, so there are no lists."


@pytest.mark.parametrize(
    "options", [{"score": "auto"}, {"clusters": "region"}], ids=str
)
def test_rows_that_choose_or_are_drawn_do_as_in_python(options, tmp_path):
    rows = table(3000).with_columns(region=pl.int_range(3000) // 2)
    source = find_source(written(rows, tmp_path / "rows.csv"))
    remarks = []
    gate = calibrate_files(
        source, frr=0.1, shortlist=0.9, remark=remarks.append, **options
    )
    drawn = {"clusters": rows["region"].to_numpy()} if "clusters" in options else {}
    all_options = options | drawn
    assert gate == td.calibrate(source.read(), frr=0.1, shortlist=0.9, **all_options)
    assert remarks[-1].startswith("Lists for ")


def test_lists_in_arrays_are_as_wide_as_the_longest(tmp_path, monkeypatch):
    """Whatever the first rows need, of classes without names, too."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(60_000, 12))
    z = z[np.argsort(td.alpha(z))]
    labels = np.where(
        rng.random(60_000) < 0.7, z.argmax(1), rng.integers(0, 12, 60_000)
    )
    named = {f"logit_{k}": z[:, k] for k in range(12)}
    path = tmp_path / "rows.parquet"
    pl.DataFrame(named | {"label": labels}).write_parquet(path, row_group_size=5000)
    n_written, widen = [], array_format._widen

    def noted(*arguments):
        n_written.append(arguments[-1])
        return widen(*arguments)

    monkeypatch.setattr(array_format, "_widen", noted)
    p = td.read(path)
    gate = td.calibrate(p, coverage=0.7, shortlist=0.9)
    screen(find_source(path), gate, tmp_path / "out.npz")
    assert any(n_written)
    written_lists = np.load(tmp_path / "out.npz")["shortlist"]
    texts = describe_lists(gate.screen(p).shortlist, p)
    assert (written_lists == texts).all()
    assert written_lists.dtype.itemsize == 4 * max(map(len, texts))
    assert sorted(f.name for f in tmp_path.iterdir()) == ["out.npz", "rows.parquet"]
