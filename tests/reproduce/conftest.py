"""A small world: images in the true format, a model, and its predictions."""

from dataclasses import replace

import numpy as np
import pytest

from trustdoctor.reproduce import Options
from trustdoctor.reproduce.datasets import DATASETS

NET = """
from torch import nn

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.Tanh()),
            nn.Sequential(nn.Conv2d(8, 8, 3, stride=2), nn.Tanh()),
        )
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return 8 * self.head(self.stages(x).mean((2, 3)))
"""
TEST, TRAIN = 150, 240


def records(pixels, labels):
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), 3072)
    return np.hstack([labels.astype(np.uint8)[:, None], planes]).tobytes()


@pytest.fixture(scope="session")
def world_files(tmp_path_factory):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    from trustdoctor.reproduce.local_model import load_model

    folder = tmp_path_factory.mktemp("world")
    (folder / "net.py").write_text(NET)
    scope = {}
    exec(compile(NET, "net", "exec"), scope)
    torch.manual_seed(1)
    save_file(scope["Net"]().state_dict(), folder / "tiny.safetensors")
    local = load_model(f"{folder / 'net.py'}:Net", folder / "tiny.safetensors")
    rng = np.random.default_rng(5)
    images = folder / "cifar-10-batches-bin"
    images.mkdir()
    rows_by_batch = {"test_batch": TEST} | {
        f"data_batch_{i}": TRAIN // 5 for i in range(1, 6)
    }
    train = []
    for name, n in rows_by_batch.items():
        base = rng.integers(0, 256, (n, 4, 4, 3), dtype=np.uint8)
        pixels = base.repeat(8, 1).repeat(8, 2)
        with torch.no_grad():
            logits = local.model(local.inputs(pixels)).numpy()
        labels = logits.argmax(1)
        doubtful = np.argsort(np.ptp(np.sort(logits, 1)[:, -2:], axis=1))[: n // 2]
        wrong = rng.permutation(doubtful)[: n // 4]
        labels[wrong] = (labels[wrong] + 1) % 10
        labels[:10] = np.arange(10)  # every class has rows
        (images / f"{name}.bin").write_bytes(records(pixels, labels))
        if name == "test_batch":
            np.savez(folder / "tiny-cifar10-test.npz", logits=logits, labels=labels)
        else:
            train.append((logits, labels))
    logits, labels = map(np.concatenate, zip(*train, strict=True))
    np.savez(folder / "tiny-cifar10-train.npz", logits=logits, labels=labels)
    return folder


@pytest.fixture
def world(world_files, monkeypatch):
    """Options that run the small model; CIFAR-10 counts as whole with its few rows."""
    small = replace(DATASETS["cifar10"], rows={"test": TEST, "train": TRAIN})
    monkeypatch.setitem(DATASETS, "cifar10", small)
    return Options(
        data=world_files,
        model=f"{world_files / 'net.py'}:Net",
        weights=world_files / "tiny.safetensors",
    )


@pytest.fixture
def authors(shared):
    return shared / "reference" / "cifar10-densenet-tbb.npz"
