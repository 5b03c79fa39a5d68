from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import trustdoctor as td
from trustdoctor.errors import FileError, InputError, LabelsMissingError
from trustdoctor.evaluation import evaluate_perturbed
from trustdoctor.reproduce import Options, reproduce
from trustdoctor.reproduce.methods import PBB, TBB, score_method
from trustdoctor.reproduce.sources import ModelOutput, ScoreSetting, find_exhibits


def cells(table):
    """Return {(method, scenario): (AUROC, FRR)} of a table."""
    return {
        row[:2]: (row[3] and row[3].value, row[5] and row[5].value)
        for row in table.rows
    }


def table_of(report, words):
    (table,) = (t for t in report.tables if words in t.title)
    return table


@pytest.fixture(scope="module")
def real(shared, tmp_path_factory):
    """The authors' files and a net on IMDb: what else lies there does not matter."""
    folder = tmp_path_factory.mktemp("real")
    imdb = shared / "predictions" / "minilm-imdb-test.npz"
    for path in (*(shared / "reference").glob("cifar10-densenet-*.npz"), imdb):
        (folder / path.name).symlink_to(path.absolute())
    return folder


@pytest.fixture(scope="module")
def exact(real):
    return reproduce("table1", Options(data=real))


def test_exact_numbers_of_the_authors_files(exact):
    numbers = cells(table_of(exact, "densenet:"))
    assert numbers["alpha", "TBB"] == pytest.approx((94.16, 17.94), abs=0.01)
    assert numbers["beta", "TBB"] == numbers["sr", "TBB"]
    assert numbers["beta", "TBB"] == pytest.approx((94.13, 17.94), abs=0.01)
    assert numbers["alpha", "PBB paper"] == pytest.approx((95.17, 13.94), abs=0.01)
    assert numbers["alpha", "PBB deployed"] == pytest.approx((93.94, 16.92), abs=0.01)
    assert numbers["energy", "PBB"] == (None, None)


def test_grid_numbers_of_the_authors_files(real):
    report = reproduce("table1", Options(data=real, protocol="grid"))
    numbers = cells(table_of(report, "densenet:"))
    for key, expected in {
        ("alpha", "TBB"): (94.1, 17.9),
        ("beta", "TBB"): (68.8, 18.2),
        ("sr", "TBB"): (93.9, 18.2),
        ("alpha", "PBB paper"): (95.2, 13.9),
        ("odin", "PBB deployed"): (94.2, 18.4),
    }.items():
        assert numbers[key] == pytest.approx(expected, abs=0.1), key


def test_imdb_is_binary_so_three_scores_coincide(exact):
    table = table_of(exact, "IMDb, minilm:")
    assert "accuracy 90.94" in table.title
    rows = list(cells(table).values())
    assert rows[1] == rows[2]
    assert rows[0] == pytest.approx(rows[1], abs=1e-4)  # float32 rounding
    assert [row[2] for row in table.rows] == [84.4, 84.4, 83.7]
    assert "two classes of IMDb" in exact.words


def test_each_method_is_set_against_sr_by_both_protocols(exact, real):
    grid = cells(
        table_of(reproduce("table1", Options(data=real, protocol="grid")), "densenet:")
    )
    table = table_of(exact, "differences to SR on the same rows, CIFAR-10, densenet")
    rows = {row[:2]: row[2:] for row in table.rows}
    for key, (accuracy, auroc, frr, gain, change) in rows.items():
        assert (auroc.value, frr.value) == grid[key], key
        assert accuracy == pytest.approx(93.29 if "paper" in key[1] else 95.19)
        assert (
            (gain is None) == (change is None) == (key[0] == "sr" or "paper" in key[1])
        )
    assert rows["beta", "TBB"][3].value == 0
    gain = rows["alpha", "PBB deployed"][3]
    assert gain.value == pytest.approx(93.94 - 94.13, abs=0.02)
    assert gain.low < gain.value < gain.high


def test_missing_predictions_are_reported(exact):
    for title in ("CIFAR-100", "TinyImageNet", "SVHN", "Amazon Fashion"):
        table = table_of(exact, f"data not present: put {title} at")
        assert all(row[2] is not None and row[3] is None for row in table.rows)
    (lacks,) = (n for n in exact.notes if n.startswith("CIFAR-10, densenet: mhlnb"))
    assert "beta PBB needs predictions at perturbed inputs, or --model" in lacks


