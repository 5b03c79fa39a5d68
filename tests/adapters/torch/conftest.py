import io

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn


class Small(nn.Module):
    """Convolution, batch normalisation, dropout, and work in place."""

    def __init__(self):
        super().__init__()
        self.first = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.norm(self.conv(self.first(x))).tanh()
        return self.head(self.drop(x.mean((2, 3))))


@pytest.fixture
def small():
    torch.manual_seed(0)
    return Small()


@pytest.fixture
def images():
    return torch.randn(20, 3, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def cifar(shared):
    """ResNet-20, normalised test images, the stored predictions, and 1 / std."""
    image = pytest.importorskip("PIL.Image")
    import importlib.util

    from safetensors.torch import load_file

    spec = importlib.util.spec_from_file_location("nets", shared / "models" / "nets.py")
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    rows = np.random.default_rng(0).permutation(10_000)[:500]
    table = pl.read_parquet(shared / "data" / "cifar10-test.parquet")[rows]
    pixels = np.stack([np.asarray(image.open(io.BytesIO(b))) for b in table["image"]])
    x = torch.tensor(pixels).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (nets.MEAN, nets.STD))
    model = nets.ResNet20()
    model.load_state_dict(load_file(shared / "models" / "resnet-20.safetensors"))
    with np.load(shared / "predictions" / "resnet-20-cifar10-test.npz") as file:
        stored = {name: file[name][rows] for name in file.files}
    return model, (x - mean) / std, stored, [1 / s for s in nets.STD]
