"""The experiments that run a model, on a small synthetic data set."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from trustdoctor.errors import InputError
from trustdoctor.metrics import auroc
from trustdoctor.reproduce import Options, Steps, ood, reproduce, sweep, whitebox
from trustdoctor.reproduce.methods import ScoredMethod


@pytest.fixture
def pictures(tmp_path, rng):
    folder = tmp_path / "odd"
    folder.mkdir()
    for i in range(70):
        pixels = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize("protocol", ["exact", "grid"])
def test_ood_mixes_two_sets(protocol, world, pictures):
    options = replace(world, ood=("noise", str(pictures)), draws=3, protocol=protocol)
    report = reproduce("ood", options)
    assert len(report.tables) == 4
    assert len(report.pictures) == 2
    mixtures, pure = report.tables[2:]
    methods = {(row[0], row[1]) for row in mixtures.rows}
    assert {
        ("alpha", "TBB"),
        ("alpha", "PBB paper"),
        ("alpha", "PBB deployed"),
        ("odin_ood", "PBB deployed"),
        ("energy", "PBB deployed"),
        ("mhlnb_wb", "WB"),
    } <= methods
    assert [row[0] for row in pure.rows] == list(ood.PURE)
    if protocol == "exact":  # the grid loses beta's saturated rows
        tbb = {row[0]: row[4] for row in mixtures.rows if row[1:3] == ("TBB", 5)}
        assert tbb["beta"] == tbb["odin"]


def test_one_row_to_reject_in_so_many_is_ood(monkeypatch):
    drawn = []

    def judge(case, _options):
        drawn.append(int(case.errors.sum()))
        return 0.5, 0.5

    monkeypatch.setattr(ood, "_judge", judge)
    inside = ScoredMethod(
        "a", "TBB", np.arange(100.0), np.arange(100) < 12, np.arange(100.0)
    )
    out = ScoredMethod("a", "TBB", np.arange(50.0), np.ones(50, bool), np.arange(50.0))
    for one_in in (5, 3, 2):
        ood._draw(out, inside, one_in, Options(draws=2))
    assert drawn[::2] == [12 + 3, 12 + 6, 12 + 12]


def test_mixing_adds_errors():
    inside = ScoredMethod(
        "a", "TBB", np.array([0.0, 1]), np.array([False, True]), np.zeros(2)
    )
    out = ScoredMethod("a", "TBB", np.array([5.0, 6]), np.ones(2, bool), np.ones(2))
    mixture = ood.mix(inside, out, np.array([1]))
    assert mixture.scores.tolist() == [0, 1, 6]
    assert mixture.errors.tolist() == [False, True, True]
    assert auroc(mixture.scores, mixture.errors) == 1


def test_ood_runs_on_prediction_files_alone(world, tmp_path, rng):
    out = tmp_path / "out.npz"
    np.savez(out, logits=rng.normal(size=(60, 10)))
    inside = world.data / "tiny-cifar10-test.npz"
    report = reproduce("ood", Options(predictions=inside, ood=(str(out),)))
    assert {row[0] for row in report.tables[0].rows} == {
        "alpha",
        "beta",
        "odin",
        "energy",
    }
    assert any("odin_ood PBB needs --model" in note for note in report.notes)
    np.savez(out, logits=rng.normal(size=(60, 3)))
    with pytest.raises(InputError, match="3 classes"):
        reproduce("ood", Options(predictions=inside, ood=(str(out),)))
    with pytest.raises(InputError, match="--model"):
        reproduce("ood", Options(predictions=inside, ood=("noise",)))
    with pytest.raises(InputError, match="--ood"):
        reproduce("ood", Options(predictions=inside))
    with pytest.raises(InputError, match="needs a model"):
        reproduce("ood")


def test_ood_takes_the_rows_of_a_folder_and_says_whose(world, tmp_path, rng):
    out = tmp_path / "out.npz"
    np.savez(out, logits=rng.normal(size=(60, 10)))
    inside = world.data / "tiny-cifar10-test.npz"
    expected = reproduce("ood", Options(predictions=inside, ood=(str(out),)))
    report = reproduce("ood", Options(data=world.data, ood=(str(out),)))
    assert report.tables == expected.tables
    folder = tmp_path / "two"
    folder.mkdir()
    for name in ("a-cifar10-test.npz", "b-svhn-test.npz"):
        (folder / name).write_bytes(inside.read_bytes())
    report = reproduce("ood", Options(data=folder, ood=(str(out),)))
    assert report.tables[0].rows == expected.tables[0].rows
    assert report.notes[0] == (
        "The rows are of CIFAR-10, a. Others, for --predictions: SVHN, b."
    )


def test_whitebox_is_compared_with_alpha(world):
    report = reproduce("whitebox", world)
    (table,) = report.tables
    assert [row[:2] for row in table.rows] == [
        ("alpha", "TBB"),
        ("alpha", "PBB paper"),
        ("alpha", "PBB deployed"),
        ("mhlnb", "WB"),
    ]
    assert table.rows[3][2] == 49.5
    assert report.notes == ("Layers: stages.0, stages.1.",)
    one_layer = reproduce("whitebox", replace(world, layers=("stages.1",)))
    assert one_layer.tables[0].rows[3][3] != table.rows[3][3]
    with pytest.raises(InputError, match="no layer"):
        reproduce("whitebox", replace(world, layers=("stages.9",)))


@pytest.mark.parametrize("protocol", ["exact", "grid"])
def test_sweep_shows_best_settings_and_curves(protocol, world, monkeypatch):
    monkeypatch.setattr(sweep, "COARSE_EPSILONS", (0.0, 0.0003, 0.002))
    report = reproduce("sweep", replace(world, rows=60, protocol=protocol))
    (table,) = report.tables
    assert [row[0] for row in table.rows[::3]] == [
        "alpha",
        "beta",
        "odin",
        "mahalanobis",
    ]
    for clean, best in zip(table.rows[::3], table.rows[1::3], strict=True):
        assert clean[2] == "1, 0"
        assert (clean[3].low is None) == (protocol == "grid")
        assert best[3].value >= clean[3].value
    first, everyone = report.pictures
    assert [panel.title for panel in first.panels] == [
        "eps = 0.0003",
        "T = 1",
        "T = 2",
    ]
    assert len(everyone.panels) == 2 * len(sweep.SHOWN)


class StoppedError(Exception):
    """In place of a kill."""


def test_an_interrupted_run_resumes(world, tmp_path, monkeypatch):
    from trustdoctor.adapters.torch.doctor import Doctor

    monkeypatch.setattr(whitebox, "TRAIN", 120)
    expected = reproduce("whitebox", world)
    calls = []
    plain = Doctor.__call__

    def counted(self, data, **options):
        calls.append(len(data))
        return plain(self, data, **options)

    monkeypatch.setattr(Doctor, "__call__", counted)
    monkeypatch.setattr("trustdoctor.reproduce.model_run.CHUNK", 50)

    def stop(_share, _doing):
        if len(calls) == 2:
            raise StoppedError

    steps = Steps(tmp_path / "parts")
    with pytest.raises(StoppedError):
        reproduce("whitebox", replace(world, steps=steps, tell=stop))
    assert len(calls) == 2
    report = reproduce("whitebox", replace(world, steps=steps))
    assert len(calls) == 5  # of five steps two were kept
    assert report == expected
    assert reproduce("whitebox", replace(world, steps=steps)) == expected
    assert len(calls) == 5  # all are kept for the next experiment


def test_steps_know_what_they_depend_on(tmp_path):
    steps = Steps(tmp_path / "parts")
    calls = []

    def make():
        calls.append(1)
        return {"x": np.arange(3)}

    for facts in (
        [1, np.zeros(2)],
        [1, np.zeros(2)],
        [2, np.zeros(2)],
        [1, np.ones(2)],
    ):
        assert steps.take("a", facts, make)["x"].tolist() == [0, 1, 2]
    assert len(calls) == 3
    for path in (tmp_path / "parts").iterdir():
        path.write_bytes(b"damaged")
    steps.take("a", [1, np.zeros(2)], make)
    assert len(calls) == 4
    assert Steps().take("a", [], make)["x"].tolist() == [0, 1, 2]
    assert Steps().child("x") is None


def test_a_step_of_another_model_is_not_mistaken_for_ours(world, tmp_path):
    from trustdoctor.reproduce.local_model import load_model

    local = load_model(world.model, world.weights)
    other = tmp_path / "net.py"
    source = (world.data / "net.py").read_text()
    other.write_text(source.replace("return 8 *", "return -8 *"))
    assert load_model(f"{other}:Net", world.weights).digest() != local.digest()
    other.write_text(source.replace("(0.5, 0.5, 0.5)", "(0.4, 0.5, 0.5)"))
    assert load_model(f"{other}:Net", world.weights).digest() != local.digest()


@pytest.mark.soak
def test_near_ood_has_the_papers_perturbed_alpha(world):
    report = reproduce("ood", replace(world, ood=("noise",)))
    from dataclasses import replace as other

    from trustdoctor.reproduce.datasets import DATASETS
    from trustdoctor.reproduce.sources import runnable_exhibits

    (exhibit,) = runnable_exhibits(world)
    exhibit.dataset = DATASETS["cifar100"]
    (out_set,) = ood._out_sets(exhibit, replace(world, ood=("noise",)))
    table = ood._pure(exhibit, out_set._replace(name="cifar10"), world)
    printed = {row[0]: row[1] for row in table.rows}
    assert printed == {
        "alpha T=15": None,
        "beta T=1000": None,
        "odin_ood": 70.5,
        "alpha PBB": 76.8,
        "energy": 73.3,
    }
    assert other(report, notes=()).tables


def test_ood_does_without_training_images(world, tmp_path):
    images = tmp_path / "cifar10-test.parquet"
    import io

    import polars as pl

    from trustdoctor.reproduce.datasets import DATASETS

    rows = DATASETS["cifar10"].load(world.data)
    raw = []
    for pixels in rows.values:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        raw.append(buffer.getvalue())
    pl.DataFrame({"image": raw, "label": rows.labels}).write_parquet(images)
    report = reproduce("ood", replace(world, data=tmp_path, ood=("noise",)))
    assert any("mhlnb_wb needs the training images" in note for note in report.notes)


def test_data_sets_of_one_name_have_separate_pictures(world, pictures):
    report = reproduce("ood", replace(world, ood=(str(pictures), str(pictures))))
    assert len({picture.name for picture in report.pictures}) == 2


def test_few_rows_are_drawn_repeatedly_and_it_says_so(world, tmp_path, rng):
    np.savez(tmp_path / "few.npz", logits=rng.normal(size=(3, 10)))
    inside = world.data / "tiny-cifar10-test.npz"
    report = reproduce(
        "ood", Options(predictions=inside, ood=(str(tmp_path / "few.npz"),))
    )
    assert "3 rows, fewer than errors: some are drawn repeatedly" in report.notes[0]


def test_probabilities_and_logits_share_what_they_can(tmp_path, rng):
    probs = rng.dirichlet(np.ones(10), 60)
    labels = rng.integers(0, 10, 60)
    np.savez(tmp_path / "in.npz", probs=probs, labels=labels)
    np.savez(tmp_path / "out.npz", logits=rng.normal(size=(60, 10)))
    report = reproduce(
        "ood",
        Options(predictions=tmp_path / "in.npz", ood=(str(tmp_path / "out.npz"),)),
    )
    assert "energy" not in {row[0] for row in report.tables[0].rows}


def test_models_that_do_not_fit_are_named(world, tmp_path):
    source = (world.data / "net.py").read_text()
    for old, new, word in (
        ("(0.5, 0.5, 0.5)", "0.5", "three numbers"),
        ("(0.25, 0.25, 0.25)", "(0, 0, 0)", "above 0"),
        ("(0.25, 0.25, 0.25)", "(1, 1)", "three numbers"),
        (".mean((2, 3))", ".flatten(1)", r"shape \(16, 3, 32, 32\)"),
    ):
        (tmp_path / "net.py").write_text(source.replace(old, new))
        with pytest.raises(InputError, match=word):
            reproduce("table1", replace(world, model=f"{tmp_path / 'net.py'}:Net"))