def test_a_model_fills_every_cell(world):
    report = reproduce("table1", world)
    numbers = cells(report.tables[0])
    assert all(value is not None for pair in numbers.values() for value in pair)
    assert {key[0] for key in numbers} == set(TBB) | set(PBB) | {"mhlnb"}
    (exhibit,) = find_exhibits(world)
    moved = exhibit.perturbed(PBB["beta"])
    from trustdoctor import beta

    clean = exhibit.clean.predictions
    protocols = evaluate_perturbed(
        beta(moved.predictions.logits, temperature=1.5, predicted=clean.predicted),
        clean.errors,
        moved.predictions.errors,
        beta(moved.predictions.logits, temperature=1.5),
    )
    for kind in ("deployed", "paper"):
        expected = getattr(protocols, kind).metrics["auroc"].value
        assert numbers["beta", f"PBB {kind}"][0] == pytest.approx(100 * expected)


def test_the_grid_doubts_the_prediction_that_it_judges(rng):
    """Where another class wins at the perturbed input, it is not that one's doubt."""
    logits, labels = 3 * rng.normal(size=(200, 4)), rng.integers(0, 4, 200)
    clean, moved = (
        ModelOutput(td.Predictions.from_logits(z, labels))
        for z in (logits, logits + rng.normal(size=(200, 4)))
    )
    assert (clean.predictions.predicted != moved.predictions.predicted).sum() > 20
    for judged in (clean, moved):
        case = score_method("beta", "PBB", PBB["beta"], moved, judged)
        assert case.values == pytest.approx(np.exp(case.scores), rel=1e-3)
        sr = score_method("sr", "PBB", TBB["sr"], moved, judged)
        assert sr.values == pytest.approx(-np.expm1(sr.scores), abs=1e-6)


def test_a_model_alone_makes_its_clean_predictions(world, tmp_path):
    images = world.data / "cifar-10-batches-bin"
    (tmp_path / images.name).symlink_to(images)
    (exhibit,) = find_exhibits(replace(world, data=tmp_path))
    with np.load(world.data / "tiny-cifar10-test.npz") as file:
        np.testing.assert_allclose(
            exhibit.clean.predictions.logits, file["logits"], atol=1e-5
        )
    assert exhibit.train is None


def test_some_rows_are_the_same_for_files_and_model(world):
    (exhibit,) = find_exhibits(replace(world, rows=40))
    assert len(exhibit.clean.predictions) == 40
    assert np.array_equal(exhibit.clean.predictions.labels, exhibit.model_run.labels)


def test_labels_come_from_the_data_set_where_the_file_has_none(world, tmp_path):
    with np.load(world.data / "tiny-cifar10-test.npz") as file:
        np.savez(tmp_path / "net-cifar10-test.npz", logits=file["logits"])
        expected = file["labels"]
    with pytest.raises(LabelsMissingError):
        find_exhibits(Options(data=tmp_path))
    images = world.data / "cifar-10-batches-bin"
    (tmp_path / images.name).symlink_to(images)
    (exhibit,) = find_exhibits(Options(data=tmp_path))
    assert np.array_equal(exhibit.clean.predictions.labels, expected)
    np.savez(tmp_path / "net-cifar10-test.npz", logits=np.eye(10)[:5] * 3)
    with pytest.raises(InputError, match="another number"):
        find_exhibits(Options(data=tmp_path))


def test_files_are_found_by_their_names(tmp_path, rng):
    logits, labels = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    for name in (
        "bert-amazon-fashion-test",
        "bert-amazon-fashion-train",
        "amazon-fashion-bert-pbb-alpha-T1-eps0.001",
        "amazon-fashion-bert-odin-T1.5",
        "something-else",
    ):
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    (exhibit,) = find_exhibits(Options(data=tmp_path))
    assert (exhibit.dataset.title, exhibit.model) == ("Amazon Fashion", "bert")
    assert exhibit.train is not None
    assert set(exhibit.stored) == {
        ScoreSetting("alpha", 1.0, 0.001),
        ScoreSetting("odin", 1.5),
    }


EXAMPLES = {
    "svhn-test.parquet": {"image": [b"PNG"], "number": [1]},
    "hub-svhn-test.parquet": {"img": [{"bytes": b"PNG", "path": "1.png"}]},
    "reviews-imdb-test.parquet": {"text": ["good"], "stars": [10]},
    "reviews-imdb-train.csv": {"text": ["good"]},
}


