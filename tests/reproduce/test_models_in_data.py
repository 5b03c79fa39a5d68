"""Weights next to predictions are run without executing code of the model."""

import io
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from PIL import Image
from reproduce.conftest import TEST

from trustdoctor.errors import InputError
from trustdoctor.metrics import Estimate
from trustdoctor.reproduce import Options, reproduce, sweep, table1
from trustdoctor.reproduce.datasets import DATASETS
from trustdoctor.reproduce.sources import find_exhibits


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """Images, a ResNet-20's weights, and its predictions of them."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    from trustdoctor.reproduce.nets import ResNet20, load_net

    folder = tmp_path_factory.mktemp("data")
    (folder / "models").mkdir()
    torch.manual_seed(3)
    weights = folder / "models" / "resnet-20.safetensors"
    net = ResNet20(10)
    net.head.weight.data *= 20
    save_file(net.state_dict(), weights)
    local = load_net("resnet-20", weights)
    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (TEST, 32, 32, 3), dtype=np.uint8)
    with torch.no_grad():
        logits = local.model(local.inputs(pixels)).numpy()
    labels = logits.argmax(1)
    labels[rng.permutation(TEST)[:100]] = np.arange(100) % 10
    table = pl.DataFrame({"image": list(map(png, pixels)), "label": labels})
    table.write_parquet(folder / "cifar10-test.parquet")
    np.savez(folder / "resnet-20-cifar10-test.npz", logits=logits, labels=labels)
    np.savez(folder / "resnet-20-cifar10-train.npz", logits=logits, labels=labels)
    return folder


@pytest.fixture
def options(data_folder, monkeypatch):
    small = replace(DATASETS["cifar10"], rows={"test": TEST})
    monkeypatch.setitem(DATASETS, "cifar10", small)
    return Options(data=data_folder)


def test_the_weights_next_to_predictions_fill_pbb(options, monkeypatch):
    monkeypatch.setattr(sweep, "ROWS", 50)
    monkeypatch.setattr(table1, "ROWS", 50)
    monkeypatch.setattr(sweep, "COARSE_EPSILONS", (0.0, 0.002))
    full, _, chosen = reproduce("table1", options).tables[:3]
    ours = {row[:2]: row[3] for row in full.rows}
    assert {"alpha", "beta", "mhlnb"} <= {m for m, s in ours if s == "PBB paper"}
    assert all(isinstance(cell, Estimate) for cell in ours.values())
    assert "chosen on 50 labelled rows" in chosen.title
    assert f"judged on {TEST - 50} others" in chosen.title
    methods = [row[0] for row in chosen.rows]
    assert methods == ["sr", "alpha", "beta"]


@pytest.mark.more
def test_every_experiment_that_needs_a_model_finds_it(options, monkeypatch):
    monkeypatch.setattr(sweep, "COARSE_EPSILONS", (0.0, 0.002))
    monkeypatch.setattr(sweep, "SHOWN", (1.0,))
    monkeypatch.setattr("trustdoctor.reproduce.ood.MOST", 50)
    monkeypatch.setattr("trustdoctor.reproduce.whitebox.TRAIN", 75)
    swept = reproduce("sweep", replace(options, rows=60))
    assert swept.tables[0].title.startswith("CIFAR-10, resnet-20")
    assert "coarser than the paper's" in swept.words
    box = reproduce("whitebox", options)
    assert "the training images are absent, so 75 of the test images" in box.notes[1]
    assert f"{TEST - 75}" in box.notes[1]
    monkeypatch.setattr("trustdoctor.reproduce.sources.SMALL", 16)
    large = reproduce("sweep", replace(options, rows=60))
    assert large.tables == ()
    assert "--dataset cifar10 runs it" in large.notes[0]
    ood = reproduce("ood", replace(options, ood=("noise",), draws=2))
    assert "resnet-20" in ood.tables[0].title


def test_other_weights_are_not_run_and_it_says_so(options, data_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    for path in data_folder.iterdir():
        if path.name != "models":
            (tmp_path / path.name).symlink_to(path)
    state = load_file(data_folder / "models" / "resnet-20.safetensors")
    state["head.bias"] += 1 + np.arange(10).sum() * (state["head.bias"] > 0)
    save_file(state, tmp_path / "resnet-20-cifar10.safetensors")
    (exhibit,) = find_exhibits(replace(options, data=tmp_path))
    assert exhibit.model_run is None
    assert "resnet-20-cifar10.safetensors does not give these" in exhibit.needed_to_run
    with pytest.raises(InputError, match="does not give these predictions"):
        reproduce("sweep", replace(options, data=tmp_path))


def test_an_unknown_net_asks_for_its_code(options, data_folder, tmp_path):
    for name, source in (
        ("mine-cifar10-test.npz", "resnet-20-cifar10-test.npz"),
        ("mine-cifar10.safetensors", "models/resnet-20.safetensors"),
    ):
        (tmp_path / name).symlink_to(data_folder / source)
    report = reproduce("table1", replace(options, data=tmp_path))
    assert any(
        "--model FILE.py:NAME, since mine-cifar10.safetensors" in note
        for note in report.notes
    )


def test_files_without_predictions_are_skipped_and_named(tmp_path, rng):
    table = pl.DataFrame({"image": [b"PNG"], "label": [1], "sharpness": [0.5]})
    table.write_parquet(tmp_path / "svhn-test.parquet")
    logits, labels = rng.normal(size=(30, 10)), rng.integers(0, 10, 30)
    for name in ("a-svhn-test", "svhn_b"):
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    report = reproduce("table1", Options(data=tmp_path))
    assert report.tables[0].title.startswith("SVHN, a:")
    assert report.notes[-2:] == (
        "Images or texts, so not read as predictions: svhn-test.parquet.",
        "Passed over, since MODEL-DATASET-test is how predictions are called: "
        "svhn_b.npz.",
    )


def test_dataset_takes_a_part_of_the_folder(options):
    assert len(find_exhibits(replace(options, dataset="cifar10"))) == 1
    assert find_exhibits(replace(options, dataset="imdb")) == []