def test_a_table_of_examples_is_not_mistaken_for_predictions(tmp_path, rng):
    logits = dict(zip(("logit_0", "logit_1"), rng.normal(size=(2, 1)), strict=True))
    probs = {"probs": [[0.25, 0.75]]}
    for name, columns in EXAMPLES.items():
        table = pl.DataFrame(columns | {"label": [1]})
        write = table.write_csv if name.endswith("csv") else table.write_parquet
        write(tmp_path / name)
    assert find_exhibits(Options(data=tmp_path)) == []
    table = pl.DataFrame({"text": ["good"], "label": [1]} | logits)
    table.write_csv(tmp_path / "a-imdb-test.csv")
    table = pl.DataFrame({"image": [b"PNG"], "label": [1]} | probs)
    table.write_parquet(tmp_path / "b-imdb-test.parquet")
    assert {exhibit.model for exhibit in find_exhibits(Options(data=tmp_path))} == {
        "a",
        "b",
    }


def test_a_damaged_table_is_named(tmp_path):
    (tmp_path / "a-imdb-test.parquet").write_bytes(b"<html>")
    with pytest.raises(FileError, match=r"a-imdb-test\.parquet"):
        find_exhibits(Options(data=tmp_path))


def test_a_single_file_is_enough(world, tmp_path):
    path = tmp_path / "mine.npz"
    path.write_bytes((world.data / "tiny-cifar10-test.npz").read_bytes())
    report = reproduce("table1", Options(predictions=path, dataset="svhn"))
    assert "SVHN, mine" in report.tables[0].title


def test_mistakes_are_refused(tmp_path, world):
    with pytest.raises(InputError, match="--data DIR"):
        reproduce("table1")
    with pytest.raises(FileError, match="cannot read the folder"):
        reproduce("table1", Options(data=tmp_path / "nowhere"))
    with pytest.raises(InputError, match="texts"):
        find_exhibits(replace(world, dataset="imdb", data=_texts(tmp_path)))
    with pytest.raises(InputError, match="--model FILE"):
        find_exhibits(replace(world, data=None))


def _texts(folder):
    table = pl.DataFrame({"text": ["a"] * 25_000, "label": [0] * 25_000})
    table.write_parquet(folder / "imdb.parquet")
    return folder


def test_empty_folders_say_what_belongs_there(tmp_path):
    report = reproduce("table1", Options(data=tmp_path))
    assert len(report.tables) == 7
    assert all("data not present" in table.title for table in report.tables)
    for name in ("histograms", "roc", "intervals", "timings"):
        with pytest.raises(InputError, match="no predictions in"):
            reproduce(name, Options(data=tmp_path))


def test_a_data_set_without_predictions_does_not_stop_the_rest(tmp_path):
    (tmp_path / "cifar-100-python").mkdir()  # empty: a broken download
    report = reproduce("table1", Options(data=tmp_path))
    assert any("CIFAR-100 is present" in table.title for table in report.tables)


def test_stored_predictions_of_other_weights_are_left_aside(world, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    state = load_file(world.weights)
    state["head.weight"] = torch.randn_like(state["head.weight"])
    save_file(state, tmp_path / "tiny.safetensors")  # the same name
    (exhibit,) = find_exhibits(replace(world, weights=tmp_path / "tiny.safetensors"))
    with np.load(world.data / "tiny-cifar10-test.npz") as file:
        assert np.abs(exhibit.clean.predictions.logits - file["logits"]).max() > 1
    assert exhibit.files == []


def test_perturbed_arrays_get_labels_of_the_data_set(world, tmp_path):
    with np.load(world.data / "tiny-cifar10-test.npz") as file:
        logits = file["logits"]
    np.savez(tmp_path / "x-cifar10-test.npz", logits=logits, pbb_alpha_T1=logits)
    options = Options(predictions=tmp_path / "x-cifar10-test.npz", data=world.data)
    (exhibit,) = find_exhibits(options)
    assert exhibit.stored[ScoreSetting("alpha")].predictions.labels is not None


def test_files_that_do_not_fit_are_named(tmp_path, rng):
    def write(name, n, classes):
        logits, labels = rng.normal(size=(n, classes)), rng.integers(0, classes, n)
        np.savez(tmp_path / f"m-cifar10-{name}.npz", logits=logits, labels=labels)

    write("test", 30, 10)
    write("alpha-T1-eps0.001", 29, 10)
    with pytest.raises(FileError, match=r"eps0\.001.*29 rows"):
        find_exhibits(Options(data=tmp_path))
    write("alpha-T1-eps0.001", 30, 10)
    write("train", 50, 5)
    with pytest.raises(FileError, match=r"train.*5 classes"):
        find_exhibits(Options(data=tmp_path))


def test_the_data_set_named_wins_over_the_files_name(world):
    path = world.data / "tiny-cifar10-test.npz"
    (exhibit,) = find_exhibits(Options(predictions=path, dataset="svhn"))
    assert exhibit.dataset.name == "svhn"
